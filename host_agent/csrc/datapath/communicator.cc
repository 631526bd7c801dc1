#include "datapath/communicator.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "datapath/data_transfer.h"
#include "datapath/error.h"
#include "datapath/fixed_point.h"
#include "datapath/layout.h"
#include "datapath/prelude.h"
#include "datapath/statistics.h"
#include "datapath/stream.h"
#include "datapath/wire.h"

namespace netreduce {
namespace {

// New packets between two looks at what has arrived.
constexpr uint32_t kBurst = 16;
constexpr size_t kReceiveBatch = 64;

// A timeout of ages must not overflow the clock.
Clock::time_point deadline_after(std::chrono::milliseconds timeout) {
  return Clock::now() + std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24 * 365));
}

void require_valid(const CommunicatorConfig& config) {
  NETREDUCE_REQUIRE(config.world_size, >=, 1u, "a job has ranks");
  NETREDUCE_REQUIRE(config.world_size, <=, wire::MAX_RANKS, "one switch aggregates no more ranks");
  NETREDUCE_REQUIRE(config.rank, <, config.world_size, "ranks are numbered from 0");
  NETREDUCE_REQUIRE(config.window, >=, 1u, "packets outstanding");
  NETREDUCE_REQUIRE(config.window, <=, wire::SLOT_COUNT / 2, "a stream uses two slots per packet of its window");
  const uint32_t* counts_end = std::end(wire::BLOCK_COUNTS);
  if (std::find(std::begin(wire::BLOCK_COUNTS), counts_end, config.max_blocks) == counts_end)
    throw std::invalid_argument(cat("max_blocks is ", config.max_blocks, ", not 1, 2, 4, 8 or 16"));
  if (config.streams.empty()) throw std::invalid_argument("a communicator needs at least one stream");
  auto legal = [](uint32_t bits) { return bits == 16 || bits == 32 || bits == 64; };
  if (!legal(config.float_lane_bits))
    throw std::invalid_argument(cat("float_lane_bits is ", config.float_lane_bits, ", not 16, 32 or 64"));
  for (const StreamConfig& a : config.streams) {
    if (!legal(a.lane_bits)) throw std::invalid_argument(cat("lane_bits is ", a.lane_bits, ", not 16, 32 or 64"));
    for (const StreamConfig& b : config.streams)
      if (&a != &b && (a.lane_bits == b.lane_bits || a.wire_job == b.wire_job))
        throw std::invalid_argument("two streams have the same lane width or the same wire job");
  }
}

}  // namespace

struct Communicator::Impl {
  Impl(CommunicatorConfig config_in, std::unique_ptr<Wire> wire_in)
      : config(std::move(config_in)), wire(std::move(wire_in)), creator(::getpid()) {
    require_valid(config);
    if (wire == nullptr) throw std::invalid_argument("a communicator needs a wire");
    // The narrowest lanes first: every rank must take the same stream for the preludes.
    std::sort(config.streams.begin(), config.streams.end(),
              [](const StreamConfig& a, const StreamConfig& b) { return a.lane_bits < b.lane_bits; });
    const auto predecessor = static_cast<uint8_t>((config.rank + config.world_size - 1) % config.world_size);
    for (const StreamConfig& s : config.streams)
      streams.push_back(std::make_unique<Stream>(
          StreamIdentity{s.wire_job, static_cast<uint8_t>(config.rank), predecessor, config.world_size, config.window,
                         config.first_k},
          *wire, counters));
  }

  Stream* stream_for(uint32_t lane_bits) {
    for (size_t i = 0; i < streams.size(); ++i)
      if (config.streams[i].lane_bits == lane_bits) return streams[i].get();
    return nullptr;
  }

  std::string job() const { return cat("job ", config.job_name, ", rank ", config.rank, ", "); }

