#include "torch/session.h"

#include <unistd.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include "torch/average.h"
#include "torch/describe.h"
#include "torch/flat.h"
#include "torch/mismatch.h"

namespace netreduce {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

constexpr milliseconds kMismatchPatience{3000};
constexpr milliseconds kDeparturePatience{5000};
constexpr milliseconds kAbortPoll{100};
constexpr const char* kNonFiniteReason = "NaN or Inf in the input";

std::exception_ptr backend_error(const std::string& message) {
  return std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, __LINE__}, message));
}

std::optional<DType> switch_dtype(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return DType::kFloat32;
    case at::kHalf: return DType::kFloat16;
    case at::kBFloat16: return DType::kBFloat16;
    case at::kDouble: return DType::kFloat64;
    case at::kChar: return DType::kInt8;
    case at::kByte: return DType::kUInt8;
    case at::kInt: return DType::kInt32;
    case at::kLong: return DType::kInt64;
    default: return std::nullopt;
  }
}

}  // namespace

Session::Session(std::string job, int rank, int size, std::string reason)
    : job_(std::move(job)),
      rank_(rank),
      size_(size),
      process_(::getpid()),
      reason_(std::move(reason)),
      queue_(std::make_unique<CallQueue>()) {}

Session::~Session() {
  if (foreign()) {
    // The threads and locks behind these exist in the parent only.
    (void)communicator_.release();
    (void)companion_.release();
    (void)store_.release();
    (void)queue_.release();
    return;
  }
  close(milliseconds(0));
}

bool Session::foreign() const { return process_ != ::getpid(); }

void Session::attach(std::unique_ptr<Communicator> communicator, const c10::intrusive_ptr<c10d::Store>& store) {
  std::lock_guard<std::mutex> lock(mutex_);
  communicator_ = std::move(communicator);
  store_ = store;
}

void Session::set_companion(c10::intrusive_ptr<c10d::Backend> companion) {
  std::lock_guard<std::mutex> lock(mutex_);
  companion_ = std::move(companion);
  attended_ = true;
}

void Session::detach(std::string reason) {
  std::unique_ptr<Communicator> communicator;
  std::lock_guard<std::mutex> lock(mutex_);
  communicator.swap(communicator_);
  reason_ = std::move(reason);
}

CallQueue& Session::queue() {
  TORCH_CHECK_WITH(DistBackendError, !foreign(), "netreduce: job ", job_, " rank ", rank_,
                   ": this process group belongs to process ", process_,
                   "; a forked child must make its own");
  return *queue_;
}

Route Session::route(at::ScalarType type, bool empty, const c10d::ReduceOp& op) const {
  Route route;
  const bool sum = op == c10d::ReduceOp::SUM, average = op == c10d::ReduceOp::AVG;
  const auto dtype = switch_dtype(type);
  route.op = average ? ReduceOp::kAvg : ReduceOp::kSum;
  if (!attached()) {
    route.reason = reason_;
  } else if (!dtype) {
    route.reason = "dtype " + dtype_name(type);
  } else if (!sum && !average) {
    route.reason = "op " + op_name(op);
  } else if (empty) {
    route.reason = "empty tensor";
  } else if (communicator_->supports(*dtype, route.op, &route.reason)) {
    route.through_switch = true;
    route.dtype = *dtype;
  }
  return route;
}

std::exception_ptr Session::error(const std::string& message) const {
  return backend_error(c10::str("netreduce: job ", job_, " rank ", rank_, ": ", message));
}

std::exception_ptr Session::fail(const std::string& reason) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (failure_.empty()) failure_ = reason;
  }
  changed_.notify_all();
  return error(reason);
}

std::exception_ptr Session::disagree(const std::string& call) {
  const auto calls = exchange_calls(*store_, rank_, size_, call, kMismatchPatience);
  return fail(c10::str("the ranks disagree on what to reduce. ", join_calls(calls),
                       ". No tensor was changed. Make all ranks call all_reduce in the same order with equal "
                       "element counts, dtypes and ops; this process group cannot be used any more."));
}

std::string Session::failure() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void Session::check_usable(const std::string& call) const {
  const auto failure = this->failure();
  if (!failure.empty())
    std::rethrow_exception(error(call + " was not run, because the process group failed before: " + failure));
}

void Session::reduce_in_switch(const std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options,
                               const Route& route, const std::string& call, milliseconds timeout) {
  check_usable(call);
  // Results are written behind autograd's back, as every backend does.
  at::AutoDispatchBelowADInplaceOrView guard;
  const Flat flat(tensors);
  const auto& buffer = flat.buffer();
  Outcome outcome;
  try {
    outcome = communicator_->all_reduce(buffer.data_ptr(), buffer.numel(), route.dtype, route.op, timeout);
  } catch (const MismatchError&) {
    std::rethrow_exception(disagree(call));
  } catch (const DatapathError& error) {
    fail(error.what());
    std::rethrow_exception(backend_error(c10::str("netreduce: ", error.what())));  // names job and rank
  }
  if (outcome == Outcome::kNonFinite) {
    fallbacks_.count("allreduce", kNonFiniteReason, buffer.nbytes());
    run_companion(buffer, options, timeout);
  }
  flat.unpack();
}

