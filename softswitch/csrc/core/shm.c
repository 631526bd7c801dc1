/* Shared-memory ports (../shm_port.h).  The client is not trusted: what it can write is read once,
 * checked, and never used to decide how long we wait. */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* --- Listening and greeting ------------------------------------------------------------------- */

/* A socket file that nobody listens on is left over from a switch that was killed. */
static void remove_stale(const struct sockaddr_un *address, socklen_t length) {
  int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return;
  if (connect(probe, (const struct sockaddr *)address, length) && errno == ECONNREFUSED)
    unlink(address->sun_path);
  close(probe);
}

int shm_listen(ssw_core *core, const char *name, char *error, size_t error_size) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  size_t size = strlen(name);
  bool abstract = name[0] == '@';
  if (core->listener >= 0) {
    snprintf(error, error_size, "the switch listens for shared-memory ports already");
    return -EALREADY;
  }
  if (size < 1u + abstract || size >= sizeof address.sun_path) {
    snprintf(error, error_size, "%s: a socket name has 1 to %zu characters", name,
             sizeof address.sun_path - 1);
    return -EINVAL;
  }
  memcpy(address.sun_path, name, size);
  socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size + !abstract);
  if (abstract)
    address.sun_path[0] = '\0';
  else
    remove_stale(&address, length);

  int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0 || bind(listener, (const struct sockaddr *)&address, length) ||
      listen(listener, SOMAXCONN)) {
    int why = errno;
    if (why == EADDRINUSE)
      snprintf(error, error_size,
               "the socket %s is in use: another switch listens there; choose another name", name);
    else
      snprintf(error, error_size, "cannot listen on the socket %s: %s", name, strerror(why));
    if (listener >= 0) close(listener);
    return -why;
  }
  if (!abstract) core->socket_path = strdup(name);
  core->listener = listener;
  return core_watch(core, listener, EPOLLIN, event_tag(EVENT_LISTENER, 0, 0));
}

static bool same_user(int socket) {
  struct ucred peer;
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length)) return false;
  return peer.uid == geteuid() || peer.uid == 0;
}

static void drop_pending(pending_client *client) {
  close(client->socket);
  client->socket = -1;
}

void shm_accept(ssw_core *core) {
  for (uint32_t accepted = 0; accepted < PENDING_CLIENTS; accepted++) {
    int socket = accept4(core->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) {
      if (errno == ECONNABORTED || errno == EINTR) continue;
      if (errno != EAGAIN) core_log(core, SSW_LOG_ERROR, "cannot accept a client: %s", strerror(errno));
      return;
    }
    if (!same_user(socket)) {
      core_log(core, SSW_LOG_WARNING, "refused a shared-memory client of another user");
      close(socket);
      continue;
    }
    /* When all places are taken the one that has been silent longest gives way. */
    uint32_t place = 0;
    for (uint32_t i = 0; i < PENDING_CLIENTS && core->pending[place].socket >= 0; i++)
      if (core->pending[i].socket < 0 || core->pending[i].deadline_us < core->pending[place].deadline_us)
        place = i;
    pending_client *client = &core->pending[place];
    if (client->socket >= 0) drop_pending(client);
    client->socket = socket;
    client->generation = ++core->pending_generation;
    client->deadline_us = core_now_us(core) + PENDING_TIMEOUT_US;
    if (core_watch(core, socket, EPOLLIN, event_tag(EVENT_PENDING, place, client->generation)))
      drop_pending(client);
  }
}

uint64_t shm_pending_deadline(const ssw_core *core) {
  uint64_t first = UINT64_MAX;
  for (uint32_t i = 0; i < PENDING_CLIENTS; i++)
    if (core->pending[i].socket >= 0 && core->pending[i].deadline_us < first)
      first = core->pending[i].deadline_us;
  return first;
}

void shm_expire_pending(ssw_core *core, uint64_t now_us) {
  for (uint32_t i = 0; i < PENDING_CLIENTS; i++)
    if (core->pending[i].socket >= 0 && core->pending[i].deadline_us <= now_us)
      drop_pending(&core->pending[i]);
}

static void refuse(pending_client *client, uint32_t port, int why, const char *message) {
  shm_port_reply reply = {
      .magic = SHM_PORT_MAGIC, .version = SHM_PORT_VERSION, .status = why, .port = port};
  snprintf(reply.message, sizeof reply.message, "%s", message);
  (void)!send(client->socket, &reply, sizeof reply, MSG_DONTWAIT | MSG_NOSIGNAL);
  drop_pending(client);
}

