// The linear checksum of a message and the markers that tie it to its place (docs/protocol.md, "Data messages").
//
// checksum = salt + sum over packets p of (2p + 1) * sum over lanes j of weight[j] * lane[j], modulo the lane
// width. It is linear in the lanes, so the sum of the ranks' checksums is the checksum of the summed lanes and
// n salts.
#pragma once

#include <array>
#include <cstdint>

#include "wire_constants.h"

namespace netreduce {

constexpr uint32_t kMaxChecksums = 3;
// One sum per checksum; only the low lane-width bits count.
using Checksums = std::array<uint64_t, kMaxChecksums>;

template <typename Lane>
struct LaneTraits {
  static constexpr uint32_t kBits = sizeof(Lane) * 8;
  // 16 bits alone would let one corruption in 65,536 pass.
  static constexpr uint32_t kChecksums = kBits == 16 ? 3 : 1;
  static constexpr uint32_t kMaxLanes = wire::MAX_BLOCKS * wire::BLOCK_BYTES / sizeof(Lane);
};

// The finaliser of MurmurHash3, a bijection that spreads every input bit.
inline uint64_t mix(uint64_t h) {
  h = (h ^ (h >> 33)) * UINT64_C(0xff51afd7ed558ccd);
  h = (h ^ (h >> 33)) * UINT64_C(0xc4ceb9fe1a85ec53);
  return h ^ (h >> 33);
}
// Takes `part` into a hash.
inline uint64_t mix_in(uint64_t h, uint64_t part) { return mix(h + UINT64_C(0x9E3779B97F4A7C15) + part); }

// What every rank adds to a message's lanes and checksums, and takes n times off the result: the same on all
// ranks if they agree on the call, the message and its exponent, and unlike that of any other message. So
// neither another slot's sum nor a sum of lanes of unlike scales can pass for this message's.
class Identity {
 public:
  Identity(uint64_t call_fingerprint, uint64_t message, uint32_t biased_exponent)
      : seed_(mix_in(mix_in(call_fingerprint, message), biased_exponent)) {}

  // For lane 0 of a packet. Tensors are often constant or powers of two, so that all lanes are multiples of a
  // high power of two and so is their weighted sum, whatever the weights: a missing contribution would easily
  // go unnoticed. An odd addend per packet makes it show.
  uint64_t marker(uint32_t packet) const { return mix_in(seed_, packet) | 1; }
  uint64_t salt(uint32_t checksum) const { return mix_in(seed_, kSalts + checksum); }

 private:
  static constexpr uint64_t kSalts = 16;  // beyond the packets of a message
  uint64_t seed_;
};

template <typename Lane>
struct Weights {
  alignas(64) Lane of[LaneTraits<Lane>::kChecksums][LaneTraits<Lane>::kMaxLanes];
};

// Odd and pseudo-random; the same in every build.
template <typename Lane>
const Weights<Lane>& weights();

inline uint64_t packet_multiplier(uint32_t packet) { return 2 * uint64_t{packet} + 1; }
inline uint64_t lane_modulus_mask(uint32_t lane_bits) { return ~uint64_t{0} >> (64 - lane_bits); }

}  // namespace netreduce
