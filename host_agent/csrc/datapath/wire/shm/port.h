// The client side of a switch port in shared memory: softswitch/csrc/shm_port.h.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "datapath/wire.h"
#include "datapath/wire/descriptor.h"
#include "shm_port.h"

namespace netreduce {

// A connected port. Movable only by pointer: the destructor unmaps.
class ShmPort {
 public:
  // Throws WireError when the switch is not there, refuses, or does not answer within 5 s.
  ShmPort(const std::string& path, uint32_t port);
  ~ShmPort();
  ShmPort(const ShmPort&) = delete;
  ShmPort& operator=(const ShmPort&) = delete;

  shm_port_layout& layout() const { return *layout_; }
  int socket() const { return socket_.get(); }
  int wake_switch() const { return wake_switch_.get(); }
  int wake_client() const { return wake_client_.get(); }
  // Whether the switch has closed its end.
  bool closed() const;

 private:
  Descriptor socket_, memory_, wake_switch_, wake_client_;
  shm_port_layout* layout_ = nullptr;
  const pid_t creator_;
};

}  // namespace netreduce
