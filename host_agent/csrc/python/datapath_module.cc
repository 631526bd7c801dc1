// netreduce.host_agent._datapath: the datapath for Python, without torch. Tools and tests use it; the
// torch backend links the same sources itself.
#include <pybind11/chrono.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>

#include "datapath/communicator.h"
#include "datapath/data_transfer.h"
#include "datapath/error.h"
#include "datapath/fixed_point.h"
#include "datapath/kernels.h"
#include "datapath/layout.h"
#include "datapath/prelude.h"
#include "datapath/wire.h"

namespace py = pybind11;
using namespace netreduce;

namespace {

// numpy has no bfloat16: such tensors come as uint16 with an explicit dtype.
DType dtype_of(const py::array& array) {
  const char kind = array.dtype().kind();
  const auto size = array.itemsize();
  if (kind == 'f' && size == 4) return DType::kFloat32;
  if (kind == 'f' && size == 2) return DType::kFloat16;
  if (kind == 'f' && size == 8) return DType::kFloat64;
  if (kind == 'i' && size == 1) return DType::kInt8;
  if (kind == 'u' && size == 1) return DType::kUInt8;
  if (kind == 'i' && size == 4) return DType::kInt32;
  if (kind == 'i' && size == 8) return DType::kInt64;
  throw py::type_error("no DType for numpy dtype " + std::string(py::str(array.dtype())));
}

DType checked_dtype(const py::array& array, std::optional<DType> dtype) {
  if (!(array.flags() & py::array::c_style)) throw py::value_error("the array is not contiguous");
  if (!dtype) return dtype_of(array);
  if (static_cast<size_t>(array.itemsize()) != element_size(*dtype))
    throw py::value_error(cat("an array of ", array.itemsize(), "-byte items cannot hold ", name(*dtype)));
  return *dtype;
}

py::dict packet_dict(const DataPacket& p) {
  py::dict d;
  d["message"] = p.message;
  d["packet"] = p.packet;
  d["message_elements"] = p.message_elements;
  d["first_element"] = p.first_element;
  d["elements"] = p.elements;
  d["blocks"] = p.blocks;
  d["lanes"] = p.lanes;
  d["last"] = p.last;
  return d;
}

// The payloads of one rank's call, for looking at and for summing without a switch.
class Call {
 public:
  Call(py::array array, ReduceOp op, uint32_t rank, uint32_t world_size, uint32_t lane_bits, uint32_t max_blocks,
       uint64_t number, std::optional<DType> dtype)
      : array_(std::move(array)),
        context_{{number, checked_dtype(array_, dtype), op, static_cast<uint64_t>(array_.size())},
                 lane_bits,
                 max_blocks,
                 rank,
                 world_size},
        layout_(lane_bits, max_blocks, context_.call.count),
        prelude_(context_, array_.data(), layout_) {}

  uint64_t prelude_packets() const { return prelude_.packets(); }
  py::bytes pack_prelude(uint64_t i) { return pack(prelude_, i); }
  void unpack_prelude(uint64_t i, const std::string& blocks) { unpack(prelude_, i, blocks); }
  bool all_finite() const { return prelude_.all_finite(); }
  uint32_t biased_exponent(uint64_t message) const { return prelude_.biased_exponent(message); }

  void begin_data() {
    DefaultFloatEnvironment environment;
    data_ = std::make_unique<DataTransfer>(context_, array_.mutable_data(), layout_, prelude_);
  }
  uint64_t data_packets() const { return layout_.packets(); }
  py::bytes pack_data(uint64_t i) { return pack(data(), i); }
  void unpack_data(uint64_t i, const std::string& blocks) { unpack(data(), i, blocks); }

 private:
  DataTransfer& data() {
    if (data_ == nullptr) throw std::logic_error("begin_data() comes first");
    return *data_;
  }
  py::bytes pack(Transfer& transfer, uint64_t i) {
    DefaultFloatEnvironment environment;
    if (i >= transfer.packets()) throw py::index_error("packet");
    std::string blocks(transfer.blocks(i) * wire::BLOCK_BYTES, '\xff');
    transfer.pack(i, reinterpret_cast<uint8_t*>(blocks.data()));
    return blocks;
  }
  void unpack(Transfer& transfer, uint64_t i, const std::string& blocks) {
    DefaultFloatEnvironment environment;
    if (i >= transfer.packets()) throw py::index_error("packet");
    if (&transfer != &prelude_ && blocks.size() != transfer.blocks(i) * wire::BLOCK_BYTES)
      throw py::value_error("wrong length");
    transfer.unpack(i, reinterpret_cast<const uint8_t*>(blocks.data()),
                    static_cast<uint32_t>(blocks.size() / wire::BLOCK_BYTES), static_cast<uint32_t>(i));
  }

