// The NR header in front of every packet's blocks: docs/protocol.md.
#pragma once

#include <cstdint>
#include <optional>

#include "datapath/byte_order.h"
#include "wire_constants.h"

namespace netreduce {

struct NrHeader {
  wire::Kind kind;
  wire::Op op;
  uint16_t job;
  uint8_t rank;
  uint32_t k;
  uint16_t contributors;
};

inline void write_header(uint8_t* at, const NrHeader& header) {
  store_big<uint16_t>(at + wire::NR_MAGIC_OFFSET, wire::NR_MAGIC);
  at[wire::NR_VERSION_OFFSET] = static_cast<uint8_t>(wire::NR_VERSION << 4 | static_cast<uint8_t>(header.kind));
  at[wire::NR_OP_OFFSET] = static_cast<uint8_t>(header.op);
  store_big<uint16_t>(at + wire::NR_JOB_OFFSET, header.job);
  at[wire::NR_RANK_OFFSET] = header.rank;
  at[wire::NR_BTH_OPCODE_OFFSET] = 0;
  store_big<uint32_t>(at + wire::NR_K_OFFSET, header.k);
  store_big<uint16_t>(at + wire::NR_CONTRIBUTORS_OFFSET, header.contributors);
  store_big<uint16_t>(at + wire::NR_RESERVED_OFFSET, 0);
}

// Nothing when it is not an NR packet of this version with a legal number of blocks.
inline std::optional<NrHeader> read_header(const uint8_t* at, uint32_t length) {
  if (length < wire::NR_HEADER_BYTES) return std::nullopt;
  bool legal_length = false;
  for (uint32_t blocks : wire::BLOCK_COUNTS)
    legal_length |= length == wire::NR_HEADER_BYTES + blocks * wire::BLOCK_BYTES;
  if (!legal_length || load_big<uint16_t>(at + wire::NR_MAGIC_OFFSET) != wire::NR_MAGIC ||
      at[wire::NR_VERSION_OFFSET] >> 4 != wire::NR_VERSION || at[wire::NR_OP_OFFSET] > 1)
    return std::nullopt;
  NrHeader header;
  header.kind = static_cast<wire::Kind>(at[wire::NR_KIND_OFFSET] & 15);
  header.op = static_cast<wire::Op>(at[wire::NR_OP_OFFSET]);
  header.job = load_big<uint16_t>(at + wire::NR_JOB_OFFSET);
  header.rank = at[wire::NR_RANK_OFFSET];
  header.k = load_big<uint32_t>(at + wire::NR_K_OFFSET);
  header.contributors = load_big<uint16_t>(at + wire::NR_CONTRIBUTORS_OFFSET);
  return header;
}

}  // namespace netreduce
