#include "datapath/fixed_point.h"

#include <cfenv>
#include <cmath>
#include <new>

#include "datapath/error.h"
#include "datapath/layout.h"

namespace netreduce {
namespace {

int ceil_log2(uint32_t n) { return n <= 1 ? 0 : 32 - __builtin_clz(n - 1); }

}  // namespace

int fraction_bits(uint32_t lane_bits, uint32_t world_size) {
  return static_cast<int>(lane_bits) - 1 - ceil_log2(world_size);
}

int exponent_bound(DType dtype, uint32_t biased_exponent) {
  // A normal number with biased exponent b is below 2^(b - bias + 1); so is a subnormal one with b = 0.
  const int bias = dtype == DType::kFloat64 ? 1023 : 127;
  return static_cast<int>(biased_exponent) - bias + 1;
}

Scale make_scale(DType dtype, uint32_t lane_bits, uint32_t world_size, ReduceOp op, uint32_t biased_exponent) {
  Scale scale{};
  scale.world_size = world_size;
  scale.op = op;
  scale.divisor = 1;
  scale.decode = 1;
  if (!is_float(dtype)) return scale;

  const int fraction = fraction_bits(lane_bits, world_size);
  const int exponent = exponent_bound(dtype, biased_exponent);
  const int shift = fraction - exponent;
  const int half = shift / 2;
  scale.encode_float[0] = std::ldexp(1.0f, half);
  scale.encode_float[1] = std::ldexp(1.0f, shift - half);
  scale.encode_double[0] = std::ldexp(1.0, half);
  scale.encode_double[1] = std::ldexp(1.0, shift - half);
  scale.limit = lane_bits == 16 ? (1 << fraction) - 1 : 0;

  scale.decode_exponent = -shift;
  if (op == ReduceOp::kAvg) {
    if ((world_size & (world_size - 1)) == 0)
      scale.decode_exponent -= ceil_log2(world_size);
    else
      scale.divisor = world_size;
  }
  scale.subnormal_result = dtype == DType::kFloat64 && scale.decode_exponent < -1022;
  scale.decode = std::ldexp(1.0, scale.decode_exponent);
  return scale;
}

static_assert(sizeof(std::fenv_t) <= 64, "room for the saved environment");

DefaultFloatEnvironment::DefaultFloatEnvironment() {
  auto* saved = new (saved_) std::fenv_t;
  std::fegetenv(saved);
  std::fesetenv(FE_DFL_ENV);
}

DefaultFloatEnvironment::~DefaultFloatEnvironment() {
  std::fesetenv(std::launder(reinterpret_cast<std::fenv_t*>(saved_)));
}

}  // namespace netreduce
