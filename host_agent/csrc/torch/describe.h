// Calls and their arguments in words.
#pragma once

#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace netreduce {

std::string dtype_name(at::ScalarType type);         // "float32"
std::string op_name(const c10d::ReduceOp& op);       // "SUM"
// "all_reduce(SUM, float32, shape [3, 4])"; several tensors: "shapes [3], [4]"
std::string describe_call(const std::vector<at::Tensor>& tensors, const c10d::ReduceOp& op);
uint64_t total_bytes(const std::vector<at::Tensor>& tensors);
// An exception's message without torch's C++ stack.
std::string c10_message(const std::exception& error);

}  // namespace netreduce
