#include "datapath/data_transfer.h"

#include "datapath/error.h"

namespace netreduce {
namespace {

// Unlike the number of any prelude packet.
constexpr uint64_t kDataFingerprint = ~uint64_t{0};

void accumulate(Checksums& sums, uint32_t packet, const Checksums& packet_sums) {
  for (uint32_t c = 0; c < kMaxChecksums; ++c) sums[c] += packet_multiplier(packet) * packet_sums[c];
}

}  // namespace

DataTransfer::DataTransfer(const CallContext& context, void* data, const DataLayout& layout, const Prelude& prelude)
    : context_(context),
      fingerprint_(fingerprint(context, kDataFingerprint)),
      data_(static_cast<char*>(data)),
      element_size_(element_size(context.call.dtype)),
      layout_(layout),
      kernels_(kernels(context.call.dtype, context.lane_bits)),
      messages_(layout.messages()) {
  for (uint64_t m = 0; m < messages_.size(); ++m) {
    const uint32_t agreed = prelude.biased_exponent(m);
    messages_[m].biased_exponent = static_cast<uint16_t>(agreed);
    messages_[m].exponent_is_own = prelude.own_exponent(m) == agreed;
  }
}

Scale DataTransfer::scale(const Message& message) const {
  return make_scale(context_.call.dtype, context_.lane_bits, context_.world_size, context_.call.op,
                    message.biased_exponent);
}

Identity DataTransfer::identity(uint64_t message) const {
  return {fingerprint_, message, messages_[message].biased_exponent};
}

// The checksum of a message needs all of its packets, and by the time the last one is packed the elements
// of the others may have been overwritten by their results; so each packet's share is added up when it is
// packed for the first time.
void DataTransfer::pack(uint64_t packet, uint8_t* blocks) {
  const DataPacket p = layout_.packet(packet);
  Message& message = messages_[p.message];
  const Identity identity = this->identity(p.message);
  const Checksums sums = kernels_.encode(data_ + p.first_element * element_size_, p.elements, blocks, p.lanes,
                                         scale(message), identity.marker(p.packet));
  const bool first_time = message.packed == p.packet;
  if (first_time) {
    ++message.packed;
    accumulate(message.sent, p.packet, sums);
  }
  if (!p.last) return;

  const uint32_t lane_bits = layout_.lane_bits(), count_lane = trailer(p);
  const uint64_t count = 1 + (message.exponent_is_own ? uint64_t{1} << lane_bits / 2 : 0);
  store_lane(blocks, count_lane, lane_bits, count);
  if (first_time) accumulate(message.sent, p.packet, weigh(count_lane, lane_bits, count));
  for (uint32_t c = 0; c + 1 < layout_.trailer_lanes(); ++c)
    store_lane(blocks, count_lane + 1 + c, lane_bits, message.sent[c] + identity.salt(c));
}

void DataTransfer::unpack(uint64_t packet, const uint8_t* blocks, uint32_t, uint32_t k) {
  const DataPacket p = layout_.packet(packet);
  Message& message = messages_[p.message];
  const uint32_t checked_lanes = p.last ? trailer(p) + 1 : p.lanes;
  const Checksums sums = kernels_.decode(blocks, checked_lanes, data_ + p.first_element * element_size_, p.elements,
                                         scale(message), identity(p.message).marker(p.packet));
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
  // 64 ranks fit in half of the narrowest lane.
  const uint32_t half = layout_.lane_bits() / 2;
  const uint64_t contributors = message.contributors & lane_modulus_mask(half);
  const uint64_t owners = message.contributors >> half;
  if (contributors != context_.world_size)
    throw IntegrityError(cat(where, " has contributor count ", contributors, " instead of ", context_.world_size));
  if (owners == 0 || owners > context_.world_size)
    throw IntegrityError(cat(where, " has an exponent that ", owners, " of ", context_.world_size,
                             " ranks sent in their preludes"));
  const uint64_t mask = lane_modulus_mask(layout_.lane_bits());
  for (uint32_t c = 0; c + 1 < layout_.trailer_lanes(); ++c) {
    const uint64_t received = message.received[c] & mask;
    const uint64_t expected = (message.expected[c] - context_.world_size * identity(p.message).salt(c)) & mask;
    if (received != expected)
      throw IntegrityError(cat(where, " has checksum ", c, " 0x", std::hex, received,
                               " where the ranks' checksums add up to 0x", expected));
  }
}

}  // namespace netreduce
