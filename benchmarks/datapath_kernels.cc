// Throughput of the datapath's inner loops on one core, in GB/s of tensor data.
//
//   g++ -std=c++17 -O3 -march=native -ffp-contract=off -fno-trapping-math -Ihost_agent/csrc
//     benchmarks/datapath_kernels.cc host_agent/csrc/datapath/{kernels,fixed_point,checksum,layout,types}.cc
//     -o /tmp/datapath_kernels
#include <chrono>
#include <cstdio>
#include <vector>

#include "datapath/kernels.h"
#include "datapath/layout.h"

using namespace netreduce;
using Clock = std::chrono::steady_clock;

namespace {

template <typename Body>
double gigabytes_per_second(size_t bytes, Body body) {
  body();  // warm caches and tables
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    int runs = 0;
    const auto start = Clock::now();
    do {
      body();
      ++runs;
    } while (Clock::now() - start < std::chrono::milliseconds(20));
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, 1e-9 * static_cast<double>(bytes) * runs / seconds);
  }
  return best;
}

}  // namespace

int main() {
  std::printf("%-9s %5s  %9s %9s %9s\n", "dtype", "lanes", "magnitude", "encode", "decode");
  constexpr uint32_t kPackets = 64;  // a working set beyond the first-level cache
  for (int d = 0; d < 8; ++d) {
    const auto dtype = static_cast<DType>(d);
    for (uint32_t lane_bits : {16u, 32u, 64u}) {
      if (!(is_float(dtype) && dtype != DType::kFloat64) && lane_bits != lane_bits_of(dtype, 32)) continue;
      const Kernels& kernel = kernels(dtype, lane_bits);
      const uint32_t lanes = 4096 * 8 / lane_bits;
      const size_t packet_bytes = lanes * element_size(dtype), bytes = kPackets * packet_bytes;
      std::vector<uint64_t> elements(bytes / 8 + 1, 0);
      auto* data = reinterpret_cast<char*>(elements.data());
      std::vector<uint8_t> packets(kPackets * 4160);
      const Scale scale = make_scale(dtype, lane_bits, 4, ReduceOp::kSum, 127);
      // Offset 58: behind the headers of a frame.
      const double encode = gigabytes_per_second(bytes, [&] {
        for (uint32_t p = 0; p < kPackets; ++p)
          kernel.encode(data + p * packet_bytes, lanes, packets.data() + p * 4160 + 58, lanes, scale, 1);
      });
      const double decode = gigabytes_per_second(bytes, [&] {
        for (uint32_t p = 0; p < kPackets; ++p)
          kernel.decode(packets.data() + p * 4160 + 58, lanes, data + p * packet_bytes, lanes, scale, 1);
      });
      if (kernel.magnitude != nullptr)
        std::printf("%-9s %5u  %9.1f", name(dtype), lane_bits,
                    gigabytes_per_second(bytes, [&] { kernel.magnitude(data, bytes / element_size(dtype)); }));
      else
        std::printf("%-9s %5u  %9s", name(dtype), lane_bits, "-");
      std::printf(" %9.1f %9.1f\n", encode, decode);
    }
  }
}
