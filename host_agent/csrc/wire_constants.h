// Generated from p4src/wire.py by `python -m netreduce.p4.generate` (make wire); do not edit.
#pragma once

#include <cstdint>

namespace netreduce::wire {

inline constexpr uint32_t UDP_PORT_FIRST = 20050;
inline constexpr uint32_t UDP_PORT_COUNT = 64;
inline constexpr uint32_t NR_MAGIC = 0x4E52;
inline constexpr uint32_t NR_VERSION = 1;
inline constexpr uint32_t NR_HEADER_BYTES = 16;
inline constexpr uint32_t BLOCK_BYTES = 256;
inline constexpr uint32_t MAX_BLOCKS = 16;
inline constexpr uint32_t ETHERNET_HEADER_BYTES = 14;
inline constexpr uint32_t IPV4_HEADER_BYTES = 20;
inline constexpr uint32_t UDP_HEADER_BYTES = 8;
inline constexpr uint32_t FRAME_OVERHEAD_BYTES = 58;
inline constexpr uint32_t SLOT_COUNT = 4096;
inline constexpr uint32_t MAX_STREAMS = 256;
inline constexpr uint32_t MAX_RANKS = 64;
inline constexpr uint32_t MAX_WINDOW = 64;
inline constexpr uint32_t CAUSE_STRIDE = 16;
inline constexpr uint32_t BLOCK_COUNTS[] = {1, 2, 4, 8, 16};

// Byte offsets inside the NR header; version and kind are the halves of one byte.
inline constexpr uint32_t NR_MAGIC_OFFSET = 0;
inline constexpr uint32_t NR_VERSION_OFFSET = 2;
inline constexpr uint32_t NR_KIND_OFFSET = 2;
inline constexpr uint32_t NR_OP_OFFSET = 3;
inline constexpr uint32_t NR_JOB_OFFSET = 4;
inline constexpr uint32_t NR_RANK_OFFSET = 6;
inline constexpr uint32_t NR_BTH_OPCODE_OFFSET = 7;
inline constexpr uint32_t NR_K_OFFSET = 8;
inline constexpr uint32_t NR_CONTRIBUTORS_OFFSET = 12;
inline constexpr uint32_t NR_RESERVED_OFFSET = 14;

// NR.kind: what a packet carries.
enum class Kind : uint8_t {
  CONTRIBUTION = 0,
  RESULT = 1,
  PARTIAL_UP = 2,
  RESULT_DOWN = 3,
};

// NR.op: how the blocks of a stream index are combined.
enum class Op : uint8_t {
  SUM = 0,
  OR = 1,
};

// Index of a per-stream counter: what became of a packet (``stream_index * 16 + cause``).
enum class Cause : uint32_t {
  FIRST = 0,
  ADDED = 1,
  COMPLETED = 2,
  DUPLICATE_ABSORBED = 3,
  DUPLICATE_ANSWERED = 4,
  STALE = 5,
  SPOOFED = 6,
  MALFORMED = 7,
  UNKNOWN = 8,
};

}  // namespace netreduce::wire
