// All-reduce through the switch for one process group: the datapath's public interface.
//
// A Communicator owns a Wire and one Stream per lane width. all_reduce() blocks its caller; the
// caller serialises calls (torch's backend runs them on one datapath thread). abort() and
// statistics() may be called from any thread. Nothing here knows torch.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace netreduce {

enum class DType : uint8_t { kFloat32, kFloat16, kBFloat16, kFloat64, kInt8, kUInt8, kInt32, kInt64 };
enum class ReduceOp : uint8_t { kSum, kAvg };
const char* name(DType dtype);
const char* name(ReduceOp op);
size_t element_size(DType dtype);  // bytes

struct Endpoint {
  std::string mac;  // "02:00:00:00:00:01"
  std::string ip;   // dotted quad
  uint16_t udp_port = 0;
};

struct StreamConfig {
  uint16_t wire_job = 0;  // NR.job
  uint32_t lane_bits = 0; // 16, 32 or 64
};

struct CommunicatorConfig {
  std::string job_name;  // for messages
  uint32_t rank = 0;
  uint32_t world_size = 0;
  uint32_t window = 0;      // packets outstanding per stream
  uint32_t max_blocks = 0;  // 1, 2, 4, 8 or 16
  uint32_t float_lane_bits = 32;  // `precision`: lanes of float32, float16, bfloat16
  std::vector<StreamConfig> streams;
  Endpoint self, successor, predecessor;
  std::string switch_name;  // for messages
  uint32_t first_k = 0;     // stream index of every stream's first packet; tests set it near 2^32
};

// How a call is described in messages: "call 7: all_reduce(SUM, float32, 1000 elements)".
struct CallArguments {
  uint64_t number = 0;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  uint64_t count = 0;  // elements
};
std::string describe(const CallArguments& call);

enum class Outcome : uint8_t {
  kReduced,    // the buffer holds the result, bitwise the same on every rank
  kNonFinite,  // some rank's input has NaN or Inf: nothing was changed, every rank got this outcome
};

// Errors. Every message names the job, the rank, the call, and what to do next.
class DatapathError : public std::runtime_error { using runtime_error::runtime_error; };
// The ranks' arguments differ. Every rank gets it, before any data was sent; the group is unusable.
class MismatchError : public DatapathError { using DatapathError::DatapathError; };
// A result failed its contributor count or checksum. The buffer's contents are undefined.
class IntegrityError : public DatapathError { using DatapathError::DatapathError; };
// The call did not finish before its deadline; says which packets are missing and how often resent. The
// buffer may be partly reduced.
class TimeoutError : public DatapathError { using DatapathError::DatapathError; };
// abort() was called, or the switch end of the wire is gone.
class AbortedError : public DatapathError { using DatapathError::DatapathError; };

struct Statistics {  // counted since construction; see HostStatistics in job_service.proto
  uint64_t calls = 0, tensor_bytes = 0, packets_sent = 0, packets_resent = 0, results_received = 0,
           duplicates_received = 0, unaggregated_received = 0, wire_bytes_sent = 0;
};

class Wire;  // wire.h: shm and udp implementations

class Communicator {
 public:
  Communicator(CommunicatorConfig config, std::unique_ptr<Wire> wire);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Whether (dtype, op) has a stream of the right lane width here; otherwise why not, for Gloo's count.
  bool supports(DType dtype, ReduceOp op, std::string* reason) const;

  // One prelude-like exchange on every stream: returns when every rank's packets met in the switch.
  // Throws TimeoutError when they do not within `timeout`: no switch, or one without our tables.
  void probe(std::chrono::milliseconds timeout);

  // Sums `count` elements at `data` over all ranks, in place; count > 0; data contiguous, naturally aligned.
  Outcome all_reduce(void* data, uint64_t count, DType dtype, ReduceOp op,
                     std::chrono::milliseconds timeout);

  // The number that the next all_reduce will carry (1, 2, …).
  uint64_t next_call() const;

  // Makes the running call, and every later one, throw AbortedError with this message.
  void abort(const std::string& reason);

  Statistics statistics() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace netreduce
