/* Network interfaces (veth, tap, NIC) through packet sockets.
 *
 * recvmmsg and not a TPACKET_V3 ring: V3 hands blocks over when they are full or after at least a
 * millisecond, which would be the latency of every sparse request and answer.  PACKET_VNET_HDR tells
 * about unfinished checksums, which veth passes on when the host left its offload on. */
#define _GNU_SOURCE
#include "internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define VLAN_TAG 4u
#define SOCKET_BUFFER (16 << 20)

typedef struct outgoing {
  uint32_t length;
  uint8_t frame[SSW_MAX_FRAME];
} outgoing;

struct interface_link {
  char name[IFNAMSIZ];
  int fd;      /* -1: there is no such interface at the moment */
  int ifindex;
  bool readable;
  bool warned_super_frame;
  uint32_t tx_count;
  outgoing tx[BATCH];
};

/* One for the whole core: ports are polled one after the other. */
struct receive_batch {
  struct mmsghdr messages[BATCH];
  struct iovec parts[BATCH][2];
  struct virtio_net_hdr headers[BATCH];
  struct sockaddr_ll from[BATCH];
  union {
    char bytes[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
    struct cmsghdr align;
  } control[BATCH];
  uint8_t frames[BATCH][VLAN_TAG + SSW_MAX_FRAME]; /* room for a tag that the kernel took off */
};

/* --- Opening ---------------------------------------------------------------------------------- */

static void offload_off(int control, const char *name, uint32_t get, uint32_t set) {
  struct ethtool_value value = {.cmd = get};
  struct ifreq request = {.ifr_data = (char *)&value};
  snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
  if (ioctl(control, SIOCETHTOOL, &request) || !value.data) return;
  value = (struct ethtool_value){.cmd = set, .data = 0};
  (void)ioctl(control, SIOCETHTOOL, &request); /* best effort: not every driver can */
}

/* Super-frames of many packets cannot pass through a P4 program (nor could they leave again). */
static void offloads_off(const char *name) {
  int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (control < 0) return;
  offload_off(control, name, ETHTOOL_GTSO, ETHTOOL_STSO);
  offload_off(control, name, ETHTOOL_GGSO, ETHTOOL_SGSO);
  offload_off(control, name, ETHTOOL_GGRO, ETHTOOL_SGRO);
  close(control);
}

static bool interface_up(const char *name) {
  int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (control < 0) return false;
  struct ifreq request = {0};
  snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
  bool up = !ioctl(control, SIOCGIFFLAGS, &request) &&
            (request.ifr_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING);
  close(control);
  return up;
}

static void set_buffer(int fd, int force, int option) {
  int bytes = SOCKET_BUFFER;
  if (setsockopt(fd, SOL_SOCKET, force, &bytes, sizeof bytes))
    setsockopt(fd, SOL_SOCKET, option, &bytes, sizeof bytes);
}

/* Opens the socket of an existing interface; 0 or a negative errno value. */
static int open_socket(ssw_core *core, ssw_port *port) {
  struct interface_link *link = port->interface;
  int ifindex = (int)if_nametoindex(link->name);
  if (!ifindex) return -ENODEV;
  offloads_off(link->name);
  /* Protocol 0: no frame of another interface slips in before the bind. */
  int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -errno;
  int on = 1;
  struct packet_mreq promiscuous = {.mr_ifindex = ifindex, .mr_type = PACKET_MR_PROMISC};
  struct sockaddr_ll address = {
      .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = ifindex};
  set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF);
  set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF);
  setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on); /* Linux 4.20; else by type */
  if (setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &on, sizeof on) ||
      setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) ||
      setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) ||
      bind(fd, (struct sockaddr *)&address, sizeof address)) {
    int why = errno;
    close(fd);
    return -why;
  }
  int status = core_watch(core, fd, EPOLLIN, event_tag(EVENT_INTERFACE, port->number, port->generation));
  if (status) {
    close(fd);
    return status;
  }
  link->fd = fd;
  link->ifindex = ifindex;
  link->readable = true;
  port->up = interface_up(link->name);
  return 0;
}

