// Checksums, hashes, registers and counters.
#include <core.p4>
#include <v1model.p4>

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  tos;
    bit<16> total_length;
    bit<16> identification;
    bit<3>  flags;
    bit<13> fragment_offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

header udp_t {
    bit<16> source_port;
    bit<16> destination_port;
    bit<16> length;
    bit<16> checksum;
}

header odd_t {
    bit<3>   x;
    bit<130> y;
    bit<11>  z;
}

header report_t {
    bit<8>  checksum_error;
    bit<16> crc16;
    bit<32> crc32;
    bit<16> csum16;
    bit<64> identity;
    bit<16> odd_crc16;
    bit<32> limited;
    bit<16> xor16;
    bit<16> packets;
    bit<8>  small;
    bit<72> big;
    bit<32> length;
}

struct headers_t {
    report_t report;
    ipv4_t   ipv4;
    udp_t    udp;
    odd_t    odd;
}

struct metadata_t {
    bit<1> payload;
}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta,
             inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.protocol) {
            17: udp;
            99: odd;
            default: accept;
        }
    }
    state udp {
        packet.extract(hdr.udp);
        meta.payload = 1;
        transition accept;
    }
    state odd {
        packet.extract(hdr.odd);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length, hdr.ipv4.identification,
              hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.source,
              hdr.ipv4.destination },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length, hdr.ipv4.identification,
              hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.source,
              hdr.ipv4.destination },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
        update_checksum_with_payload(meta.payload == 1,
            { hdr.ipv4.source, hdr.ipv4.destination, 8w0, hdr.ipv4.protocol, hdr.udp.length,
              hdr.udp.source_port, hdr.udp.destination_port, hdr.udp.length, 16w0 },
            hdr.udp.checksum, HashAlgorithm.csum16);
    }
}

control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<16>>(16) seen;
    register<bit<5>>(16) small;
    register<bit<72>>(16) big;
    counter(16, CounterType.packets_and_bytes) sizes;

    apply {
        if (!hdr.ipv4.isValid()) {
            mark_to_drop(standard);
            exit;
        }
        hdr.report.setValid();
        hdr.report.checksum_error = (bit<8>)standard.checksum_error;
        hash(hdr.report.crc16, HashAlgorithm.crc16, 16w0,
             { hdr.ipv4.source, hdr.ipv4.destination, hdr.ipv4.protocol }, 32w0x10000);
        hash(hdr.report.crc32, HashAlgorithm.crc32, 32w0,
             { hdr.ipv4.source, hdr.ipv4.destination, 16w0xBEEF, hdr.ipv4.checksum }, 64w0x100000000);
        hash(hdr.report.csum16, HashAlgorithm.csum16, 16w0,
             { hdr.ipv4.source, hdr.ipv4.ttl }, 32w0x10000);
        hash(hdr.report.identity, HashAlgorithm.identity, 64w0,
             { hdr.ipv4.ttl, hdr.ipv4.source, hdr.ipv4.destination }, 64w0xFFFFFFFFFFFFFFFF);
        if (hdr.odd.isValid()) { // or else its fields are undefined
            hash(hdr.report.odd_crc16, HashAlgorithm.crc16, 16w0,
                 { hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.version, hdr.odd.y, hdr.odd.x },
                 32w0x10000);
        }
        hash(hdr.report.limited, HashAlgorithm.crc32, 32w1000, { hdr.ipv4.identification }, 32w10);
        hash(hdr.report.xor16, HashAlgorithm.xor16, 16w0,
             { hdr.ipv4.source, hdr.ipv4.ttl, hdr.ipv4.destination }, 32w0x10000);

        bit<32> index = (bit<32>)hdr.ipv4.tos; // up to 255: mostly out of bounds
        bit<16> packets;
        seen.read(packets, index);
        seen.write(index, packets + 0x7FFF);
        hdr.report.packets = packets;

        bit<5> cell;
        small.read(cell, index);
        small.write(index, cell + 9);
        hdr.report.small = (bit<8>)cell;

        bit<72> large;
        big.read(large, index);
        big.write(index, (large << 9) - (bit<72>)hdr.ipv4.source);
        hdr.report.big = large;

        sizes.count(index);
        hdr.report.length = standard.packet_length;
        if (hdr.ipv4.ttl == 0) {
            truncate(50);
        }
        hdr.ipv4.ttl = hdr.ipv4.ttl |-| 3;
        hdr.ipv4.identification = hdr.ipv4.identification |+| 0x8000;
        standard.egress_spec = standard.ingress_port;
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        hdr.report.length = (hdr.report.length << 16) | standard.packet_length;
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.report);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.odd);
    }
}

V1Switch(Parse(), Verify(), Forward(), Leave(), Compute(), Deparse()) main;