/* 0, or why this hello is refused. */
static int check_hello(const ssw_core *core, const shm_port_hello *hello, ssize_t received,
                       char *message, size_t size) {
  if (received != (ssize_t)sizeof *hello || hello->magic != SHM_PORT_MAGIC) {
    snprintf(message, size, "this is not a shared-memory port hello");
    return EPROTO;
  }
  if (hello->version != SHM_PORT_VERSION) {
    snprintf(message, size, "the switch speaks shared-memory port version %u, not %u", SHM_PORT_VERSION,
             hello->version);
    return EPROTO;
  }
  if (hello->port >= SSW_PORT_COUNT || !core->shm_allowed[hello->port]) {
    snprintf(message, size, "port %u is not a shared-memory port of this switch", hello->port);
    return ENODEV;
  }
  if (core->ports[hello->port].kind != SSW_PORT_NONE) {
    snprintf(message, size, "port %u is in use", hello->port);
    return EBUSY;
  }
  return 0;
}

static void release_link(shm_link *link) {
  if (link->memory) munmap(link->memory, sizeof *link->memory);
  if (link->switch_bell >= 0) close(link->switch_bell);
  if (link->host_bell >= 0) close(link->host_bell);
  link->memory = NULL;
  link->switch_bell = link->host_bell = -1;
}

