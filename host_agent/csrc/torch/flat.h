// Several tensors of one dtype as one contiguous run of elements.
#pragma once

#include <vector>

#include "torch/packed.h"

namespace netreduce {

class Flat {
 public:
  explicit Flat(const std::vector<at::Tensor>& tensors);

  // One-dimensional or, for a single tensor, of its shape; contiguous.
  const at::Tensor& buffer() const { return buffer_; }
  void unpack() const;

 private:
  std::vector<Packed> parts_;
  at::Tensor buffer_;
};

}  // namespace netreduce
