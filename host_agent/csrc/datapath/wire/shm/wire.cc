// Frames in shared memory, packed in place in the ring's slots and read out of them.
#include <sched.h>

#include <algorithm>

#include "datapath/error.h"
#include "datapath/wire.h"
#include "datapath/wire/poll.h"
#include "datapath/wire/shm/frame.h"
#include "datapath/wire/shm/port.h"

namespace netreduce {
namespace {

// Spinning pays only where the switch and every rank can run at the same time.
constexpr std::chrono::microseconds kSpin{20};
constexpr int kSpinMinimumProcessors = 8;

bool worth_spinning() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) >= kSpinMinimumProcessors;
}

void relax_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class ShmWire : public Wire {
 public:
  ShmWire(const std::string& path, uint32_t port, const CommunicatorConfig& config)
      : where_(cat("shm:", path, " port ", port)),
        switch_name_(config.switch_name),
        number_(port),
        headers_(config.self, config.successor),
        filter_(config.predecessor, config.self),
        port_(path, port),
        out_(port_.layout().to_switch),
        in_(port_.layout().to_host),
        spin_(worth_spinning()) {
    head_ = load(out_.head, __ATOMIC_RELAXED);
    tail_ = load(in_.tail, __ATOMIC_RELAXED);
  }

  std::string description() const override { return where_; }
  // Memory is fast, but ranks and switch share processors and wait for time slices: less would resend
  // what is only late.
  std::chrono::nanoseconds minimum_rto() const override { return std::chrono::milliseconds(10); }
  std::chrono::nanoseconds initial_rto() const override { return std::chrono::milliseconds(20); }

  uint8_t* reserve(uint32_t length) override {
    length_ = kFrameHeaderBytes + length;
    const bool full = head_ - load(out_.tail, __ATOMIC_ACQUIRE) >= SHM_PORT_SLOTS;
    slot_ = full ? nullptr : &out_.slots[head_ % SHM_PORT_SLOTS];
    uint8_t* frame = full ? overflow_ : slot_->frame;
    headers_.write(frame, length);
    return frame + kFrameHeaderBytes;
  }

  void commit() override {
    if (slot_ == nullptr) {  // a full queue drops
      store(out_.dropped, load(out_.dropped, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
      ++dropped_;
      return;
    }
    slot_->length = length_;
    store(out_.head, ++head_, __ATOMIC_RELEASE);
    unannounced_ = true;
  }

  void flush() override {
    if (!unannounced_) return;
    unannounced_ = false;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);  // head before sleeping: see shm_port.h
    if (load(out_.sleeping, __ATOMIC_SEQ_CST) == 0) return;
    store(out_.sleeping, 0, __ATOMIC_SEQ_CST);
    signal_event(port_.wake_switch());
  }

  size_t receive(Packet* out, size_t capacity) override {
    const uint32_t head = load(in_.head, __ATOMIC_ACQUIRE);
    size_t count = 0;
    for (taken_ = tail_; taken_ != head && count < capacity; ++taken_) {
      const shm_port_slot& slot = in_.slots[taken_ % SHM_PORT_SLOTS];
      const uint32_t frame_length = load(slot.length, __ATOMIC_RELAXED);
      if (frame_length > SHM_PORT_MAX_FRAME) continue;
      const uint32_t length = filter_.payload_length(slot.frame, frame_length);
      if (length != 0) out[count++] = {slot.frame + kFrameHeaderBytes, length};
    }
    if (count == 0) release();
    return count;
  }

  void release() override {
    if (taken_ == tail_) return;
    tail_ = taken_;
    store(in_.tail, tail_, __ATOMIC_RELEASE);
  }

  void wait(Clock::time_point until) override {
    if (spin_) {
      const auto spin_until = std::min(until, Clock::now() + kSpin);
      do {
        for (int i = 0; i < 64; ++i) {
          if (arrived()) return;
          relax_processor();
        }
      } while (Clock::now() < spin_until);
    }
    store(in_.sleeping, 1, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (arrived()) {
      store(in_.sleeping, 0, __ATOMIC_SEQ_CST);
      return;
    }
    pollfd descriptors[] = {{port_.wake_client(), POLLIN, 0}, {port_.socket(), POLLIN, 0}};
    poll_until(descriptors, 2, until);
    store(in_.sleeping, 0, __ATOMIC_SEQ_CST);
    if (descriptors[0].revents != 0) drain_event(port_.wake_client());
    if (descriptors[1].revents != 0 && port_.closed() && !arrived())
      throw AbortedError(cat("switch ", switch_name_, " closed port ", number_, " (", where_,
                             "): it has stopped; look at its log and restart the job"));
  }

  void interrupt() noexcept override { signal_event(port_.wake_client()); }

  std::string diagnosis() const override {
    return dropped_ == 0 ? std::string()
                         : cat(dropped_, " packets found the ring to the switch full: it is not keeping up, or hangs");
  }

 private:
  // The switch is another process: every shared integer is accessed atomically.
  static uint32_t load(const uint32_t& from, int order) { return __atomic_load_n(&from, order); }
  static void store(uint32_t& to, uint32_t value, int order) { __atomic_store_n(&to, value, order); }
  bool arrived() const { return load(in_.head, __ATOMIC_ACQUIRE) != tail_; }

  const std::string where_, switch_name_;
  const uint32_t number_;
  const FrameHeaders headers_;
  const FrameFilter filter_;
  ShmPort port_;
  shm_port_ring& out_;
  shm_port_ring& in_;
  const bool spin_;

  uint32_t head_, tail_, taken_ = 0;  // own copies of the counters that only this side writes
  shm_port_slot* slot_ = nullptr;     // reserved; null: the ring is full
  uint32_t length_ = 0;
  bool unannounced_ = false;
  uint64_t dropped_ = 0;
  uint8_t overflow_[SHM_PORT_MAX_FRAME];
};

}  // namespace

std::unique_ptr<Wire> make_shm_wire(const std::string& path, uint32_t port, const CommunicatorConfig& config) {
  return std::make_unique<ShmWire>(path, port, config);
}

}  // namespace netreduce
