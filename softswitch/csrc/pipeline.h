/* The interface between a compiled P4 pipeline and the switch that hosts it.
 *
 * The translator (softswitch/translator) turns one BMv2 JSON program into C that implements this
 * interface; the compiled shared object exports one symbol, `ssw_pipeline_ops_v1`.  The switch core
 * (softswitch/csrc/core) owns ports, queues, faults and time, and knows the pipeline only through
 * this table.  The Python side drives the table functions through ctypes.
 *
 * Threads: the core serialises all calls on one instance; nothing here needs a lock.
 * Errors: functions that can fail return 0 or one of SSW_E*, never abort.
 * Bit strings (keys, action data) are big-endian, each field padded to whole bytes on the left:
 * a field of w bits takes (w + 7) / 8 bytes; fields follow each other in JSON order without gaps.
 */
#ifndef SOFTSWITCH_PIPELINE_H
#define SOFTSWITCH_PIPELINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SSW_PIPELINE_ABI 1u

enum ssw_status {
  SSW_OK = 0,
  SSW_ENOENT = -1,  /* no such table, entry, action, group, cell */
  SSW_EEXIST = -2,  /* the entry is there already */
  SSW_EFULL = -3,   /* the table or group has no room */
  SSW_EINVAL = -4,  /* malformed key, data or argument */
  SSW_ENOMEM = -5,
  SSW_ECONST = -6   /* the table or default action is const */
};

enum ssw_log_level { SSW_LOG_ERROR = 0, SSW_LOG_WARNING = 1, SSW_LOG_INFO = 2, SSW_LOG_DEBUG = 3 };

typedef struct ssw_pipeline ssw_pipeline; /* one running instance */

/* What a pipeline may ask of its host.  Pointers passed to `transmit` are valid during the call
 * only. `port` is a v1model port number.  All but `transmit` may be NULL; the structure is copied. */
typedef struct ssw_host {
  void *context;
  void (*transmit)(void *context, uint32_t port, const uint8_t *frame, uint32_t length);
  void (*digest)(void *context, uint32_t digest_id, const uint8_t *data, uint32_t length);
  void (*log)(void *context, int level, const char *message); /* level: enum ssw_log_level */
  uint64_t (*now_us)(void *context); /* microseconds since the switch started */
} ssw_host;

/* One table entry.  `value` holds every key field's value; `mask` holds, for every key field in the
 * same layout, the ternary mask, the LPM prefix as a mask, or the upper end of a range
 * (exact fields: all ones; NULL if all fields are exact).  Bits of a value outside its mask are
 * ignored.  Larger `priority` wins (P4Runtime's meaning); among equal ones the older row, except that
 * a new row may take the place of a deleted one. */
typedef struct ssw_entry {
  const uint8_t *value;
  const uint8_t *mask;
  int32_t priority;
  uint32_t action;          /* the action's JSON id */
  const uint8_t *data;      /* action data */
  uint32_t data_length;
} ssw_entry;

typedef struct ssw_counter {
  uint64_t packets;
  uint64_t bytes;
} ssw_counter;

typedef struct ssw_replica {
  uint32_t port;
  uint32_t instance; /* becomes egress_rid */
} ssw_replica;

typedef struct ssw_pipeline_ops {
  uint32_t abi; /* SSW_PIPELINE_ABI */
  ssw_pipeline *(*create)(const ssw_host *host); /* NULL: out of memory */
  void (*destroy)(ssw_pipeline *);

  /* Runs one frame through parser, ingress, traffic manager, egress and deparser; every resulting
   * frame is handed to host->transmit before the call returns.  Never reads past `length`. */
  void (*process)(ssw_pipeline *, uint32_t ingress_port, const uint8_t *frame, uint32_t length);

  /* Tables are named by their JSON id.  A handle stays valid until its entry is deleted. */
  int (*table_insert)(ssw_pipeline *, uint32_t table, const ssw_entry *, uint64_t *handle);
  int (*table_modify)(ssw_pipeline *, uint32_t table, uint64_t handle, uint32_t action,
                      const uint8_t *data, uint32_t data_length);
  int (*table_delete)(ssw_pipeline *, uint32_t table, uint64_t handle);
  int (*table_set_default)(ssw_pipeline *, uint32_t table, uint32_t action, const uint8_t *data,
                           uint32_t data_length);
  int (*table_reset_default)(ssw_pipeline *, uint32_t table); /* back to the program's own */

  /* Counters.  `table_counter` reads a direct counter (handle 0: of the default action: misses).
   * Bytes are those of the frame as it came in. */
  int (*table_counter_read)(ssw_pipeline *, uint32_t table, uint64_t handle, ssw_counter *);
  int (*table_counter_write)(ssw_pipeline *, uint32_t table, uint64_t handle, const ssw_counter *);
  int (*counter_read)(ssw_pipeline *, uint32_t counter, uint64_t first, uint64_t count,
                      ssw_counter *out);
  int (*counter_write)(ssw_pipeline *, uint32_t counter, uint64_t index, const ssw_counter *);

  /* Registers, by JSON id; a cell of w bits is (w + 7) / 8 big-endian bytes. */
  int (*register_read)(ssw_pipeline *, uint32_t reg, uint64_t index, uint8_t *out, uint32_t length);
  int (*register_write)(ssw_pipeline *, uint32_t reg, uint64_t index, const uint8_t *in,
                        uint32_t length);

  /* Multicast groups 1..65535; count 0 deletes the group. */
  int (*multicast_set)(ssw_pipeline *, uint32_t group, const ssw_replica *, uint32_t count);
  /* Clone sessions: like a multicast group, with truncation (0: none); count 0 deletes. */
  int (*clone_session_set)(ssw_pipeline *, uint32_t session, const ssw_replica *, uint32_t count,
                           uint32_t truncate_bytes);
} ssw_pipeline_ops;

/* The one symbol that a compiled program exports. */
extern const ssw_pipeline_ops ssw_pipeline_ops_v1;

#ifdef __cplusplus
}
#endif
#endif /* SOFTSWITCH_PIPELINE_H */
