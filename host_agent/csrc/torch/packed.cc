#include "torch/packed.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace netreduce {
namespace {

// Dimensions of stride 0 repeat the same elements: the first of each stands for all.
at::Tensor without_repeats(at::Tensor tensor) {
  for (int64_t d = 0; d < tensor.dim(); ++d)
    if (tensor.stride(d) == 0 && tensor.size(d) > 1) tensor = tensor.narrow(d, 0, 1);
  return tensor;
}

// Whether each dimension steps over everything that the dimensions of smaller strides span. Sufficient
// for distinct locations, and met by every slice, transpose and narrow of a dense tensor.
bool nests(const at::Tensor& tensor) {
  std::vector<int64_t> order(tensor.dim());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return tensor.stride(a) < tensor.stride(b); });
  int64_t span = 0;
  for (int64_t d : order) {
    if (tensor.size(d) <= 1) continue;
    if (tensor.stride(d) <= span) return false;
    span += (tensor.size(d) - 1) * tensor.stride(d);
  }
  return true;
}

at::Tensor distinct_offsets(const at::Tensor& tensor) {
  auto offsets = at::zeros({1}, at::kLong);
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    auto steps = at::arange(tensor.size(d), at::kLong) * tensor.stride(d);
    offsets = (offsets.unsqueeze(1) + steps.unsqueeze(0)).reshape({-1});
    // Duplicates go early, so that this never holds more than one dimension's worth of them.
    offsets = std::get<0>(at::_unique(offsets, /*sorted=*/true));
  }
  return offsets;
}

}  // namespace

Packed::Packed(const at::Tensor& tensor) {
  if (is_plain(tensor)) {
    in_place_ = true;
    buffer_ = tensor;
    return;
  }
  auto distinct = without_repeats(tensor);
  if (distinct.numel() == 0 || nests(distinct)) {
    view_ = distinct;
    buffer_ = distinct.resolve_neg().resolve_conj().contiguous();
    if (buffer_.is_same(tensor) || buffer_.is_alias_of(tensor)) buffer_ = buffer_.clone();
    return;
  }
  offsets_ = distinct_offsets(distinct);
  const int64_t span = offsets_[-1].item<int64_t>() + 1;
  storage_ = distinct.as_strided({span}, {1});
  buffer_ = storage_.index_select(0, offsets_).resolve_neg();
}

void Packed::unpack() const {
  if (in_place_) return;
  if (view_.defined()) {
    view_.copy_(buffer_);
  } else {
    storage_.index_copy_(0, offsets_, buffer_);
  }
}

int64_t Packed::distinct_elements(const at::Tensor& tensor) {
  if (is_plain(tensor)) return tensor.numel();
  auto distinct = without_repeats(tensor);
  if (distinct.numel() == 0 || nests(distinct)) return distinct.numel();
  return distinct_offsets(distinct).numel();
}

}  // namespace netreduce
