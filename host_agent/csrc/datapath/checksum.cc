#include "datapath/checksum.h"

namespace netreduce {
namespace {

// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
uint64_t split_mix(uint64_t& state) {
  uint64_t z = state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return z ^ (z >> 31);
}

}  // namespace

template <typename Lane>
const Weights<Lane>& weights() {
  static const Weights<Lane> table = [] {
    Weights<Lane> made;
    uint64_t state = 0;
    for (auto& checksum : made.of)
      for (Lane& weight : checksum) weight = static_cast<Lane>(split_mix(state) | 1);
    return made;
  }();
  return table;
}

template const Weights<uint16_t>& weights<uint16_t>();
template const Weights<uint32_t>& weights<uint32_t>();
template const Weights<uint64_t>& weights<uint64_t>();

}  // namespace netreduce
