/* Match-action tables.
 *
 * A lookup key is an array of 64-bit words: each key field takes (width + 63) / 64 of them, least
 * significant first, in the order of the program.  Generated code fills it from header fields and
 * calls the lookup of the table's kind:
 *   exact    one hash probe;
 *   lpm      one probe per prefix length in use, longest first;
 *   ordered  (ternary and range) rows by priority, larger first, then by row number, which is
 *            insertion order except that deleted rows' numbers are used again, as BMv2 does.
 * A row carries its action's arguments as words, each argument taking (width + 63) / 64.
 */
#ifndef SSW_RUNTIME_TABLE_H
#define SSW_RUNTIME_TABLE_H

#include <stdbool.h>

#include "../pipeline.h"
#include "bytes.h"

typedef enum ssw_match { SSW_MATCH_EXACT, SSW_MATCH_LPM, SSW_MATCH_TERNARY, SSW_MATCH_RANGE } ssw_match;

typedef struct ssw_key_spec {
  uint32_t bits;
  ssw_match match;
  uint32_t word; /* first word in the key */
} ssw_key_spec;

typedef struct ssw_action_spec {
  uint32_t id; /* JSON id */
  uint32_t parameter_count;
  const uint32_t *parameter_bits;
  uint32_t words; /* of all arguments together */
} ssw_action_spec;

typedef struct ssw_const_entry {
  const uint64_t *value; /* key words */
  const uint64_t *mask;  /* as in ssw_entry */
  int32_t priority;
  uint32_t action; /* index in the table's actions */
  const uint64_t *data;
} ssw_const_entry;

typedef struct ssw_table_spec {
  uint32_t id; /* JSON id */
  const char *name;
  ssw_match match; /* the most general of the key fields' kinds decides the lookup */
  uint32_t key_count;
  const ssw_key_spec *keys;
  uint32_t key_words;
  uint32_t action_count;
  const ssw_action_spec *const *actions;
  uint32_t data_words; /* the largest action's */
  uint64_t max_size;
  bool const_entries;        /* entries come from the program and cannot change */
  bool const_default_action; /* the default action cannot change */
  uint32_t default_action;   /* index in actions; UINT32_MAX: none */
  const uint64_t *default_data;
  uint32_t entry_count;
  const ssw_const_entry *entries;
} ssw_table_spec;

typedef struct ssw_row {
  uint32_t action; /* index in the table's actions */
  int32_t priority;
  uint32_t number;
  uint32_t version; /* tells a new row from a deleted one of the same number */
  uint32_t prefix;  /* LPM prefix length */
  ssw_counter counter;
  const uint64_t *value;
  const uint64_t *mask; /* prefixes as masks; upper ends of ranges */
  uint64_t *data;
  uint64_t words[];
} ssw_row;

typedef struct ssw_slot {
  uint64_t hash;
  ssw_row *row; /* NULL: free */
} ssw_slot;

typedef struct ssw_table {
  const ssw_table_spec *spec;
  uint64_t row_count;
  uint64_t row_room;
  uint64_t first_free; /* no free row number is smaller */
  ssw_row **rows;      /* by number */
  uint32_t *versions;  /* by number */
  ssw_row *fallback;   /* the default action; counts misses */
  /* exact and LPM */
  uint64_t slot_mask;
  ssw_slot *slots;
  const ssw_key_spec *lpm;
  uint32_t prefix_count; /* lengths in use */
  uint16_t *prefixes;    /* those, longest first */
  uint32_t *prefix_rows; /* rows of each length */
  /* ternary and range */
  ssw_row **order;
} ssw_table;

int ssw_table_create(ssw_table *, const ssw_table_spec *);
void ssw_table_destroy(ssw_table *);
int ssw_table_insert(ssw_table *, const ssw_entry *, uint64_t *handle);
int ssw_table_modify(ssw_table *, uint64_t handle, uint32_t action, const uint8_t *data, uint32_t length);
int ssw_table_delete(ssw_table *, uint64_t handle);
int ssw_table_set_default(ssw_table *, uint32_t action, const uint8_t *data, uint32_t length);
int ssw_table_reset_default(ssw_table *);
/* The counter of a row, or of the default action (handle 0); NULL: no such row. */
ssw_counter *ssw_table_counter(ssw_table *, uint64_t handle);

SSW_INLINE uint64_t ssw_key_hash(const uint64_t *key, unsigned words, uint64_t seed) {
  uint64_t hash = seed + UINT64_C(0x9e3779b97f4a7c15);
  for (unsigned i = 0; i < words; ++i) {
    hash = (hash ^ key[i]) * UINT64_C(0xff51afd7ed558ccd);
    hash ^= hash >> 32;
  }
  return hash;
}

SSW_INLINE bool ssw_key_equal(const uint64_t *a, const uint64_t *b, unsigned words) {
  uint64_t any = 0;
  for (unsigned i = 0; i < words; ++i) any |= a[i] ^ b[i];
  return any == 0;
}

SSW_INLINE ssw_row *ssw_probe(const ssw_table *t, const uint64_t *key, unsigned words, uint32_t prefix) {
  uint64_t hash = ssw_key_hash(key, words, prefix);
  for (uint64_t at = hash & t->slot_mask; t->slots[at].row; at = (at + 1) & t->slot_mask)
    if (t->slots[at].hash == hash && t->slots[at].row->prefix == prefix &&
        ssw_key_equal(t->slots[at].row->value, key, words))
      return t->slots[at].row;
  return NULL;
}

/* Lookups return the matching row, or NULL for a miss. */
SSW_INLINE ssw_row *ssw_lookup_exact(const ssw_table *t, const uint64_t *key, unsigned words) {
  return ssw_probe(t, key, words, 0);
}

ssw_row *ssw_lookup_lpm(const ssw_table *, const uint64_t *key);
ssw_row *ssw_lookup_ternary(const ssw_table *, const uint64_t *key);
ssw_row *ssw_lookup_range(const ssw_table *, const uint64_t *key);

#endif
