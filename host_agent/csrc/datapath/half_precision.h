// Conversions between float32 and the 16-bit formats, as branch-free integer arithmetic that compilers
// vectorise on any target.
#pragma once

#include <cstdint>
#include <cstring>

namespace netreduce {

struct Half { uint16_t bits; };       // IEEE 754 binary16
struct BFloat16 { uint16_t bits; };   // upper half of a binary32

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float to_float(BFloat16 value) { return float_of(uint32_t{value.bits} << 16); }

// Exact for every finite value (infinities and NaN never get here: the prelude turns them away).
inline float to_float(Half value) {
  const uint32_t magnitude = uint32_t{value.bits & 0x7fffu};
  const uint32_t sign = uint32_t{value.bits & 0x8000u} << 16;
  // Normal numbers: move the fields and re-bias the exponent. Subnormal numbers are magnitude * 2^-24.
  const uint32_t normal = (magnitude << 13) + ((127 - 15) << 23);
  const uint32_t subnormal = bits_of(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  return float_of((magnitude < 0x400u ? subnormal : normal) | sign);
}

// The float32 nearest to `value` towards zero, with the last bit set if that lost anything ("round to
// odd"): rounding it again to at most 22 bits gives what rounding `value` once would have given
// (Boldo & Melquiond, "When double rounding is odd", 2005).
inline float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = static_cast<double>(nearest);
  const double magnitude = __builtin_fabs(value);
  uint32_t bits = bits_of(nearest);
  bits -= __builtin_fabs(back) > magnitude ? 1u : 0u;
  bits |= back != value ? 1u : 0u;
  return float_of(bits);
}

// Round to nearest, ties to even; overflow gives infinity.
inline BFloat16 to_bfloat16(float value) {
  const uint32_t bits = bits_of(value);
  return BFloat16{static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// Round to nearest, ties to even; overflow gives infinity.
inline Half to_half(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Normal results: re-bias and round away the 13 surplus bits; a carry moves into the exponent as it should.
  const uint32_t rebiased = magnitude - ((127 - 15) << 23);
  const uint32_t normal = (rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13;
  // Results below 2^-14 have a fixed spacing of 2^-24: adding 0.5, whose last bit is worth 2^-24, makes the
  // addition round there.
  const uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
  uint32_t result = magnitude < (113u << 23) ? subnormal : normal;
  result = magnitude >= 0x47800000u ? 0x7c00u : result;  // 65536 and up; 65520 … 65535 carry by themselves
  return Half{static_cast<uint16_t>(result | sign)};
}

}  // namespace netreduce
