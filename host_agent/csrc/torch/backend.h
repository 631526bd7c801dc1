// torch.distributed's view of NetReduce: all-reduces through the switch, everything else by Gloo.
#pragma once

#include <atomic>
#include <memory>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "torch/session.h"

namespace netreduce {

// Owns an inner Gloo group by composition. Calls are expected in the same order on all ranks, as with Gloo.
//
// Order: all-reduces of dense CPU tensors run one by one in the session's queue. What Gloo does instead runs
// on the calling thread's order, on the inner group. See Session::set_companion for why there are two Gloo groups.
class NetReduceBackend : public c10d::Backend {
 public:
  // `name` is what getBackendName() says: "gloo" in transparent mode, else "netreduce".
  NetReduceBackend(c10::intrusive_ptr<c10d::Backend> inner, std::shared_ptr<Session> session, std::string name,
                   std::chrono::milliseconds timeout);
  ~NetReduceBackend() override;

  const c10::intrusive_ptr<c10d::Backend>& inner() const { return inner_; }
  const std::shared_ptr<Session>& session() const { return session_; }

  const std::string getBackendName() const override { return name_; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return inner_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override;

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(std::vector<at::Tensor>& tensors,
                                                     const c10d::AllreduceCoalescedOptions& options) override;
  // Also waits for the all-reduces made before it, as Gloo's does.
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;

  // Waits for the calls made so far, then ends the group's use of the switch.
  void shutdown() override;
  void abort() override;

  void setSequenceNumberForGroup() override { inner_->setSequenceNumberForGroup(); }
  // Counts the calls of the queue and those of the inner group.
  uint64_t getSequenceNumberForGroup() override;

  // Everything below is the inner group's.
  c10::intrusive_ptr<c10d::Work> allreduce_sparse(std::vector<at::Tensor>& tensors,
                                                  const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors,
                                        const c10d::ReduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather_coalesced(std::vector<std::vector<at::Tensor>>& outputs,
                                                     std::vector<at::Tensor>& inputs,
                                                     const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                                 std::vector<at::Tensor>& inputs,
                                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs,
                                        std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> scatter(std::vector<at::Tensor>& outputs,
                                         std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter(std::vector<at::Tensor>& outputs,
                                                std::vector<std::vector<at::Tensor>>& inputs,
                                                const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& output_splits,
                                               std::vector<int64_t>& input_splits,
                                               const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                          const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int destination, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int source, int tag) override;
  c10::intrusive_ptr<c10d::Work> recvAnysource(std::vector<at::Tensor>& tensors, int tag) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  bool supportsSplitting() const override { return inner_->supportsSplitting(); }
  bool supportsCoalescing() const override { return inner_->supportsCoalescing(); }
  bool supportsTimeEstimation() const override { return inner_->supportsTimeEstimation(); }
  bool supportsShrinking() const override { return inner_->supportsShrinking(); }
  c10::intrusive_ptr<Backend> shrink(const std::vector<int64_t>& excluded, int flags,
                                     const c10::intrusive_ptr<Options>& options) override;
  // Groups made by split and merge are plain Gloo groups.
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override;
  c10::intrusive_ptr<Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                    const c10::intrusive_ptr<Options>& options, const int& rank,
                                    const int& size) override;
  void startCoalescing() override { inner_->startCoalescing(); }
  c10::intrusive_ptr<c10d::Work> endCoalescing() override { return inner_->endCoalescing(); }
  void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override {
    inner_->registerOnCompletionHook(std::move(hook));
  }
  void waitForPendingWorks() override { inner_->waitForPendingWorks(); }
  void enableCollectivesTiming() override { inner_->enableCollectivesTiming(); }
  void eagerConnectSingleDevice(at::Device device) override { inner_->eagerConnectSingleDevice(device); }
  void setGroupUid(const std::string& uid) override {
    Backend::setGroupUid(uid);
    inner_->setGroupUid(uid);
  }
  c10d::ErrorType getError() override { return inner_->getError(); }
  std::shared_ptr<c10::Allocator> getMemAllocator() override { return inner_->getMemAllocator(); }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    return inner_->allocateTensor(size, options);
  }
  bool supportsTensorAlloc(c10::DeviceIndex device) override { return inner_->supportsTensorAlloc(device); }
  void suspend() override { inner_->suspend(); }
  void resume() override { inner_->resume(); }
  std::unordered_map<std::string, uint64_t> getMemoryStats() override { return inner_->getMemoryStats(); }

 private:
  c10::intrusive_ptr<c10d::Work> reduce_tensors(std::vector<at::Tensor>& tensors,
                                                const c10d::AllreduceOptions& options, c10d::OpType type,
                                                const char* collective, const char* title);
  c10::intrusive_ptr<c10d::Work> reduce_by_inner(std::vector<at::Tensor>& tensors,
                                                 const c10d::AllreduceOptions& options, c10d::OpType type,
                                                 const char* title);
  c10::intrusive_ptr<c10d::Work> forward_reduce(std::vector<at::Tensor>& tensors,
                                                const c10d::AllreduceOptions& options, c10d::OpType type);
  // A collective that Gloo does; a message between two ranks.
  void count(const char* collective, uint64_t tensor_bytes);
  void count_message(const char* direction, uint64_t tensor_bytes);
  std::chrono::milliseconds timeout_of(const c10d::AllreduceOptions& options) const;
  void close();

  c10::intrusive_ptr<c10d::Backend> inner_;
  std::shared_ptr<Session> session_;
  const std::string name_;
  std::atomic<std::chrono::milliseconds> timeout_;
};

}  // namespace netreduce
