// The packets of one phase of a call (its prelude, or its data): what a Stream sends and receives.
//
// Packets are numbered 0 … packets() - 1 within the transfer. pack() may be called again for a packet
// whose result has not come, and gives the same bytes.
#pragma once

#include <cstdint>

#include "wire_constants.h"

namespace netreduce {

class Transfer {
 public:
  virtual ~Transfer() = default;

  virtual wire::Op op() const = 0;
  virtual uint64_t packets() const = 0;
  virtual uint32_t blocks(uint64_t packet) const = 0;
  // `packets` are packed for the first time in ascending order.
  virtual void pack(uint64_t packet, uint8_t* blocks) = 0;
  // The result of a packet; called once for each, in any order. `k` is its stream index, for messages.
  virtual void unpack(uint64_t packet, const uint8_t* blocks, uint32_t block_count, uint32_t k) = 0;
  // Whether a result may have another length than the packet: ranks that disagree about the call may
  // have sent different lengths, which is for the transfer to find out.
  virtual bool accepts_any_length() const { return false; }
};

}  // namespace netreduce