static void close_socket(ssw_port *port) {
  if (port->interface->fd >= 0) close(port->interface->fd);
  port->interface->fd = -1;
  port->interface->readable = false;
  port->up = false;
}

static int watch_links(ssw_core *core) {
  if (core->links >= 0) return 0;
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
  if (fd < 0) return -errno;
  struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
  int status = bind(fd, (struct sockaddr *)&address, sizeof address) ? -errno : 0;
  if (!status) status = core_watch(core, fd, EPOLLIN, event_tag(EVENT_LINKS, 0, 0));
  if (status)
    close(fd);
  else
    core->links = fd;
  return status;
}

static struct receive_batch *make_batch(void) {
  struct receive_batch *batch = calloc(1, sizeof *batch);
  for (uint32_t i = 0; batch && i < BATCH; i++) {
    batch->parts[i][0] = (struct iovec){&batch->headers[i], sizeof batch->headers[i]};
    batch->parts[i][1] = (struct iovec){batch->frames[i] + VLAN_TAG, SSW_MAX_FRAME};
  }
  return batch;
}

int interface_plug(ssw_core *core, ssw_port *port, const char *name, char *error, size_t error_size) {
  size_t size = strlen(name);
  if (size < 1 || size >= IFNAMSIZ) {
    snprintf(error, error_size, "port %u: \"%s\" is not an interface name", port->number, name);
    return -EINVAL;
  }
  if (!core->receive && !(core->receive = make_batch())) {
    snprintf(error, error_size, "port %u: not enough memory", port->number);
    return -ENOMEM;
  }
  port->interface = calloc(1, sizeof *port->interface);
  if (!port->interface) {
    snprintf(error, error_size, "port %u: not enough memory", port->number);
    return -ENOMEM;
  }
  memcpy(port->interface->name, name, size + 1);
  port->interface->fd = -1;
  int status = watch_links(core);
  if (!status) status = open_socket(core, port);
  if (status) {
    if (status == -EPERM || status == -EACCES)
      snprintf(error, error_size,
               "port %u: opening interface %s needs root or the capability CAP_NET_RAW", port->number, name);
    else if (status == -ENODEV)
      snprintf(error, error_size, "port %u: there is no interface %s in this network namespace",
               port->number, name);
    else
      snprintf(error, error_size, "port %u: cannot open interface %s: %s", port->number, name,
               strerror(-status));
    free(port->interface);
    port->interface = NULL;
    return status;
  }
  core->interfaces++;
  core_plug(core, port, SSW_PORT_INTERFACE);
  return 0;
}

/* --- Receiving -------------------------------------------------------------------------------- */

bool interface_readable(const ssw_port *port) { return port->interface->readable; }

void interface_event(ssw_core *core, ssw_port *port) {
  (void)core;
  port->interface->readable = true;
}

static const struct tpacket_auxdata *auxiliary(struct msghdr *message) {
  for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part))
    if (part->cmsg_level == SOL_PACKET && part->cmsg_type == PACKET_AUXDATA)
      return (const struct tpacket_auxdata *)(const void *)CMSG_DATA(part);
  return NULL;
}

/* The sender left the transport checksum to a device that does not exist: RFC 1071 over the rest of
 * the frame, whose checksum field holds the sum of the pseudo-header. False: it lies outside. */
