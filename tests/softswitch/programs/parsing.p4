// What a parser can do: stacks, lookahead, verify, advance, select with masks, ranges and several fields.
#include <core.p4>
#include <v1model.p4>

error { BadVersion, BadLength }

header start_t {
    bit<4>  version;
    bit<4>  kind;
    bit<16> length;
    bit<3>  a;
    bit<13> b;
    bit<5>  c;
    bit<67> d;
}

header label_t {
    bit<20> label;
    bit<3>  tc;
    bit<1>  last;
    bit<8>  ttl;
}

header wide_t {
    bit<12>  tag;
    int<12>  offset;
    bit<128> value;
}

header report_t {
    bit<32> parser_error;
    bit<8>  labels;
    bit<8>  kind;
    bit<16> first_label;
    bit<16> indexed_label;
    bit<32> peeked;
    int<16> offset;
}

struct headers_t {
    report_t   report;
    start_t    start;
    label_t[4] labels;
    wide_t     wide;
}

struct metadata_t {
    bit<32> peeked;
    bit<8>  labels;
    bit<8>  kind;
}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta,
             inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.start);
        verify(hdr.start.version == 4 || hdr.start.version == 6, error.BadVersion);
        meta.kind = (bit<8>)hdr.start.kind;
        transition select(hdr.start.version, hdr.start.kind, hdr.start.length) {
            (4, 1 &&& 0x7, _): labels;
            (4, 2, 100 .. 200): wide;
            (6, 3, _): peek;
            (6, 4, _): skip;
            (_, 5, _): look;
            default: accept;
        }
    }
    state labels {
        packet.extract(hdr.labels.next);
        meta.labels = meta.labels + 1;
        transition select(hdr.labels.last.last) {
            0: labels;
            default: wide_if_tagged;
        }
    }
    state wide_if_tagged {
        transition select(packet.lookahead<bit<12>>()) {
            0xABC: wide;
            default: accept;
        }
    }
    state wide {
        packet.extract(hdr.wide);
        transition accept;
    }
    state peek {
        meta.peeked = packet.lookahead<bit<32>>();
        verify(meta.peeked[31:24] != 0xFF, error.BadLength);
        transition labels;
    }
    state skip {
        packet.advance((bit<32>)hdr.start.a << 3);
        transition wide_if_tagged;
    }
    state look {
        transition select(packet.lookahead<bit<32>>()[15:0]) {
            0x1234: labels;
            default: accept;
        }
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Compute(inout headers_t hdr, inout metadata_t meta) { apply { } }

control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        hdr.report.setValid();
        if (standard.parser_error == error.BadVersion) {
            hdr.report.parser_error = 1;
        } else if (standard.parser_error == error.BadLength) {
            hdr.report.parser_error = 2;
        } else if (standard.parser_error == error.PacketTooShort) {
            hdr.report.parser_error = 3;
        } else if (standard.parser_error == error.StackOutOfBounds) {
            hdr.report.parser_error = 4;
        } else if (standard.parser_error != error.NoError) {
            hdr.report.parser_error = 5;
        }
        hdr.report.labels = meta.labels;
        hdr.report.kind = meta.kind;
        hdr.report.peeked = meta.peeked;
        if (hdr.labels[0].isValid()) {
            hdr.report.first_label = hdr.labels[0].label[15:0];
        }
        // Not isValid() of the indexed element, for which the compiler writes JSON that BMv2 does not load.
        if (hdr.start.isValid() && (bit<8>)hdr.start.c < meta.labels) {
            hdr.report.indexed_label = hdr.labels[hdr.start.c[1:0]].label[19:4];
            hdr.labels[hdr.start.c[1:0]].ttl = hdr.labels[hdr.start.c[1:0]].ttl - 1;
        }
        if (hdr.wide.isValid()) {
            hdr.report.offset = (int<16>)hdr.wide.offset >> 2;
            hdr.wide.offset = hdr.wide.offset - 5;
            hdr.wide.value = (hdr.wide.value << 7) ^ (bit<128>)hdr.start.d;
        }
        if (hdr.start.isValid()) {
            if (hdr.start.b[0:0] == 1) {
                hdr.labels.push_front(1);
                hdr.labels[0].setValid();
                hdr.labels[0].label = 0xFACE5;
            } else if (hdr.start.b[1:1] == 1) {
                hdr.labels.pop_front(2);
            }
            if (hdr.start.b[2:2] == 1) {
                hdr.start.d = hdr.start.d + 0x3_0000_0000_0000_0001;
            }
            if (hdr.start.b[3:3] == 1) {
                hdr.start.setInvalid();
            }
        }
        standard.egress_spec = standard.ingress_port;
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.report);
        packet.emit(hdr.start);
        packet.emit(hdr.labels);
        packet.emit(hdr.wide);
    }
}

V1Switch(Parse(), Verify(), Forward(), Leave(), Compute(), Deparse()) main;
