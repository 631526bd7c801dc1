// The data messages of a call: elements become lanes, results become elements, and every message is
// verified by its trailer (docs/protocol.md, "Data messages").
//
// Works in place: the result of a packet overwrites the elements that it was made of, after which the
// packet is never packed again.
#pragma once

#include <cstdint>
#include <vector>

#include "datapath/fixed_point.h"
#include "datapath/kernels.h"
#include "datapath/layout.h"
#include "datapath/prelude.h"
#include "datapath/transfer.h"

namespace netreduce {

class DataTransfer : public Transfer {
 public:
  // `prelude` is complete and says that all elements are finite. Throws IntegrityError when it lacks an
  // exponent.
  DataTransfer(const CallContext& context, void* data, const DataLayout& layout, const Prelude& prelude);

  wire::Op op() const override { return wire::Op::SUM; }
  uint64_t packets() const override { return layout_.packets(); }
  uint32_t blocks(uint64_t packet) const override { return layout_.packet(packet).blocks; }
  void pack(uint64_t packet, uint8_t* blocks) override;
  // Throws IntegrityError when it completes a message whose trailer does not fit.
  void unpack(uint64_t packet, const uint8_t* blocks, uint32_t block_count, uint32_t k) override;

 private:
  struct Message {
    uint16_t biased_exponent = 0;
    bool exponent_is_own = false;  // this rank has an element of that exponent
    uint8_t packed = 0;    // packets that have been packed; they come in order
    uint8_t unpacked = 0;  // packets whose results have come
    Checksums sent{};        // over the packets packed so far
    Checksums received{};    // over the results so far
    Checksums expected{};    // from the trailer of the result
    uint64_t contributors = 0;  // the result's count lane
  };

  Scale scale(const Message& message) const;
  Identity identity(uint64_t message) const;
  uint32_t trailer(const DataPacket& p) const { return p.lanes - layout_.trailer_lanes(); }
  void verify(const DataPacket& p, const Message& message, uint32_t first_k) const;

  const CallContext context_;
  const uint64_t fingerprint_;
  char* const data_;
  const size_t element_size_;
  const DataLayout& layout_;
  const Kernels& kernels_;
  std::vector<Message> messages_;
};

}  // namespace netreduce
