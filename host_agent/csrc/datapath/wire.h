// The wire: how NetReduce packets leave for the switch and how results come back.
//
// A Wire moves datagrams between this rank and its two ring neighbours and knows nothing of streams.
// Implementations: wire/shm (frames in shared memory, to the embedded switch) and wire/udp (kernel
// sockets). A wire may lose, repeat and reorder packets; it never delivers one that was not sent by the
// ring predecessor's address to ours.
//
// Threads: one thread uses a wire; only interrupt() may be called from others.
// Errors: docs/errors.md. A packet that cannot be sent now is a lost packet, not an error.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "datapath/communicator.h"

namespace netreduce {

using Clock = std::chrono::steady_clock;

// A received datagram, from its NR header on. Valid until Wire::release().
struct Packet {
  const uint8_t* data;
  uint32_t length;
};

// A system call of a wire failed for good; names the call and the peer.
class WireError : public DatapathError {
  using DatapathError::DatapathError;
};

// The UDP port is taken: try the next one.
class AddressInUseError : public WireError {
  using WireError::WireError;
};

class Wire {
 public:
  virtual ~Wire() = default;

  virtual std::string description() const = 0;  // "shm:@switch port 3", for messages

  // Bounds of the retransmission timeout that suit this wire's latency.
  virtual std::chrono::nanoseconds minimum_rto() const = 0;
  virtual std::chrono::nanoseconds initial_rto() const = 0;

  // Room for one datagram of `length` bytes from the NR header on, to be filled and committed at once.
  virtual uint8_t* reserve(uint32_t length) = 0;
  virtual void commit() = 0;
  // Hands over everything committed so far.
  virtual void flush() = 0;

  // Up to `capacity` datagrams that have arrived, without waiting. Throws AbortedError or WireError when
  // the wire is gone.
  virtual size_t receive(Packet* out, size_t capacity) = 0;
  // Gives the buffers of the last receive() back.
  virtual void release() = 0;
  // Returns when something may have arrived, at `until`, or after interrupt(); may return early. Throws
  // AbortedError when the other end of the wire is gone.
  virtual void wait(Clock::time_point until) = 0;

  // Makes the current or next wait() return at once; from any thread.
  virtual void interrupt() noexcept = 0;

  // What the wire noticed that may explain missing results, as a sentence fragment; empty: nothing.
  virtual std::string diagnosis() const { return {}; }
};

// A bound UDP socket, made before joining a job because the join request carries the port number.
class UdpSocket {
 public:
  // Throws AddressInUseError when (ip, port) is taken, WireError for anything else.
  UdpSocket(const std::string& ip, uint16_t port);
  // Adopts a descriptor that detach() gave.
  explicit UdpSocket(int descriptor);
  UdpSocket(UdpSocket&& other) noexcept;
  UdpSocket& operator=(UdpSocket&&) = delete;
  ~UdpSocket();

  int descriptor() const { return descriptor_; }
  const std::string& ip() const { return ip_; }
  uint16_t port() const { return port_; }
  int detach() noexcept;  // the caller owns the descriptor from now on

 private:
  int descriptor_ = -1;
  std::string ip_;
  uint16_t port_ = 0;
};

// Binds the first free port of first_port … first_port + count - 1. Throws AddressInUseError when all are
// taken.
UdpSocket bind_udp(const std::string& ip, uint16_t first_port, uint16_t count);

// Plugs into port `port` of the switch that listens at `path` (softswitch/csrc/shm_port.h; "@…" is an
// abstract name). Throws WireError when the switch is not there or refuses.
std::unique_ptr<Wire> make_shm_wire(const std::string& path, uint32_t port, const CommunicatorConfig& config);

std::unique_ptr<Wire> make_udp_wire(UdpSocket socket, const CommunicatorConfig& config);

}  // namespace netreduce