/* Makes rings and bells; returns the memory's descriptor or a negative errno value. */
static int make_link(shm_link *link) {
  *link = (shm_link){.socket = -1, .switch_bell = -1, .host_bell = -1};
  int fd = memfd_create("switch-port", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  link->switch_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  link->host_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  /* Sealed: a client that could shrink the file would kill us with SIGBUS. */
  if (fd < 0 || link->switch_bell < 0 || link->host_bell < 0 ||
      ftruncate(fd, sizeof *link->memory) ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
    goto failed;
  link->memory = mmap(NULL, sizeof *link->memory, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (link->memory == MAP_FAILED) {
    link->memory = NULL;
    goto failed;
  }
  link->memory->magic = SHM_PORT_MAGIC;
  link->memory->version = SHM_PORT_VERSION;
  return fd;
failed:;
  int why = errno;
  release_link(link);
  if (fd >= 0) close(fd);
  return -why;
}

static bool send_descriptors(int socket, uint32_t port, const int fds[3]) {
  shm_port_reply reply = {.magic = SHM_PORT_MAGIC, .version = SHM_PORT_VERSION, .port = port};
  union {
    char bytes[CMSG_SPACE(3 * sizeof(int))];
    struct cmsghdr align;
  } control = {{0}};
  struct iovec data = {&reply, sizeof reply};
  struct msghdr message = {
      .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
  struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(3 * sizeof(int));
  memcpy(CMSG_DATA(rights), fds, 3 * sizeof(int));
  return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof reply;
}

void shm_hello(ssw_core *core, uint32_t place, uint32_t generation) {
  pending_client *client = &core->pending[place];
  if (client->socket < 0 || client->generation != generation) return;
  shm_port_hello hello = {0};
  ssize_t received = recv(client->socket, &hello, sizeof hello, MSG_DONTWAIT | MSG_TRUNC);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (received <= 0) {
    drop_pending(client);
    return;
  }
  char message[sizeof((shm_port_reply *)0)->message];
  int why = check_hello(core, &hello, received, message, sizeof message);
  if (why) {
    refuse(client, hello.port, why, message);
    return;
  }
  ssw_port *port = &core->ports[hello.port];
  shm_link link;
  int memory = make_link(&link);
  if (memory < 0) {
    core_log(core, SSW_LOG_ERROR, "port %u: cannot make its shared memory: %s", hello.port,
             strerror(-memory));
    refuse(client, hello.port, -memory, "the switch could not make the port's shared memory");
    return;
  }
  link.socket = client->socket;
  const int fds[3] = {memory, link.switch_bell, link.host_bell};
  /* One descriptor has one entry in an epoll set: the entry for greeting makes way. */
  bool plugged =
      !epoll_ctl(core->epoll, EPOLL_CTL_DEL, link.socket, NULL) &&
      !core_watch(core, link.socket, EPOLLIN | EPOLLRDHUP,
                  event_tag(EVENT_CLIENT, port->number, port->generation)) &&
      !core_watch(core, link.switch_bell, EPOLLIN | EPOLLET,
                  event_tag(EVENT_DOORBELL, port->number, port->generation)) &&
      send_descriptors(link.socket, hello.port, fds);
  close(memory);
  if (!plugged) {
    release_link(&link);
    drop_pending(client);
    return;
  }
  client->socket = -1;
  port->shm = link;
  port->up = true;
  core_plug(core, port, SSW_PORT_SHM);
  core_log(core, SSW_LOG_INFO, "port %u: shared-memory client plugged in", port->number);
}

/* --- Frames ----------------------------------------------------------------------------------- */

bool shm_has_frames(const ssw_port *port) {
  return __atomic_load_n(&port->shm.memory->to_switch.head, __ATOMIC_SEQ_CST) != port->shm.rx_tail;
}

void shm_set_sleeping(ssw_port *port, uint32_t sleeping) {
  __atomic_store_n(&port->shm.memory->to_switch.sleeping, sleeping, __ATOMIC_SEQ_CST);
}

uint32_t shm_poll(ssw_core *core, ssw_port *port, uint32_t budget) {
  shm_port_ring *ring = &port->shm.memory->to_switch;
  uint32_t available = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE) - port->shm.rx_tail;
  if (!available) return 0;
  if (available > SHM_PORT_SLOTS) {
    core_log(core, SSW_LOG_WARNING, "port %u: its client wrote an impossible ring head", port->number);
    core_break(core, port, "the client broke the ring");
    return 0;
  }
  uint32_t count = available < budget ? available : budget;
  for (uint32_t i = 0; i < count; i++) {
    const shm_port_slot *slot = &ring->slots[port->shm.rx_tail % SHM_PORT_SLOTS];
    uint32_t length = __atomic_load_n(&slot->length, __ATOMIC_RELAXED);
    if (length < SSW_MIN_FRAME || length > SHM_PORT_MAX_FRAME) {
      port->stats.rx_invalid++;
    } else {
      /* A copy: the client could change the frame between the program's check and its use. */
      memcpy(core->scratch, slot->frame, length);
      core_receive(core, port, core->scratch, length);
    }
    __atomic_store_n(&ring->tail, ++port->shm.rx_tail, __ATOMIC_RELEASE);
  }
  return count;
}

void shm_transmit(ssw_core *core, ssw_port *port, const uint8_t *frame, uint32_t length) {
  shm_port_ring *ring = &port->shm.memory->to_host;
  uint32_t used = port->shm.tx_head - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
  if (used > SHM_PORT_SLOTS) {
    core_break(core, port, "the client broke the ring");
    return;
  }
  if (used == SHM_PORT_SLOTS || length > SHM_PORT_MAX_FRAME || port->broken) {
    port->stats.tx_dropped++;
    __atomic_fetch_add(&ring->dropped, 1, __ATOMIC_RELAXED);
    return;
  }
  shm_port_slot *slot = &ring->slots[port->shm.tx_head % SHM_PORT_SLOTS];
  slot->length = length;
  memcpy(slot->frame, frame, length);
  __atomic_store_n(&ring->head, ++port->shm.tx_head, __ATOMIC_RELEASE);
  port->stats.tx_frames++;
  port->stats.tx_bytes += length;
  port->shm.unrung = true;
  core_mark_dirty(core, port);
}

void shm_flush(ssw_core *core, ssw_port *port) {
  if (!port->shm.unrung) return;
  port->shm.unrung = false;
  shm_port_ring *ring = &port->shm.memory->to_host;
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (!__atomic_load_n(&ring->sleeping, __ATOMIC_RELAXED)) return;
  __atomic_store_n(&ring->sleeping, 0, __ATOMIC_SEQ_CST);
  /* The client shares the descriptor's flags: without this check it could make us block. */
  if (!(fcntl(port->shm.host_bell, F_GETFL) & O_NONBLOCK)) {
    core_break(core, port, "the client made its bell blocking");
    return;
  }
  uint64_t one = 1;
  if (write(port->shm.host_bell, &one, sizeof one) < 0 && errno != EAGAIN)
    core_break(core, port, "its bell failed");
}

/* --- The end ---------------------------------------------------------------------------------- */

void shm_client_event(ssw_core *core, ssw_port *port) {
  char byte;
  ssize_t received = recv(port->shm.socket, &byte, 1, MSG_DONTWAIT | MSG_TRUNC);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (received > 0) {
    core_break(core, port, "the client sent an unexpected message");
    return;
  }
  /* A client that sent and left at once: its last frames are still in the ring. */
  for (uint32_t left = SHM_PORT_SLOTS; left && shm_has_frames(port) && !port->broken;)
    left -= shm_poll(core, port, left);
  core_flush(core);
  core_break(core, port, "the client left");
}

void shm_unplug(ssw_core *core, ssw_port *port) {
  close(port->shm.socket); /* takes it out of the epoll set as well: nobody else holds it … */
  /* … but the client may still hold the bell, which would keep its entry alive. */
  epoll_ctl(core->epoll, EPOLL_CTL_DEL, port->shm.switch_bell, NULL);
  release_link(&port->shm);
}

void shm_close(ssw_core *core) {
  for (uint32_t i = 0; i < PENDING_CLIENTS; i++)
    if (core->pending[i].socket >= 0) drop_pending(&core->pending[i]);
  if (core->listener >= 0) close(core->listener);
  core->listener = -1;
  if (core->socket_path) {
    unlink(core->socket_path);
    free(core->socket_path);
    core->socket_path = NULL;
  }
}
