/* A switch port in shared memory: the public interface between the switch and a process that plugs
 * a network interface of its own into it, without root and without leaving a file behind.
 *
 * Connecting.  The switch listens on a Unix SOCK_SEQPACKET socket; a name that starts with '@' is in
 * the abstract namespace and vanishes with the process.  The client sends one shm_port_hello and
 * gets one shm_port_reply; when its status is 0 the reply carries three descriptors (SCM_RIGHTS):
 * the memfd with the rings, an eventfd that wakes the switch and an eventfd that wakes the client.
 * The socket stays open for as long as the port is in use: its end of file tells either side that
 * the other is gone.  The switch accepts only peers of its own user, and root.
 *
 * Memory.  The memfd holds one shm_port_layout at offset 0: two single-producer single-consumer
 * rings of SHM_PORT_SLOTS fixed slots, each with one Ethernet frame.  `head` counts frames written
 * and `tail` frames consumed, both free-running modulo 2^32; slot = counter % SHM_PORT_SLOTS.  The
 * producer fills the slot, then stores head with release order; the consumer loads head with acquire
 * order, reads, then stores tail with release order.
 *
 * Sleeping.  A consumer about to sleep stores `sleeping` = 1 (seq_cst), re-checks head, then polls
 * its eventfd.  A producer that advanced head (seq_cst fence in between) and sees `sleeping` != 0
 * stores 0 and writes the eventfd.
 *
 * A full ring is a full queue: the producer drops the frame and counts it in `dropped`.
 */
#ifndef SOFTSWITCH_SHM_PORT_H
#define SOFTSWITCH_SHM_PORT_H

#include <stdint.h>

#define SHM_PORT_MAGIC 0x53505254u /* "SPRT" */
#define SHM_PORT_VERSION 1u
#define SHM_PORT_SLOTS 256u
#define SHM_PORT_SLOT_BYTES 4352u /* 4 + room for a 4154-byte frame, whole cache lines */
#define SHM_PORT_MAX_FRAME (SHM_PORT_SLOT_BYTES - 64u)

typedef struct shm_port_hello {
  uint32_t magic;
  uint32_t version;
  uint32_t port; /* v1model port number asked for */
  uint32_t reserved;
} shm_port_hello;

typedef struct shm_port_reply {
  uint32_t magic;
  uint32_t version;
  int32_t status;    /* 0, or an errno value: EBUSY port in use, ENODEV no such port, EPROTO version */
  uint32_t port;
  char message[112]; /* why, when status is not 0 */
} shm_port_reply;

typedef struct shm_port_slot {
  uint32_t length;   /* bytes of frame */
  uint8_t reserved[60];
  uint8_t frame[SHM_PORT_MAX_FRAME]; /* starts on a cache line */
} shm_port_slot;

/* Plain integers here; both sides access them with atomic operations (GCC __atomic builtins or
 * std::atomic_ref-like helpers).  Each group has a cache line of its own. */
typedef struct shm_port_ring {
  uint32_t head; /* written by the producer */
  uint32_t dropped;
  uint8_t pad0[56];
  uint32_t tail; /* written by the consumer */
  uint8_t pad1[60];
  uint32_t sleeping; /* consumer waits on its eventfd */
  uint8_t pad2[60];
  shm_port_slot slots[SHM_PORT_SLOTS];
} shm_port_ring;

typedef struct shm_port_layout {
  uint32_t magic;
  uint32_t version;
  uint8_t pad[56];
  shm_port_ring to_switch;
  shm_port_ring to_host;
} shm_port_layout;

#endif /* SOFTSWITCH_SHM_PORT_H */
