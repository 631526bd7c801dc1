// Generated from p4src/wire.py by `python -m netreduce.p4.generate` (make wire); do not edit.
#ifndef NETREDUCE_WIRE_CONSTANTS_P4
#define NETREDUCE_WIRE_CONSTANTS_P4

@noWarn("unused") const bit<16> UDP_PORT_FIRST = 20050;
@noWarn("unused") const int UDP_PORT_COUNT = 64;
@noWarn("unused") const bit<16> NR_MAGIC = 0x4E52;
@noWarn("unused") const bit<4> NR_VERSION = 1;
@noWarn("unused") const int NR_HEADER_BYTES = 16;
@noWarn("unused") const int BLOCK_BYTES = 256;
@noWarn("unused") const int MAX_BLOCKS = 16;
@noWarn("unused") const int ETHERNET_HEADER_BYTES = 14;
@noWarn("unused") const int IPV4_HEADER_BYTES = 20;
@noWarn("unused") const int UDP_HEADER_BYTES = 8;
@noWarn("unused") const int FRAME_OVERHEAD_BYTES = 58;
@noWarn("unused") const int SLOT_COUNT = 4096;
@noWarn("unused") const int MAX_STREAMS = 256;
@noWarn("unused") const int MAX_RANKS = 64;
@noWarn("unused") const int MAX_WINDOW = 64;
@noWarn("unused") const int CAUSE_STRIDE = 16;

// NR.kind: what a packet carries.
@noWarn("unused") const bit<4> KIND_CONTRIBUTION = 0;
@noWarn("unused") const bit<4> KIND_RESULT = 1;
@noWarn("unused") const bit<4> KIND_PARTIAL_UP = 2;
@noWarn("unused") const bit<4> KIND_RESULT_DOWN = 3;

// NR.op: how the blocks of a stream index are combined.
@noWarn("unused") const bit<8> OP_SUM = 0;
@noWarn("unused") const bit<8> OP_OR = 1;

// Index of a per-stream counter: what became of a packet (``stream_index * 16 + cause``).
@noWarn("unused") const bit<4> CAUSE_FIRST = 0;
@noWarn("unused") const bit<4> CAUSE_ADDED = 1;
@noWarn("unused") const bit<4> CAUSE_COMPLETED = 2;
@noWarn("unused") const bit<4> CAUSE_DUPLICATE_ABSORBED = 3;
@noWarn("unused") const bit<4> CAUSE_DUPLICATE_ANSWERED = 4;
@noWarn("unused") const bit<4> CAUSE_STALE = 5;
@noWarn("unused") const bit<4> CAUSE_SPOOFED = 6;
@noWarn("unused") const bit<4> CAUSE_MALFORMED = 7;
@noWarn("unused") const bit<4> CAUSE_UNKNOWN = 8;

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
