#include "datapath/data_transfer.h"

#include "datapath/error.h"

namespace netreduce {
namespace {

void accumulate(Checksums& sums, uint32_t packet, const Checksums& packet_sums) {
  for (uint32_t c = 0; c < kMaxChecksums; ++c) sums[c] += packet_multiplier(packet) * packet_sums[c];
}

}  // namespace

DataTransfer::DataTransfer(const CallContext& context, void* data, const DataLayout& layout, const Prelude& prelude)
    : context_(context),
      data_(static_cast<char*>(data)),
      element_size_(element_size(context.call.dtype)),
      layout_(layout),
      kernels_(kernels(context.call.dtype, context.lane_bits)),
      messages_(layout.messages()) {
  for (uint64_t m = 0; m < messages_.size(); ++m)
    messages_[m].biased_exponent = static_cast<uint16_t>(prelude.biased_exponent(m));
}

Scale DataTransfer::scale(const Message& message) const {
  return make_scale(context_.call.dtype, context_.lane_bits, context_.world_size, context_.call.op,
                    message.biased_exponent);
}

// The checksum of a message needs all of its packets, and by the time the last one is packed the elements
// of the others may have been overwritten by their results; so each packet's share is added up when it is
// packed for the first time.
void DataTransfer::pack(uint64_t packet, uint8_t* blocks) {
  const DataPacket p = layout_.packet(packet);
  Message& message = messages_[p.message];
  const Checksums sums =
      kernels_.encode(data_ + p.first_element * element_size_, p.elements, blocks, p.lanes, scale(message));
  const bool first_time = message.packed == p.packet;
  if (first_time) {
    ++message.packed;
    accumulate(message.sent, p.packet, sums);
  }
  if (!p.last) return;

  const uint32_t count_lane = trailer(p);
  store_lane(blocks, count_lane, layout_.lane_bits(), 1);
  if (first_time) accumulate(message.sent, p.packet, weigh(count_lane, layout_.lane_bits(), 1));
  for (uint32_t c = 0; c + 1 < layout_.trailer_lanes(); ++c)
    store_lane(blocks, count_lane + 1 + c, layout_.lane_bits(), message.sent[c]);
}

void DataTransfer::unpack(uint64_t packet, const uint8_t* blocks, uint32_t, uint32_t k) {
  const DataPacket p = layout_.packet(packet);
  Message& message = messages_[p.message];
  const uint32_t checked_lanes = p.last ? trailer(p) + 1 : p.lanes;
  const Checksums sums = kernels_.decode(blocks, checked_lanes, data_ + p.first_element * element_size_, p.elements,
                                         scale(message));
  accumulate(message.received, p.packet, sums);
  if (p.last) {
    message.contributors = load_lane(blocks, trailer(p), layout_.lane_bits());
    for (uint32_t c = 0; c + 1 < layout_.trailer_lanes(); ++c)
      message.expected[c] = load_lane(blocks, trailer(p) + 1 + c, layout_.lane_bits());
  }
  if (++message.unpacked == layout_.packets_of(p.message)) verify(p, message, k - p.packet);
}

void DataTransfer::verify(const DataPacket& p, const Message& message, uint32_t first_k) const {
  const std::string where = cat("message ", p.message, " of ", layout_.messages(), " (k ", first_k, "-",
                                first_k + layout_.packets_of(p.message) - 1, ")");
  if (message.contributors != context_.world_size)
    throw IntegrityError(cat(where, " has contributor count ", message.contributors, " instead of ",
                             context_.world_size));
  const uint64_t mask = lane_modulus_mask(layout_.lane_bits());
  for (uint32_t c = 0; c + 1 < layout_.trailer_lanes(); ++c)
    if (((message.received[c] ^ message.expected[c]) & mask) != 0)
      throw IntegrityError(cat(where, " has checksum ", c, " 0x", std::hex, message.received[c] & mask,
                               " where the ranks' checksums add up to 0x", message.expected[c] & mask));
}

}  // namespace netreduce
