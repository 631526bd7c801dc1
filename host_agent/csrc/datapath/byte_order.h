// Big-endian loads and stores at any alignment.
#pragma once

#include <cstdint>
#include <cstring>

namespace netreduce {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the datapath is written for little-endian hosts");

inline uint8_t swap_bytes(uint8_t v) { return v; }
inline uint16_t swap_bytes(uint16_t v) { return __builtin_bswap16(v); }
inline uint32_t swap_bytes(uint32_t v) { return __builtin_bswap32(v); }
inline uint64_t swap_bytes(uint64_t v) { return __builtin_bswap64(v); }

template <typename T>
T load_big(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return swap_bytes(value);
}

template <typename T>
void store_big(uint8_t* at, T value) {
  value = swap_bytes(value);
  std::memcpy(at, &value, sizeof value);
}

}  // namespace netreduce
