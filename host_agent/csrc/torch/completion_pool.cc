#include "torch/completion_pool.h"

namespace netreduce {
namespace {
thread_local bool own_thread = false;
}

bool on_own_thread() { return own_thread; }
void mark_own_thread() { own_thread = true; }

void CompletionPool::post(std::function<void()> task) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (stopped_) {
    lock.unlock();
    task();
    return;
  }
  tasks_.push_back(std::move(task));
  if (tasks_.size() > idle_) threads_.emplace_back([this] { run(); });
  posted_.notify_one();
}

void CompletionPool::run() {
  mark_own_thread();
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    ++idle_;
    posted_.wait(lock, [this] { return stopped_ || !tasks_.empty(); });
    --idle_;
    if (tasks_.empty()) return;
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // what it holds is released outside the lock
    lock.lock();
  }
}

void CompletionPool::stop() {
  std::vector<std::thread> threads;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
    threads.swap(threads_);
  }
  posted_.notify_all();
  for (auto& thread : threads) thread.join();
}

}  // namespace netreduce
