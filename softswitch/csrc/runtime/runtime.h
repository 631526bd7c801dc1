/* What a generated pipeline includes, and what it must define.
 *
 * Generated C describes the program's tables, counters and registers in one ssw_program_spec and
 * defines the packet path (ssw_program_process); everything else is in this folder.
 */
#ifndef SSW_RUNTIME_H
#define SSW_RUNTIME_H

#include <stddef.h>

#include "../pipeline.h"
#include "bytes.h"
#include "cells.h"
#include "hash.h"
#include "replication.h"
#include "scalar.h"
#include "table.h"
#include "wide.h"

#define SSW_DROP_PORT 511u

/* v1model's standard_metadata.instance_type */
enum ssw_instance_type {
  SSW_INSTANCE_NORMAL = 0,
  SSW_INSTANCE_INGRESS_CLONE = 1,
  SSW_INSTANCE_EGRESS_CLONE = 2,
  SSW_INSTANCE_COALESCED = 3,
  SSW_INSTANCE_RECIRCULATED = 4,
  SSW_INSTANCE_REPLICATED = 5,
  SSW_INSTANCE_RESUBMITTED = 6
};

typedef struct ssw_program_spec {
  uint32_t table_count;
  const ssw_table_spec *const *tables;
  uint32_t counter_count;
  const ssw_array_spec *counters;
  uint32_t register_count;
  const ssw_array_spec *registers;
  size_t headers_size; /* sizeof the packet header vector */
  uint32_t headroom;   /* bytes that all headers together can add in front of a payload */
} ssw_program_spec;

struct ssw_pipeline {
  ssw_host host;
  void *headers; /* packet header vector, cache-line aligned */
  ssw_table *tables;
  ssw_counter **counters;
  void **registers;
  ssw_replication replication;
  uint8_t *output; /* deparsed frames; grows with the longest */
  uint32_t output_room;
  uint32_t passes; /* of the current packet: resubmissions and the like */
  void *pending;   /* recirculated frames, oldest first */
};

/* What travels with a packet besides its headers. */
typedef struct ssw_packet {
  const uint8_t *data; /* not yet parsed, then the payload */
  uint32_t left;       /* bytes from data to the end of the frame */
  uint32_t truncated;  /* most bytes to emit */
  uint32_t ingress_port;
  uint32_t ingress_length; /* what counters count */
  uint32_t packet_length;  /* follows header additions and removals */
  uint32_t parser_error;
  bool checksum_error;
  bool exit;
  bool clone;
  bool resubmit;
  bool recirculate;
  uint32_t clone_session;
  uint32_t clone_fields; /* field lists by id */
  uint32_t resubmit_fields;
  uint32_t recirculate_fields;
  uint32_t digest; /* learn list id; 0: none */
} ssw_packet;

extern const ssw_program_spec ssw_program;
void ssw_program_process(ssw_pipeline *, uint32_t ingress_port, const uint8_t *frame, uint32_t length);

/* Makes room for an output frame; false when memory is exhausted (the frame is then dropped). */
bool ssw_output_reserve(ssw_pipeline *, uint32_t bytes);

SSW_INLINE uint64_t ssw_now(const ssw_pipeline *pl) {
  return pl->host.now_us ? pl->host.now_us(pl->host.context) : 0;
}

/* Calls host->log with a formatted message; `arguments` replace the {} of v1model's log_msg. */
void ssw_log(const ssw_pipeline *, int level, const char *format, const uint64_t *arguments, unsigned count);

#endif
