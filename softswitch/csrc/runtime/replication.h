/* Multicast groups and clone sessions: lists of (port, instance). */
#ifndef SSW_RUNTIME_REPLICATION_H
#define SSW_RUNTIME_REPLICATION_H

#include "../pipeline.h"

#define SSW_GROUP_COUNT 65536u   /* ids 1..65535 */
#define SSW_SESSION_COUNT 32768u /* ids 0..32767, the range of a v1model clone session */

typedef struct ssw_group {
  uint32_t count;
  uint32_t truncate_bytes; /* of a clone session; 0: none */
  ssw_replica replicas[];
} ssw_group;

/* Flat arrays of pointers in lazily touched pages: an unused id costs address space only. */
typedef struct ssw_replication {
  ssw_group **groups;
  ssw_group **sessions;
} ssw_replication;

int ssw_replication_create(ssw_replication *);
void ssw_replication_destroy(ssw_replication *);
int ssw_multicast_set(ssw_replication *, uint32_t group, const ssw_replica *, uint32_t count);
int ssw_clone_session_set(ssw_replication *, uint32_t session, const ssw_replica *, uint32_t count,
                          uint32_t truncate_bytes);

/* NULL when there is no such group. */
static inline __attribute__((unused)) const ssw_group *ssw_multicast_group(const ssw_replication *r,
                                                                           uint32_t group) {
  return group < SSW_GROUP_COUNT ? r->groups[group] : NULL;
}

static inline __attribute__((unused)) const ssw_group *ssw_clone_session(const ssw_replication *r,
                                                                         uint32_t session) {
  return session < SSW_SESSION_COUNT ? r->sessions[session] : NULL;
}

#endif