  // Runs `body` unless something broke before; remembers the first error as the reason for all later calls.
  template <typename Body>
  auto guarded(const CallArguments& call, Body body) {
    if (::getpid() != creator)
      throw AbortedError(cat(job(), describe(call), ": this communicator belongs to the process that was forked "
                                                    "from; make a process group of this process's own"));
    std::lock_guard<std::mutex> one_call(call_mutex);
    throw_if_broken(call);
    DefaultFloatEnvironment environment;
    try {
      return body();
    } catch (const MismatchError& e) {
      throw broken(MismatchError(cat(job(), describe(call), ": ", e.what(), "; all ranks must call all_reduce in the same "
                                     "order with the same dtype, number of elements and op")));
    } catch (const IntegrityError& e) {
      throw broken(IntegrityError(cat(job(), describe(call), ": switch ", config.switch_name, " returned a wrong sum: ",
                                      e.what(), "; nothing of it was reported as a result. Look at the job's counters "
                                      "with `netreduce ctl counters` and restart the job")));
    } catch (const TimeoutError& e) {
      throw broken(TimeoutError(cat(job(), describe(call), ": ", e.what())));
    } catch (const AbortedError& e) {
      throw broken(AbortedError(cat(job(), describe(call), ": ", e.what())));
    } catch (const WireError& e) {
      throw broken(WireError(cat(job(), describe(call), ": ", e.what())));
    } catch (const std::exception& e) {
      broken(std::runtime_error(e.what()));
      throw;
    }
  }

  template <typename Error>
  Error broken(Error error) {
    std::lock_guard<std::mutex> lock(cause_mutex);
    if (first_cause.empty()) first_cause = error.what();
    is_broken.store(true);
    return error;
  }

  void throw_if_broken(const CallArguments& call) {
    if (!is_broken.load()) return;
    std::lock_guard<std::mutex> lock(cause_mutex);
    throw AbortedError(cat(job(), describe(call), " was not started: this communicator failed before (", first_cause,
                           "); make a new process group"));
  }

  // Sends and receives until every result of the stream's transfer is in.
  void run(Stream& stream, Transfer& transfer, bool gathering, Clock::time_point deadline,
           std::chrono::milliseconds timeout) {
    stream.begin(transfer, gathering);
    struct End {
      Stream& stream;
      ~End() { stream.end(); }
    } end{stream};
    while (!stream.done()) {
      if (aborted.load(std::memory_order_relaxed)) throw AbortedError(abort_reason());
      const Clock::time_point now = Clock::now();
      if (now >= deadline) throw TimeoutError(timed_out(stream, gathering, timeout, now));
      const uint32_t sent = stream.send(kBurst, now);
      wire->flush();  // also what receive() below had resent
      if (receive() != 0 || sent == kBurst) continue;
      // Only now that nothing has arrived: a result that waits to be read while this thread was not
      // running is not late.
      if (stream.next_timer() <= now) {
        stream.expire(now);
        wire->flush();
      }
      wire->wait(std::min(stream.next_timer(), deadline));
    }
    wire->flush();
  }

  // Hands everything that has arrived to the stream whose job it names.
  size_t receive() {
    Packet packets[kReceiveBatch];
    const size_t count = wire->receive(packets, kReceiveBatch);
    if (count == 0) return 0;
    struct Release {
      Wire& wire;
      ~Release() { wire.release(); }
    } release{*wire};
    const Clock::time_point now = Clock::now();
    for (size_t i = 0; i < count; ++i) {
      const auto header = read_header(packets[i].data, packets[i].length);
      if (!header) continue;
      const uint8_t* blocks = packets[i].data + wire::NR_HEADER_BYTES;
      const uint32_t block_count = (packets[i].length - wire::NR_HEADER_BYTES) / wire::BLOCK_BYTES;
      for (auto& stream : streams)
        if (stream->job() == header->job) stream->receive(*header, blocks, block_count, now);
    }
    return count;
  }

  std::string timed_out(const Stream& stream, bool gathering, std::chrono::milliseconds timeout,
                        Clock::time_point now) const {
    std::string text = cat("no complete result within ", timeout.count(), " ms from switch ", config.switch_name, " over ",
                           wire->description(), ": ", stream.progress(now));
    const std::string diagnosis = wire->diagnosis();
    if (!diagnosis.empty()) text += cat("; ", diagnosis);
    text += gathering ? ". Either some rank has not made this call, or the switch does not aggregate for this job"
                      : ". All ranks had begun this call; one of them, or the switch, has stopped since";
    return text + ": check `netreduce ctl jobs`";
  }