void Session::reduce_by_companion(const std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options,
                                  const std::string& call, milliseconds timeout) {
  check_usable(call);
  at::AutoDispatchBelowADInplaceOrView guard;
  const Flat flat(tensors);
  agree(tensors.front(), flat.buffer().numel(), options, call, timeout);
  run_companion(flat.buffer(), options, timeout);
  flat.unpack();
}

// Gloo does not notice when the ranks' element counts differ; it sums what memory there is. So the ranks
// compare their arguments first: one small allgather.
void Session::agree(const at::Tensor& like, int64_t elements, const c10d::AllreduceOptions& options,
                    const std::string& call, milliseconds timeout) {
  auto mine = at::tensor({static_cast<int64_t>(options.reduceOp.op_), static_cast<int64_t>(like.scalar_type()),
                          elements},
                         at::kLong);
  std::vector<at::Tensor> inputs{mine};
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int rank = 0; rank < size_; ++rank) outputs[0].push_back(at::zeros_like(mine));
  c10d::AllgatherOptions gather;
  gather.timeout = timeout;
  try {
    wait_for_gloo(companion_->allgather(outputs, inputs, gather));
  } catch (const std::exception& gloo_error) {
    // A peer that gave up first closes its connections; the reason for that is the better message.
    const auto failure = this->failure();
    std::rethrow_exception(failure.empty() ? fail(c10::str(call, ": ", c10_message(gloo_error)))
                                           : error(call + ": " + failure));
  }
  for (const auto& theirs : outputs[0])
    if (!theirs.equal(mine)) std::rethrow_exception(disagree(call));
}

void Session::run_companion(at::Tensor buffer, const c10d::AllreduceOptions& options, milliseconds timeout) {
  c10d::AllreduceOptions forwarded = options;
  forwarded.timeout = timeout;
  const bool average = options.reduceOp == c10d::ReduceOp::AVG && can_average(buffer.scalar_type());
  if (average) forwarded.reduceOp = c10d::ReduceOp::SUM;  // Gloo has no AVG
  std::vector<at::Tensor> tensors{buffer};
  wait_for_gloo(companion_->allreduce(tensors, forwarded));
  if (average) divide(buffer, size_);
}

void Session::wait_for_gloo(const c10::intrusive_ptr<c10d::Work>& work) {
  struct Done {
    std::mutex mutex;
    std::condition_variable changed;
    bool value = false;
  };
  auto done = std::make_shared<Done>();
  work->getFuture()->addCallback([done](c10::ivalue::Future&) {
    std::lock_guard<std::mutex> lock(done->mutex);
    done->value = true;
    done->changed.notify_all();
  });
  std::unique_lock<std::mutex> lock(done->mutex);
  // Gloo cannot be interrupted, so an abort leaves its operation behind.
  while (!done->changed.wait_for(lock, kAbortPoll, [&] { return done->value; })) {
    const auto failure = this->failure();
    if (failure.empty()) continue;
    companion_stuck_ = true;
    std::rethrow_exception(error(failure));
  }
  lock.unlock();
  work->wait();
}

void Session::abort(const std::string& reason) {
  if (foreign()) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.empty()) return;
    failure_ = reason;
    if (communicator_) communicator_->abort(reason);
  }
  changed_.notify_all();
}

Statistics Session::statistics() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return communicator_ ? communicator_->statistics() : last_statistics_;
}

void Session::close(milliseconds patience) {
  if (foreign()) return;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (closing_) {
      changed_.wait(lock, [this] { return released_; });
      return;
    }
    closing_ = true;
  }
  if (!queue_->drain(SteadyClock::now() + patience))
    abort("the process group was destroyed while calls were running");
  queue_->stop();

  std::unique_ptr<Communicator> communicator;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (communicator_) last_statistics_ = communicator_->statistics();
    closed_ = true;
    changed_.notify_all();
    // The controller should hear of the departure before the switch sees the port go.
    if (attended_) changed_.wait_for(lock, kDeparturePatience, [this] { return departed_; });
    communicator.swap(communicator_);
  }
  communicator.reset();
  // Destroying a Gloo group waits for its operations.
  if (companion_stuck_) {
    (void)companion_.release();
  } else {
    companion_.reset();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  released_ = true;
  changed_.notify_all();
}

bool Session::wait_closed(milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, timeout, [this] { return closed_ || !failure_.empty(); });
  return closed_;
}

void Session::departed() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    departed_ = true;
  }
  changed_.notify_all();
}

}  // namespace netreduce
