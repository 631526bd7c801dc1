// Prints a digest of what the kernels make of pseudo-random elements, for comparing builds.
#include <cstdio>
#include <cstring>
#include <vector>

#include "datapath/half_precision.h"
#include "datapath/kernels.h"
#include "datapath/layout.h"

using namespace netreduce;

namespace {

uint64_t state = 1;
uint64_t next_random() {  // Knuth's MMIX generator, upper half
  uint64_t high = (state = state * 6364136223846793005u + 1442695040888963407u) >> 32;
  return high << 32 | (state = state * 6364136223846793005u + 1442695040888963407u) >> 32;
}

uint64_t digest = 14695981039346656037u;
void feed(const void* data, size_t bytes) {  // FNV-1a
  for (size_t i = 0; i < bytes; ++i) digest = (digest ^ static_cast<const uint8_t*>(data)[i]) * 1099511628211u;
}

}  // namespace

int main() {
  for (int d = 0; d < 8; ++d) {
    const auto dtype = static_cast<DType>(d);
    for (uint32_t lane_bits : {16u, 32u, 64u}) {
      if (!(is_float(dtype) && dtype != DType::kFloat64) && lane_bits != lane_bits_of(dtype, 32)) continue;
      const Kernels& kernel = kernels(dtype, lane_bits);
      for (uint32_t n : {2u, 3u, 64u}) {
        for (int round = 0; round < 40; ++round) {
          const uint32_t lanes = 4096 * 8 / lane_bits, count = lanes - 4;
          std::vector<uint64_t> elements(lanes);
          auto* bytes = reinterpret_cast<uint8_t*>(elements.data());
          const size_t size = element_size(dtype);
          // Random mantissas and signs around one exponent, which wanders over the whole range.
          for (uint32_t i = 0; i < count; ++i) {
            uint64_t bits = next_random();
            const uint64_t e = round * 51 + bits % 8;
            if (dtype == DType::kFloat32) bits = (bits & 0x807fffffu) | ((e % 255) << 23);
            if (dtype == DType::kFloat16) bits = (bits & 0x83ffu) | ((e % 31) << 10);
            if (dtype == DType::kBFloat16) bits = (bits & 0x807fu) | ((e % 255) << 7);
            if (dtype == DType::kFloat64) bits = (bits & 0x800fffffffffffffu) | ((e % 2047) << 52);
            std::memcpy(bytes + i * size, &bits, size);
          }
          uint32_t exponent = 0;
          if (kernel.magnitude != nullptr) {
            const Magnitude m = kernel.magnitude(bytes, count);
            feed(&m.biased_exponent, sizeof m.biased_exponent);
            exponent = m.biased_exponent;
          }
          for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
            const Scale scale = make_scale(dtype, lane_bits, n, op, exponent);
            std::vector<uint8_t> packet(4096);
            const Checksums sent = kernel.encode(bytes, count, packet.data(), lanes, scale, next_random());
            feed(packet.data(), packet.size());
            feed(sent.data(), sizeof sent);
            for (auto& byte : packet) byte = static_cast<uint8_t>(next_random());
            std::vector<uint64_t> decoded(lanes);
            const Checksums received = kernel.decode(packet.data(), lanes, decoded.data(), count, scale, next_random());
            feed(decoded.data(), count * size);
            feed(received.data(), sizeof received);
          }
        }
      }
    }
  }
  std::printf("%016llx\n", static_cast<unsigned long long>(digest));
}