  std::string abort_reason() {
    std::lock_guard<std::mutex> lock(cause_mutex);
    return abort_text;
  }

  CommunicatorConfig config;
  std::unique_ptr<Wire> wire;
  const pid_t creator;
  Counters counters;
  std::vector<std::unique_ptr<Stream>> streams;
  std::mutex call_mutex;
  std::atomic<uint64_t> next_call{1};

  std::atomic<bool> aborted{false}, is_broken{false};
  std::mutex cause_mutex;
  std::string first_cause, abort_text;
};

Communicator::Communicator(CommunicatorConfig config, std::unique_ptr<Wire> wire)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(wire))) {}

Communicator::~Communicator() = default;

bool Communicator::supports(DType dtype, ReduceOp, std::string* reason) const {
  const uint32_t lane_bits = lane_bits_of(dtype, impl_->config.float_lane_bits);
  if (impl_->stream_for(lane_bits) != nullptr) return true;
  if (reason != nullptr) *reason = cat(name(dtype), " needs ", lane_bits, "-bit lanes, which this job does not have");
  return false;
}

void Communicator::probe(std::chrono::milliseconds timeout) {
  const CallArguments call;  // number 0
  impl_->guarded(call, [&] {
    const Clock::time_point deadline = deadline_after(timeout);
    const CommunicatorConfig& config = impl_->config;
    for (size_t i = 0; i < impl_->streams.size(); ++i) {
      Prelude prelude({call, config.streams[i].lane_bits, config.max_blocks, config.rank, config.world_size});
      impl_->run(*impl_->streams[i], prelude, true, deadline, timeout);
    }
  });
}

// Two transfers. The prelude always goes through the first stream, so that ranks whose dtypes, and hence
// lane widths, differ still meet. When its results are in, every rank has begun this call and all know the
// same exponents; or all know that they disagree, or that some element is not finite, and stop alike.
Outcome Communicator::all_reduce(void* data, uint64_t count, DType dtype, ReduceOp op,
                                 std::chrono::milliseconds timeout) {
  NETREDUCE_REQUIRE(count, >, 0u, "an all-reduce of no elements needs no switch");
  const CommunicatorConfig& config = impl_->config;
  std::string reason;
  if (!supports(dtype, op, &reason)) throw std::invalid_argument(reason);
  const uint32_t lane_bits = lane_bits_of(dtype, config.float_lane_bits);
  CallArguments call{impl_->next_call.load(), dtype, op, count};

  return impl_->guarded(call, [&] {
    call.number = impl_->next_call.fetch_add(1);
    const Clock::time_point deadline = deadline_after(timeout);
    const CallContext context{call, lane_bits, config.max_blocks, config.rank, config.world_size};
    const DataLayout layout(lane_bits, config.max_blocks, count);

    Prelude prelude(context, data, layout);
    impl_->run(*impl_->streams.front(), prelude, true, deadline, timeout);
    if (!prelude.all_finite()) return Outcome::kNonFinite;

    DataTransfer transfer(context, data, layout, prelude);
    impl_->run(*impl_->stream_for(lane_bits), transfer, false, deadline, timeout);
    impl_->counters.calls.add();
    impl_->counters.tensor_bytes.add(count * element_size(dtype));
    return Outcome::kReduced;
  });
}

uint64_t Communicator::next_call() const { return impl_->next_call.load(); }

void Communicator::abort(const std::string& reason) {
  {
    std::lock_guard<std::mutex> lock(impl_->cause_mutex);
    if (!impl_->aborted.load()) impl_->abort_text = reason;
    if (impl_->first_cause.empty()) impl_->first_cause = reason;
  }
  impl_->aborted.store(true);
  impl_->is_broken.store(true);
  impl_->wire->interrupt();
}

Statistics Communicator::statistics() const { return impl_->counters.read(); }

}  // namespace netreduce