  py::array array_;
  CallContext context_;
  DataLayout layout_;
  Prelude prelude_;
  std::unique_ptr<DataTransfer> data_;
};

template <typename T>
std::string describe_endpoint(const T& e) {
  return cat("Endpoint(mac='", e.mac, "', ip='", e.ip, "', udp_port=", e.udp_port, ")");
}

}  // namespace

PYBIND11_MODULE(_datapath, m) {
  m.doc() = "All-reduce through a NetReduce switch on numpy arrays (the datapath without torch).";

  auto base = py::register_local_exception<DatapathError>(m, "DatapathError", PyExc_RuntimeError);
  py::register_local_exception<MismatchError>(m, "MismatchError", base.ptr());
  py::register_local_exception<IntegrityError>(m, "IntegrityError", base.ptr());
  py::register_local_exception<TimeoutError>(m, "TimeoutError", py::make_tuple(base, py::handle(PyExc_TimeoutError)));
  py::register_local_exception<AbortedError>(m, "AbortedError", base.ptr());
  auto wire_error = py::register_local_exception<WireError>(m, "WireError", base.ptr());
  py::register_local_exception<AddressInUseError>(m, "AddressInUseError", wire_error.ptr());

  py::enum_<DType>(m, "DType")
      .value("float32", DType::kFloat32)
      .value("float16", DType::kFloat16)
      .value("bfloat16", DType::kBFloat16)
      .value("float64", DType::kFloat64)
      .value("int8", DType::kInt8)
      .value("uint8", DType::kUInt8)
      .value("int32", DType::kInt32)
      .value("int64", DType::kInt64);
  py::enum_<ReduceOp>(m, "ReduceOp").value("SUM", ReduceOp::kSum).value("AVG", ReduceOp::kAvg);
  py::enum_<Outcome>(m, "Outcome").value("REDUCED", Outcome::kReduced).value("NON_FINITE", Outcome::kNonFinite);

  py::class_<Endpoint>(m, "Endpoint")
      .def(py::init([](std::string mac, std::string ip, uint16_t udp_port) {
             return Endpoint{std::move(mac), std::move(ip), udp_port};
           }),
           py::kw_only(), py::arg("mac"), py::arg("ip"), py::arg("udp_port"))
      .def_readwrite("mac", &Endpoint::mac)
      .def_readwrite("ip", &Endpoint::ip)
      .def_readwrite("udp_port", &Endpoint::udp_port)
      .def("__repr__", &describe_endpoint<Endpoint>);

  py::class_<StreamConfig>(m, "StreamConfig")
      .def(py::init([](uint16_t wire_job, uint32_t lane_bits) { return StreamConfig{wire_job, lane_bits}; }),
           py::kw_only(), py::arg("wire_job"), py::arg("lane_bits"))
      .def_readwrite("wire_job", &StreamConfig::wire_job)
      .def_readwrite("lane_bits", &StreamConfig::lane_bits);

  py::class_<CommunicatorConfig>(m, "CommunicatorConfig", "Fields as in datapath/communicator.h.")
      .def(py::init<>())
      .def_readwrite("job_name", &CommunicatorConfig::job_name)
      .def_readwrite("rank", &CommunicatorConfig::rank)
      .def_readwrite("world_size", &CommunicatorConfig::world_size)
      .def_readwrite("window", &CommunicatorConfig::window)
      .def_readwrite("max_blocks", &CommunicatorConfig::max_blocks)
      .def_readwrite("float_lane_bits", &CommunicatorConfig::float_lane_bits)
      .def_readwrite("streams", &CommunicatorConfig::streams)
      .def_readwrite("self", &CommunicatorConfig::self)
      .def_readwrite("successor", &CommunicatorConfig::successor)
      .def_readwrite("predecessor", &CommunicatorConfig::predecessor)
      .def_readwrite("switch_name", &CommunicatorConfig::switch_name)
      .def_readwrite("first_k", &CommunicatorConfig::first_k);

  py::class_<Statistics>(m, "Statistics")
      .def_readonly("calls", &Statistics::calls)
      .def_readonly("tensor_bytes", &Statistics::tensor_bytes)
      .def_readonly("packets_sent", &Statistics::packets_sent)
      .def_readonly("packets_resent", &Statistics::packets_resent)
      .def_readonly("results_received", &Statistics::results_received)
      .def_readonly("duplicates_received", &Statistics::duplicates_received)
      .def_readonly("unaggregated_received", &Statistics::unaggregated_received)
      .def_readonly("wire_bytes_sent", &Statistics::wire_bytes_sent);

  py::class_<UdpSocket>(m, "UdpSocket", "A bound UDP socket; WireError or AddressInUseError when it cannot be.")
      .def(py::init<const std::string&, uint16_t>(), py::arg("ip"), py::arg("port"))
      .def_property_readonly("ip", &UdpSocket::ip)
      .def_property_readonly("port", &UdpSocket::port)
      .def("fileno", &UdpSocket::descriptor)
      .def("detach", &UdpSocket::detach, "The descriptor, which the caller owns from now on.");
  m.def("bind_udp", &bind_udp, py::arg("ip"), py::arg("first_port") = wire::UDP_PORT_FIRST,
        py::arg("count") = wire::UDP_PORT_COUNT,
        "Binds the first free port of a range; AddressInUseError when all are taken.");

  py::class_<Communicator>(m, "Communicator")
      .def_static(
          "over_shm",
          [](const CommunicatorConfig& config, const std::string& path, uint32_t port) {
            py::gil_scoped_release release;
            return std::make_unique<Communicator>(config, make_shm_wire(path, port, config));
          },
          py::arg("config"), py::arg("path"), py::arg("port"),
          "Plugs into `port` of the switch whose socket is `path` (\"@name\": abstract).")
      .def_static(
          "over_udp",
          [](const CommunicatorConfig& config, UdpSocket& socket) {
            return std::make_unique<Communicator>(config, make_udp_wire(std::move(socket), config));
          },
          py::arg("config"), py::arg("socket"), "Takes the socket over.")
      .def(
          "supports",
          [](const Communicator& self, DType dtype, ReduceOp op) -> std::optional<std::string> {
            std::string reason;
            if (self.supports(dtype, op, &reason)) return std::nullopt;
            return reason;
          },
          py::arg("dtype"), py::arg("op") = ReduceOp::kSum, "None, or why not.")
      .def("probe", &Communicator::probe, py::arg("timeout"), py::call_guard<py::gil_scoped_release>())
      .def(
          "all_reduce",
          [](Communicator& self, py::array array, ReduceOp op, std::chrono::milliseconds timeout,
             std::optional<DType> dtype) {
            const DType checked = checked_dtype(array, dtype);
            void* data = array.mutable_data();
            const auto count = static_cast<uint64_t>(array.size());
            py::gil_scoped_release release;
            return self.all_reduce(data, count, checked, op, timeout);
          },
          py::arg("array"), py::arg("op") = ReduceOp::kSum, py::kw_only(), py::arg("timeout"),
          py::arg("dtype") = std::nullopt,
          "Sums a contiguous array over all ranks, in place. `dtype` overrides the array's (bfloat16 as uint16).")
      .def_property_readonly("next_call", &Communicator::next_call)
      .def("abort", &Communicator::abort, py::arg("reason"))
      .def_property_readonly("statistics", &Communicator::statistics);

  m.def("describe", [](uint64_t number, DType dtype, ReduceOp op, uint64_t count) {
    return describe({number, dtype, op, count});
  }, py::arg("number"), py::arg("dtype"), py::arg("op"), py::arg("count"));
  m.def("fraction_bits", &fraction_bits, py::arg("lane_bits"), py::arg("world_size"), "F of docs/numerics.md.");
  m.def("exponent_bound", &exponent_bound, py::arg("dtype"), py::arg("biased_exponent"), "E of docs/numerics.md.");
  m.def(
      "data_layout",
      [](uint32_t lane_bits, uint32_t max_blocks, uint64_t elements) {
        const DataLayout layout(lane_bits, max_blocks, elements);
        py::list packets;
        for (uint64_t i = 0; i < layout.packets(); ++i) packets.append(packet_dict(layout.packet(i)));
        return packets;
      },
      py::arg("lane_bits"), py::arg("max_blocks"), py::arg("elements"), "The data packets of a call, in order.");

  py::class_<Call>(m, "Call", "The payloads of one rank's call; unpacking results writes into the array.")
      .def(py::init<py::array, ReduceOp, uint32_t, uint32_t, uint32_t, uint32_t, uint64_t, std::optional<DType>>(),
           py::arg("array"), py::arg("op"), py::kw_only(), py::arg("rank"), py::arg("world_size"),
           py::arg("lane_bits"), py::arg("max_blocks") = wire::MAX_BLOCKS, py::arg("number") = 1,
           py::arg("dtype") = std::nullopt)
      .def_property_readonly("prelude_packets", &Call::prelude_packets)
      .def("pack_prelude", &Call::pack_prelude)
      .def("unpack_prelude", &Call::unpack_prelude)
      .def_property_readonly("all_finite", &Call::all_finite)
      .def("biased_exponent", &Call::biased_exponent)
      .def("begin_data", &Call::begin_data)
      .def_property_readonly("data_packets", &Call::data_packets)
      .def("pack_data", &Call::pack_data)
      .def("unpack_data", &Call::unpack_data);
}
