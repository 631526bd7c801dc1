/* A hand-written pipeline for tests of the switch core: no P4 program behind it.
 *
 * The last byte of the destination address is the port to send to; an address with the group bit goes
 * to every replica of multicast group 1 except the ingress port; 02:00:00:00:01:xx sends xx copies back
 * to the ingress port.  Counter 0 counts frames by ingress port. */
#include <stdlib.h>
#include <string.h>

#include "pipeline.h"

struct ssw_pipeline {
  ssw_host host;
  ssw_replica replicas[64];
  uint32_t replica_count;
  ssw_counter counters[512];
};

static ssw_pipeline *create(const ssw_host *host) {
  ssw_pipeline *pipeline = calloc(1, sizeof *pipeline);
  if (pipeline) pipeline->host = *host;
  return pipeline;
}

static void destroy(ssw_pipeline *pipeline) { free(pipeline); }

static void process(ssw_pipeline *pipeline, uint32_t port, const uint8_t *frame, uint32_t length) {
  const ssw_host *host = &pipeline->host;
  if (port < 512) {
    pipeline->counters[port].packets++;
    pipeline->counters[port].bytes += length;
  }
  if (frame[0] & 1) {
    for (uint32_t i = 0; i < pipeline->replica_count; i++)
      if (pipeline->replicas[i].port != port)
        host->transmit(host->context, pipeline->replicas[i].port, frame, length);
  } else if (frame[4] == 1) {
    for (uint32_t i = 0; i < frame[5]; i++) host->transmit(host->context, port, frame, length);
  } else {
    host->transmit(host->context, frame[5], frame, length);
  }
}

static int counter_read(ssw_pipeline *pipeline, uint32_t counter, uint64_t first, uint64_t count,
                        ssw_counter *out) {
  if (counter || first > 512 || count > 512 - first) return SSW_ENOENT;
  memcpy(out, pipeline->counters + first, count * sizeof *out);
  return 0;
}

static int multicast_set(ssw_pipeline *pipeline, uint32_t group, const ssw_replica *replicas,
                         uint32_t count) {
  if (group != 1 || count > 64) return SSW_EINVAL;
  memcpy(pipeline->replicas, replicas, count * sizeof *replicas);
  pipeline->replica_count = count;
  return 0;
}

const ssw_pipeline_ops ssw_pipeline_ops_v1 = {
    .abi = SSW_PIPELINE_ABI,
    .create = create,
    .destroy = destroy,
    .process = process,
    .counter_read = counter_read,
    .multicast_set = multicast_set,
};
