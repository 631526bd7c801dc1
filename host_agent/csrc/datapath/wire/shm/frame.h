// The Ethernet, IPv4 and UDP headers that a frame on a shared-memory port needs, where no kernel adds them.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "datapath/communicator.h"
#include "wire_constants.h"

namespace netreduce {

constexpr uint32_t kFrameHeaderBytes =
    wire::ETHERNET_HEADER_BYTES + wire::IPV4_HEADER_BYTES + wire::UDP_HEADER_BYTES;

// The headers of frames to one destination, made once for each number of blocks.
class FrameHeaders {
 public:
  FrameHeaders(const Endpoint& source, const Endpoint& destination);
  // Writes kFrameHeaderBytes in front of a datagram of `length` bytes of payload.
  void write(uint8_t* frame, uint32_t length) const;

 private:
  struct OfLength {
    uint32_t length;
    std::array<uint8_t, kFrameHeaderBytes> bytes;
  };
  std::array<OfLength, std::size(wire::BLOCK_COUNTS)> made_;
};

// Accepts the frames that a kernel would deliver to a socket at `self` connected to `peer`.
class FrameFilter {
 public:
  FrameFilter(const Endpoint& peer, const Endpoint& self);
  // The UDP payload's length, 0 when the frame is malformed or meant for somebody else.
  uint32_t payload_length(const uint8_t* frame, uint32_t frame_length) const;

 private:
  std::array<uint8_t, 6> mac_;
  uint32_t source_ip_, destination_ip_;
  uint16_t source_port_, destination_port_;
};

std::array<uint8_t, 6> parse_mac(const std::string& text);  // throws std::invalid_argument
uint32_t parse_ipv4(const std::string& text);               // host order; throws std::invalid_argument

}  // namespace netreduce
