// The linear checksum of a message and the marker of its packets (docs/protocol.md, "Trailer").
//
// checksum = sum over packets p of (2p + 1) * sum over lanes j of weight[j] * lane[j], modulo the lane
// width. It is linear in the lanes, so the sum of the ranks' checksums is the checksum of the summed lanes.
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
  // Added by every rank to lane 0 of every packet. Tensors are often constant or powers of two, so that
  // all lanes are multiples of a high power of two and so is their weighted sum, whatever the weights:
  // a missing contribution would easily go unnoticed. An odd addend per packet makes it show.
  static constexpr Lane kMarker = static_cast<Lane>(UINT64_C(0x9E3779B97F4A7C15));
};
static_assert(LaneTraits<uint16_t>::kMarker % 2 == 1 && LaneTraits<uint32_t>::kMarker % 2 == 1 &&
              LaneTraits<uint64_t>::kMarker % 2 == 1);

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
