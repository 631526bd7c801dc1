// The Work of a call that the session's queue runs.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace netreduce {

class CompletionPool;

class QueuedWork : public c10d::Work {
 public:
  // `title` (static storage) names the call for the profiler.
  QueuedWork(int rank, c10d::OpType type, const char* title, std::vector<at::Tensor> tensors,
             uint64_t number);

  std::vector<at::Tensor> result() override;
  // Value: the list of the call's tensors, as with Gloo. Callbacks run on the completion pool.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return number_; }
  // Also waits until a future that was asked for is done, so that its state agrees.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;

  // Once, by whoever ran the call.
  void complete(std::exception_ptr error, CompletionPool& pool);

 private:
  static void settle(c10::ivalue::Future& future, const std::vector<at::Tensor>& tensors,
                     std::exception_ptr error);

  const std::vector<at::Tensor> tensors_;
  const uint64_t number_;
  const at::ThreadLocalState caller_state_;
  std::mutex future_mutex_;  // guards the two below
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool settled_ = false;
};

}  // namespace netreduce
