#include "datapath/wire/poll.h"

#include <unistd.h>

#include <algorithm>

#include "datapath/error.h"

namespace netreduce {

int poll_until(pollfd* descriptors, nfds_t count, Clock::time_point until) {
  // At most a minute at a time keeps `max()` from overflowing; callers loop anyway.
  const auto left = std::clamp<Clock::duration>(until - std::min(until, Clock::now()), Clock::duration::zero(),
                                                std::chrono::minutes(1));
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(left);
  timespec timeout;
  timeout.tv_sec = whole.count();
  timeout.tv_nsec = std::chrono::nanoseconds(left - whole).count();
  const int ready = ::ppoll(descriptors, count, &timeout, nullptr);
  if (ready >= 0) return ready;
  if (errno == EINTR) return 0;
  throw WireError(system_error("ppoll on", "the wire's descriptors", errno));
}

void signal_event(int eventfd) noexcept {
  const uint64_t one = 1;
  // EAGAIN: the counter is full, hence readable already.
  [[maybe_unused]] const ssize_t written = ::write(eventfd, &one, sizeof one);
}

void drain_event(int eventfd) noexcept {
  uint64_t count;
  // EAGAIN: somebody else was faster.
  [[maybe_unused]] const ssize_t taken = ::read(eventfd, &count, sizeof count);
}

}  // namespace netreduce
