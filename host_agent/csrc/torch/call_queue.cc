#include "torch/call_queue.h"

#include <c10/util/Exception.h>

namespace netreduce {

c10::intrusive_ptr<QueuedWork> CallQueue::submit(
    Call call, const std::function<c10::intrusive_ptr<QueuedWork>(uint64_t)>& make_work, bool inline_allowed) {
  std::unique_lock<std::mutex> lock(mutex_);
  TORCH_CHECK_WITH(DistBackendError, !stopped_, "netreduce: ", call.description,
                   " after the process group was destroyed");
  if (call.numbered) ++submitted_;
  call.number = submitted_;
  auto work = call.work = make_work(call.number);
  if (inline_allowed && !busy_ && calls_.empty()) {
    execute(call, lock);
    return work;
  }
  calls_.push_back(std::move(call));
  // Started on first use: a process group that never needs the queue has no thread.
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
  return work;
}

void CallQueue::execute(Call& call, std::unique_lock<std::mutex>& lock) {
  busy_ = true;
  running_ = RunningCall{call.number, call.collective, call.description, call.signature, Clock::now()};
  lock.unlock();
  std::exception_ptr error;
  try {
    call.run(call.number);
  } catch (...) {
    error = std::current_exception();
  }
  call.run = nullptr;  // releases tensors before waiters go on
  call.work->complete(error, completions_);
  call.work.reset();
  lock.lock();
  busy_ = false;
  running_.reset();
  changed_.notify_all();
}

void CallQueue::run() {
  mark_own_thread();
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !busy_ && (stopped_ || !calls_.empty()); });
    if (calls_.empty()) return;
    Call call = std::move(calls_.front());
    calls_.pop_front();
    execute(call, lock);
  }
}

bool CallQueue::idle() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return !busy_ && calls_.empty();
}

bool CallQueue::drain(Clock::time_point until) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_until(lock, until, [this] { return !busy_ && calls_.empty(); });
}

std::optional<RunningCall> CallQueue::running() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return running_;
}

uint64_t CallQueue::submitted() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return submitted_;
}

void CallQueue::stop() {
  std::thread thread;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
    thread.swap(thread_);
  }
  changed_.notify_all();
  if (thread.joinable()) thread.join();
  completions_.stop();
}

}  // namespace netreduce
