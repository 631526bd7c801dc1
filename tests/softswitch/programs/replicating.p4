// Everything that makes a packet more than one, or makes it pass again.
#include <core.p4>
#include <v1model.p4>

// What ingress is to do with the packet, and what each copy finds.
header command_t {
    bit<8>  command;
    bit<8>  session;
    bit<16> group;
    bit<16> value;
    bit<8>  ingress_passes;
    bit<8>  instance_type;
    bit<16> egress_rid;
    bit<16> kept;
    bit<16> forgotten;
    bit<16> ingress_port;
    bit<16> length;
    bit<8>  egress_passes;
    bit<512> block;
}

struct headers_t {
    command_t command;
}

struct metadata_t {
    @field_list(1, 2)
    bit<16> kept;
    @field_list(2)
    bit<520> wide;
    bit<16> forgotten;
}

// Any other value: unicast to port 2.
const bit<8> MULTICAST = 1;
const bit<8> CLONE = 2;
const bit<8> CLONE_FIELDS = 3;
const bit<8> EGRESS_CLONE = 4;
const bit<8> RESUBMIT = 5;
const bit<8> RECIRCULATE = 6;
const bit<8> DROP_AFTER_MULTICAST = 7;
const bit<8> CLONE_AND_MULTICAST = 8;
const bit<8> DROP_IN_EGRESS = 9;
const bit<8> DIGEST = 10;
const bit<8> LOOP = 11;

struct digest_t {
    bit<16> value;
    bit<9>  port;
    bit<512> block;
}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta,
             inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.command);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Compute(inout headers_t hdr, inout metadata_t meta) { apply { } }

control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        hdr.command.ingress_passes = hdr.command.ingress_passes + 1;
        hdr.command.kept = meta.kept;
        hdr.command.forgotten = meta.forgotten;
        hdr.command.ingress_port = (bit<16>)standard.ingress_port;
        standard.egress_spec = 2;
        meta.forgotten = 0x4444;
        bit<8> command = hdr.command.command;
        if (command == RESUBMIT) {
            if (standard.instance_type != 6) {
                meta.kept = hdr.command.value;
                meta.wide = (bit<520>)hdr.command.block + 1;
                resubmit_preserving_field_list(2);
            } else {
                hdr.command.block = meta.wide[519:8];
            }
        } else {
            meta.kept = hdr.command.value + 1;
        }
        if (command == MULTICAST || command == DROP_AFTER_MULTICAST || command == CLONE_AND_MULTICAST) {
            standard.mcast_grp = hdr.command.group;
        }
        if (command == DROP_AFTER_MULTICAST) {
            mark_to_drop(standard);
        }
        if (command == CLONE || command == CLONE_AND_MULTICAST) {
            clone(CloneType.I2E, (bit<32>)hdr.command.session);
        }
        if (command == CLONE_FIELDS) {
            clone_preserving_field_list(CloneType.I2E, (bit<32>)hdr.command.session, 1);
        }
        if (command == DIGEST) {
            digest<digest_t>(1, { hdr.command.value, standard.ingress_port, hdr.command.block });
        }
        if (command == LOOP) {
            resubmit_preserving_field_list(1);
        }
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        hdr.command.egress_passes = hdr.command.egress_passes + 1;
        hdr.command.instance_type = (bit<8>)standard.instance_type;
        hdr.command.egress_rid = standard.egress_rid;
        hdr.command.value = meta.kept;
        hdr.command.group = (bit<16>)standard.egress_port;
        hdr.command.length = (bit<16>)standard.packet_length;
        hdr.command.block = hdr.command.block + 1;
        if (hdr.command.command == EGRESS_CLONE && standard.instance_type == 0) {
            clone_preserving_field_list(CloneType.E2E, (bit<32>)hdr.command.session, 1);
        }
        if (hdr.command.command == RECIRCULATE && hdr.command.ingress_passes < 3) {
            recirculate_preserving_field_list(1);
        }
        if (hdr.command.command == DROP_IN_EGRESS && standard.egress_port == 2) {
            mark_to_drop(standard);
        }
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.command);
    }
}

V1Switch(Parse(), Verify(), Forward(), Leave(), Compute(), Deparse()) main;
