#include "datapath/wire/shm/port.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cstddef>

#include "datapath/error.h"

namespace netreduce {
namespace {

constexpr timeval kHandshakeTimeout{5, 0};

Descriptor connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    throw std::invalid_argument(cat("\"", path, "\" is not a socket path (1 to ", sizeof address.sun_path - 1, " bytes)"));
  std::memcpy(address.sun_path, path.data(), path.size());
  auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  if (path[0] == '@') {  // the abstract namespace: a leading 0 byte, and no terminating one
    address.sun_path[0] = '\0';
    --length;
  }
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) throw WireError(system_error("socket(AF_UNIX) for", path, errno));
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kHandshakeTimeout, sizeof kHandshakeTimeout) != 0 ||
      ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &kHandshakeTimeout, sizeof kHandshakeTimeout) != 0)
    throw WireError(system_error("setsockopt(SO_RCVTIMEO) for", path, errno));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0)
    throw WireError(cat(system_error("connect to the switch at", path, errno), "; is the switch running, as this user?"));
  return socket;
}

}  // namespace

ShmPort::ShmPort(const std::string& path, uint32_t port) : socket_(connect_to(path)), creator_(::getpid()) {
  const std::string peer = cat("port ", port, " of the switch at ", path);
  const shm_port_hello hello{SHM_PORT_MAGIC, SHM_PORT_VERSION, port, 0};
  if (::send(socket_.get(), &hello, sizeof hello, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello))
    throw WireError(system_error("send to", peer, errno));

  shm_port_reply reply{};
  iovec buffer{&reply, sizeof reply};
  alignas(cmsghdr) char control[CMSG_SPACE(3 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &buffer;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t received = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  if (received < 0) throw WireError(system_error("recvmsg from", peer, errno));

  // Own the descriptors before anything can throw.
  Descriptor descriptors[3];
  size_t count = 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) && count < 3; ++i, ++count) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      descriptors[count] = Descriptor(fd);
    }
  }
  if (received == 0) throw WireError(cat(peer, " closed the connection during the handshake"));
  if (static_cast<size_t>(received) < offsetof(shm_port_reply, message) || reply.magic != SHM_PORT_MAGIC)
    throw WireError(cat("what listens at ", path, " is not a NetReduce switch"));
  if (reply.status != 0) {
    reply.message[sizeof reply.message - 1] = '\0';
    throw WireError(cat(peer, " refused: ", std::strerror(reply.status), ": ", reply.message));
  }
  if (reply.version != SHM_PORT_VERSION)
    throw WireError(cat(peer, " speaks version ", reply.version, " of the port protocol, this agent version ",
                        SHM_PORT_VERSION));
  struct stat file;
  if (count != 3 || ::fstat(descriptors[0].get(), &file) != 0 ||
      file.st_size < static_cast<off_t>(sizeof(shm_port_layout)))
    throw WireError(cat(peer, " did not pass its memory and two eventfds"));

  memory_ = std::move(descriptors[0]);
  wake_switch_ = std::move(descriptors[1]);
  wake_client_ = std::move(descriptors[2]);
  void* mapped = ::mmap(nullptr, sizeof(shm_port_layout), PROT_READ | PROT_WRITE, MAP_SHARED, memory_.get(), 0);
  if (mapped == MAP_FAILED) throw WireError(system_error("mmap of", peer, errno));
  layout_ = static_cast<shm_port_layout*>(mapped);
  // A forked child must not touch the rings: it does not even have them.
  ::madvise(mapped, sizeof(shm_port_layout), MADV_DONTFORK);
  if (layout_->magic != SHM_PORT_MAGIC || layout_->version != SHM_PORT_VERSION) {
    ::munmap(mapped, sizeof(shm_port_layout));
    throw WireError(cat(peer, " passed memory of another layout"));
  }
  for (int fd : {wake_client_.get(), wake_switch_.get()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
}

ShmPort::~ShmPort() {
  // In a forked child the mapping is not there, and something else may be.
  if (::getpid() == creator_) ::munmap(layout_, sizeof(shm_port_layout));
}

bool ShmPort::closed() const {
  char byte;
  const ssize_t n = ::recv(socket_.get(), &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

}  // namespace netreduce