static bool finish_checksum(uint8_t *frame, uint32_t length, uint32_t start, uint32_t offset) {
  if (start >= length || offset + 2u > length - start) return false;
  uint64_t sum = 0;
  for (uint32_t i = start; i + 1 < length; i += 2) sum += (uint32_t)frame[i] << 8 | frame[i + 1];
  if ((length - start) % 2) sum += (uint32_t)frame[length - 1] << 8;
  while (sum >> 16) sum = (sum & 0xFFFFu) + (sum >> 16);
  uint16_t checksum = (uint16_t)~sum;
  if (!checksum) checksum = 0xFFFFu; /* 0 would mean "none" to UDP, and is the same number */
  frame[start + offset] = (uint8_t)(checksum >> 8);
  frame[start + offset + 1] = (uint8_t)checksum;
  return true;
}

static void warn_super_frame(ssw_core *core, ssw_port *port) {
  if (port->interface->warned_super_frame) return;
  port->interface->warned_super_frame = true;
  core_log(core, SSW_LOG_WARNING,
           "port %u: dropped a segmentation-offload super-frame; at the other end of %s run: "
           "ethtool -K INTERFACE tso off gso off",
           port->number, port->interface->name);
}

static void receive_one(ssw_core *core, ssw_port *port, struct receive_batch *batch, uint32_t i) {
  struct mmsghdr *message = &batch->messages[i];
  const struct virtio_net_hdr *header = &batch->headers[i];
  if (batch->from[i].sll_pkttype == PACKET_OUTGOING) return;
  uint8_t *frame = batch->frames[i] + VLAN_TAG;
  uint32_t length = message->msg_len > sizeof *header ? message->msg_len - (uint32_t)sizeof *header : 0;
  bool super_frame = header->gso_type != VIRTIO_NET_HDR_GSO_NONE;
  if (super_frame) warn_super_frame(core, port);
  if (super_frame || message->msg_hdr.msg_flags & MSG_TRUNC || length < SSW_MIN_FRAME) {
    port->stats.rx_invalid++;
    return;
  }
  if (header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM &&
      !finish_checksum(frame, length, header->csum_start, header->csum_offset)) {
    port->stats.rx_invalid++;
    return;
  }
  const struct tpacket_auxdata *more = auxiliary(&message->msg_hdr);
  if (more && more->tp_status & TP_STATUS_VLAN_VALID) {
    uint16_t tpid = more->tp_status & TP_STATUS_VLAN_TPID_VALID ? more->tp_vlan_tpid : ETH_P_8021Q;
    const uint8_t tag[VLAN_TAG] = {(uint8_t)(tpid >> 8), (uint8_t)tpid, (uint8_t)(more->tp_vlan_tci >> 8),
                                   (uint8_t)more->tp_vlan_tci};
    memmove(frame - VLAN_TAG, frame, 2 * ETH_ALEN);
    frame -= VLAN_TAG;
    memcpy(frame + 2 * ETH_ALEN, tag, VLAN_TAG);
    length += VLAN_TAG;
    if (length > SSW_MAX_FRAME) {
      port->stats.rx_invalid++;
      return;
    }
  }
  core_receive(core, port, frame, length);
}

uint32_t interface_poll(ssw_core *core, ssw_port *port, uint32_t budget) {
  struct interface_link *link = port->interface;
  struct receive_batch *batch = core->receive;
  if (!link->readable || link->fd < 0) return 0;
  for (uint32_t i = 0; i < budget; i++)
    batch->messages[i].msg_hdr = (struct msghdr){
        .msg_name = &batch->from[i],
        .msg_namelen = sizeof batch->from[i],
        .msg_iov = batch->parts[i],
        .msg_iovlen = 2,
        .msg_control = batch->control[i].bytes,
        .msg_controllen = sizeof batch->control[i].bytes,
    };
  int count = recvmmsg(link->fd, batch->messages, budget, MSG_DONTWAIT, NULL);
  if (count < 0) {
    if (errno == EINVAL) { /* a frame with an offload that the kernel cannot describe; it is consumed */
      port->stats.rx_invalid++;
      warn_super_frame(core, port);
      return 1;
    }
    /* ENETDOWN: said once when the interface goes down; link events tell when it is back. */
    if (errno == ENETDOWN) port->up = false;
    if (errno != EINTR) link->readable = false;
    return 0;
  }
  if ((uint32_t)count < budget) link->readable = false;
  for (int i = 0; i < count; i++) receive_one(core, port, batch, (uint32_t)i);
  return (uint32_t)count;
}

