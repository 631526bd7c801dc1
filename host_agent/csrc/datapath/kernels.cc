#include "datapath/kernels.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "datapath/byte_order.h"
#include "datapath/error.h"
#include "datapath/half_precision.h"

namespace netreduce {
namespace {

// Lanes lie in packet buffers at any alignment.
template <typename Lane>
struct __attribute__((packed, may_alias)) Unaligned {
  Lane value;
};

template <typename Element>
constexpr bool kIsFloat = !std::is_integral_v<Element>;

// --- largest exponent ---------------------------------------------------------------------------------
// Without its sign bit, a float's bits order like its magnitude; so the largest pattern has the largest
// exponent, and NaN and infinity are above all finite ones.

uint32_t magnitude_bits(Half x) { return x.bits & 0x7fffu; }
uint32_t magnitude_bits(BFloat16 x) { return x.bits & 0x7fffu; }
uint32_t magnitude_bits(float x) { return bits_of(x) & 0x7fffffffu; }
uint64_t magnitude_bits(double x) {
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits & UINT64_C(0x7fffffffffffffff);
}

template <typename Element>
Magnitude magnitude(const void* elements, uint64_t count) {
  const auto* x = static_cast<const Element*>(elements);
  using Bits = decltype(magnitude_bits(Element{}));
  Bits largest = 0;
  for (uint64_t i = 0; i < count; ++i) largest = std::max(largest, magnitude_bits(x[i]));
  if constexpr (std::is_same_v<Element, Half>) {
    if (largest >= 0x7c00u) return {0, false};
    return {bits_of(to_float(Half{static_cast<uint16_t>(largest)})) >> 23, true};
  } else {
    constexpr int kMantissa = std::is_same_v<Element, double> ? 52 : std::is_same_v<Element, float> ? 23 : 7;
    constexpr uint32_t kInfinity = std::is_same_v<Element, double> ? 0x7ff : 0xff;
    const auto exponent = static_cast<uint32_t>(largest >> kMantissa);
    if (exponent == kInfinity) return {0, false};
    return {exponent, true};
  }
}

// --- one element --------------------------------------------------------------------------------------

float as_float(float x) { return x; }
float as_float(Half x) { return to_float(x); }
float as_float(BFloat16 x) { return to_float(x); }
double as_double(double x) { return x; }
template <typename Element>
double as_double(Element x) { return as_float(x); }

template <typename Element, typename Lane>
inline Lane encode_element(Element x, const Scale& scale) {
  if constexpr (!kIsFloat<Element>) {
    return static_cast<Lane>(x);  // sign- or zero-extends
  } else if constexpr (sizeof(Lane) == 8) {
    return static_cast<Lane>(static_cast<int64_t>(
        __builtin_rint(as_double(x) * scale.encode_double[0] * scale.encode_double[1])));
  } else {
    auto q = static_cast<int32_t>(__builtin_rintf(as_float(x) * scale.encode_float[0] * scale.encode_float[1]));
    // Wider lanes have F >= 24, float32's precision, so that rint() cannot reach 2^F (docs/numerics.md).
    if constexpr (sizeof(Lane) == 2) q = std::max(std::min(q, scale.limit), -scale.limit);
    return static_cast<Lane>(q);
  }
}

// The sum as a double: exactly, or rounded to odd, so that the rounding to Element is the only one.
template <typename Element>
inline double exact(int64_t sum) {
  if constexpr (std::is_same_v<Element, double>) {
    return static_cast<double>(sum);  // this is the only rounding
  } else {
    const int64_t odd = (sum >> 10) | ((sum & 1023) != 0 ? 1 : 0);
    const bool wide = sum >= (INT64_C(1) << 53) || sum <= -(INT64_C(1) << 53);
    return static_cast<double>(wide ? odd : sum) * (wide ? 1024.0 : 1.0);
  }
}

inline void assign(double value, float& out) { out = static_cast<float>(value); }
inline void assign(double value, double& out) { out = value; }
inline void assign(double value, Half& out) { out = to_half(round_to_odd(value)); }
inline void assign(double value, BFloat16& out) { out = to_bfloat16(round_to_odd(value)); }

template <typename Element, typename Lane, bool kDivide>
inline void decode_element(Lane lane, const Scale& scale, Element& out) {
  using Signed = std::make_signed_t<Lane>;
  if constexpr (!kIsFloat<Element>) {
    out = static_cast<Element>(lane);  // wraps
    if constexpr (kDivide) out = static_cast<Element>(out / static_cast<int64_t>(scale.world_size));
  } else {
    double value;
    if constexpr (sizeof(Lane) == 8)
      value = exact<Element>(static_cast<Signed>(lane));
    else
      value = static_cast<Signed>(lane);
    if constexpr (kDivide) value /= scale.divisor;
    assign(value * scale.decode, out);
  }
}

// Results below float64's normal range have fewer than 53 bits: scale in extended precision, which holds
// a 64-bit sum exactly, and let the conversion round.
static_assert(__LDBL_MANT_DIG__ >= 64, "long double must hold a 64-bit lane");
inline double decode_subnormal(uint64_t lane, const Scale& scale) {
  const auto sum = static_cast<long double>(static_cast<int64_t>(lane));
  return static_cast<double>(std::ldexp(sum / scale.divisor, scale.decode_exponent));
}

// --- one packet ---------------------------------------------------------------------------------------

template <typename Element, typename Lane>
Checksums encode(const void* elements, uint32_t count, uint8_t* out, uint32_t lanes, const Scale& scale_in,
                 uint64_t marker) {
  constexpr uint32_t kChecksums = LaneTraits<Lane>::kChecksums;
  const auto* __restrict x = static_cast<const Element*>(elements);
  auto* __restrict lane = reinterpret_cast<Unaligned<Lane>*>(out);
  const auto& weight = weights<Lane>().of;
  const Scale scale = scale_in;  // a local copy cannot alias the stores

  Lane sums[kChecksums] = {};
  for (uint32_t j = 0; j < count; ++j) {
    const Lane q = encode_element<Element, Lane>(x[j], scale);
    for (uint32_t c = 0; c < kChecksums; ++c)
      sums[c] = static_cast<Lane>(sums[c] + static_cast<uint64_t>(weight[c][j]) * q);
    lane[j].value = swap_bytes(q);
  }
  std::memset(out + count * sizeof(Lane), 0, (lanes - count) * sizeof(Lane));

  store_big<Lane>(out, static_cast<Lane>(load_big<Lane>(out) + marker));
  Checksums result{};
  std::copy(std::begin(sums), std::end(sums), result.begin());
  return result;
}

template <typename Element, typename Lane, bool kDivide>
Checksums decode_loop(const uint8_t* in, uint32_t lanes, void* elements, uint32_t count, const Scale& scale_in,
                      uint64_t marker) {
  constexpr uint32_t kChecksums = LaneTraits<Lane>::kChecksums;
  const auto* __restrict lane = reinterpret_cast<const Unaligned<Lane>*>(in);
  auto* __restrict x = static_cast<Element*>(elements);
  const auto& weight = weights<Lane>().of;
  const Scale scale = scale_in;

  Lane sums[kChecksums] = {};
  for (uint32_t j = 0; j < count; ++j) {
    const Lane q = swap_bytes(Lane{lane[j].value});
    for (uint32_t c = 0; c < kChecksums; ++c)
      sums[c] = static_cast<Lane>(sums[c] + static_cast<uint64_t>(weight[c][j]) * q);
    decode_element<Element, Lane, kDivide>(q, scale, x[j]);
  }
  for (uint32_t j = count; j < lanes; ++j) {
    const Lane q = swap_bytes(Lane{lane[j].value});
    for (uint32_t c = 0; c < kChecksums; ++c)
      sums[c] = static_cast<Lane>(sums[c] + static_cast<uint64_t>(weight[c][j]) * q);
  }
  const uint64_t markers = scale.world_size * marker;  // of all ranks
  const auto first = static_cast<Lane>(load_big<Lane>(in) - markers);
  for (uint32_t c = 0; c < kChecksums; ++c)
    sums[c] = static_cast<Lane>(sums[c] - static_cast<uint64_t>(weight[c][0]) * markers);
  if (count != 0) decode_element<Element, Lane, kDivide>(first, scale, x[0]);
  if constexpr (std::is_same_v<Element, double>) {
    if (scale.subnormal_result) {
      for (uint32_t j = 0; j < count; ++j)
        x[j] = decode_subnormal(j == 0 ? first : load_big<Lane>(in + j * sizeof(Lane)), scale);
    }
  }
  Checksums result{};
  std::copy(std::begin(sums), std::end(sums), result.begin());
  return result;
}

template <typename Element, typename Lane>
Checksums decode(const uint8_t* in, uint32_t lanes, void* elements, uint32_t count, const Scale& scale,
                 uint64_t marker) {
  // Floats divide only by what is not a power of two; that is in the scale already.
  const bool divide = scale.op == ReduceOp::kAvg && (!kIsFloat<Element> || scale.divisor != 1);
  return divide ? decode_loop<Element, Lane, true>(in, lanes, elements, count, scale, marker)
                : decode_loop<Element, Lane, false>(in, lanes, elements, count, scale, marker);
}

template <typename Element, typename Lane>
constexpr Kernels make_kernels() {
  if constexpr (kIsFloat<Element>)
    return {magnitude<Element>, encode<Element, Lane>, decode<Element, Lane>};
  else
    return {nullptr, encode<Element, Lane>, decode<Element, Lane>};
}

template <typename Element>
const Kernels* float_kernels(uint32_t lane_bits) {
  static constexpr Kernels narrow = make_kernels<Element, uint16_t>();
  static constexpr Kernels middle = make_kernels<Element, uint32_t>();
  static constexpr Kernels wide = make_kernels<Element, uint64_t>();
  return lane_bits == 16 ? &narrow : lane_bits == 32 ? &middle : lane_bits == 64 ? &wide : nullptr;
}

template <typename Element, typename Lane>
const Kernels* only(uint32_t lane_bits) {
  static constexpr Kernels made = make_kernels<Element, Lane>();
  return lane_bits == LaneTraits<Lane>::kBits ? &made : nullptr;
}

const Kernels* find(DType dtype, uint32_t lane_bits) {
  switch (dtype) {
    case DType::kFloat32: return float_kernels<float>(lane_bits);
    case DType::kFloat16: return float_kernels<Half>(lane_bits);
    case DType::kBFloat16: return float_kernels<BFloat16>(lane_bits);
    case DType::kFloat64: return only<double, uint64_t>(lane_bits);
    case DType::kInt8: return only<int8_t, uint32_t>(lane_bits);
    case DType::kUInt8: return only<uint8_t, uint32_t>(lane_bits);
    case DType::kInt32: return only<int32_t, uint32_t>(lane_bits);
    case DType::kInt64: return only<int64_t, uint64_t>(lane_bits);
  }
  return nullptr;
}

template <typename Lane>
Checksums weigh_lane(uint32_t lane, uint64_t value) {
  Checksums result{};
  for (uint32_t c = 0; c < LaneTraits<Lane>::kChecksums; ++c)
    result[c] = static_cast<Lane>(static_cast<uint64_t>(weights<Lane>().of[c][lane]) * value);
  return result;
}

}  // namespace

const Kernels& kernels(DType dtype, uint32_t lane_bits) {
  const Kernels* found = find(dtype, lane_bits);
  if (found == nullptr) throw std::invalid_argument(cat(name(dtype), " does not travel in ", lane_bits, "-bit lanes"));
  return *found;
}

uint64_t load_lane(const uint8_t* packet, uint32_t lane, uint32_t lane_bits) {
  const uint8_t* at = packet + lane * (lane_bits / 8);
  return lane_bits == 16 ? load_big<uint16_t>(at) : lane_bits == 32 ? load_big<uint32_t>(at) : load_big<uint64_t>(at);
}

void store_lane(uint8_t* packet, uint32_t lane, uint32_t lane_bits, uint64_t value) {
  uint8_t* at = packet + lane * (lane_bits / 8);
  if (lane_bits == 16)
    store_big(at, static_cast<uint16_t>(value));
  else if (lane_bits == 32)
    store_big(at, static_cast<uint32_t>(value));
  else
    store_big(at, value);
}

Checksums weigh(uint32_t lane, uint32_t lane_bits, uint64_t value) {
  return lane_bits == 16   ? weigh_lane<uint16_t>(lane, value)
         : lane_bits == 32 ? weigh_lane<uint32_t>(lane, value)
                           : weigh_lane<uint64_t>(lane, value);
}

}  // namespace netreduce
