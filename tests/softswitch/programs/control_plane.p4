// One of everything that a controller can reach over P4Runtime; for tests of the server.
#include <core.p4>
#include <v1model.p4>

@controller_header("packet_in")
header packet_in_t {
    bit<9> ingress_port;
    bit<7> reason;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> egress_port;
    bit<7> padding;
}

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ether_type;
}

header probe_t {
    bit<8>  selector;
    bit<8>  small;
    bit<16> port_range;
    bit<32> address;
    bit<12> label;
    bit<4>  flags;
}

struct headers_t {
    packet_in_t  packet_in;
    packet_out_t packet_out;
    ethernet_t   ethernet;
    probe_t      probe;
}

struct metadata_t { }

const bit<9> CPU_PORT = 500;

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta,
             inout standard_metadata_t standard) {
    state start {
        transition select(standard.ingress_port) {
            CPU_PORT: controller;
            default: ethernet;
        }
    }
    state controller {
        packet.extract(hdr.packet_out);
        transition ethernet;
    }
    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            0x88B5: probe;
            default: accept;
        }
    }
    state probe {
        packet.extract(hdr.probe);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }

control Switch(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(8, CounterType.packets_and_bytes) port_frames;
    direct_counter(CounterType.packets_and_bytes) forwarded;
    register<bit<48>>(4) last_source;

    action drop() { mark_to_drop(standard); }
    action to_port(bit<9> port) { standard.egress_spec = port; }
    action to_group(bit<16> group) { standard.mcast_grp = group; }
    action to_cpu() { standard.egress_spec = CPU_PORT; }
    action mirror(bit<32> session, bit<9> port) {
        clone(CloneType.I2E, session);
        standard.egress_spec = port;
    }
    action label(bit<12> value, bit<32> address) {
        hdr.probe.label = value;
        hdr.probe.address = address;
    }

    table forward {
        key = { hdr.ethernet.destination: exact @name("destination"); }
        actions = { to_port; to_group; to_cpu; mirror; drop; @defaultonly NoAction; }
        default_action = drop;
        counters = forwarded;
        size = 8;
    }
    table route {
        key = { hdr.probe.address: lpm @name("address"); }
        actions = { label; NoAction; }
        default_action = NoAction;
        size = 64;
    }
    table classify {
        key = {
            hdr.probe.selector: exact @name("selector");
            hdr.probe.label: ternary @name("label");
            hdr.probe.port_range: range @name("port");
            hdr.probe.small: optional @name("small");
        }
        actions = { label; drop; @tableonly to_cpu; NoAction; }
        const default_action = NoAction;
        size = 64;
    }
    table fixed {
        key = { hdr.probe.flags: ternary @name("flags"); }
        actions = { drop; NoAction; }
        const entries = {
            0xF: drop();
            0x8 &&& 0x8: NoAction();
        }
        default_action = NoAction;
    }
    table keyless {
        actions = { label; NoAction; }
        default_action = NoAction;
    }

    apply {
        if (hdr.packet_out.isValid()) {
            standard.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else {
            port_frames.count((bit<32>)standard.ingress_port & 7);
            last_source.write((bit<32>)standard.ingress_port & 3, hdr.ethernet.source);
            forward.apply();
            if (hdr.probe.isValid()) {
                keyless.apply();
                route.apply();
                classify.apply();
                fixed.apply();
            }
        }
    }
}

control Output(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (standard.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = standard.ingress_port;
            hdr.packet_in.reason = (bit<7>)standard.instance_type;
        }
    }
}

control Compute(inout headers_t hdr, inout metadata_t meta) { apply { } }

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.probe);
    }
}

V1Switch(Parse(), Verify(), Switch(), Output(), Compute(), Deparse()) main;
