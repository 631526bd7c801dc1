// AVG for Gloo, which has only SUM.
#pragma once

#include <ATen/ATen.h>

namespace netreduce {

// Whether a sum of this type can be made an average as the switch's are: not bool, nor what Gloo cannot sum.
inline bool can_average(at::ScalarType type) {
  return at::isFloatingType(type) || at::isIntegralType(type, /*includeBool=*/false);
}

// Makes a sum over `size` ranks an average in place. Integers are truncated towards zero (docs/numerics.md).
inline void divide(at::Tensor& sum, int64_t size) {
  if (at::isFloatingType(sum.scalar_type()))
    sum.div_(size);
  else  // int64, because `size` may exceed the tensor's type
    sum.copy_(sum.to(at::kLong).div(size, "trunc"));
}

}  // namespace netreduce
