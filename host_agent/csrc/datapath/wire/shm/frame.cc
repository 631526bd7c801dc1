#include "datapath/wire/shm/frame.h"

#include <arpa/inet.h>

#include <cstdio>
#include <cstring>

#include "datapath/byte_order.h"
#include "datapath/error.h"

namespace netreduce {
namespace {

constexpr uint16_t kEtherTypeIpv4 = 0x0800;
constexpr uint8_t kProtocolUdp = 17;
constexpr uint32_t kIp = wire::ETHERNET_HEADER_BYTES;
constexpr uint32_t kUdp = kIp + wire::IPV4_HEADER_BYTES;

// RFC 1071 over the IPv4 header; 0 when the header's own checksum fits.
uint16_t ipv4_checksum(const uint8_t* header) {
  uint32_t sum = 0;
  for (uint32_t i = 0; i < wire::IPV4_HEADER_BYTES; i += 2) sum += load_big<uint16_t>(header + i);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

}  // namespace

std::array<uint8_t, 6> parse_mac(const std::string& text) {
  std::array<unsigned, 6> b;
  char rest;
  if (std::sscanf(text.c_str(), "%2x:%2x:%2x:%2x:%2x:%2x%c", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5], &rest) != 6)
    throw std::invalid_argument(cat("\"", text, "\" is not a MAC address"));
  std::array<uint8_t, 6> mac;
  for (int i = 0; i < 6; ++i) mac[i] = static_cast<uint8_t>(b[i]);
  return mac;
}

uint32_t parse_ipv4(const std::string& text) {
  in_addr address;
  if (::inet_pton(AF_INET, text.c_str(), &address) != 1)
    throw std::invalid_argument(cat("\"", text, "\" is not an IPv4 address"));
  return ntohl(address.s_addr);
}

FrameHeaders::FrameHeaders(const Endpoint& source, const Endpoint& destination) {
  const auto source_mac = parse_mac(source.mac), destination_mac = parse_mac(destination.mac);
  for (size_t i = 0; i < made_.size(); ++i) {
    auto& [length, bytes] = made_[i];
    length = wire::NR_HEADER_BYTES + wire::BLOCK_COUNTS[i] * wire::BLOCK_BYTES;
    uint8_t* at = bytes.data();
    std::memset(at, 0, bytes.size());
    std::memcpy(at, destination_mac.data(), 6);
    std::memcpy(at + 6, source_mac.data(), 6);
    store_big<uint16_t>(at + 12, kEtherTypeIpv4);
    uint8_t* ip = at + kIp;
    ip[0] = 0x45;
    store_big<uint16_t>(ip + 2, static_cast<uint16_t>(wire::IPV4_HEADER_BYTES + wire::UDP_HEADER_BYTES + length));
    store_big<uint16_t>(ip + 6, 0x4000);  // do not fragment
    ip[8] = 64;                           // TTL
    ip[9] = kProtocolUdp;
    store_big<uint32_t>(ip + 12, parse_ipv4(source.ip));
    store_big<uint32_t>(ip + 16, parse_ipv4(destination.ip));
    store_big<uint16_t>(ip + 10, ipv4_checksum(ip));
    uint8_t* udp = at + kUdp;
    store_big<uint16_t>(udp, source.udp_port);
    store_big<uint16_t>(udp + 2, destination.udp_port);
    store_big<uint16_t>(udp + 4, static_cast<uint16_t>(wire::UDP_HEADER_BYTES + length));
    // UDP checksum 0: none (RFC 768); the switch changes the payload.
  }
}

void FrameHeaders::write(uint8_t* frame, uint32_t length) const {
  for (const OfLength& made : made_)
    if (made.length == length) {
      std::memcpy(frame, made.bytes.data(), made.bytes.size());
      return;
    }
  throw std::logic_error(cat("netreduce bug: no frame has ", length, " bytes of payload"));
}

FrameFilter::FrameFilter(const Endpoint& peer, const Endpoint& self)
    : mac_(parse_mac(self.mac)),
      source_ip_(parse_ipv4(peer.ip)),
      destination_ip_(parse_ipv4(self.ip)),
      source_port_(peer.udp_port),
      destination_port_(self.udp_port) {}

uint32_t FrameFilter::payload_length(const uint8_t* frame, uint32_t frame_length) const {
  if (frame_length < kFrameHeaderBytes) return 0;
  const uint8_t* ip = frame + kIp;
  const uint8_t* udp = frame + kUdp;
  if (std::memcmp(frame, mac_.data(), 6) != 0 || load_big<uint16_t>(frame + 12) != kEtherTypeIpv4) return 0;
  const uint32_t ip_length = load_big<uint16_t>(ip + 2), udp_length = load_big<uint16_t>(udp + 4);
  // 0x3fff: more fragments, and the fragment offset. A frame may be longer than its packet (padding).
  if (ip[0] != 0x45 || ip[9] != kProtocolUdp || (load_big<uint16_t>(ip + 6) & 0x3fff) != 0 ||
      ip_length > frame_length - kIp || ip_length != wire::IPV4_HEADER_BYTES + udp_length ||
      udp_length < wire::UDP_HEADER_BYTES || ipv4_checksum(ip) != 0)
    return 0;
  if (load_big<uint32_t>(ip + 12) != source_ip_ || load_big<uint32_t>(ip + 16) != destination_ip_ ||
      load_big<uint16_t>(udp) != source_port_ || load_big<uint16_t>(udp + 2) != destination_port_)
    return 0;
  return udp_length - wire::UDP_HEADER_BYTES;
}

}  // namespace netreduce
