// One process group's use of the switch: its calls, its Communicator, and what Gloo does for it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "datapath/communicator.h"
#include "torch/call_queue.h"
#include "torch/collective_log.h"
#include "torch/fallback_counters.h"
#include "torch/packed.h"

namespace netreduce {

// What can stand between a call and the switch. Equal on all ranks of a correct program.
struct Route {
  bool through_switch = false;
  std::string reason;  // why not
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
};

// Shared by the backend, which torch owns, and the job client, which attends to the controller.
class Session {
 public:
  // Without attach(), a session only counts and queues: everything goes to Gloo because of `reason`.
  Session(std::string job, int rank, int size, std::string reason);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Before the first call. `store` is for error reports: a connection of its own, since others may block in a wait.
  void attach(std::unique_ptr<Communicator> communicator, const c10::intrusive_ptr<c10d::Store>& store);
  // Before the first call, once the ranks agreed on using the switch. `companion` is a second Gloo group over
  // the same ranks, which only the queue's calls use: the queue and the caller's own Gloo collectives each
  // have their own order, and on one group they would interleave differently on different ranks.
  // From here on close() expects a job client to call departed().
  void set_companion(c10::intrusive_ptr<c10d::Backend> companion);
  // See Communicator::probe.
  void probe(std::chrono::milliseconds timeout) { communicator_->probe(timeout); }
  // Undoes attach() when the ranks could not agree on using the switch.
  void detach(std::string reason);
  bool attached() const { return communicator_ != nullptr; }

  const std::string& job() const { return job_; }
  const std::string& reason() const { return reason_; }
  FallbackCounters& fallbacks() { return fallbacks_; }
  CollectiveLog& collectives() { return collectives_; }
  CallQueue& queue();

  // Where an all-reduce of dense CPU tensors of `type` goes; `empty`: they have no elements.
  Route route(at::ScalarType type, bool empty, const c10d::ReduceOp& op) const;

  // The bodies of calls; on the queue's thread. `tensors` are of one dtype, reduced as one run of elements.
  void reduce_in_switch(const std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options,
                        const Route& route, const std::string& call, std::chrono::milliseconds timeout);
  void reduce_by_companion(const std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options,
                           const std::string& call, std::chrono::milliseconds timeout);

  // Fails the running call and every later one, from any thread. The first reason counts.
  void abort(const std::string& reason);
  Statistics statistics() const;  // of the Communicator, also after close()

  // Ends the process group's use of the switch: waits until its calls are done, at most until they time out
  // or `patience` is over, then ends the threads. Idempotent; does nothing in a forked child.
  void close(std::chrono::milliseconds patience);
  // For the job client: whether close() was called, waiting up to `timeout` for it.
  bool wait_closed(std::chrono::milliseconds timeout);
  // By the job client, when the controller knows that this rank left: the wire may go.
  void departed();
  // Why this session failed; empty: it did not.
  std::string failure() const;

  // Made in another process than this one, that is, before a fork.
  bool foreign() const;

 private:
  void check_usable(const std::string& call) const;
  std::exception_ptr error(const std::string& message) const;
  // Remembers a failure after which the ranks may be at different calls, and returns its exception.
  std::exception_ptr fail(const std::string& reason);
  // The same for a call in which the ranks' arguments differ.
  std::exception_ptr disagree(const std::string& call);
  void wait_for_gloo(const c10::intrusive_ptr<c10d::Work>& work);
  void agree(const at::Tensor& like, int64_t elements, const c10d::AllreduceOptions& options,
             const std::string& call, std::chrono::milliseconds timeout);
  void run_companion(at::Tensor buffer, const c10d::AllreduceOptions& options, std::chrono::milliseconds timeout);

  const std::string job_;
  const int rank_, size_;
  const int process_;
  std::string reason_;
  FallbackCounters fallbacks_;
  CollectiveLog collectives_;
  std::unique_ptr<Communicator> communicator_;
  c10::intrusive_ptr<c10d::Backend> companion_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::unique_ptr<CallQueue> queue_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string failure_;
  bool closing_ = false, closed_ = false, departed_ = false, released_ = false;  // in this order
  bool attended_ = false;  // a job client will call departed()
  std::atomic<bool> companion_stuck_{false};
  Statistics last_statistics_;
};

}  // namespace netreduce
