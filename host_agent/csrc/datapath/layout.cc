#include "datapath/layout.h"

#include <algorithm>

#include "datapath/error.h"
#include "wire_constants.h"

namespace netreduce {

bool is_float(DType dtype) { return exponent_bitmap_bytes(dtype) != 0; }

uint32_t exponent_bitmap_bytes(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kFloat16:
    case DType::kBFloat16: return 256 / 8;  // float32's 8 exponent bits
    case DType::kFloat64: return 2048 / 8;
    default: return 0;
  }
}

uint32_t lane_bits_of(DType dtype, uint32_t float_lane_bits) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kFloat16:
    case DType::kBFloat16: return float_lane_bits;
    case DType::kFloat64:
    case DType::kInt64: return 64;
    default: return 32;
  }
}

uint32_t blocks_for(uint64_t bytes) {
  for (uint32_t blocks : wire::BLOCK_COUNTS)
    if (uint64_t{blocks} * wire::BLOCK_BYTES >= bytes) return blocks;
  throw std::logic_error(cat("netreduce bug: ", bytes, " bytes do not fit in one packet"));
}

DataLayout::DataLayout(uint32_t lane_bits, uint32_t max_blocks, uint64_t elements)
    : lane_bits_(lane_bits),
      max_blocks_(max_blocks),
      trailer_lanes_(lane_bits == 16 ? 4 : 2),
      packet_lanes_(max_blocks * wire::BLOCK_BYTES * 8 / lane_bits),
      capacity_(kPacketsPerMessage * packet_lanes_ - trailer_lanes_),
      elements_(elements),
      messages_((elements + capacity_ - 1) / capacity_) {
  NETREDUCE_REQUIRE(elements, >, 0u, "an all-reduce has at least one element");
  packets_ = (messages_ - 1) * kPacketsPerMessage + packets_of(messages_ - 1);
}

uint64_t DataLayout::elements(uint64_t message) const {
  return std::min<uint64_t>(capacity_, elements_ - first_element(message));
}

uint32_t DataLayout::packets_of(uint64_t message) const {
  return static_cast<uint32_t>((elements(message) + trailer_lanes_ + packet_lanes_ - 1) / packet_lanes_);
}

DataPacket DataLayout::packet(uint64_t index) const {
  DataPacket p;
  // Only the last message can be short, so division finds the message.
  p.message = index / kPacketsPerMessage;
  p.packet = static_cast<uint32_t>(index % kPacketsPerMessage);
  p.message_elements = elements(p.message);
  p.last = p.packet + 1 == packets_of(p.message);
  const uint64_t lanes_before = uint64_t{p.packet} * packet_lanes_;
  p.first_element = first_element(p.message) + lanes_before;
  p.elements = p.message_elements <= lanes_before
                   ? 0
                   : static_cast<uint32_t>(std::min<uint64_t>(packet_lanes_, p.message_elements - lanes_before));
  if (p.last) {
    const uint64_t lanes_left = p.message_elements + trailer_lanes_ - lanes_before;
    p.blocks = blocks_for(lanes_left * lane_bits_ / 8);
  } else {
    p.blocks = max_blocks_;
  }
  p.lanes = p.blocks * wire::BLOCK_BYTES * 8 / lane_bits_;
  return p;
}

PreludeLayout::PreludeLayout(uint32_t max_blocks, uint64_t bitmap_bytes)
    : piece_bytes_(max_blocks * wire::BLOCK_BYTES - kHeaderBytes),
      total_bytes_(bitmap_bytes),
      packets_(std::max<uint64_t>(1, (bitmap_bytes + piece_bytes_ - 1) / piece_bytes_)) {}

uint32_t PreludeLayout::bytes(uint64_t packet) const {
  return static_cast<uint32_t>(std::min<uint64_t>(piece_bytes_, total_bytes_ - first_byte(packet)));
}

uint32_t PreludeLayout::blocks(uint64_t packet) const { return blocks_for(kHeaderBytes + bytes(packet)); }

}  // namespace netreduce
