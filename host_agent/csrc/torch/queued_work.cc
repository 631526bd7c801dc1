#include "torch/queued_work.h"

#include <c10/util/Exception.h>

#include "torch/completion_pool.h"

namespace netreduce {

QueuedWork::QueuedWork(int rank, c10d::OpType type, const char* title, std::vector<at::Tensor> tensors,
                       uint64_t number)
    : Work(rank, type, title, tensors), tensors_(std::move(tensors)), number_(number) {}

std::vector<at::Tensor> QueuedWork::result() {
  TORCH_CHECK(isCompleted(), "Work needs to be completed before calling result(). "
                             "Should call wait() before result().");
  return tensors_;
}

c10::intrusive_ptr<c10::ivalue::Future> QueuedWork::getFuture() {
  std::lock_guard<std::mutex> lock(future_mutex_);
  if (!future_) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    if (settled_) settle(*future_, tensors_, exception());  // has no callbacks yet
  }
  return future_;
}

bool QueuedWork::wait(std::chrono::milliseconds timeout) {
  const bool done = Work::wait(timeout);
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    std::lock_guard<std::mutex> lock(future_mutex_);
    future = future_;
  }
  if (future) future->wait();
  return done;
}

void QueuedWork::complete(std::exception_ptr error, CompletionPool& pool) {
  finish(error);
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    std::lock_guard<std::mutex> lock(future_mutex_);
    settled_ = true;
    future = future_;
  }
  if (!future) return;
  pool.post([future, error, tensors = tensors_, state = caller_state_] {
    at::ThreadLocalStateGuard guard(state);
    settle(*future, tensors, error);
  });
}

void QueuedWork::settle(c10::ivalue::Future& future, const std::vector<at::Tensor>& tensors,
                        std::exception_ptr error) {
  if (error) {
    future.setErrorIfNeeded(error);
  } else {
    future.markCompleted(c10::IValue(tensors));
  }
}

}  // namespace netreduce
