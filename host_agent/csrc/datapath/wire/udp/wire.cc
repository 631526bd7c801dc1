// Kernel sockets: batches of datagrams through sendmmsg and recvmmsg.
//
// Not used, on purpose: UDP_SEGMENT, because over veth and tap the switch's packet socket would get the
// super-frame instead of packets; UDP_GRO, because a result of other length would end up in the middle of
// a batch of equal ones.
#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <vector>

#include "datapath/error.h"
#include "datapath/wire.h"
#include "datapath/wire/descriptor.h"
#include "datapath/wire/poll.h"
#include "wire_constants.h"

namespace netreduce {
namespace {

constexpr size_t kBatch = 64;
// One byte more than the longest packet, so that a longer one cannot pass for it.
constexpr size_t kBufferBytes = wire::NR_HEADER_BYTES + wire::MAX_BLOCKS * wire::BLOCK_BYTES + 1;
// How long a full send buffer may hold up the sender before its packets count as lost.
constexpr std::chrono::milliseconds kSendPatience{10};

sockaddr_in address_of(const Endpoint& endpoint) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(endpoint.udp_port);
  if (::inet_pton(AF_INET, endpoint.ip.c_str(), &address.sin_addr) != 1)
    throw std::invalid_argument(cat("\"", endpoint.ip, "\" is not an IPv4 address"));
  return address;
}

std::string text_of(const Endpoint& endpoint) { return cat(endpoint.ip, ":", endpoint.udp_port); }

// Datagram buffers with the message headers that the kernel wants around them.
class Batch {
 public:
  Batch() : storage_(kBatch * kBufferBytes), messages_(kBatch), vectors_(kBatch), addresses_(kBatch) {
    for (size_t i = 0; i < kBatch; ++i) {
      messages_[i].msg_hdr.msg_name = &addresses_[i];
      messages_[i].msg_hdr.msg_namelen = sizeof(sockaddr_in);
      messages_[i].msg_hdr.msg_iov = &vectors_[i];
      messages_[i].msg_hdr.msg_iovlen = 1;
      vectors_[i] = {buffer(i), kBufferBytes};
    }
  }
  uint8_t* buffer(size_t i) { return storage_.data() + i * kBufferBytes; }
  mmsghdr* messages() { return messages_.data(); }
  iovec& vector(size_t i) { return vectors_[i]; }
  sockaddr_in& address(size_t i) { return addresses_[i]; }

 private:
  std::vector<uint8_t> storage_;
  std::vector<mmsghdr> messages_;
  std::vector<iovec> vectors_;
  std::vector<sockaddr_in> addresses_;
};

class UdpWire : public Wire {
 public:
  UdpWire(UdpSocket socket, const CommunicatorConfig& config)
      : socket_(std::move(socket)),
        wakeup_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        successor_(text_of(config.successor)),
        source_(address_of(config.predecessor)) {
    if (wakeup_.get() < 0) throw WireError(system_error("eventfd for", description(), errno));
    const sockaddr_in destination = address_of(config.successor);
    for (size_t i = 0; i < kBatch; ++i) outgoing_.address(i) = destination;
  }

  std::string description() const override {
    return cat("udp:", socket_.ip(), ":", socket_.port(), " to ", successor_);
  }
  std::chrono::nanoseconds minimum_rto() const override { return std::chrono::milliseconds(10); }
  std::chrono::nanoseconds initial_rto() const override { return std::chrono::milliseconds(50); }

  uint8_t* reserve(uint32_t length) override {
    if (pending_ == kBatch) flush();
    outgoing_.vector(pending_).iov_len = length;
    return outgoing_.buffer(pending_);
  }

  void commit() override { ++pending_; }

  void flush() override {
    size_t sent = 0, failures = 0;
    const auto patience = Clock::now() + kSendPatience;
    while (sent < pending_) {
      const int n = ::sendmmsg(socket_.descriptor(), outgoing_.messages() + sent, pending_ - sent, MSG_DONTWAIT);
      if (n > 0) {
        sent += n;
        continue;
      }
      const int error = errno;
      if (error == EINTR) continue;
      if (error == EMSGSIZE)
        throw WireError(cat(system_error("sendmmsg to", successor_, error), ": packets of ",
                            outgoing_.vector(sent).iov_len + wire::IPV4_HEADER_BYTES + wire::UDP_HEADER_BYTES,
                            " bytes exceed the MTU of the path; lower the job's block count or raise the MTU"));
      if (error == EAGAIN || error == EWOULDBLOCK) {
        pollfd writable{socket_.descriptor(), POLLOUT, 0};
        if (Clock::now() < patience && poll_until(&writable, 1, patience) > 0) continue;
        break;  // lost; the stream resends
      }
      if (error == EBADF || error == ENOTSOCK || error == EFAULT || error == EINVAL)
        throw WireError(system_error("sendmmsg to", successor_, error));
      // No route, buffer or neighbour for the moment, or an ICMP error of an earlier packet, which the
      // kernel reports once in place of sending this one.
      remember(error, {});
      if (error == ENOBUFS || ++failures > pending_) break;
    }
    pending_ = 0;
  }

