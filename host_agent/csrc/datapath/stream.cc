#include "datapath/stream.h"

#include <algorithm>

#include "datapath/error.h"

namespace netreduce {
namespace {

// Results for this many later packets mean that a packet is lost, not late (RFC 5681's duplicate ACKs).
constexpr uint32_t kReorderingThreshold = 3;
// Ranks begin a call milliseconds apart: until all have, resend at this pace at first.
constexpr RoundTrip::Duration kGatheringTimeout = std::chrono::milliseconds(20);

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

Stream::Stream(const StreamIdentity& identity, Wire& wire, Counters& counters)
    : identity_(identity),
      wire_(wire),
      counters_(counters),
      round_trip_(wire.minimum_rto(), wire.initial_rto()),
      first_k_(identity.first_k),
      ring_(identity.window) {}

void Stream::begin(Transfer& transfer, bool gathering) {
  NETREDUCE_ENFORCE(transfer_, ==, nullptr);
  transfer_ = &transfer;
  gathering_ = gathering;
  gathering_doublings_ = 0;
  low_ = next_ = 0;
  next_timer_ = Clock::time_point::max();
  began_ = Clock::now();
  resends_ = results_ = unaggregated_ = 0;
}

void Stream::end() {
  first_k_ += static_cast<uint32_t>(next_);
  low_ = next_ = 0;
  transfer_ = nullptr;
  next_timer_ = Clock::time_point::max();
}

RoundTrip::Duration Stream::timeout() const {
  if (!gathering_) return round_trip_.timeout();
  return std::min(std::max(kGatheringTimeout, round_trip_.timeout()) * (1 << gathering_doublings_),
                  RoundTrip::Duration(RoundTrip::kMaximum));
}

void Stream::transmit(uint64_t packet, Clock::time_point now) {
  const uint32_t blocks = transfer_->blocks(packet);
  const uint32_t length = wire::NR_HEADER_BYTES + blocks * wire::BLOCK_BYTES;
  uint8_t* at = wire_.reserve(length);
  write_header(at, {wire::Kind::CONTRIBUTION, transfer_->op(), identity_.job, identity_.rank, k_of(packet), 0});
  transfer_->pack(packet, at + wire::NR_HEADER_BYTES);
  wire_.commit();
  counters_.wire_bytes_sent.add(wire::FRAME_OVERHEAD_BYTES + blocks * wire::BLOCK_BYTES);

  Outstanding& s = state(packet);
  s.last_sent = now;
  s.last_order = ++order_;
  s.overtaken = 0;
  s.due = now + timeout();
  next_timer_ = std::min(next_timer_, s.due);
}

// Credit (docs/protocol.md, "Invariant"): packet k may go only when the results of everything up to
// k - W are in. `low_` is the first packet without a result, so that is next_ < low_ + W. Transfers
// before this one are complete, so they need no look.
uint32_t Stream::send(uint32_t limit, Clock::time_point now) {
  uint32_t sent = 0;
  while (sent < limit && next_ < transfer_->packets() && next_ < low_ + identity_.window) {
    Outstanding& s = state(next_);
    s = {};
    s.first_sent = now;
    transmit(next_, now);
    s.first_order = s.last_order;
    counters_.packets_sent.add();
    ++next_;
    ++sent;
  }
  return sent;
}

void Stream::resend(uint64_t packet, Clock::time_point now) {
  ++state(packet).resends;
  ++resends_;
  counters_.packets_resent.add();
  transmit(packet, now);
}

// Every packet has a timer of its own; they share the timeout. It doubles once for each generation of
// packets that expires: a packet that was sent before the last doubling is no further evidence.
void Stream::expire(Clock::time_point now) {
  if (now < next_timer_) return;
  next_timer_ = Clock::time_point::max();
  for (uint64_t packet = low_; packet < next_; ++packet) {
    const Outstanding& s = state(packet);
    if (s.received) continue;
    if (s.due > now) {
      next_timer_ = std::min(next_timer_, s.due);
      continue;
    }
    if (s.last_sent >= last_back_off_) {
      last_back_off_ = now;
      if (gathering_) {
        if (timeout() < RoundTrip::kMaximum) ++gathering_doublings_;
      } else {
        round_trip_.back_off();
      }
    }
    resend(packet, now);
  }
}

// A result has come for a packet that was sent (once, so that its place in the order is known) after the
// last transmission of others that still lack theirs. Once that has happened to one of them three times,
// its contribution, some other rank's, or its result is lost: resend it without waiting for the timer, at
// most once in a round trip.
void Stream::recover_gaps(uint64_t packet, Clock::time_point now) {
  const Outstanding& came = state(packet);
  if (came.resends != 0) return;
  for (uint64_t earlier = low_; earlier < next_; ++earlier) {
    Outstanding& s = state(earlier);
    if (s.received || s.last_order >= came.first_order) continue;
    if (++s.overtaken >= kReorderingThreshold && now - s.last_sent >= round_trip_.smoothed()) resend(earlier, now);
  }
}

void Stream::receive(const NrHeader& header, const uint8_t* blocks, uint32_t block_count, Clock::time_point now) {
  if (header.rank != identity_.predecessor) return;
  if (header.kind == wire::Kind::CONTRIBUTION) {
    // The predecessor's own packet: whatever forwarded it does not aggregate for this job.
    ++unaggregated_;
    counters_.unaggregated_received.add();
    return;
  }
  if (header.kind != wire::Kind::RESULT) return;

  // Serial number arithmetic (RFC 1982) around the first packet that lacks a result.
  const auto distance = static_cast<int32_t>(header.k - k_of(low_));
  if (distance < 0) {
    counters_.duplicates_received.add();
    return;
  }
  const uint64_t packet = low_ + static_cast<uint32_t>(distance);
  if (transfer_ == nullptr || packet >= next_) return;  // never sent
  Outstanding& s = state(packet);
  if (s.received) {
    counters_.duplicates_received.add();
    return;
  }
  if (header.op != transfer_->op()) return;
  if (block_count != transfer_->blocks(packet) && !transfer_->accepts_any_length()) return;
  if (header.contributors != identity_.world_size)
    throw IntegrityError(cat("the result for k ", header.k, " says that ", header.contributors, " of ",
                             identity_.world_size, " ranks contributed"));

  transfer_->unpack(packet, blocks, block_count, header.k);
  s.received = true;
  ++results_;
  last_result_ = now;
  counters_.results_received.add();
  if (s.resends == 0 && !gathering_) round_trip_.sample(now - s.first_sent);
  while (low_ < next_ && state(low_).received) ++low_;
  if (low_ < next_) recover_gaps(packet, now);
}

std::string Stream::progress(Clock::time_point now) const {
  std::string missing;
  uint64_t count = 0, ranges = 0;
  for (uint64_t packet = low_; packet < next_;) {
    if (state(packet).received) {
      ++packet;
      continue;
    }
    const uint64_t first = packet;
    while (packet < next_ && !state(packet).received) ++packet;
    count += packet - first;
    if (++ranges > 8) continue;
    missing += cat(missing.empty() ? "k " : ", ", k_of(first));
    if (packet - first > 1) missing += cat("-", k_of(packet - 1));
  }
  if (ranges > 8) missing += ", …";
  std::string text = cat(count, " of ", transfer_->packets(), " packets have no result (", missing, "), ", resends_,
                         resends_ == 1 ? " packet was" : " packets were", " resent");
  if (next_ < transfer_->packets()) text += cat(", ", transfer_->packets() - next_, " wait for credit");
  if (results_ != 0)
    text += cat("; the last of ", results_, " results came ", seconds(now - last_result_), " s ago");
  else
    text += "; no result came at all";
  if (unaggregated_ != 0)
    text += cat("; ", unaggregated_,
                " packets of the ring predecessor came unaggregated: the switch in between does not know this job");
  return text;
}

}  // namespace netreduce
