// How a tensor is cut into messages, packets and lanes (docs/protocol.md, "The payload").
//
// Everything follows from (lane width, blocks per packet, element count), so that all ranks agree
// without asking.
#pragma once

#include <cstdint>

#include "datapath/communicator.h"

namespace netreduce {

constexpr uint32_t kPacketsPerMessage = 4;

bool is_float(DType dtype);
// Bits of the biased exponent that a prelude carries as one-hot bitmap, as bytes; 0 for integers.
uint32_t exponent_bitmap_bytes(DType dtype);
// Lane width that a dtype travels in.
uint32_t lane_bits_of(DType dtype, uint32_t float_lane_bits);
// Smallest legal number of blocks that holds `bytes`; throws when none does.
uint32_t blocks_for(uint64_t bytes);

// One data packet of a call.
struct DataPacket {
  uint64_t message;          // number of its message in the call
  uint32_t packet;           // its number within the message: 0 … 3
  uint64_t message_elements; // elements in the whole message
  uint64_t first_element;    // of this packet, in the tensor
  uint32_t elements;         // in this packet
  uint32_t blocks;
  uint32_t lanes;            // in this packet, with padding and trailer
  bool last;                 // carries the trailer
};

class DataLayout {
 public:
  DataLayout(uint32_t lane_bits, uint32_t max_blocks, uint64_t elements);

  uint64_t messages() const { return messages_; }
  uint64_t packets() const { return packets_; }
  uint32_t lane_bits() const { return lane_bits_; }
  uint32_t trailer_lanes() const { return trailer_lanes_; }
  uint32_t message_capacity() const { return capacity_; }  // elements of a full message
  uint64_t first_element(uint64_t message) const { return message * capacity_; }
  uint64_t elements(uint64_t message) const;
  uint32_t packets_of(uint64_t message) const;
  DataPacket packet(uint64_t index) const;

 private:
  uint32_t lane_bits_, max_blocks_, trailer_lanes_, packet_lanes_, capacity_;
  uint64_t elements_, messages_, packets_;
};

// The prelude: a 32-byte header in every packet, and the exponent bitmaps of all messages one after the
// other, cut into as many pieces as packets are needed.
class PreludeLayout {
 public:
  PreludeLayout(uint32_t max_blocks, uint64_t bitmap_bytes);

  static constexpr uint32_t kHeaderBytes = 32;

  uint64_t packets() const { return packets_; }
  uint64_t first_byte(uint64_t packet) const { return packet * piece_bytes_; }
  uint32_t bytes(uint64_t packet) const;  // of the bitmaps
  uint32_t blocks(uint64_t packet) const;

 private:
  uint32_t piece_bytes_;
  uint64_t total_bytes_, packets_;
};

}  // namespace netreduce
