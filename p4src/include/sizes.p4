// Sizes of tables and registers, each derived from the wire constants, with its reason.
#ifndef NETREDUCE_SIZES_P4
#define NETREDUCE_SIZES_P4

#include "wire_constants.p4"

// Every stream may have as many ranks as the seen bitmap has bits; each rank is one connection...
const int CONNECTION_ENTRIES = MAX_STREAMS * MAX_RANKS;
// ... and the target of one rewriting.
const int REWRITE_ENTRIES = CONNECTION_ENTRIES;

// Hosts of a few racks. The forwarding is by MAC, and floods what it does not know.
const int FORWARD_ENTRIES = 1024;

// A row of causes for each stream; row 0 is for packets of no stream.
const int CAUSE_CELLS = MAX_STREAMS * CAUSE_STRIDE;

const int BLOCK_BITS = BLOCK_BYTES * 8;

// Lengths of a packet without its blocks, as each header sees them.
const int UDP_LENGTH_OF_HEADERS = UDP_HEADER_BYTES + NR_HEADER_BYTES;
const int IPV4_LENGTH_OF_HEADERS = IPV4_HEADER_BYTES + UDP_LENGTH_OF_HEADERS;

// A UDP datagram that is shorter than this has no room for NR's magic and version.
const int UDP_LENGTH_WITH_MAGIC = UDP_HEADER_BYTES + 3;

#endif
