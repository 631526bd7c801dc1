/* The switch core: ports, the packet loop, faults and the door to a compiled pipeline.
 *
 * One packet thread polls every port, runs each frame through the attached program
 * (../pipeline.h) and hands the results to port queues.  All other functions may be called from any
 * thread; those that touch the program or a port take turns with the packet thread in FIFO order, so
 * that neither side can starve the other.
 *
 * Errors: functions that return int give 0 or a negative errno value unless said otherwise; those
 * with an `error` buffer leave one sentence there that says what went wrong and what to do.
 */
#ifndef SOFTSWITCH_CORE_H
#define SOFTSWITCH_CORE_H

#include <stddef.h>
#include <stdint.h>

#include "../pipeline.h"

#define SSW_CORE_ABI 1u

#define SSW_PORT_COUNT 511u    /* ports 0..510; 511 is v1model's drop port */
#define SSW_NO_PORT 0xFFFFFFFFu
#define SSW_MAX_FRAME 10240u   /* longest frame that passes through the switch */
#define SSW_MIN_FRAME 14u      /* an Ethernet header */
#define SSW_FAULT_MAX_DEPTH 64u

typedef struct ssw_core ssw_core;
typedef struct ssw_program ssw_program;

enum ssw_port_kind { SSW_PORT_NONE = 0, SSW_PORT_SHM = 1, SSW_PORT_INTERFACE = 2, SSW_PORT_CPU = 3 };
enum ssw_direction { SSW_IN = 1, SSW_OUT = 2 };

/* Faults of one port and direction.  Whether frame number s (counted from 0 since the port was
 * plugged in) is dropped, duplicated or held back depends on (seed, port, direction, s) alone. */
typedef struct ssw_fault {
  uint64_t seed;
  double drop;      /* probabilities, 0..1 */
  double duplicate;
  double reorder;
  uint32_t depth;   /* a held frame is overtaken by 1..depth later ones, at most 64 */
  uint32_t hold_us; /* … or leaves after this long, whichever comes first */
} ssw_fault;

typedef struct ssw_fault_stats {
  uint64_t dropped;
  uint64_t duplicated;
  uint64_t reordered;
} ssw_fault_stats;

typedef struct ssw_port_stats {
  uint32_t kind;       /* ssw_port_kind; NONE: nothing is plugged in */
  uint32_t up;         /* 1: frames can pass */
  uint64_t rx_frames;  /* received from the wire, before faults */
  uint64_t rx_bytes;
  uint64_t rx_invalid; /* too short, too long, cut off, or a super-frame: not processed */
  uint64_t tx_frames;  /* put on the wire, after faults */
  uint64_t tx_bytes;
  uint64_t tx_dropped; /* queue full, port down, or frame too long for the port */
  ssw_fault_stats in;
  ssw_fault_stats out;
} ssw_port_stats;

typedef struct ssw_core_stats {
  uint64_t no_program;  /* frames received while no program was attached */
  uint64_t no_port;     /* frames sent to a port where nothing is plugged in */
  uint64_t packet_in_dropped; /* to the CPU port, and nobody read them in time */
  uint64_t digests_dropped;
  uint64_t sleeps;      /* times that the packet thread went to sleep */
} ssw_core_stats;

uint32_t ssw_core_abi(void);

/* `cpu_port` SSW_NO_PORT: no packet-in/out.  Frames to `drop_port` vanish uncounted.
 * NULL: out of memory or descriptors (errno). */
ssw_core *ssw_core_create(uint32_t cpu_port, uint32_t drop_port, int log_level);
/* Stops the packet thread, unplugs every port, unloads every program. */
void ssw_core_destroy(ssw_core *);

/* Settings: before ssw_core_start. `port` SSW_NO_PORT: all ports. `directions`: SSW_IN | SSW_OUT. */
int ssw_core_set_fault(ssw_core *, uint32_t port, uint32_t directions, const ssw_fault *);
/* Opens ports first..last to shared-memory clients. */
int ssw_core_allow_shm(ssw_core *, uint32_t first, uint32_t last);
/* Listens for shared-memory clients (../shm_port.h); '@name' is in the abstract namespace. */
int ssw_core_listen(ssw_core *, const char *name, char *error, size_t error_size);

int ssw_core_start(ssw_core *);
void ssw_core_stop(ssw_core *);

/* Plugs a network interface in through a packet socket; needs CAP_NET_RAW. */
int ssw_core_add_interface(ssw_core *, uint32_t port, const char *interface, char *error,
                           size_t error_size);
int ssw_core_remove_interface(ssw_core *, uint32_t port);

/* Loads a compiled pipeline and makes an instance of it, which no frame reaches yet. */
ssw_program *ssw_program_load(ssw_core *, const char *shared_object, char *error, size_t error_size);
/* From now on frames run through `program` (NULL: are dropped). */
void ssw_program_attach(ssw_core *, ssw_program *program);
void ssw_program_unload(ssw_program *);
/* The functions of ../pipeline.h, to be called with (ssw_pipeline *)program from any thread: each
 * call takes its turn with the packet thread.  `create` and `destroy` are NULL; `process` runs a frame
 * through the program at once, whether or not it is attached. */
const ssw_pipeline_ops *ssw_program_ops(void);

/* Packet-out: runs a frame through the attached program as if received at the CPU port. */
int ssw_core_packet_out(ssw_core *, const uint8_t *frame, uint32_t length);
/* Packet-in: waits for the next frame that the program sends to the CPU port.  Its length, or
 * -EAGAIN after `timeout_ms` (negative: none), -ESHUTDOWN once the core stops. */
int ssw_core_packet_in(ssw_core *, uint8_t *frame, uint32_t capacity, int timeout_ms);

int ssw_core_port_stats(ssw_core *, uint32_t port, ssw_port_stats *);
void ssw_core_stats_read(ssw_core *, ssw_core_stats *);

#endif /* SOFTSWITCH_CORE_H */
