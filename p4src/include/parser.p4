// Ethernet / IPv4 / UDP / NR / blocks. Nothing is read that the headers before it do not announce.
#ifndef NETREDUCE_PARSER_P4
#define NETREDUCE_PARSER_P4

#include "headers.p4"

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<8> PROTOCOL_UDP = 17;
const bit<20> NR_MAGIC_AND_VERSION = NR_MAGIC ++ NR_VERSION;

// How far a packet got is its first disposition: a packet on which the parser stops early, because it is
// something else or ends too soon, keeps the one of the last state that it reached.
parser NetreduceParser(packet_in packet,
                       out headers_t hdr,
                       inout metadata_t meta,
                       inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        meta.disposition = disposition_t.FORWARD;
        transition select(hdr.ethernet.type) {
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.more_fragments,
                          hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (4, 5, 0, 0, PROTOCOL_UDP): parse_udp;
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.destination_port) {
            UDP_PORT_FIRST .. UDP_PORT_FIRST + UDP_PORT_COUNT - 1: netreduce_port;
            default: accept;
        }
    }

    // Somebody else's datagram may come to one of our ports: it is counted, and goes its way.
    state netreduce_port {
        meta.counted = 1;
        meta.cause = CAUSE_MALFORMED;
        transition select(hdr.udp.length) {
            0 .. UDP_LENGTH_WITH_MAGIC - 1: accept;
            default: look_for_magic;
        }
    }

    state look_for_magic {
        transition select(packet.lookahead<bit<20>>()) {
            NR_MAGIC_AND_VERSION: parse_nr;
            default: accept;
        }
    }

    // From here on the packet claims to be ours: it is a contribution whose lengths all agree, or dropped.
    state parse_nr {
        meta.disposition = disposition_t.DROP;
        packet.extract(hdr.nr);
        transition select(standard_metadata.packet_length, hdr.ipv4.total_length, hdr.udp.length,
                          hdr.nr.kind, hdr.nr.op) {
#define CONTRIBUTION_OF(BLOCKS, STATE) \
            (FRAME_OVERHEAD_BYTES + BLOCKS * BLOCK_BYTES, \
             IPV4_LENGTH_OF_HEADERS + BLOCKS * BLOCK_BYTES, \
             UDP_LENGTH_OF_HEADERS + BLOCKS * BLOCK_BYTES, \
             KIND_CONTRIBUTION, OP_SUM &&& ~OP_OR): STATE
            CONTRIBUTION_OF(1, contribution_1);
            CONTRIBUTION_OF(2, contribution_2);
            CONTRIBUTION_OF(4, contribution_4);
            CONTRIBUTION_OF(8, contribution_8);
            CONTRIBUTION_OF(16, contribution_16);
#undef CONTRIBUTION_OF
            default: accept;
        }
    }

    state contribution_1 { meta.blocks = 1; transition blocks_1; }
    state contribution_2 { meta.blocks = 2; transition blocks_2; }
    state contribution_4 { meta.blocks = 4; transition blocks_4; }
    state contribution_8 { meta.blocks = 8; transition blocks_8; }
    state contribution_16 { meta.blocks = 16; transition blocks_16; }

    // Each state takes half of what remains; the last takes the last block.
    state blocks_16 {
        packet.extract(hdr.blocks.next);
        packet.extract(hdr.blocks.next);
        packet.extract(hdr.blocks.next);
        packet.extract(hdr.blocks.next);
        packet.extract(hdr.blocks.next);
        packet.extract(hdr.blocks.next);
        packet.extract(hdr.blocks.next);
        packet.extract(hdr.blocks.next);
        transition blocks_8;
    }

    state blocks_8 {
        packet.extract(hdr.blocks.next);
        packet.extract(hdr.blocks.next);
        packet.extract(hdr.blocks.next);
        packet.extract(hdr.blocks.next);
        transition blocks_4;
    }

    state blocks_4 {
        packet.extract(hdr.blocks.next);
        packet.extract(hdr.blocks.next);
        transition blocks_2;
    }

    state blocks_2 {
        packet.extract(hdr.blocks.next);
        transition blocks_1;
    }

    state blocks_1 {
        packet.extract(hdr.blocks.next);
        meta.disposition = disposition_t.AGGREGATE;
        transition accept;
    }
}

#endif
