#include "faults.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
 * OOPSLA 2014).  Used as a hash of (key, frame number, purpose) instead of as a stream, so that a
 * frame's fate depends on nothing that happened to earlier frames. */
static uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

#define GOLDEN 0x9E3779B97F4A7C15u

enum purpose { PURPOSE_DROP, PURPOSE_DUPLICATE, PURPOSE_REORDER, PURPOSE_DISTANCE, PURPOSES };

static uint64_t draw(const fault_gate *gate, enum purpose purpose) {
  return mix(gate->key + (gate->sequence * PURPOSES + (uint64_t)purpose + 1) * GOLDEN);
}

static bool happens(const fault_gate *gate, enum purpose purpose, double probability) {
  return probability > 0 && (double)(draw(gate, purpose) >> 11) * 0x1p-53 < probability;
}

int fault_gate_configure(fault_gate *gate, uint32_t port, enum ssw_direction direction,
                         const ssw_fault *fault) {
  const double probabilities[] = {fault->drop, fault->duplicate, fault->reorder};
  for (int i = 0; i < 3; i++)
    if (!(probabilities[i] >= 0 && probabilities[i] <= 1)) return -EINVAL;
  if (fault->reorder > 0 && (fault->depth < 1 || fault->depth > SSW_FAULT_MAX_DEPTH)) return -EINVAL;
  fault_gate_restart(gate);
  gate->fault = *fault;
  gate->enabled = fault->drop > 0 || fault->duplicate > 0 || fault->reorder > 0;
  gate->key = mix(fault->seed + mix(((uint64_t)port << 2 | (uint64_t)direction) + GOLDEN));
  return 0;
}

void fault_gate_restart(fault_gate *gate) {
  for (uint32_t i = 0; i < gate->held_count; i++) free(gate->held[i].frame);
  gate->held_count = 0;
  gate->sequence = 0;
}

/* Emits the held frame at `index` and closes the gap, keeping the others in order of arrival. */
static void release(fault_gate *gate, uint32_t index, fault_emit emit, void *context) {
  fault_held out = gate->held[index];
  gate->held_count--;
  memmove(&gate->held[index], &gate->held[index + 1], (gate->held_count - index) * sizeof out);
  emit(context, out.frame, out.length);
  free(out.frame);
}

static bool hold(fault_gate *gate, uint64_t now_us, const uint8_t *frame, uint32_t length) {
  if (gate->held_count == SSW_FAULT_MAX_DEPTH) return false;
  uint8_t *copy = malloc(length ? length : 1);
  if (!copy) return false;
  memcpy(copy, frame, length);
  uint64_t distance = 1 + draw(gate, PURPOSE_DISTANCE) % gate->fault.depth;
  gate->held[gate->held_count++] = (fault_held){
      .frame = copy,
      .length = length,
      .release_after = gate->sequence + distance,
      .deadline_us = now_us + gate->fault.hold_us,
  };
  return true;
}

void fault_gate_pass(fault_gate *gate, uint64_t now_us, const uint8_t *frame, uint32_t length,
                     fault_emit emit, void *context) {
  if (!gate->enabled) {
    emit(context, frame, length);
    return;
  }
  if (happens(gate, PURPOSE_DROP, gate->fault.drop)) {
    gate->stats.dropped++;
  } else {
    bool twice = happens(gate, PURPOSE_DUPLICATE, gate->fault.duplicate);
    if (twice) {
      gate->stats.duplicated++;
      emit(context, frame, length);
    }
    if (happens(gate, PURPOSE_REORDER, gate->fault.reorder) && hold(gate, now_us, frame, length))
      gate->stats.reordered++;
    else
      emit(context, frame, length);
  }
  for (uint32_t i = 0; i < gate->held_count;) {
    if (gate->held[i].release_after <= gate->sequence)
      release(gate, i, emit, context);
    else
      i++;
  }
  gate->sequence++;
}

void fault_gate_expire(fault_gate *gate, uint64_t now_us, fault_emit emit, void *context) {
  for (uint32_t i = 0; i < gate->held_count;) {
    if (gate->held[i].deadline_us <= now_us)
      release(gate, i, emit, context);
    else
      i++;
  }
}

uint64_t fault_gate_deadline(const fault_gate *gate) {
  uint64_t first = UINT64_MAX;
  for (uint32_t i = 0; i < gate->held_count; i++)
    if (gate->held[i].deadline_us < first) first = gate->held[i].deadline_us;
  return first;
}
