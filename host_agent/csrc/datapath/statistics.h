// Counters that the datapath writes and any thread reads.
#pragma once

#include <atomic>
#include <cstdint>

#include "datapath/communicator.h"

namespace netreduce {

class Counter {
 public:
  void add(uint64_t amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  uint64_t read() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct Counters {
  Counter calls, tensor_bytes, packets_sent, packets_resent, results_received, duplicates_received,
      unaggregated_received, wire_bytes_sent;

  Statistics read() const {
    Statistics s;
    s.calls = calls.read();
    s.tensor_bytes = tensor_bytes.read();
    s.packets_sent = packets_sent.read();
    s.packets_resent = packets_resent.read();
    s.results_received = results_received.read();
    s.duplicates_received = duplicates_received.read();
    s.unaggregated_received = unaggregated_received.read();
    s.wire_bytes_sent = wire_bytes_sent.read();
    return s;
  }
};

}  // namespace netreduce
