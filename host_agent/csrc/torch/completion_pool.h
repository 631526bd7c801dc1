// Threads that complete futures and so run their callbacks.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace netreduce {

// Whether this thread belongs to a datapath or completion pool, and so must not join one.
bool on_own_thread();
void mark_own_thread();

// A callback may start another all-reduce and block until its future completes (PowerSGD does).
// So no task ever waits for another: when every thread is taken, one more is started.
class CompletionPool {
 public:
  CompletionPool() = default;
  ~CompletionPool() { stop(); }
  CompletionPool(const CompletionPool&) = delete;
  CompletionPool& operator=(const CompletionPool&) = delete;

  // Runs `task` soon, after stop() at once and here; it must not throw.
  void post(std::function<void()> task);
  // Runs what was posted, then ends all threads. Not on_own_thread().
  void stop();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool stopped_ = false;
};

}  // namespace netreduce
