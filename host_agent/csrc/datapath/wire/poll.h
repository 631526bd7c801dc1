// Waiting on descriptors until a point in time.
#pragma once

#include <poll.h>

#include <chrono>

#include "datapath/wire.h"

namespace netreduce {

// ppoll until `until`; returns what ppoll returns, 0 also after a signal. Throws WireError.
int poll_until(pollfd* descriptors, nfds_t count, Clock::time_point until);
// Makes an eventfd readable; async-signal-safe.
void signal_event(int eventfd) noexcept;
void drain_event(int eventfd) noexcept;

}  // namespace netreduce
