/* Seeded faults of one port and direction: frames pass through a gate that may drop, duplicate or
 * hold them back.  A held frame leaves when enough later frames have passed or its time is up, so
 * nothing is held for ever. */
#ifndef SOFTSWITCH_FAULTS_H
#define SOFTSWITCH_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "core.h"

typedef void (*fault_emit)(void *context, const uint8_t *frame, uint32_t length);

typedef struct fault_held {
  uint8_t *frame;
  uint32_t length;
  uint64_t release_after; /* number of the frame after which this one leaves */
  uint64_t deadline_us;
} fault_held;

typedef struct fault_gate {
  bool enabled;
  ssw_fault fault;
  uint64_t key;
  uint64_t sequence; /* number of the next frame */
  uint32_t held_count;
  fault_held held[SSW_FAULT_MAX_DEPTH];
  ssw_fault_stats stats;
} fault_gate;

/* 0, or -EINVAL for a probability outside 0..1 or a depth outside 1..64. */
int fault_gate_configure(fault_gate *, uint32_t port, enum ssw_direction, const ssw_fault *);
/* Forgets held frames and counts frames from 0 again; statistics stay. */
void fault_gate_restart(fault_gate *);
/* One frame arrives: emits zero or more frames, this one and held ones. */
void fault_gate_pass(fault_gate *, uint64_t now_us, const uint8_t *frame, uint32_t length, fault_emit,
                     void *context);
/* Emits held frames whose time is up. */
void fault_gate_expire(fault_gate *, uint64_t now_us, fault_emit, void *context);
/* When the first held frame's time is up; UINT64_MAX if none is held. */
uint64_t fault_gate_deadline(const fault_gate *);

#endif /* SOFTSWITCH_FAULTS_H */
