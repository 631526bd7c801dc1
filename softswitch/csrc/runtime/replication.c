#include "replication.h"

#include <stdlib.h>
#include <string.h>

#include "cells.h"

int ssw_replication_create(ssw_replication *r) {
  r->groups = ssw_pages_allocate(SSW_GROUP_COUNT * sizeof *r->groups);
  r->sessions = ssw_pages_allocate(SSW_SESSION_COUNT * sizeof *r->sessions);
  return r->groups && r->sessions ? SSW_OK : SSW_ENOMEM;
}

static void free_all(ssw_group **groups, uint32_t count) {
  if (!groups) return;
  for (uint32_t i = 0; i < count; ++i) free(groups[i]);
  ssw_pages_free(groups, count * sizeof *groups);
}

void ssw_replication_destroy(ssw_replication *r) {
  free_all(r->groups, SSW_GROUP_COUNT);
  free_all(r->sessions, SSW_SESSION_COUNT);
}

static int replace(ssw_group **slot, const ssw_replica *replicas, uint32_t count, uint32_t truncate_bytes) {
  ssw_group *group = NULL;
  if (count == 0 && !*slot) return SSW_ENOENT;
  if (count > 0) {
    group = malloc(sizeof *group + count * sizeof *replicas);
    if (!group) return SSW_ENOMEM;
    group->count = count;
    group->truncate_bytes = truncate_bytes;
    memcpy(group->replicas, replicas, count * sizeof *replicas);
  }
  free(*slot);
  *slot = group;
  return SSW_OK;
}

int ssw_multicast_set(ssw_replication *r, uint32_t group, const ssw_replica *replicas, uint32_t count) {
  if (group == 0 || group >= SSW_GROUP_COUNT) return SSW_EINVAL;
  return replace(&r->groups[group], replicas, count, 0);
}

int ssw_clone_session_set(ssw_replication *r, uint32_t session, const ssw_replica *replicas, uint32_t count,
                          uint32_t truncate_bytes) {
  if (session >= SSW_SESSION_COUNT) return SSW_EINVAL;
  return replace(&r->sessions[session], replicas, count, truncate_bytes);
}
