// The fixed-point format of one message: docs/numerics.md.
//
// Every element x of the message satisfies |x| < 2^E on all ranks. It travels as q = rint(x * 2^(F - E)),
// where F = L - 1 - ceil(log2 n) leaves headroom for the sum of n of them in an L-bit lane.
#pragma once

#include <cstdint>

#include "datapath/communicator.h"

namespace netreduce {

// F for a lane width and number of summands.
int fraction_bits(uint32_t lane_bits, uint32_t world_size);

// E for the largest biased exponent of a message, as found in float32 (float64 for kFloat64) elements.
int exponent_bound(DType dtype, uint32_t biased_exponent);

// What encoding and decoding the elements of one message needs.
struct Scale {
  // 2^(F - E) as two factors, because it may exceed what the element's type can represent; both products
  // are exact, or too small to matter.
  float encode_float[2];
  double encode_double[2];
  int32_t limit;         // 2^F - 1 for 16-bit lanes, where rounding may reach 2^F

  double decode;         // 2^(E - F), divided by n if AVG and n is a power of two
  double divisor;        // n if AVG and n is not a power of two, else 1
  bool subnormal_result; // float64 whose unit is below the normal range: decode in extended precision
  int decode_exponent;   // of `decode`

  uint32_t world_size;
  ReduceOp op;
};

Scale make_scale(DType dtype, uint32_t lane_bits, uint32_t world_size, ReduceOp op, uint32_t biased_exponent);

// The default floating-point environment for as long as it lives: round to nearest even, subnormals kept
// (torch.set_flush_denormal would make ranks differ).
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment();
  ~DefaultFloatEnvironment();
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  alignas(16) unsigned char saved_[64];
};

}  // namespace netreduce
