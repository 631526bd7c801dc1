// Runs the calls of one process group one at a time, in the order in which they were made.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "torch/completion_pool.h"
#include "torch/queued_work.h"

namespace netreduce {

struct Call {
  std::string description;  // "all_reduce(SUM, float32, shape [3, 4])"
  std::string signature;    // equal on all ranks of a correct program: "switch SUM float32 12"
  uint64_t collective = 0;  // its place among the group's collectives; 0: none
  bool numbered = true;     // whether it counts as a call that every rank makes
  uint64_t number = 0;      // 1, 2, … over the numbered calls; set by the queue
  c10::intrusive_ptr<QueuedWork> work;
  std::function<void(uint64_t number)> run;  // throws what becomes the work's exception
};

// The call that is running, for whoever watches over stalls.
struct RunningCall {
  uint64_t number = 0;
  uint64_t collective = 0;
  std::string description, signature;
  std::chrono::steady_clock::time_point since;
};

class CallQueue {
 public:
  using Clock = std::chrono::steady_clock;

  CallQueue() = default;
  ~CallQueue() { stop(); }
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // `make_work` gets the call's number. With `inline_allowed` and nothing pending, the call runs on this
  // thread, which saves two thread switches; else on the datapath thread. Throws after stop().
  c10::intrusive_ptr<QueuedWork> submit(
      Call call, const std::function<c10::intrusive_ptr<QueuedWork>(uint64_t)>& make_work, bool inline_allowed);

  // Whether no call is running or waiting.
  bool idle() const;
  // Waits until idle() or `until`; returns idle().
  bool drain(Clock::time_point until);
  std::optional<RunningCall> running() const;
  uint64_t submitted() const;  // numbered calls so far

  // Runs what is queued, then ends the threads. Not on_own_thread().
  void stop();

 private:
  void run();
  void execute(Call& call, std::unique_lock<std::mutex>& lock);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Call> calls_;
  std::optional<RunningCall> running_;
  bool busy_ = false;
  bool stopped_ = false;
  uint64_t submitted_ = 0;
  std::thread thread_;
  CompletionPool completions_;
};

}  // namespace netreduce
