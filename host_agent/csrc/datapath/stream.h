// One stream of packets through the switch: credit, retransmission and matching of results
// (docs/protocol.md, "The hosts' part: credit" and "Retransmission").
//
// A stream carries one transfer at a time. Its owner drives it: send(), receive(), expire(), and waits
// until next_timer() when there is nothing to do. Nothing here blocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "datapath/nr_header.h"
#include "datapath/round_trip.h"
#include "datapath/statistics.h"
#include "datapath/transfer.h"
#include "datapath/wire.h"

namespace netreduce {

struct StreamIdentity {
  uint16_t job;
  uint8_t rank;
  uint8_t predecessor;
  uint32_t world_size;
  uint32_t window;
  uint32_t first_k;
};

class Stream {
 public:
  Stream(const StreamIdentity& identity, Wire& wire, Counters& counters);

  uint16_t job() const { return identity_.job; }

  // Starts a transfer at the stream's next k. `gathering`: results wait for the slowest rank to begin the
  // call, so that their delay says nothing about the network and resending soon helps nobody.
  void begin(Transfer& transfer, bool gathering);
  // Ends it, after all results or for good after an error.
  void end();
  bool done() const { return low_ == transfer_->packets(); }

  // Sends new packets as far as credit goes, at most `limit`; returns how many.
  uint32_t send(uint32_t limit, Clock::time_point now);
  // Resends what has timed out.
  void expire(Clock::time_point now);
  // Handles one packet whose header names this stream's job.
  void receive(const NrHeader& header, const uint8_t* blocks, uint32_t block_count, Clock::time_point now);
  // When expire() has something to do next; max() if nothing is outstanding.
  Clock::time_point next_timer() const { return next_timer_; }

  // "2 of 10 packets have no result (k 7, 9-9), …": the state of the transfer, for messages.
  std::string progress(Clock::time_point now) const;

 private:
  struct Outstanding {  // a packet that was sent and whose result may not have come
    Clock::time_point first_sent, last_sent, due;
    uint64_t first_order, last_order;  // places in the order of all transmissions
    uint32_t resends;
    uint32_t overtaken;  // results that came for packets sent after its last transmission
    bool received;
  };

  Outstanding& state(uint64_t packet) { return ring_[packet % identity_.window]; }
  const Outstanding& state(uint64_t packet) const { return ring_[packet % identity_.window]; }
  uint32_t k_of(uint64_t packet) const { return first_k_ + static_cast<uint32_t>(packet); }
  void transmit(uint64_t packet, Clock::time_point now);
  void resend(uint64_t packet, Clock::time_point now);
  void recover_gaps(uint64_t packet, Clock::time_point now);
  RoundTrip::Duration timeout() const;

  const StreamIdentity identity_;
  Wire& wire_;
  Counters& counters_;
  RoundTrip round_trip_;

  Transfer* transfer_ = nullptr;
  bool gathering_ = false;
  int gathering_doublings_ = 0;
  uint32_t first_k_;    // stream index of the transfer's packet 0
  uint64_t low_ = 0;    // all results before it are in
  uint64_t next_ = 0;   // first packet that has not been sent
  std::vector<Outstanding> ring_;
  uint64_t order_ = 0;
  Clock::time_point last_back_off_{}, next_timer_ = Clock::time_point::max();

  // For progress().
  Clock::time_point began_{}, last_result_{};
  uint64_t resends_ = 0, results_ = 0, unaggregated_ = 0;
};

}  // namespace netreduce
