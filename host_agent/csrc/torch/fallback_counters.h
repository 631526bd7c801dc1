// Collectives that Gloo did, by reason.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace netreduce {

struct FallbackCount {
  uint64_t calls = 0;
  uint64_t tensor_bytes = 0;
};

class FallbackCounters {
 public:
  using Key = std::pair<std::string, std::string>;  // collective, reason

  void count(const std::string& collective, const std::string& reason, uint64_t tensor_bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& cell = counts_[{collective, reason}];
    cell.calls += 1;
    cell.tensor_bytes += tensor_bytes;
  }
  std::map<Key, FallbackCount> read() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return counts_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<Key, FallbackCount> counts_;
};

}  // namespace netreduce
