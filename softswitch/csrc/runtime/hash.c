#include "hash.h"

#include <string.h>

#include "bytes.h"

uint64_t ssw_hash_csum16(const uint8_t *data, size_t length) {
  uint64_t sum = 0;
  for (; length >= 4; data += 4, length -= 4) sum += ssw_be32(data);
  if (length >= 2) {
    sum += ssw_be16(data);
    data += 2;
    length -= 2;
  }
  if (length) sum += (uint64_t)data[0] << 8;
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return ~sum & 0xffff;
}

static uint16_t crc16_table[256];
static uint16_t ccitt_table[256];
static uint32_t crc32_table[8][256]; /* slicing by eight */

__attribute__((constructor)) static void build_tables(void) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    uint16_t arc = (uint16_t)byte, ccitt = (uint16_t)(byte << 8);
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      arc = (uint16_t)(arc & 1 ? arc >> 1 ^ 0xa001 : arc >> 1);
      ccitt = (uint16_t)(ccitt & 0x8000 ? ccitt << 1 ^ 0x1021 : ccitt << 1);
      crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    }
    crc16_table[byte] = arc;
    ccitt_table[byte] = ccitt;
    crc32_table[0][byte] = crc;
  }
  for (unsigned byte = 0; byte < 256; ++byte)
    for (int slice = 1; slice < 8; ++slice) {
      uint32_t previous = crc32_table[slice - 1][byte];
      crc32_table[slice][byte] = previous >> 8 ^ crc32_table[0][previous & 0xff];
    }
}

uint64_t ssw_hash_crc16(const uint8_t *data, size_t length) {
  uint16_t crc = 0;
  while (length--) crc = (uint16_t)(crc >> 8 ^ crc16_table[(crc ^ *data++) & 0xff]);
  return crc;
}

uint64_t ssw_hash_crc_ccitt(const uint8_t *data, size_t length) {
  uint16_t crc = 0xffff;
  while (length--) crc = (uint16_t)(crc << 8 ^ ccitt_table[(crc >> 8 ^ *data++) & 0xff]);
  return crc;
}

uint64_t ssw_hash_crc32(const uint8_t *data, size_t length) {
  uint32_t crc = 0xffffffffu;
  for (; length >= 8; data += 8, length -= 8) {
    uint32_t a = crc ^ __builtin_bswap32((uint32_t)ssw_be32(data));
    uint32_t b = __builtin_bswap32((uint32_t)ssw_be32(data + 4));
    crc = crc32_table[7][a & 0xff] ^ crc32_table[6][a >> 8 & 0xff] ^ crc32_table[5][a >> 16 & 0xff] ^
          crc32_table[4][a >> 24] ^ crc32_table[3][b & 0xff] ^ crc32_table[2][b >> 8 & 0xff] ^
          crc32_table[1][b >> 16 & 0xff] ^ crc32_table[0][b >> 24];
  }
  while (length--) crc = crc >> 8 ^ crc32_table[0][(crc ^ *data++) & 0xff];
  return crc ^ 0xffffffffu;
}

/* XOR of big-endian words; a short last word is padded with zeros on the right. */
static uint64_t xor_words(const uint8_t *data, size_t length, unsigned bytes) {
  uint64_t value = 0;
  for (; length >= bytes; data += bytes, length -= bytes) value ^= ssw_load_be(data, bytes);
  if (length) value ^= ssw_load_be(data, (unsigned)length) << 8 * (bytes - length);
  return value;
}

uint64_t ssw_hash_xor16(const uint8_t *data, size_t length) { return xor_words(data, length, 2); }

uint64_t ssw_hash_xor32(const uint8_t *data, size_t length) { return xor_words(data, length, 4); }

uint64_t ssw_hash_identity(const uint8_t *data, size_t length) {
  return ssw_load_be(data, length < 8 ? (unsigned)length : 8);
}
