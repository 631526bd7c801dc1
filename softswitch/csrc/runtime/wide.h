/* Integers wider than 64 bits: arrays of 64-bit limbs, least significant first, in two's
 * complement modulo 2^(64 n).  `n` is a compile-time constant in generated code.
 *
 * Destination and sources of one call are either the same array or do not overlap.  Operations
 * that work limb by limb (and, or, xor, not) are not here: generated code fuses whole expressions
 * of them into one loop, which the compiler vectorises.
 */
#ifndef SSW_RUNTIME_WIDE_H
#define SSW_RUNTIME_WIDE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "bytes.h"

/* Iterations of a loop over limbs are independent of each other: see above. */
#define SSW_LIMBS(i, n) _Pragma("GCC ivdep") for (size_t i = 0; i < (n); ++i)

SSW_INLINE void ssw_wide_copy(uint64_t *d, const uint64_t *s, unsigned n) { memcpy(d, s, 8 * n); }

/* Extends the m low limbs of s to n limbs, with zeros or with the sign of the top limb. */
SSW_INLINE void ssw_wide_extend(uint64_t *d, unsigned n, const uint64_t *s, unsigned m, bool sign) {
  uint64_t fill = sign && (int64_t)s[m - 1] < 0 ? ~UINT64_C(0) : 0;
  for (unsigned i = 0; i < n; ++i) d[i] = i < m ? s[i] : fill;
}

SSW_INLINE void ssw_wide_from_scalar(uint64_t *d, unsigned n, uint64_t value, bool sign) {
  uint64_t fill = sign && (int64_t)value < 0 ? ~UINT64_C(0) : 0;
  d[0] = value;
  for (unsigned i = 1; i < n; ++i) d[i] = fill;
}

SSW_INLINE void ssw_wide_add(uint64_t *d, const uint64_t *a, const uint64_t *b, unsigned n) {
#if defined(__x86_64__)
  unsigned char carry = 0;
#pragma GCC unroll 64
  for (unsigned i = 0; i < n; ++i) {
    unsigned long long sum;
    carry = _addcarry_u64(carry, a[i], b[i], &sum);
    d[i] = sum;
  }
#else
  uint64_t carry = 0;
  for (unsigned i = 0; i < n; ++i) {
    unsigned __int128 sum = (unsigned __int128)a[i] + b[i] + carry;
    d[i] = (uint64_t)sum;
    carry = (uint64_t)(sum >> 64);
  }
#endif
}

SSW_INLINE void ssw_wide_sub(uint64_t *d, const uint64_t *a, const uint64_t *b, unsigned n) {
#if defined(__x86_64__)
  unsigned char borrow = 0;
#pragma GCC unroll 64
  for (unsigned i = 0; i < n; ++i) {
    unsigned long long difference;
    borrow = _subborrow_u64(borrow, a[i], b[i], &difference);
    d[i] = difference;
  }
#else
  uint64_t borrow = 0;
  for (unsigned i = 0; i < n; ++i) {
    unsigned __int128 difference = (unsigned __int128)a[i] - b[i] - borrow;
    d[i] = (uint64_t)difference;
    borrow = (uint64_t)(difference >> 64) & 1;
  }
#endif
}

/* d must not be a or b. */
static inline __attribute__((unused)) void ssw_wide_mul(uint64_t *d, const uint64_t *a,
                                                        const uint64_t *b, unsigned n) {
  memset(d, 0, 8 * n);
  for (unsigned i = 0; i < n; ++i) {
    uint64_t carry = 0;
    for (unsigned j = 0; i + j < n; ++j) {
      unsigned __int128 t = (unsigned __int128)a[i] * b[j] + d[i + j] + carry;
      d[i + j] = (uint64_t)t;
      carry = (uint64_t)(t >> 64);
    }
  }
}

/* d must not be s. */
SSW_INLINE void ssw_wide_shl(uint64_t *d, const uint64_t *s, uint64_t amount, unsigned n) {
  uint64_t limbs = amount / 64;
  unsigned bits = amount % 64;
  for (unsigned i = 0; i < n; ++i) {
    uint64_t high = i >= limbs ? s[i - limbs] : 0;
    uint64_t low = i > limbs ? s[i - limbs - 1] : 0;
    d[i] = bits ? high << bits | low >> (64 - bits) : high;
  }
}

/* Shifts m limbs right by `amount` into n limbs, filling with zeros or the sign; d must not be s. */
SSW_INLINE void ssw_wide_shr(uint64_t *d, unsigned n, const uint64_t *s, unsigned m, uint64_t amount,
                             bool sign) {
  uint64_t fill = sign && (int64_t)s[m - 1] < 0 ? ~UINT64_C(0) : 0;
  uint64_t limbs = amount / 64;
  unsigned bits = amount % 64;
  for (unsigned i = 0; i < n; ++i) {
    uint64_t low = limbs < m && i < m - limbs ? s[i + limbs] : fill;
    uint64_t high = limbs < m && i + 1 < m - limbs ? s[i + limbs + 1] : fill;
    d[i] = bits ? low >> bits | high << (64 - bits) : low;
  }
}

