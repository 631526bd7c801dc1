// Round-trip time estimate and retransmission timeout of one stream: RFC 6298.
#pragma once

#include <chrono>

namespace netreduce {

class RoundTrip {
 public:
  using Duration = std::chrono::nanoseconds;
  static constexpr Duration kMaximum = std::chrono::seconds(1);

  RoundTrip(Duration minimum, Duration initial) : minimum_(minimum), timeout_(initial) {}

  // A packet that was sent once came back after `sample` (Karn: never one that was resent).
  void sample(Duration sample);
  // A timeout expired.
  void back_off();

  Duration smoothed() const { return smoothed_; }  // 0 before the first sample
  // The timeout for a packet sent now, with the back-off so far.
  Duration timeout() const;

 private:
  Duration minimum_;
  Duration smoothed_{0}, variation_{0};
  Duration timeout_;
  int doublings_ = 0;
};

}  // namespace netreduce
