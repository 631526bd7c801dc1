// The loops over elements: largest exponent, encode into a packet, decode out of one. Each touches every
// byte once: scaling, byte order and checksum are one pass.
#pragma once

#include <cstdint>

#include "datapath/checksum.h"
#include "datapath/communicator.h"
#include "datapath/fixed_point.h"

namespace netreduce {

struct Magnitude {
  uint32_t biased_exponent;  // largest, as in float32 (float64 for kFloat64)
  bool finite;               // no NaN, no infinity
};

struct Kernels {
  // Floats only; null for integers.
  Magnitude (*magnitude)(const void* elements, uint64_t count);
  // Encodes `count` elements into the first of `lanes` lanes, zeroes the others, adds `marker` to lane 0,
  // and returns the packet's weighted sums, without the marker.
  Checksums (*encode)(const void* elements, uint32_t count, uint8_t* out, uint32_t lanes, const Scale& scale,
                      uint64_t marker);
  // Decodes `count` elements out of a summed packet; returns the weighted sums of its first `lanes` lanes
  // (all but the trailer's checksums), without all ranks' markers.
  Checksums (*decode)(const uint8_t* in, uint32_t lanes, void* elements, uint32_t count, const Scale& scale,
                      uint64_t marker);
};

// Throws std::invalid_argument when the dtype does not travel in lanes of that width.
const Kernels& kernels(DType dtype, uint32_t lane_bits);

// Lanes of the trailer, by number from the packet's start.
uint64_t load_lane(const uint8_t* packet, uint32_t lane, uint32_t lane_bits);
void store_lane(uint8_t* packet, uint32_t lane, uint32_t lane_bits, uint64_t value);
// The weighted sums of one lane alone.
Checksums weigh(uint32_t lane, uint32_t lane_bits, uint64_t value);

}  // namespace netreduce
