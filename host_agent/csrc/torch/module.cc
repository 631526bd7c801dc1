// netreduce.host_agent._c10d: the torch backend for Python.
#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include "datapath/wire.h"
#include "torch/backend.h"

namespace py = pybind11;
using namespace netreduce;

namespace {

using std::chrono::milliseconds;

Endpoint endpoint_of(const std::tuple<std::string, std::string, uint16_t>& fields) {
  return {std::get<0>(fields), std::get<1>(fields), std::get<2>(fields)};
}

py::dict statistics_of(const Session& session) {
  const auto s = session.statistics();
  py::dict counts;
  counts["calls"] = s.calls;
  counts["tensor_bytes"] = s.tensor_bytes;
  counts["packets_sent"] = s.packets_sent;
  counts["packets_resent"] = s.packets_resent;
  counts["results_received"] = s.results_received;
  counts["duplicates_received"] = s.duplicates_received;
  counts["unaggregated_received"] = s.unaggregated_received;
  counts["wire_bytes_sent"] = s.wire_bytes_sent;
  return counts;
}

std::vector<std::tuple<std::string, std::string, uint64_t, uint64_t>> fallbacks_of(Session& session) {
  std::vector<std::tuple<std::string, std::string, uint64_t, uint64_t>> rows;
  for (const auto& [key, cell] : session.fallbacks().read())
    rows.emplace_back(key.first, key.second, cell.calls, cell.tensor_bytes);
  return rows;
}

std::optional<std::tuple<uint64_t, std::string, std::string, double, uint64_t>> running_of(Session& session) {
  const auto call = session.queue().running();
  if (!call) return std::nullopt;
  const std::chrono::duration<double> age = std::chrono::steady_clock::now() - call->since;
  return std::make_tuple(call->number, call->description, call->signature, age.count(), call->collective);
}

// torch asks isinstance(backend, ProcessGroupGloo) to know what a backend can do, and ours can do what Gloo
// does. isinstance believes an object's __class__, which has to be put into the type's dictionary: setting
// the attribute would set the type's own class.
void pass_for_gloo(py::handle type) {
  const py::object gloo = py::module_::import("torch._C._distributed_c10d").attr("ProcessGroupGloo");
  const py::object property = py::module_::import("builtins").attr("property");
  auto* python_type = reinterpret_cast<PyTypeObject*>(type.ptr());
  const py::object getter = property(py::cpp_function([gloo](const py::handle&) { return gloo; }));
  if (PyDict_SetItemString(python_type->tp_dict, "__class__", getter.ptr()) != 0) throw py::error_already_set();
  PyType_Modified(python_type);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "torch.distributed backend that reduces through the switch; see netreduce.host_agent.process_group.";
  py::module_::import("torch._C._distributed_c10d");

  // What the datapath's own module registers too is local, so that one process can load both.
  py::register_local_exception<WireError>(m, "WireError", PyExc_RuntimeError);

  py::class_<UdpSocket>(m, "UdpSocket", py::module_local(),
                        "A bound UDP socket; handed to Session.attach_udp once.")
      .def_property_readonly("ip", &UdpSocket::ip)
      .def_property_readonly("port", &UdpSocket::port);
  m.def("bind_udp", &bind_udp, py::arg("ip"), py::arg("first_port"), py::arg("count"),
        "Binds the first free of `count` ports. Raises WireError when all are taken.");

  py::class_<CommunicatorConfig>(m, "CommunicatorConfig", py::module_local(), "What a join reply says.")
      .def(py::init([](std::string job_name, uint32_t rank, uint32_t world_size, uint32_t window,
                       uint32_t max_blocks, uint32_t float_lane_bits,
                       const std::vector<std::pair<uint16_t, uint32_t>>& streams,
                       const std::tuple<std::string, std::string, uint16_t>& self,
                       const std::tuple<std::string, std::string, uint16_t>& successor,
                       const std::tuple<std::string, std::string, uint16_t>& predecessor,
                       std::string switch_name) {
             CommunicatorConfig config;
             config.job_name = std::move(job_name);
             config.rank = rank;
             config.world_size = world_size;
             config.window = window;
             config.max_blocks = max_blocks;
             config.float_lane_bits = float_lane_bits;
             for (const auto& [wire_job, lane_bits] : streams) config.streams.push_back({wire_job, lane_bits});
             config.self = endpoint_of(self);
             config.successor = endpoint_of(successor);
             config.predecessor = endpoint_of(predecessor);
             config.switch_name = std::move(switch_name);
             return config;
           }),
           py::kw_only(), py::arg("job_name"), py::arg("rank"), py::arg("world_size"), py::arg("window"),
           py::arg("max_blocks"), py::arg("float_lane_bits"), py::arg("streams"), py::arg("self_endpoint"),
           py::arg("successor"), py::arg("predecessor"), py::arg("switch_name"));

  py::class_<Session, std::shared_ptr<Session>>(m, "Session", "One process group's use of the switch.")
      .def(py::init<std::string, int, int, std::string>(), py::arg("job"), py::arg("rank"), py::arg("size"),
           py::arg("reason"))
      .def(
          "attach_shm",
          [](Session& session, const CommunicatorConfig& config, const std::string& socket, uint32_t port,
             const c10::intrusive_ptr<c10d::Store>& store) {
            session.attach(std::make_unique<Communicator>(config, make_shm_wire(socket, port, config)), store);
          },
          py::arg("config"), py::arg("socket"), py::arg("port"), py::arg("store"),
          py::call_guard<py::gil_scoped_release>())
      .def(
          "attach_udp",
          [](Session& session, const CommunicatorConfig& config, UdpSocket& socket,
             const c10::intrusive_ptr<c10d::Store>& store) {
            session.attach(std::make_unique<Communicator>(config, make_udp_wire(std::move(socket), config)), store);
          },
          py::arg("config"), py::arg("socket"), py::arg("store"), py::call_guard<py::gil_scoped_release>())
      .def("set_companion", &Session::set_companion, py::arg("companion"),
           "The second Gloo group, for the queue's calls that Gloo does.")
      .def("probe", &Session::probe, py::arg("timeout"), py::call_guard<py::gil_scoped_release>(),
           "Returns when packets of all ranks met in the switch. Raises RuntimeError when they did not.")
      .def("detach", &Session::detach, py::arg("reason"), py::call_guard<py::gil_scoped_release>())
      // Never blocks, so it keeps the interpreter's lock: a daemon thread that wants it back while the
      // interpreter is being finalised is ended by force, and takes the process with it.
      .def("abort", &Session::abort, py::arg("reason"))
      .def("close", &Session::close, py::arg("patience"), py::call_guard<py::gil_scoped_release>())
      .def("wait_closed", &Session::wait_closed, py::arg("timeout"), py::call_guard<py::gil_scoped_release>(),
           "Whether the session is closed; waits up to `timeout` for that or for a failure.")
      .def("departed", &Session::departed, "Says that the controller knows of the departure.")
      .def("statistics", &statistics_of, "Counts of HostStatistics by field name.")
      .def("fallbacks", &fallbacks_of, "Rows (collective, reason, calls, tensor bytes) of what Gloo did.")
      .def("running", &running_of, "(number, description, signature, seconds, collective) of the running call, or None.")
      .def(
          "collectives",
          [](Session& s) {
            const auto recent = s.collectives().recent();
            return std::make_pair(recent.first, recent.names);
          },
          "(number of the first, names) of the group's latest collectives, in the order of the calls.")
      .def_property_readonly("collective_count", [](Session& s) { return s.collectives().count(); })
      .def_property_readonly("submitted", [](Session& s) { return s.queue().submitted(); })
      .def_property_readonly("failure", &Session::failure)
      .def_property_readonly("attached", &Session::attached)
      .def_property_readonly("job", &Session::job)
      .def_property_readonly("reason", &Session::reason);

  py::class_<NetReduceBackend, c10d::Backend, c10::intrusive_ptr<NetReduceBackend>> backend(
      m, "NetReduceBackend", "A torch.distributed backend: Gloo with all-reduce through the switch.");
  backend
      .def(py::init([](const c10::intrusive_ptr<c10d::Backend>& inner, std::shared_ptr<Session> session,
                       std::string name, milliseconds timeout) {
             return c10::make_intrusive<NetReduceBackend>(inner, std::move(session), std::move(name), timeout);
           }),
           py::arg("inner"), py::arg("session"), py::arg("name"), py::arg("timeout"))
      .def_property_readonly("options", [](NetReduceBackend& b) { return b.getBackendOptions(); })
      .def("_set_default_timeout", &NetReduceBackend::setTimeout, py::arg("timeout"))
      .def_property_readonly("inner", &NetReduceBackend::inner)
      .def_property_readonly("session", &NetReduceBackend::session);
  pass_for_gloo(backend);
}
