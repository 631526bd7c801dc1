#include "torch/describe.h"

#include <c10/util/Exception.h>

namespace netreduce {

std::string dtype_name(at::ScalarType type) {
  switch (type) {
    case at::kByte: return "uint8";
    case at::kChar: return "int8";
    case at::kShort: return "int16";
    case at::kInt: return "int32";
    case at::kLong: return "int64";
    case at::kHalf: return "float16";
    case at::kFloat: return "float32";
    case at::kDouble: return "float64";
    case at::kBFloat16: return "bfloat16";
    case at::kBool: return "bool";
    case at::kComplexFloat: return "complex64";
    case at::kComplexDouble: return "complex128";
    default: return c10::toString(type);
  }
}

std::string op_name(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return "SUM";
    case c10d::ReduceOp::AVG: return "AVG";
    case c10d::ReduceOp::PRODUCT: return "PRODUCT";
    case c10d::ReduceOp::MIN: return "MIN";
    case c10d::ReduceOp::MAX: return "MAX";
    case c10d::ReduceOp::BAND: return "BAND";
    case c10d::ReduceOp::BOR: return "BOR";
    case c10d::ReduceOp::BXOR: return "BXOR";
    case c10d::ReduceOp::PREMUL_SUM: return "PREMUL_SUM";
    default: return "op " + std::to_string(op.op_);
  }
}

std::string describe_call(const std::vector<at::Tensor>& tensors, const c10d::ReduceOp& op) {
  std::string text = "all_reduce(" + op_name(op);
  if (tensors.empty()) return text + ", no tensors)";
  text += ", " + dtype_name(tensors.front().scalar_type()) + (tensors.size() > 1 ? ", shapes " : ", shape ");
  constexpr size_t kShown = 8;
  for (size_t i = 0; i < tensors.size() && i < kShown; ++i)
    text += (i ? ", " : "") + c10::str(tensors[i].sizes());
  if (tensors.size() > kShown) text += c10::str(" and ", tensors.size() - kShown, " more");
  return text + ")";
}

uint64_t total_bytes(const std::vector<at::Tensor>& tensors) {
  uint64_t bytes = 0;
  for (const auto& tensor : tensors)
    if (tensor.defined() && !tensor.is_sparse()) bytes += tensor.numel() * tensor.element_size();
  return bytes;
}

std::string c10_message(const std::exception& error) {
  if (const auto* torch_error = dynamic_cast<const c10::Error*>(&error))
    return torch_error->what_without_backtrace();
  return error.what();
}

}  // namespace netreduce