/* --- Sending ---------------------------------------------------------------------------------- */

void interface_transmit(ssw_core *core, ssw_port *port, const uint8_t *frame, uint32_t length) {
  struct interface_link *link = port->interface;
  if (link->fd < 0 || length > SSW_MAX_FRAME || length < SSW_MIN_FRAME) {
    port->stats.tx_dropped++;
    return;
  }
  if (link->tx_count == BATCH) interface_flush(core, port);
  outgoing *place = &link->tx[link->tx_count++];
  place->length = length;
  memcpy(place->frame, frame, length);
  core_mark_dirty(core, port);
}

void interface_flush(ssw_core *core, ssw_port *port) {
  (void)core;
  struct interface_link *link = port->interface;
  static struct virtio_net_hdr plain; /* all zero: nothing left to a device */
  struct mmsghdr messages[BATCH];
  struct iovec parts[BATCH][2];
  for (uint32_t i = 0; i < link->tx_count; i++) {
    parts[i][0] = (struct iovec){&plain, sizeof plain};
    parts[i][1] = (struct iovec){link->tx[i].frame, link->tx[i].length};
    messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = parts[i], .msg_iovlen = 2}};
  }
  for (uint32_t done = 0; done < link->tx_count;) {
    int sent = link->fd < 0 ? -1 : sendmmsg(link->fd, messages + done, link->tx_count - done, MSG_DONTWAIT);
    for (int i = 0; i < sent; i++) {
      port->stats.tx_frames++;
      port->stats.tx_bytes += link->tx[done + (uint32_t)i].length;
    }
    if (sent > 0) {
      done += (uint32_t)sent;
      continue;
    }
    if (link->fd >= 0 && errno == EINTR) continue;
    if (link->fd >= 0 && errno == ENETDOWN) port->up = false;
    /* Too long for the link's MTU, its queue is full, or it is down: this frame is lost, as on a wire. */
    port->stats.tx_dropped++;
    done++;
  }
  link->tx_count = 0;
}

/* --- Links that come and go ------------------------------------------------------------------- */

static void check_link(ssw_core *core, ssw_port *port) {
  struct interface_link *link = port->interface;
  int ifindex = (int)if_nametoindex(link->name);
  if (link->fd >= 0 && ifindex != link->ifindex) {
    core_log(core, SSW_LOG_WARNING, "port %u: interface %s has gone; waiting for its return", port->number,
             link->name);
    close_socket(port);
  }
  if (link->fd < 0 && ifindex) {
    int status = open_socket(core, port);
    if (status)
      core_log(core, SSW_LOG_ERROR, "port %u: cannot open interface %s again: %s", port->number, link->name,
               strerror(-status));
    else
      core_log(core, SSW_LOG_INFO, "port %u: interface %s is back", port->number, link->name);
  } else if (link->fd >= 0) {
    port->up = interface_up(link->name);
  }
}

void interface_links_changed(ssw_core *core) {
  char message[8192];
  /* What they say does not matter, only that something changed: so an overrun loses nothing. */
  while (recv(core->links, message, sizeof message, MSG_DONTWAIT) > 0 || errno == ENOBUFS) continue;
  for (uint32_t i = 0; i < core->active_count; i++)
    if (core->active[i]->kind == SSW_PORT_INTERFACE) check_link(core, core->active[i]);
}

void interface_unplug(ssw_core *core, ssw_port *port) {
  close_socket(port);
  free(port->interface);
  port->interface = NULL;
  core->interfaces--;
}

void interface_close(ssw_core *core) {
  if (core->links >= 0) close(core->links);
  core->links = -1;
  free(core->receive);
  core->receive = NULL;
}