  size_t receive(Packet* out, size_t capacity) override {
    const size_t limit = std::min(capacity, kBatch);
    for (size_t i = 0; i < limit; ++i) incoming_.messages()[i].msg_hdr.msg_namelen = sizeof(sockaddr_in);
    const int n = ::recvmmsg(socket_.descriptor(), incoming_.messages(), limit, MSG_DONTWAIT, nullptr);
    if (n < 0) {
      if (errno == EBADF || errno == ENOTSOCK || errno == EFAULT || errno == EINVAL)
        throw WireError(system_error("recvmmsg on", description(), errno));
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) remember(errno, {});
      return 0;
    }
    size_t count = 0;
    for (int i = 0; i < n; ++i) {
      const sockaddr_in& from = incoming_.address(i);
      if (from.sin_addr.s_addr == source_.sin_addr.s_addr && from.sin_port == source_.sin_port)
        out[count++] = {incoming_.buffer(i), incoming_.messages()[i].msg_len};
    }
    return count;
  }

  void release() override {}

  void wait(Clock::time_point until) override {
    pollfd descriptors[] = {{socket_.descriptor(), POLLIN, 0}, {wakeup_.get(), POLLIN, 0}};
    poll_until(descriptors, 2, until);
    if (descriptors[0].revents & POLLERR) drain_errors();
    if (descriptors[1].revents != 0) drain_event(wakeup_.get());
  }

  void interrupt() noexcept override { signal_event(wakeup_.get()); }

  std::string diagnosis() const override {
    if (last_error_ == 0) return {};
    std::string text = cat("the network reported \"", std::strerror(last_error_), "\"");
    if (!last_offender_.empty()) text += cat(" from ", last_offender_);
    return text + cat(" ", errors_, errors_ == 1 ? " time" : " times", " for packets to ", successor_,
                      last_error_ == ECONNREFUSED ? ": they arrived there unaggregated and no worker was listening" : "");
  }

 private:
  void remember(int error, const std::string& offender) {
    last_error_ = error;
    ++errors_;
    if (!offender.empty()) last_offender_ = offender;
  }

  // The error queue keeps POLLERR raised until it is empty.
  void drain_errors() {
    for (;;) {
      alignas(cmsghdr) char control[256];
      msghdr message{};
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      if (::recvmsg(socket_.descriptor(), &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) break;
      for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != IPPROTO_IP || c->cmsg_type != IP_RECVERR) continue;
        sock_extended_err error;
        std::memcpy(&error, CMSG_DATA(c), sizeof error);
        std::string offender;
        if (error.ee_origin == SO_EE_ORIGIN_ICMP) {
          sockaddr_in address;
          std::memcpy(&address, CMSG_DATA(c) + sizeof error, sizeof address);
          char text[INET_ADDRSTRLEN];
          if (::inet_ntop(AF_INET, &address.sin_addr, text, sizeof text) != nullptr) offender = text;
        }
        remember(static_cast<int>(error.ee_errno), offender);
      }
    }
    int pending = 0;
    socklen_t length = sizeof pending;
    ::getsockopt(socket_.descriptor(), SOL_SOCKET, SO_ERROR, &pending, &length);  // clears it
  }

  UdpSocket socket_;
  const Descriptor wakeup_;
  const std::string successor_;
  const sockaddr_in source_;
  Batch outgoing_, incoming_;
  size_t pending_ = 0;

  int last_error_ = 0;
  std::string last_offender_;
  uint64_t errors_ = 0;
};

}  // namespace

std::unique_ptr<Wire> make_udp_wire(UdpSocket socket, const CommunicatorConfig& config) {
  NETREDUCE_REQUIRE(socket.descriptor(), >=, 0, "the socket was detached");
  NETREDUCE_REQUIRE(socket.port(), ==, config.self.udp_port, "the job was joined with another port than is bound");
  return std::make_unique<UdpWire>(std::move(socket), config);
}

}  // namespace netreduce
