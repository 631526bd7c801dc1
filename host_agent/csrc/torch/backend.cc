#include "torch/backend.h"

#include <Python.h>

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <thread>

#include "torch/average.h"
#include "torch/completion_pool.h"
#include "torch/describe.h"
#include "torch/flat.h"

namespace netreduce {
namespace {

using c10d::OpType;
using c10d::Work;

constexpr uint64_t kInlineBytes = 64 * 1024;
constexpr const char* kNotAllReduce = "not an all-reduce";
// As in the log of collectives, where all kinds of all-reduce are alike: their arguments are compared elsewhere.
constexpr const char* kAllReduce = "all_reduce";

// Dense and in this process's memory: what the queue can lay out as one run of elements.
bool dense_on_cpu(const std::vector<at::Tensor>& tensors) {
  for (const auto& tensor : tensors)
    if (!tensor.defined() || !tensor.device().is_cpu() || tensor.layout() != at::kStrided ||
        tensor.is_quantized() || tensor.scalar_type() != tensors.front().scalar_type())
      return false;
  return !tensors.empty();
}

std::string why_not_dense(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return "no tensors";
  for (const auto& tensor : tensors) {
    if (!tensor.defined()) return "undefined tensor";
    if (!tensor.device().is_cpu()) return c10::str("device ", c10::DeviceTypeName(tensor.device().type(), true));
    if (tensor.layout() != at::kStrided) return c10::str("layout ", tensor.layout());
    if (tensor.is_quantized()) return "quantized tensor";
  }
  return "tensors of several dtypes";
}

}  // namespace

NetReduceBackend::NetReduceBackend(c10::intrusive_ptr<Backend> inner, std::shared_ptr<Session> session,
                                   std::string name, std::chrono::milliseconds timeout)
    : Backend(inner->getRank(), inner->getSize()),
      inner_(std::move(inner)),
      session_(std::move(session)),
      name_(std::move(name)),
      timeout_(timeout) {}

NetReduceBackend::~NetReduceBackend() {
  close();
  // Gloo's destructor joins threads that a forked child does not have.
  if (session_->foreign()) (void)inner_.release();
}

void NetReduceBackend::close() {
  if (session_->foreign()) return;
  const auto patience = timeout_.load();
  if (on_own_thread()) {
    // The last reference went with a callback: joining the threads is somebody else's job.
    std::thread([session = session_, patience] { session->close(patience); }).detach();
    return;
  }
  // Callbacks that must finish first need the interpreter.
  std::optional<pybind11::gil_scoped_release> release;
  if (Py_IsInitialized() && PyGILState_Check()) release.emplace();
  session_->close(patience);
}

void NetReduceBackend::shutdown() {
  close();
  inner_->shutdown();
}

void NetReduceBackend::abort() {
  session_->abort("the process group was aborted by this process");
  inner_->abort();
}

void NetReduceBackend::setTimeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  inner_->setTimeout(timeout);
}

std::chrono::milliseconds NetReduceBackend::timeout_of(const c10d::AllreduceOptions& options) const {
  return options.timeout == c10d::kUnsetTimeout ? timeout_.load() : options.timeout;
}

uint64_t NetReduceBackend::getSequenceNumberForGroup() {
  return inner_->getSequenceNumberForGroup() + session_->queue().submitted();
}

void NetReduceBackend::count(const char* collective, uint64_t tensor_bytes) {
  session_->collectives().add(collective);
  count_message(collective, tensor_bytes);
}

void NetReduceBackend::count_message(const char* direction, uint64_t tensor_bytes) {
  session_->fallbacks().count(direction, session_->attached() ? kNotAllReduce : session_->reason(), tensor_bytes);
}

// --- All-reduce ---------------------------------------------------------------------------------

c10::intrusive_ptr<Work> NetReduceBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                     const c10d::AllreduceOptions& options) {
  // Gloo sums several tensors of one call into each other; the switch does not.
  if (tensors.size() > 1) {
    session_->collectives().add(kAllReduce);
    session_->fallbacks().count("allreduce", "several tensors in one call", total_bytes(tensors));
    return inner_->allreduce(tensors, options);
  }
  return reduce_tensors(tensors, options, OpType::ALLREDUCE, "allreduce", "netreduce:all_reduce");
}

c10::intrusive_ptr<Work> NetReduceBackend::allreduce_coalesced(
    std::vector<at::Tensor>& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return reduce_tensors(tensors, options, OpType::ALLREDUCE_COALESCED, "allreduce_coalesced",
                        "netreduce:all_reduce_coalesced");
}

