/* Big-endian loads and stores of whole bytes and of bit ranges.
 *
 * Bit offsets count from the most significant bit of the first byte, as headers are drawn.
 * Widths and offsets are compile-time constants in generated code, so each call folds to a few
 * instructions; no function touches a byte outside the range that holds the bits.
 */
#ifndef SSW_RUNTIME_BYTES_H
#define SSW_RUNTIME_BYTES_H

#include <stdint.h>
#include <string.h>

#define SSW_INLINE static inline __attribute__((always_inline, unused))

SSW_INLINE uint64_t ssw_be16(const uint8_t *p) {
  uint16_t v;
  memcpy(&v, p, sizeof v);
  return __builtin_bswap16(v);
}

SSW_INLINE uint64_t ssw_be32(const uint8_t *p) {
  uint32_t v;
  memcpy(&v, p, sizeof v);
  return __builtin_bswap32(v);
}

SSW_INLINE uint64_t ssw_be64(const uint8_t *p) {
  uint64_t v;
  memcpy(&v, p, sizeof v);
  return __builtin_bswap64(v);
}

/* The low `width` bits set; width 0..64. */
SSW_INLINE uint64_t ssw_mask(unsigned width) {
  return width >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << width) - 1;
}

/* An unsigned integer of `bytes` (0..8) big-endian bytes. */
SSW_INLINE uint64_t ssw_load_be(const uint8_t *p, unsigned bytes) {
  switch (bytes) {
    case 1: return p[0];
    case 2: return ssw_be16(p);
    case 3: return ssw_be16(p) << 8 | p[2];
    case 4: return ssw_be32(p);
    case 5: return ssw_be32(p) << 8 | p[4];
    case 6: return ssw_be32(p) << 16 | ssw_be16(p + 4);
    case 7: return ssw_be32(p) << 24 | ssw_be16(p + 4) << 8 | p[6];
    case 8: return ssw_be64(p);
    default: return 0;
  }
}

/* Stores the low `bytes` (0..8) bytes of `value`. */
SSW_INLINE void ssw_store_be(uint8_t *p, unsigned bytes, uint64_t value) {
  value = bytes ? __builtin_bswap64(value << (64 - 8 * bytes)) : 0;
  memcpy(p, &value, bytes);
}

/* `width` (1..64) bits that start `bit` bits after p. */
SSW_INLINE uint64_t ssw_get_bits(const uint8_t *p, unsigned bit, unsigned width) {
  p += bit / 8;
  bit %= 8;
  unsigned span = (bit + width + 7) / 8;
  uint64_t value;
  if (span <= 8) {
    value = ssw_load_be(p, span) >> (8 * span - bit - width);
  } else {
    unsigned tail = bit + width - 64; /* 1..7 bits in the ninth byte */
    value = ssw_be64(p) << tail | p[8] >> (8 - tail);
  }
  return value & ssw_mask(width);
}

/* Replaces `width` (1..64) bits that start `bit` bits after p; other bits stay. */
SSW_INLINE void ssw_put_bits(uint8_t *p, unsigned bit, unsigned width, uint64_t value) {
  while (width > 0) {
    unsigned room = 8 - bit % 8;
    unsigned take = width < room ? width : room;
    uint8_t mask = (uint8_t)(((1u << take) - 1) << (room - take));
    uint8_t bits = (uint8_t)((value >> (width - take)) << (room - take));
    p[bit / 8] = (uint8_t)((p[bit / 8] & ~mask) | (bits & mask));
    bit += take;
    width -= take;
  }
}

/* Sign-extends the low `width` (1..64) bits. */
SSW_INLINE uint64_t ssw_sign_extend(uint64_t value, unsigned width) {
  return (uint64_t)((int64_t)(value << (64 - width)) >> (64 - width));
}

#endif
