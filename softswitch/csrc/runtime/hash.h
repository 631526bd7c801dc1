/* Hash and checksum algorithms of the v1model architecture, over a byte string. */
#ifndef SSW_RUNTIME_HASH_H
#define SSW_RUNTIME_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Ones' complement checksum of RFC 1071; an odd last byte is padded with zero on the right. */
uint64_t ssw_hash_csum16(const uint8_t *data, size_t length);
uint64_t ssw_hash_crc16(const uint8_t *data, size_t length);     /* CRC-16/ARC */
uint64_t ssw_hash_crc_ccitt(const uint8_t *data, size_t length); /* CRC-16/IBM-3740 */
uint64_t ssw_hash_crc32(const uint8_t *data, size_t length);     /* IEEE 802.3 */
uint64_t ssw_hash_xor16(const uint8_t *data, size_t length);
uint64_t ssw_hash_xor32(const uint8_t *data, size_t length);
uint64_t ssw_hash_identity(const uint8_t *data, size_t length); /* the first eight bytes */

#endif