c10::intrusive_ptr<Work> NetReduceBackend::reduce_tensors(std::vector<at::Tensor>& tensors,
                                                          const c10d::AllreduceOptions& options, OpType type,
                                                          const char* collective, const char* title) {
  const uint64_t bytes = total_bytes(tensors);
  auto& queue = session_->queue();
  const uint64_t place = session_->collectives().add(kAllReduce);
  if (!dense_on_cpu(tensors)) {
    session_->fallbacks().count(collective, why_not_dense(tensors), bytes);
    return forward_reduce(tensors, options, type);
  }
  const auto route = session_->route(tensors.front().scalar_type(), bytes == 0, options.reduceOp);
  if (!route.through_switch) session_->fallbacks().count(collective, route.reason, bytes);
  if (!session_->attached()) return reduce_by_inner(tensors, options, type, title);

  Call call;
  call.description = describe_call(tensors, options.reduceOp);
  call.collective = place;
  int64_t elements = 0;
  for (const auto& tensor : tensors) elements += Packed::distinct_elements(tensor);
  call.signature = c10::str(route.through_switch ? "switch " : "gloo ", op_name(options.reduceOp), ' ',
                            dtype_name(tensors.front().scalar_type()), ' ', elements);
  call.run = [session = session_.get(), tensors, options, route, timeout = timeout_of(options),
              description = call.description](uint64_t number) {
    const auto text = c10::str("call ", number, ", ", description);
    if (route.through_switch)
      session->reduce_in_switch(tensors, options, route, text, timeout);
    else
      session->reduce_by_companion(tensors, options, text, timeout);
  };
  return queue.submit(
      std::move(call),
      [&](uint64_t number) { return c10::make_intrusive<QueuedWork>(rank_, type, title, tensors, number); },
      /*inline_allowed=*/!options.asyncOp && bytes <= kInlineBytes);
}

// Without the switch. The call is made here and now, so that the inner group sees the caller's order; only
// what Gloo cannot do by itself is finished in the queue.
c10::intrusive_ptr<Work> NetReduceBackend::reduce_by_inner(std::vector<at::Tensor>& tensors,
                                                           const c10d::AllreduceOptions& options, OpType type,
                                                           const char* title) {
  const bool average = options.reduceOp == c10d::ReduceOp::AVG && can_average(tensors.front().scalar_type());
  bool plain = !average;
  for (const auto& tensor : tensors) plain = plain && Packed::is_plain(tensor);
  if (plain) return forward_reduce(tensors, options, type);

  auto flat = std::make_shared<Flat>(tensors);
  std::vector<at::Tensor> buffers{flat->buffer()};
  auto forwarded = options;
  if (average) forwarded.reduceOp = c10d::ReduceOp::SUM;  // Gloo has no AVG
  auto work = inner_->allreduce(buffers, forwarded);
  Call call;
  call.description = describe_call(tensors, options.reduceOp);
  call.numbered = false;
  call.run = [flat, work, average, size = size_](uint64_t) {
    work->wait();
    at::AutoDispatchBelowADInplaceOrView guard;
    auto buffer = flat->buffer();
    if (average) divide(buffer, size);
    flat->unpack();
  };
  return session_->queue().submit(
      std::move(call),
      [&](uint64_t number) { return c10::make_intrusive<QueuedWork>(rank_, type, title, tensors, number); },
      /*inline_allowed=*/!options.asyncOp);
}

c10::intrusive_ptr<Work> NetReduceBackend::forward_reduce(std::vector<at::Tensor>& tensors,
                                                          const c10d::AllreduceOptions& options, OpType type) {
  if (type == OpType::ALLREDUCE) return inner_->allreduce(tensors, options);
  c10d::AllreduceCoalescedOptions coalesced;
  static_cast<c10d::AllreduceOptions&>(coalesced) = options;
  return inner_->allreduce_coalesced(tensors, coalesced);
}

c10::intrusive_ptr<Work> NetReduceBackend::barrier(const c10d::BarrierOptions& options) {
  count("barrier", 0);
  auto work = inner_->barrier(options);
  auto& queue = session_->queue();
  if (queue.idle()) return work;
  Call call;
  call.description = "barrier()";
  call.numbered = false;
  call.run = [work](uint64_t) { work->wait(); };
  return queue.submit(
      std::move(call),
      [&](uint64_t number) {
        return c10::make_intrusive<QueuedWork>(rank_, OpType::BARRIER, nullptr, std::vector<at::Tensor>{}, number);
      },
      /*inline_allowed=*/false);
}

// --- The rest, by Gloo --------------------------------------------------------------------------

namespace {

uint64_t total_bytes(const std::vector<std::vector<at::Tensor>>& lists) {
  uint64_t bytes = 0;
  for (const auto& list : lists) bytes += netreduce::total_bytes(list);
  return bytes;
}

uint64_t bytes_of(const at::Tensor& tensor) { return netreduce::total_bytes(std::vector<at::Tensor>{tensor}); }

}  // namespace

c10::intrusive_ptr<Work> NetReduceBackend::allreduce_sparse(std::vector<at::Tensor>& tensors,
                                                            const c10d::AllreduceOptions& options) {
  session_->collectives().add(kAllReduce);
  session_->fallbacks().count("allreduce", "layout Sparse", netreduce::total_bytes(tensors));
  return inner_->allreduce_sparse(tensors, options);
}

c10::intrusive_ptr<Work> NetReduceBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                     const c10d::BroadcastOptions& options) {
  count("broadcast", netreduce::total_bytes(tensors));
  return inner_->broadcast(tensors, options);
}

c10::intrusive_ptr<Work> NetReduceBackend::reduce(std::vector<at::Tensor>& tensors,
                                                  const c10d::ReduceOptions& options) {
  count("reduce", netreduce::total_bytes(tensors));
  return inner_->reduce(tensors, options);
}