/* A shift amount that saturates instead of wrapping. */
SSW_INLINE uint64_t ssw_wide_amount(const uint64_t *s, unsigned n) {
  for (unsigned i = 1; i < n; ++i)
    if (s[i]) return UINT64_MAX;
  return s[0];
}

SSW_INLINE bool ssw_wide_is_zero(const uint64_t *s, unsigned n) {
  uint64_t any = 0;
  SSW_LIMBS(i, n) any |= s[i];
  return any == 0;
}

SSW_INLINE bool ssw_wide_equal(const uint64_t *a, const uint64_t *b, unsigned n) {
  uint64_t any = 0;
  SSW_LIMBS(i, n) any |= a[i] ^ b[i];
  return any == 0;
}

SSW_INLINE bool ssw_wide_less(const uint64_t *a, const uint64_t *b, unsigned n, bool sign) {
  if (sign && a[n - 1] != b[n - 1]) return (int64_t)a[n - 1] < (int64_t)b[n - 1];
  for (unsigned i = n; i-- > 0;)
    if (a[i] != b[i]) return a[i] < b[i];
  return false;
}

/* Clamps to [low, high] given as n-limb two's complement. */
SSW_INLINE void ssw_wide_clamp(uint64_t *d, const uint64_t *s, const uint64_t *low,
                               const uint64_t *high, unsigned n) {
  const uint64_t *from = ssw_wide_less(s, low, n, true) ? low : ssw_wide_less(high, s, n, true) ? high : s;
  if (from != d) ssw_wide_copy(d, from, n);
}

/* Quotient and remainder of non-negative integers, bit by bit; both are 0 for a zero divisor. */
static inline __attribute__((unused)) void ssw_wide_divide(uint64_t *quotient, uint64_t *remainder,
                                                           const uint64_t *a, const uint64_t *b,
                                                           unsigned n) {
  memset(quotient, 0, 8 * n);
  memset(remainder, 0, 8 * n);
  if (ssw_wide_is_zero(b, n)) return;
  for (unsigned bit = 64 * n; bit-- > 0;) {
    uint64_t carried = remainder[n - 1] >> 63;
    for (unsigned i = n; i-- > 1;) remainder[i] = remainder[i] << 1 | remainder[i - 1] >> 63;
    remainder[0] = remainder[0] << 1 | (a[bit / 64] >> (bit % 64) & 1);
    if (carried || !ssw_wide_less(remainder, b, n, false)) {
      ssw_wide_sub(remainder, remainder, b, n);
      quotient[bit / 64] |= UINT64_C(1) << (bit % 64);
    }
  }
}

/* `bits` big-endian bits that fill whole bytes. */
SSW_INLINE void ssw_wide_load(uint64_t *d, const uint8_t *p, unsigned bits) {
  unsigned n = (bits + 63) / 64, head = bits / 8 % 8;
  p += head;
  size_t whole = bits / 64;
  SSW_LIMBS(i, whole) d[whole - 1 - i] = ssw_be64(p + 8 * i);
  if (head) d[n - 1] = ssw_load_be(p - head, head);
}

SSW_INLINE void ssw_wide_store(uint8_t *p, const uint64_t *s, unsigned bits) {
  unsigned n = (bits + 63) / 64, head = bits / 8 % 8;
  if (head) ssw_store_be(p, head, s[n - 1]);
  p += head;
  size_t whole = bits / 64;
  SSW_LIMBS(i, whole) {
    uint64_t v = __builtin_bswap64(s[whole - 1 - i]);
    memcpy(p + 8 * i, &v, 8);
  }
}

/* The same for a field of any width at any bit offset. */
SSW_INLINE void ssw_wide_get_bits(uint64_t *d, const uint8_t *p, unsigned bit, unsigned width) {
  unsigned i = 0;
  for (; width >= 64; width -= 64) d[i++] = ssw_get_bits(p, bit + width - 64, 64);
  if (width) d[i] = ssw_get_bits(p, bit, width);
}

SSW_INLINE void ssw_wide_put_bits(uint8_t *p, unsigned bit, unsigned width, const uint64_t *s) {
  unsigned i = 0;
  for (; width >= 64; width -= 64) ssw_put_bits(p, bit + width - 64, 64, s[i++]);
  if (width) ssw_put_bits(p, bit, width, s[i]);
}

#endif
