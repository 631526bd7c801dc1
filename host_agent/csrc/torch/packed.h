// The elements of a tensor of any strides as one contiguous run, which is what reductions work on.
#pragma once

#include <ATen/ATen.h>

namespace netreduce {

// Gloo reads a strided tensor's memory as if it were contiguous. Here a contiguous tensor is used in
// place; any other is copied out and back. Where elements share memory (expanded tensors,
// overlapping windows), each memory location counts once, so that every element that reads it reads
// the sum. `buffer` then has fewer elements than the tensor.
class Packed {
 public:
  explicit Packed(const at::Tensor& tensor);

  // Contiguous, dense, on the CPU; the tensor itself or a copy of its distinct elements.
  const at::Tensor& buffer() const { return buffer_; }
  // Writes `buffer` back into the tensor. Nothing to do when it is the tensor.
  void unpack() const;

  // buffer().numel() of Packed(tensor), without copying.
  static int64_t distinct_elements(const at::Tensor& tensor);
  static bool is_plain(const at::Tensor& tensor) {
    return tensor.is_contiguous() && !tensor.is_neg() && !tensor.is_conj();
  }

 private:
  at::Tensor view_;     // of the tensor: no two elements share memory; undefined if by location
  at::Tensor storage_;  // one-dimensional view of all memory that the tensor spans
  at::Tensor offsets_;  // int64, the distinct locations in `storage_`, ascending
  at::Tensor buffer_;
  bool in_place_ = false;
};

}  // namespace netreduce
