// The collectives that the script called on one process group, in the order of the calls.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace netreduce {

// The ranks of a correct program make the same collectives in the same order. So when a call does not finish,
// comparing the ranks' logs finds the rank that called something else.
class CollectiveLog {
 public:
  struct Excerpt {
    uint64_t first = 1;              // number of the first of `names`
    std::vector<std::string> names;  // up to the last one
  };

  // `name` has static storage. Returns the collective's number: 1, 2, …
  uint64_t add(const char* name) {
    std::lock_guard<std::mutex> lock(mutex_);
    names_.push_back(name);
    if (names_.size() > kKept) names_.pop_front();
    return ++count_;
  }
  uint64_t count() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return count_;
  }
  Excerpt recent() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return {count_ - names_.size() + 1, {names_.begin(), names_.end()}};
  }

 private:
  static constexpr size_t kKept = 256;

  mutable std::mutex mutex_;
  std::deque<const char*> names_;
  uint64_t count_ = 0;
};

}  // namespace netreduce
