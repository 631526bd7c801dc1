#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "datapath/error.h"
#include "datapath/wire.h"
#include "datapath/wire/descriptor.h"

namespace netreduce {
namespace {

constexpr int kBufferBytes = 8 << 20;

void set_option(int fd, int level, int option, int value, const char* option_name, const std::string& peer) {
  if (::setsockopt(fd, level, option, &value, sizeof value) != 0)
    throw WireError(system_error(cat("setsockopt(", option_name, ") on").c_str(), peer, errno));
}

// As much as the kernel allows: beyond net.core.rmem_max only with CAP_NET_ADMIN.
void enlarge(int fd, int forced, int option) {
  const int value = kBufferBytes;
  if (::setsockopt(fd, SOL_SOCKET, forced, &value, sizeof value) != 0)
    ::setsockopt(fd, SOL_SOCKET, option, &value, sizeof value);  // capped silently
}

}  // namespace

UdpSocket::UdpSocket(const std::string& ip, uint16_t port) : ip_(ip), port_(port) {
  const std::string local = cat(ip, ":", port);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, ip.c_str(), &address.sin_addr) != 1)
    throw std::invalid_argument(cat("\"", ip, "\" is not an IPv4 address"));
  Descriptor fd(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) throw WireError(system_error("socket(AF_INET) for", local, errno));
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const std::string text = system_error("bind to", local, errno);
    if (errno == EADDRINUSE) throw AddressInUseError(text);
    throw WireError(text);
  }
  // Sets DF: a fragment would not reach the P4 program's parser as a packet.
  set_option(fd.get(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO, "IP_MTU_DISCOVER", local);
  // Without it, an unconnected socket is not told of ICMP errors.
  set_option(fd.get(), IPPROTO_IP, IP_RECVERR, 1, "IP_RECVERR", local);
  enlarge(fd.get(), SO_RCVBUFFORCE, SO_RCVBUF);
  enlarge(fd.get(), SO_SNDBUFFORCE, SO_SNDBUF);
  socklen_t length = sizeof address;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw WireError(system_error("getsockname of", local, errno));
  port_ = ntohs(address.sin_port);
  descriptor_ = fd.release();
}

UdpSocket::UdpSocket(int descriptor) : descriptor_(descriptor) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0 || address.sin_family != AF_INET)
    throw WireError(system_error("getsockname of", cat("descriptor ", descriptor), errno));
  char text[INET_ADDRSTRLEN];
  ip_ = ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  port_ = ntohs(address.sin_port);
}

UdpSocket::UdpSocket(UdpSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), ip_(other.ip_), port_(other.port_) {}

UdpSocket::~UdpSocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int UdpSocket::detach() noexcept { return std::exchange(descriptor_, -1); }

UdpSocket bind_udp(const std::string& ip, uint16_t first_port, uint16_t count) {
  for (uint32_t port = first_port; port < uint32_t{first_port} + count && port <= 65535; ++port) {
    try {
      return UdpSocket(ip, static_cast<uint16_t>(port));
    } catch (const AddressInUseError&) {
    }
  }
  throw AddressInUseError(cat("bind to ", ip, ": all UDP ports ", first_port, "-", first_port + count - 1,
                              " are in use; a process group needs one of them"));
}

}  // namespace netreduce
