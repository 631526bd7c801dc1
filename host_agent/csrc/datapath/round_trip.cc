#include "datapath/round_trip.h"

#include <algorithm>
#include <cstdlib>

namespace netreduce {

void RoundTrip::sample(Duration sample) {
  if (smoothed_ == Duration::zero()) {
    smoothed_ = std::max(sample, Duration(1));
    variation_ = sample / 2;
  } else {
    // A sample also holds the other ranks' recoveries: on a lossy path most long ones are somebody's timeout,
    // and timeouts that follow each other's timeouts only grow. One sample may say "twice as long", no more.
    sample = std::min(sample, 2 * smoothed_);
    const Duration error = smoothed_ > sample ? smoothed_ - sample : sample - smoothed_;
    variation_ = (3 * variation_ + error) / 4;
    smoothed_ = std::max((7 * smoothed_ + sample) / 8, Duration(1));
  }
  timeout_ = std::clamp(smoothed_ + 4 * variation_, minimum_, kMaximum);
  doublings_ = 0;
}

void RoundTrip::back_off() {
  if (timeout() < kMaximum) ++doublings_;
}

RoundTrip::Duration RoundTrip::timeout() const { return std::min(timeout_ * (1 << doublings_), kMaximum); }

}  // namespace netreduce