c10::intrusive_ptr<Work> NetReduceBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                                     std::vector<at::Tensor>& inputs,
                                                     const c10d::AllgatherOptions& options) {
  count("allgather", netreduce::total_bytes(inputs));
  return inner_->allgather(outputs, inputs, options);
}

c10::intrusive_ptr<Work> NetReduceBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                           const c10d::AllgatherOptions& options) {
  count("allgather", bytes_of(input));
  return inner_->_allgather_base(output, input, options);
}

c10::intrusive_ptr<Work> NetReduceBackend::allgather_coalesced(std::vector<std::vector<at::Tensor>>& outputs,
                                                               std::vector<at::Tensor>& inputs,
                                                               const c10d::AllgatherOptions& options) {
  count("allgather_coalesced", netreduce::total_bytes(inputs));
  return inner_->allgather_coalesced(outputs, inputs, options);
}

c10::intrusive_ptr<Work> NetReduceBackend::allgather_into_tensor_coalesced(
    std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs, const c10d::AllgatherOptions& options) {
  count("allgather_coalesced", netreduce::total_bytes(inputs));
  return inner_->allgather_into_tensor_coalesced(outputs, inputs, options);
}

c10::intrusive_ptr<Work> NetReduceBackend::gather(std::vector<std::vector<at::Tensor>>& outputs,
                                                  std::vector<at::Tensor>& inputs,
                                                  const c10d::GatherOptions& options) {
  count("gather", netreduce::total_bytes(inputs));
  return inner_->gather(outputs, inputs, options);
}

c10::intrusive_ptr<Work> NetReduceBackend::scatter(std::vector<at::Tensor>& outputs,
                                                   std::vector<std::vector<at::Tensor>>& inputs,
                                                   const c10d::ScatterOptions& options) {
  count("scatter", netreduce::total_bytes(outputs));
  return inner_->scatter(outputs, inputs, options);
}

c10::intrusive_ptr<Work> NetReduceBackend::reduce_scatter(std::vector<at::Tensor>& outputs,
                                                          std::vector<std::vector<at::Tensor>>& inputs,
                                                          const c10d::ReduceScatterOptions& options) {
  count("reduce_scatter", total_bytes(inputs));
  return inner_->reduce_scatter(outputs, inputs, options);
}

c10::intrusive_ptr<Work> NetReduceBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                const c10d::ReduceScatterOptions& options) {
  count("reduce_scatter", bytes_of(input));
  return inner_->_reduce_scatter_base(output, input, options);
}

c10::intrusive_ptr<Work> NetReduceBackend::reduce_scatter_tensor_coalesced(
    std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::ReduceScatterOptions& options) {
  count("reduce_scatter_coalesced", netreduce::total_bytes(inputs));
  return inner_->reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

c10::intrusive_ptr<Work> NetReduceBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                         std::vector<int64_t>& output_splits,
                                                         std::vector<int64_t>& input_splits,
                                                         const c10d::AllToAllOptions& options) {
  count("alltoall", bytes_of(input));
  return inner_->alltoall_base(output, input, output_splits, input_splits, options);
}

c10::intrusive_ptr<Work> NetReduceBackend::alltoall(std::vector<at::Tensor>& outputs,
                                                    std::vector<at::Tensor>& inputs,
                                                    const c10d::AllToAllOptions& options) {
  count("alltoall", netreduce::total_bytes(inputs));
  return inner_->alltoall(outputs, inputs, options);
}

c10::intrusive_ptr<Work> NetReduceBackend::send(std::vector<at::Tensor>& tensors, int destination, int tag) {
  count_message("send", netreduce::total_bytes(tensors));
  return inner_->send(tensors, destination, tag);
}

c10::intrusive_ptr<Work> NetReduceBackend::recv(std::vector<at::Tensor>& tensors, int source, int tag) {
  count_message("recv", netreduce::total_bytes(tensors));
  return inner_->recv(tensors, source, tag);
}

c10::intrusive_ptr<Work> NetReduceBackend::recvAnysource(std::vector<at::Tensor>& tensors, int tag) {
  count_message("recv", netreduce::total_bytes(tensors));
  return inner_->recvAnysource(tensors, tag);
}

void NetReduceBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  count("barrier", 0);
  inner_->monitoredBarrier(options, wait_all_ranks);
}

c10::intrusive_ptr<c10d::Backend> NetReduceBackend::shrink(const std::vector<int64_t>& excluded, int flags,
                                                           const c10::intrusive_ptr<Options>& options) {
  return inner_->shrink(excluded, flags, options);
}

c10::intrusive_ptr<c10d::Backend> NetReduceBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                          const std::vector<int>& ranks,
                                                          const c10::intrusive_ptr<Options>& options) {
  return inner_->split(store, ranks, options);
}

c10::intrusive_ptr<c10d::Backend> NetReduceBackend::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                          const c10::intrusive_ptr<Options>& options,
                                                          const int& rank, const int& size) {
  return inner_->merge(store, options, rank, size);
}

}  // namespace netreduce
