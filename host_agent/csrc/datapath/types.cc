// Names and sizes of the public types, for messages and for layouts.
#include "datapath/communicator.h"
#include "datapath/error.h"

namespace netreduce {

const char* name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return "float32";
    case DType::kFloat16: return "float16";
    case DType::kBFloat16: return "bfloat16";
    case DType::kFloat64: return "float64";
    case DType::kInt8: return "int8";
    case DType::kUInt8: return "uint8";
    case DType::kInt32: return "int32";
    case DType::kInt64: return "int64";
  }
  return "unknown dtype";
}

const char* name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "SUM";
    case ReduceOp::kAvg: return "AVG";
  }
  return "unknown op";
}

size_t element_size(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
    case DType::kUInt8: return 1;
    case DType::kFloat16:
    case DType::kBFloat16: return 2;
    case DType::kFloat32:
    case DType::kInt32: return 4;
    case DType::kFloat64:
    case DType::kInt64: return 8;
  }
  throw std::invalid_argument("element_size: unknown dtype");
}

std::string describe(const CallArguments& call) {
  if (call.number == 0) return "probe";
  return cat("call ", call.number, ": all_reduce(", name(call.op), ", ", name(call.dtype), ", ", call.count,
             call.count == 1 ? " element)" : " elements)");
}

}  // namespace netreduce
