// Headers, and the metadata that the controls pass to each other.
#ifndef NETREDUCE_HEADERS_P4
#define NETREDUCE_HEADERS_P4

#include "sizes.p4"
#include "wire_constants.p4"

typedef bit<9> port_t;
typedef bit<48> mac_t;
typedef bit<32> ipv4_address_t;
typedef bit<BLOCK_BITS> block_data_t;
typedef bit<64> rank_set_t; // MAX_RANKS bits, one for each rank

header ethernet_t {
    mac_t destination;
    mac_t source;
    bit<16> type;
}

header ipv4_t {
    bit<4> version;
    bit<4> ihl;
    bit<8> tos;
    bit<16> total_length;
    bit<16> identification;
    bit<1> reserved;
    bit<1> do_not_fragment;
    bit<1> more_fragments;
    bit<13> fragment_offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    ipv4_address_t source;
    ipv4_address_t destination;
}

header udp_t {
    bit<16> source_port;
    bit<16> destination_port;
    bit<16> length;
    bit<16> checksum;
}

header block_t {
    block_data_t data;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
    nr_t nr;
    block_t[MAX_BLOCKS] blocks;
}

// What is to become of a packet, as far as is known. The parser begins, ingress decides, egress obeys.
enum bit<3> disposition_t {
    DROP = 0, // first, because a frame too short for Ethernet leaves the metadata all zeros
    FORWARD = 1,
    FLOOD = 2,
    AGGREGATE = 3,
    RESULT_TO_ALL = 4,
    RESULT_TO_ONE = 5
}

// What a contribution does to its slot.
enum bit<2> step_t {
    NONE = 0,
    COMBINE = 1, // its blocks are stored or added
    ANSWER = 2   // its blocks are replaced by the slot's
}

struct metadata_t {
    disposition_t disposition;

    // Counting: whether the packet is one to a NetReduce port, and what became of it.
    bit<1> counted;
    bit<4> cause;

    // From the parser.
    bit<5> blocks;

    // From the connection's table entry.
    port_t port;
    ipv4_address_t source;
    bit<16> stream;
    bit<16> rank;
    bit<32> generation;
    bit<32> slot;
    rank_set_t rank_bit;
    rank_set_t full;
    bit<16> ranks;
    block_data_t lane_top;
    block_data_t lane_rest; // its complement
    bit<16> group;

    // From the slot.
    step_t step;
    bit<5> slot_blocks;
    block_data_t stored; // one scratch for all blocks: metadata is copied with every replica

    bit<1> rewritten;
}

#endif
