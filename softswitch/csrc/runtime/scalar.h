/* Operators on 64-bit values whose C counterparts are undefined for some operands. */
#ifndef SSW_RUNTIME_SCALAR_H
#define SSW_RUNTIME_SCALAR_H

#include "bytes.h"

SSW_INLINE uint64_t ssw_shl(uint64_t value, uint64_t amount) { return amount < 64 ? value << amount : 0; }

SSW_INLINE uint64_t ssw_shr(uint64_t value, uint64_t amount) { return amount < 64 ? value >> amount : 0; }

/* Rounds towards minus infinity. */
SSW_INLINE uint64_t ssw_sar(uint64_t value, uint64_t amount) {
  return (uint64_t)((int64_t)value >> (amount < 64 ? amount : 63));
}

/* Division by zero gives 0 and remainder 0; the architecture leaves it undefined. */
SSW_INLINE uint64_t ssw_div(uint64_t a, uint64_t b) { return b ? a / b : 0; }

SSW_INLINE uint64_t ssw_mod(uint64_t a, uint64_t b) { return b ? a % b : 0; }

SSW_INLINE uint64_t ssw_min(uint64_t a, uint64_t b) { return a < b ? a : b; }

SSW_INLINE uint64_t ssw_clamp_signed(uint64_t value, uint64_t low, uint64_t high) {
  return (int64_t)value < (int64_t)low ? low : (int64_t)value > (int64_t)high ? high : value;
}

/* The element that an index into a header stack names; `size` is the one that is never valid. */
SSW_INLINE uint64_t ssw_element(uint64_t index, uint64_t size) { return index < size ? index : size; }

#endif
