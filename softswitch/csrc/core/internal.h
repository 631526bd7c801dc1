/* What the files of the core share.  Everything here is guarded by ssw_core.lock, except where said. */
#ifndef SOFTSWITCH_CORE_INTERNAL_H
#define SOFTSWITCH_CORE_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "../shm_port.h"
#include "core.h"
#include "faults.h"
#include "turn_lock.h"

#define BATCH 32u            /* frames taken from one port before the next has its turn */
#define PENDING_CLIENTS 32u  /* connected clients that have not said hello */
#define PENDING_TIMEOUT_US 2000000u
#define PACKET_IN_QUEUE 1024u

/* What an epoll event is about: kind in the top 8 bits, then 24 bits of index, then a generation that
 * tells an event of a closed port from one of its successor. */
enum event_kind { EVENT_WAKE, EVENT_LISTENER, EVENT_PENDING, EVENT_CLIENT, EVENT_DOORBELL,
                  EVENT_INTERFACE, EVENT_LINKS };

static inline uint64_t event_tag(enum event_kind kind, uint32_t index, uint32_t generation) {
  return (uint64_t)kind << 56 | (uint64_t)index << 32 | generation;
}

typedef struct shm_link {
  int socket;         /* end of file: the client is gone */
  int switch_bell;    /* wakes us; never read, watched edge-triggered, so a client cannot block us */
  int host_bell;      /* wakes the client */
  shm_port_layout *memory;
  uint32_t rx_tail;   /* ours; the copies in shared memory are for the client's eyes only */
  uint32_t tx_head;
  bool unrung;        /* frames were written since the client was last woken */
} shm_link;

struct interface_link;

typedef struct ssw_port {
  uint32_t number;
  enum ssw_port_kind kind;
  uint32_t generation;
  bool up;
  bool dirty;         /* has frames to flush or a client to wake; is in core->dirty */
  bool broken;        /* to be unplugged at the end of the round */
  const char *why;    /* … because of this */
  ssw_port_stats stats;
  fault_gate in;
  fault_gate out;
  shm_link shm;
  struct interface_link *interface;
} ssw_port;

typedef struct pending_client {
  int socket; /* -1: free */
  uint32_t generation;
  uint64_t deadline_us;
} pending_client;

typedef struct packet_in_frame {
  uint8_t *frame;
  uint32_t length;
} packet_in_frame;

struct ssw_program {
  ssw_core *core;
  void *library;
  const ssw_pipeline_ops *ops;
  ssw_pipeline *instance;
  ssw_program *next;
};

struct ssw_core {
  turn_lock lock;
  int log_level;
  uint64_t start_us;
  uint32_t cpu_port;
  uint32_t drop_port;
  ssw_core_stats stats;

  ssw_program *programs; /* all loaded ones */
  ssw_program *program;  /* the attached one */
  ssw_host host;

  ssw_port ports[SSW_PORT_COUNT];
  uint8_t shm_allowed[SSW_PORT_COUNT];
  ssw_port *active[SSW_PORT_COUNT]; /* ports to poll */
  uint32_t active_count;
  ssw_port *dirty[SSW_PORT_COUNT];
  uint32_t dirty_count;
  uint32_t first; /* whose turn it is at the start of the next round */
  bool any_broken;
  bool any_held;  /* some gate may hold frames */
  uint32_t interfaces;

  int epoll;
  int wake;      /* eventfd: ends the packet thread's sleep */
  int listener;
  int links;     /* rtnetlink socket, link events */
  char *socket_path; /* to be unlinked; NULL for abstract names */
  pending_client pending[PENDING_CLIENTS];
  uint32_t pending_generation;

  pthread_t thread;
  bool running;
  int stop;      /* atomic */
  int sleeping;  /* atomic: the packet thread is in, or about to enter, epoll_wait */

  uint8_t scratch[SSW_MAX_FRAME];
  struct receive_batch *receive;

  pthread_mutex_t packet_in_mutex; /* guards what follows */
  pthread_cond_t packet_in_ready;
  packet_in_frame packet_in[PACKET_IN_QUEUE];
  uint32_t packet_in_first, packet_in_count;
  bool packet_in_closed;
};

/* loop.c */
uint64_t core_now_us(const ssw_core *);
void core_log(const ssw_core *, enum ssw_log_level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int core_watch(ssw_core *, int fd, uint32_t events, uint64_t tag);
/* A frame came from the wire at `port`. */
void core_receive(ssw_core *, ssw_port *port, const uint8_t *frame, uint32_t length);
/* The program sends a frame to `number`. */
void core_transmit(void *core, uint32_t number, const uint8_t *frame, uint32_t length);
/* Rings doorbells and flushes transmit batches; called before the lock is given back. */
void core_flush(ssw_core *);
/* Ends the packet thread's sleep if a timer was set that it does not know. */
void core_poke(ssw_core *);
void core_mark_dirty(ssw_core *, ssw_port *);
/* Unplugs the port when the round is over: the caller may be deep inside the program. */
void core_break(ssw_core *, ssw_port *, const char *why);
void core_plug(ssw_core *, ssw_port *, enum ssw_port_kind);
void core_unplug(ssw_core *, ssw_port *);

/* shm.c */
int shm_listen(ssw_core *, const char *name, char *error, size_t error_size);
void shm_accept(ssw_core *);
void shm_hello(ssw_core *, uint32_t slot, uint32_t generation);
void shm_client_event(ssw_core *, ssw_port *);
void shm_expire_pending(ssw_core *, uint64_t now_us);
uint64_t shm_pending_deadline(const ssw_core *);
uint32_t shm_poll(ssw_core *, ssw_port *, uint32_t budget);
bool shm_has_frames(const ssw_port *);
void shm_set_sleeping(ssw_port *, uint32_t sleeping);
void shm_transmit(ssw_core *, ssw_port *, const uint8_t *frame, uint32_t length);
void shm_flush(ssw_core *, ssw_port *);
void shm_unplug(ssw_core *, ssw_port *);
void shm_close(ssw_core *);

/* interface.c */
int interface_plug(ssw_core *, ssw_port *, const char *name, char *error, size_t error_size);
uint32_t interface_poll(ssw_core *, ssw_port *, uint32_t budget);
bool interface_readable(const ssw_port *);
void interface_event(ssw_core *, ssw_port *);
void interface_transmit(ssw_core *, ssw_port *, const uint8_t *frame, uint32_t length);
void interface_flush(ssw_core *, ssw_port *);
void interface_unplug(ssw_core *, ssw_port *);
/* Links came, went or changed: re-opens the sockets of those that returned. */
void interface_links_changed(ssw_core *);
void interface_close(ssw_core *);

/* cpu.c */
void cpu_transmit(ssw_core *, ssw_port *, const uint8_t *frame, uint32_t length);
void cpu_close(ssw_core *);

#endif /* SOFTSWITCH_CORE_INTERNAL_H */
