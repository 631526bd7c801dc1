#include "datapath/prelude.h"

#include <algorithm>
#include <cstring>

#include "datapath/byte_order.h"
#include "datapath/checksum.h"
#include "datapath/error.h"
#include "datapath/kernels.h"

namespace netreduce {
namespace {

constexpr uint32_t kFingerprint = 0, kComplement = 8, kParticipants = 16, kFlags = 24;
constexpr uint32_t kNonFiniteFlag = 1;

}  // namespace

uint64_t fingerprint(const CallContext& context, uint64_t prelude_packet) {
  uint64_t h = 0;
  for (uint64_t part : {context.call.number, static_cast<uint64_t>(context.call.dtype), context.call.count,
                        static_cast<uint64_t>(context.call.op), uint64_t{context.lane_bits},
                        uint64_t{context.max_blocks}, uint64_t{context.world_size}, prelude_packet})
    h = mix_in(h, part);
  return h;
}

Prelude::Prelude(const CallContext& context) : context_(context), bitmap_bytes_(0), layout_(context.max_blocks, 0) {}

Prelude::Prelude(const CallContext& context, const void* data, const DataLayout& layout)
    : context_(context),
      bitmap_bytes_(exponent_bitmap_bytes(context.call.dtype)),
      layout_(context.max_blocks, layout.messages() * bitmap_bytes_) {
  if (bitmap_bytes_ == 0) return;
  const Kernels& kernel = kernels(context.call.dtype, context.lane_bits);
  const size_t size = element_size(context.call.dtype);
  own_exponents_.resize(layout.messages());
  for (uint64_t message = 0; message < layout.messages(); ++message) {
    const Magnitude m = kernel.magnitude(static_cast<const char*>(data) + layout.first_element(message) * size,
                                         layout.elements(message));
    own_exponents_[message] = static_cast<uint16_t>(m.biased_exponent);
    finite_ &= m.finite;
  }
  bitmaps_.resize(layout.messages() * bitmap_bytes_);
}

// The bitmaps follow each other regardless of packets.
template <typename Body>
void Prelude::for_each_own_exponent(uint64_t packet, Body body) const {
  if (bitmap_bytes_ == 0) return;
  const uint64_t begin = layout_.first_byte(packet), end = begin + layout_.bytes(packet);
  for (uint64_t message = begin / bitmap_bytes_; message * bitmap_bytes_ < end; ++message) {
    const uint32_t exponent = own_exponents_[message];
    const uint64_t byte = message * bitmap_bytes_ + exponent / 8;
    if (byte >= begin && byte < end)
      body(PreludeLayout::kHeaderBytes + (byte - begin), static_cast<uint8_t>(0x80u >> exponent % 8));
  }
}

void Prelude::pack(uint64_t packet, uint8_t* blocks) {
  std::memset(blocks, 0, layout_.blocks(packet) * wire::BLOCK_BYTES);
  const uint64_t f = fingerprint(context_, packet);
  store_big<uint64_t>(blocks + kFingerprint, f);
  store_big<uint64_t>(blocks + kComplement, ~f);
  store_big<uint64_t>(blocks + kParticipants, uint64_t{1} << context_.rank);
  store_big<uint32_t>(blocks + kFlags, finite_ ? 0 : kNonFiniteFlag);
  for_each_own_exponent(packet, [&](uint64_t at, uint8_t bits) { blocks[at] = bits; });
}

void Prelude::unpack(uint64_t packet, const uint8_t* blocks, uint32_t block_count, uint32_t k) {
  // A bit that is set in one rank's f and not in another's is set in both ORs.
  const uint64_t f = fingerprint(context_, packet);
  if (load_big<uint64_t>(blocks + kFingerprint) != f || load_big<uint64_t>(blocks + kComplement) != ~f)
    throw MismatchError("the ranks did not make the same call");
  if (block_count != layout_.blocks(packet))
    throw IntegrityError(cat("the prelude result for k ", k, " has ", block_count, " blocks instead of ",
                             layout_.blocks(packet)));
  const uint64_t all = ~uint64_t{0} >> (64 - context_.world_size);
  const auto participants = load_big<uint64_t>(blocks + kParticipants);
  if (participants != all)
    throw IntegrityError(cat("the prelude result for k ", k, " has participants 0x", std::hex, participants,
                             " instead of 0x", all));
  bool complete = true;
  const bool finite = (load_big<uint32_t>(blocks + kFlags) & kNonFiniteFlag) == 0;
  if (finite && !finite_) complete = false;
  for_each_own_exponent(packet, [&](uint64_t at, uint8_t bits) { complete &= (blocks[at] & bits) != 0; });
  if (!complete)
    throw IntegrityError(cat("the prelude result for k ", k, " lacks what this rank itself has sent"));
  all_finite_ &= finite;
  if (bitmap_bytes_ != 0)
    std::memcpy(bitmaps_.data() + layout_.first_byte(packet), blocks + PreludeLayout::kHeaderBytes,
                layout_.bytes(packet));
}

uint32_t Prelude::biased_exponent(uint64_t message) const {
  if (bitmap_bytes_ == 0) return 0;
  const uint8_t* bitmap = bitmaps_.data() + message * bitmap_bytes_;
  for (uint32_t byte = bitmap_bytes_; byte-- > 0;)
    if (bitmap[byte] != 0) return byte * 8 + 7 - static_cast<uint32_t>(__builtin_ctz(bitmap[byte]));
  throw IntegrityError(cat("the prelude result has no exponent for message ", message));
}

}  // namespace netreduce
