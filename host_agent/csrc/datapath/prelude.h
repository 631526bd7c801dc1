// The prelude of a call: the ranks agree on what is reduced and on the exponent of every message
// (docs/protocol.md, "Preludes").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "datapath/layout.h"
#include "datapath/transfer.h"

namespace netreduce {

// What every rank must agree on before data is sent.
struct CallContext {
  CallArguments call;
  uint32_t lane_bits;
  uint32_t max_blocks;
  uint32_t rank;
  uint32_t world_size;
};

uint64_t fingerprint(const CallContext& context, uint64_t prelude_packet);

class Prelude : public Transfer {
 public:
  // A probe: one packet without exponents.
  explicit Prelude(const CallContext& context);
  // The prelude of a call on `data`, `layout.messages()` messages.
  Prelude(const CallContext& context, const void* data, const DataLayout& layout);

  wire::Op op() const override { return wire::Op::OR; }
  uint64_t packets() const override { return layout_.packets(); }
  uint32_t blocks(uint64_t packet) const override { return layout_.blocks(packet); }
  void pack(uint64_t packet, uint8_t* blocks) override;
  // Throws MismatchError when the ranks' calls differ, IntegrityError when some rank's packet, or anything
  // that this rank sent, is missing from the result. What no rank sent is found by the data messages.
  void unpack(uint64_t packet, const uint8_t* blocks, uint32_t block_count, uint32_t k) override;
  bool accepts_any_length() const override { return true; }

  // Once all results are in:
  bool all_finite() const { return all_finite_; }
  // Largest biased exponent of a message on any rank; 0 for integers.
  uint32_t biased_exponent(uint64_t message) const;
  // The same on this rank alone.
  uint32_t own_exponent(uint64_t message) const { return bitmap_bytes_ == 0 ? 0 : own_exponents_[message]; }

 private:
  // Calls body(byte of the payload, its bits) for each exponent of this rank that lies in a packet.
  template <typename Body>
  void for_each_own_exponent(uint64_t packet, Body body) const;

  CallContext context_;
  uint32_t bitmap_bytes_;
  PreludeLayout layout_;
  std::vector<uint16_t> own_exponents_;
  bool finite_ = true;
  bool all_finite_ = true;
  std::vector<uint8_t> bitmaps_;  // OR over the ranks
};

}  // namespace netreduce
