// Generated from p4src/wire.py by `python -m netreduce.p4.generate` (make wire); do not edit.
#ifndef NETREDUCE_WIRE_CONSTANTS_P4
#define NETREDUCE_WIRE_CONSTANTS_P4

const bit<16> UDP_PORT_FIRST = 20050;
const int UDP_PORT_COUNT = 64;
const bit<16> NR_MAGIC = 0x4E52;
const bit<4> NR_VERSION = 1;
const int NR_HEADER_BYTES = 16;
const int BLOCK_BYTES = 256;
const int MAX_BLOCKS = 16;
const int ETHERNET_HEADER_BYTES = 14;
const int IPV4_HEADER_BYTES = 20;
const int UDP_HEADER_BYTES = 8;
const int FRAME_OVERHEAD_BYTES = 58;
const int SLOT_COUNT = 4096;
const int MAX_STREAMS = 256;
const int MAX_RANKS = 64;
const int MAX_WINDOW = 64;
const int CAUSE_STRIDE = 16;

// NR.kind: what a packet carries.
const bit<4> KIND_CONTRIBUTION = 0;
const bit<4> KIND_RESULT = 1;
const bit<4> KIND_PARTIAL_UP = 2;
const bit<4> KIND_RESULT_DOWN = 3;

// NR.op: how the blocks of a stream index are combined.
const bit<8> OP_SUM = 0;
const bit<8> OP_OR = 1;

// Index of a per-stream counter: what became of a packet (``stream_index * 16 + cause``).
const bit<32> CAUSE_FIRST = 0;
const bit<32> CAUSE_ADDED = 1;
const bit<32> CAUSE_COMPLETED = 2;
const bit<32> CAUSE_DUPLICATE_ABSORBED = 3;
const bit<32> CAUSE_DUPLICATE_ANSWERED = 4;
const bit<32> CAUSE_STALE = 5;
const bit<32> CAUSE_SPOOFED = 6;
const bit<32> CAUSE_MALFORMED = 7;
const bit<32> CAUSE_UNKNOWN = 8;

// The NR header, which follows UDP.
header nr_t {
    bit<16> magic;
    bit<4> version;
    bit<4> kind;
    bit<8> op;
    bit<16> job;
    bit<8> rank;
    bit<8> bth_opcode;
    bit<32> k;
    bit<16> contributors;
    bit<16> reserved;
}

#endif
