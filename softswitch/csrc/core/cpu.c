/* The CPU port: a bounded queue of frames for the controller. */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void cpu_transmit(ssw_core *core, ssw_port *port, const uint8_t *frame, uint32_t length) {
  uint8_t *copy = malloc(length ? length : 1);
  if (copy) memcpy(copy, frame, length);
  pthread_mutex_lock(&core->packet_in_mutex);
  bool room = copy && !core->packet_in_closed && core->packet_in_count < PACKET_IN_QUEUE;
  if (room) {
    uint32_t at = (core->packet_in_first + core->packet_in_count++) % PACKET_IN_QUEUE;
    core->packet_in[at] = (packet_in_frame){copy, length};
    pthread_cond_signal(&core->packet_in_ready);
  }
  pthread_mutex_unlock(&core->packet_in_mutex);
  if (room) {
    port->stats.tx_frames++;
    port->stats.tx_bytes += length;
  } else {
    free(copy);
    port->stats.tx_dropped++;
    core->stats.packet_in_dropped++;
  }
}

int ssw_core_packet_in(ssw_core *core, uint8_t *frame, uint32_t capacity, int timeout_ms) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += timeout_ms / 1000;
  until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
  if (until.tv_nsec >= 1000000000) {
    until.tv_sec++;
    until.tv_nsec -= 1000000000;
  }
  int status = 0;
  packet_in_frame next = {NULL, 0};
  pthread_mutex_lock(&core->packet_in_mutex);
  while (!core->packet_in_count && !core->packet_in_closed && !status)
    status = timeout_ms < 0
                 ? pthread_cond_wait(&core->packet_in_ready, &core->packet_in_mutex)
                 : pthread_cond_timedwait(&core->packet_in_ready, &core->packet_in_mutex, &until);
  if (core->packet_in_closed) {
    status = -ESHUTDOWN;
  } else if (!core->packet_in_count) {
    status = -EAGAIN;
  } else {
    next = core->packet_in[core->packet_in_first];
    core->packet_in_first = (core->packet_in_first + 1) % PACKET_IN_QUEUE;
    core->packet_in_count--;
  }
  pthread_mutex_unlock(&core->packet_in_mutex);
  if (!next.frame) return status;
  uint32_t copied = next.length < capacity ? next.length : capacity;
  memcpy(frame, next.frame, copied);
  free(next.frame);
  return (int)copied;
}

void cpu_close(ssw_core *core) {
  for (; core->packet_in_count; core->packet_in_count--) {
    free(core->packet_in[core->packet_in_first].frame);
    core->packet_in_first = (core->packet_in_first + 1) % PACKET_IN_QUEUE;
  }
}
