#include "torch/flat.h"

namespace netreduce {

Flat::Flat(const std::vector<at::Tensor>& tensors) {
  parts_.reserve(tensors.size());
  for (const auto& tensor : tensors) parts_.emplace_back(tensor);
  if (parts_.size() == 1) {
    buffer_ = parts_.front().buffer();
    return;
  }
  std::vector<at::Tensor> flattened;
  for (const auto& part : parts_) flattened.push_back(part.buffer().view({-1}));
  buffer_ = at::cat(flattened);
}

void Flat::unpack() const {
  if (parts_.size() > 1) {
    int64_t offset = 0;
    for (const auto& part : parts_) {
      auto target = part.buffer().view({-1});
      target.copy_(buffer_.narrow(0, offset, target.numel()));
      offset += target.numel();
    }
  }
  for (const auto& part : parts_) part.unpack();
}

}  // namespace netreduce
