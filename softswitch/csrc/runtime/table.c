#include "table.h"

#include <stdlib.h>
#include <string.h>

#include "wide.h"

#define INITIAL_ROWS 64u

static uint32_t words_of(uint32_t bits) { return (bits + 63) / 64; }

static bool hashed(const ssw_table_spec *spec) {
  return spec->match == SSW_MATCH_EXACT || spec->match == SSW_MATCH_LPM;
}

/* --- Conversion of big-endian strings ---------------------------------------------------------- */

/* One field of `bits` bits from whole bytes; false when a bit beyond the width is set. */
static bool read_field(const uint8_t *in, uint32_t bits, uint64_t *out) {
  uint32_t bytes = (bits + 7) / 8, excess = 8 * bytes - bits;
  if (excess && in[0] >> (8 - excess)) return false;
  memset(out, 0, 8 * words_of(bits));
  for (uint32_t i = 0; i < bytes; ++i) out[i / 8] |= (uint64_t)in[bytes - 1 - i] << (8 * (i % 8));
  return true;
}

/* Action arguments; NULL data stands for no arguments. */
static int read_data(const ssw_action_spec *action, const uint8_t *data, uint32_t length, uint64_t *out) {
  uint32_t expected = 0;
  for (uint32_t i = 0; i < action->parameter_count; ++i) expected += (action->parameter_bits[i] + 7) / 8;
  if (length != expected) return SSW_EINVAL;
  for (uint32_t i = 0; i < action->parameter_count; ++i) {
    uint32_t bits = action->parameter_bits[i];
    if (!read_field(data, bits, out)) return SSW_EINVAL;
    data += (bits + 7) / 8;
    out += words_of(bits);
  }
  return SSW_OK;
}

static void fill_ones(uint64_t *out, uint32_t bits) {
  for (uint32_t i = 0; i < words_of(bits); ++i) out[i] = ssw_mask(bits - 64 * i > 64 ? 64 : bits - 64 * i);
}

/* Number of leading ones of a prefix mask, or -1 if the mask is not a prefix. */
static int prefix_length(const uint64_t *mask, uint32_t bits) {
  uint32_t length = 0;
  while (length < bits && mask[(bits - 1 - length) / 64] >> ((bits - 1 - length) % 64) & 1) ++length;
  for (uint32_t i = length; i < bits; ++i)
    if (mask[(bits - 1 - i) / 64] >> ((bits - 1 - i) % 64) & 1) return -1;
  return (int)length;
}

static int read_key(const ssw_table_spec *spec, const ssw_entry *entry, uint64_t *value, uint64_t *mask,
                    uint32_t *prefix) {
  const uint8_t *value_in = entry->value, *mask_in = entry->mask;
  *prefix = 0;
  for (uint32_t i = 0; i < spec->key_count; ++i) {
    const ssw_key_spec *key = &spec->keys[i];
    uint64_t *v = value + key->word, *m = mask + key->word;
    uint32_t words = words_of(key->bits);
    if (!read_field(value_in, key->bits, v)) return SSW_EINVAL;
    if (!mask_in) {
      if (key->match != SSW_MATCH_EXACT) return SSW_EINVAL;
    } else if (!read_field(mask_in, key->bits, m)) {
      return SSW_EINVAL;
    }
    if (key->match == SSW_MATCH_EXACT) fill_ones(m, key->bits);
    if (key->match == SSW_MATCH_LPM) {
      int length = prefix_length(m, key->bits);
      if (length < 0) return SSW_EINVAL;
      *prefix = spec->match == SSW_MATCH_LPM ? (uint32_t)length : 0;
    }
    if (key->match == SSW_MATCH_RANGE) {
      if (ssw_wide_less(m, v, words, false)) return SSW_EINVAL;
    } else {
      for (uint32_t w = 0; w < words; ++w) v[w] &= m[w];
    }
    value_in += (key->bits + 7) / 8;
    if (mask_in) mask_in += (key->bits + 7) / 8;
  }
  return SSW_OK;
}

/* --- Hashed rows -------------------------------------------------------------------------------- */

static void place(ssw_table *t, ssw_row *row, uint64_t hash) {
  uint64_t at = hash & t->slot_mask;
  while (t->slots[at].row) at = (at + 1) & t->slot_mask;
  t->slots[at] = (ssw_slot){hash, row};
}

static uint64_t row_hash(const ssw_table *t, const ssw_row *row) {
  return ssw_key_hash(row->value, t->spec->key_words, row->prefix);
}

/* Keeps the load below one half. */
static int grow_slots(ssw_table *t) {
  uint64_t size = t->slot_mask + 1;
  if (2 * (t->row_count + 1) < size) return SSW_OK;
  ssw_slot *slots = calloc(2 * size, sizeof *slots);
  if (!slots) return SSW_ENOMEM;
  ssw_slot *old = t->slots;
  t->slots = slots;
  t->slot_mask = 2 * size - 1;
  for (uint64_t i = 0; i < size; ++i)
    if (old[i].row) place(t, old[i].row, old[i].hash);
  free(old);
  return SSW_OK;
}

/* Linear probing without tombstones: later members of the run move into the gap. */
static void unplace(ssw_table *t, const ssw_row *row) {
  uint64_t gap = row_hash(t, row) & t->slot_mask;
  while (t->slots[gap].row != row) gap = (gap + 1) & t->slot_mask;
  for (uint64_t at = (gap + 1) & t->slot_mask; t->slots[at].row; at = (at + 1) & t->slot_mask) {
    uint64_t home = t->slots[at].hash & t->slot_mask;
    if (((at - home) & t->slot_mask) >= ((at - gap) & t->slot_mask)) {
      t->slots[gap] = t->slots[at];
      gap = at;
    }
  }
  t->slots[gap].row = NULL;
}

static void use_prefix(ssw_table *t, uint32_t prefix) {
  if (t->prefix_rows[prefix]++) return;
  uint32_t at = t->prefix_count++;
  for (; at > 0 && t->prefixes[at - 1] < prefix; --at) t->prefixes[at] = t->prefixes[at - 1];
  t->prefixes[at] = (uint16_t)prefix;
}

static void unuse_prefix(ssw_table *t, uint32_t prefix) {
  if (--t->prefix_rows[prefix]) return;
  uint32_t at = 0;
  while (t->prefixes[at] != prefix) ++at;
  for (--t->prefix_count; at < t->prefix_count; ++at) t->prefixes[at] = t->prefixes[at + 1];
}

ssw_row *ssw_lookup_lpm(const ssw_table *t, const uint64_t *key) {
  const ssw_key_spec *lpm = t->lpm;
  uint32_t words = t->spec->key_words;
  uint64_t masked[words];
  ssw_wide_copy(masked, key, words);
  for (uint32_t i = 0; i < t->prefix_count; ++i) {
    uint32_t low = lpm->bits - t->prefixes[i]; /* bits that do not matter */
    for (uint32_t w = 0; w < words_of(lpm->bits); ++w)
      masked[lpm->word + w] &= low >= 64 * (w + 1) ? 0 : low <= 64 * w ? UINT64_MAX : ~ssw_mask(low - 64 * w);
    ssw_row *row = ssw_probe(t, masked, words, t->prefixes[i]);
    if (row) return row;
  }
  return NULL;
}

/* --- Ordered rows ------------------------------------------------------------------------------- */

static bool before(const ssw_row *a, const ssw_row *b) {
  return a->priority != b->priority ? a->priority > b->priority : a->number < b->number;
}

static void insert_ordered(ssw_table *t, ssw_row *row) {
  uint64_t at = t->row_count;
  for (; at > 0 && before(row, t->order[at - 1]); --at) t->order[at] = t->order[at - 1];
  t->order[at] = row;
}

static void remove_ordered(ssw_table *t, const ssw_row *row) {
  uint64_t at = 0;
  while (t->order[at] != row) ++at;
  memmove(&t->order[at], &t->order[at + 1], (t->row_count - at - 1) * sizeof *t->order);
}

static ssw_row *find_ordered(const ssw_table *t, const uint64_t *value, const uint64_t *mask, int32_t priority) {
  uint32_t words = t->spec->key_words;
  for (uint64_t i = 0; i < t->row_count; ++i) {
    ssw_row *row = t->order[i];
    if (row->priority == priority && ssw_key_equal(row->value, value, words) &&
        ssw_key_equal(row->mask, mask, words))
      return row;
  }
  return NULL;
}

ssw_row *ssw_lookup_ternary(const ssw_table *t, const uint64_t *key) {
  uint32_t words = t->spec->key_words;
  for (uint64_t i = 0; i < t->row_count; ++i) {
    ssw_row *row = t->order[i];
    uint64_t differ = 0;
    for (uint32_t w = 0; w < words; ++w) differ |= (key[w] & row->mask[w]) ^ row->value[w];
    if (!differ) return row;
  }
  return NULL;
}

static bool in_range(const ssw_key_spec *spec, const ssw_row *row, const uint64_t *key) {
  uint32_t words = words_of(spec->bits);
  const uint64_t *k = key + spec->word, *low = row->value + spec->word, *high = row->mask + spec->word;
  if (spec->match == SSW_MATCH_RANGE)
    return !ssw_wide_less(k, low, words, false) && !ssw_wide_less(high, k, words, false);
  for (uint32_t w = 0; w < words; ++w)
    if ((k[w] & high[w]) != low[w]) return false;
  return true;
}

ssw_row *ssw_lookup_range(const ssw_table *t, const uint64_t *key) {
  for (uint64_t i = 0; i < t->row_count; ++i) {
    bool match = true;
    for (uint32_t k = 0; match && k < t->spec->key_count; ++k)
      match = in_range(&t->spec->keys[k], t->order[i], key);
    if (match) return t->order[i];
  }
  return NULL;
}

/* --- Rows and handles --------------------------------------------------------------------------- */

static uint64_t handle_of(const ssw_row *row) { return (uint64_t)row->version << 32 | (row->number + 1u); }

static ssw_row *row_of(const ssw_table *t, uint64_t handle) {
  uint64_t number = (handle & UINT32_MAX) - 1;
  if (handle == 0 || number >= t->row_room || !t->rows[number]) return NULL;
  return t->rows[number]->version == handle >> 32 ? t->rows[number] : NULL;
}

static ssw_row *new_row(const ssw_table_spec *spec) {
  ssw_row *row = calloc(1, sizeof *row + 8 * (2 * (size_t)spec->key_words + spec->data_words));
  if (!row) return NULL;
  row->value = row->words;
  row->mask = row->words + spec->key_words;
  row->data = row->words + 2 * (size_t)spec->key_words;
  return row;
}

static int action_index(const ssw_table_spec *spec, uint32_t action) {
  for (uint32_t i = 0; i < spec->action_count; ++i)
    if (spec->actions[i]->id == action) return (int)i;
  return -1;
}

static int grow_rows(ssw_table *t) {
  if (t->row_count < t->row_room) return SSW_OK;
  uint64_t room = t->row_room ? 2 * t->row_room : INITIAL_ROWS;
  ssw_row **rows = realloc(t->rows, room * sizeof *rows);
  if (!rows) return SSW_ENOMEM;
  t->rows = rows;
  uint32_t *versions = realloc(t->versions, room * sizeof *versions);
  if (!versions) return SSW_ENOMEM;
  t->versions = versions;
  if (!hashed(t->spec)) {
    ssw_row **order = realloc(t->order, room * sizeof *order);
    if (!order) return SSW_ENOMEM;
    t->order = order;
  }
  memset(rows + t->row_room, 0, (room - t->row_room) * sizeof *rows);
  memset(versions + t->row_room, 0, (room - t->row_room) * sizeof *versions);
  t->row_room = room;
  return SSW_OK;
}

/* Takes ownership of a row whose key, data and action are set. */
static int add_row(ssw_table *t, ssw_row *row, uint64_t *handle) {
  int status;
  bool exists = hashed(t->spec) ? ssw_probe(t, row->value, t->spec->key_words, row->prefix) != NULL
                                : find_ordered(t, row->value, row->mask, row->priority) != NULL;
  if (exists)
    status = SSW_EEXIST;
  else if (t->row_count >= t->spec->max_size)
    status = SSW_EFULL;
  else if ((status = grow_rows(t)) == SSW_OK && hashed(t->spec))
    status = grow_slots(t);
  if (status != SSW_OK) {
    free(row);
    return status;
  }
  while (t->rows[t->first_free]) ++t->first_free;
  row->number = (uint32_t)t->first_free;
  row->version = t->versions[row->number]++;
  t->rows[row->number] = row;
  if (hashed(t->spec)) {
    place(t, row, row_hash(t, row));
    if (t->lpm) use_prefix(t, row->prefix);
  } else {
    insert_ordered(t, row);
  }
  ++t->row_count;
  if (handle) *handle = handle_of(row);
  return SSW_OK;
}

/* --- Interface ---------------------------------------------------------------------------------- */

static int add_const_entries(ssw_table *t) {
  const ssw_table_spec *spec = t->spec;
  for (uint32_t i = 0; i < spec->entry_count; ++i) {
    const ssw_const_entry *entry = &spec->entries[i];
    ssw_row *row = new_row(spec);
    if (!row) return SSW_ENOMEM;
    memcpy(row->words, entry->value, 8 * spec->key_words);
    memcpy(row->words + spec->key_words, entry->mask, 8 * spec->key_words);
    row->priority = entry->priority;
    row->action = entry->action;
    memcpy(row->data, entry->data, 8 * spec->actions[entry->action]->words);
    if (t->lpm) row->prefix = (uint32_t)prefix_length(row->mask + t->lpm->word, t->lpm->bits);
    int status = add_row(t, row, NULL);
    if (status != SSW_OK) return status;
  }
  return SSW_OK;
}

int ssw_table_create(ssw_table *t, const ssw_table_spec *spec) {
  memset(t, 0, sizeof *t);
  t->spec = spec;
  t->fallback = new_row(spec);
  if (!t->fallback) return SSW_ENOMEM;
  ssw_table_reset_default(t);
  t->fallback->counter = (ssw_counter){0, 0};
  if (hashed(spec)) {
    t->slots = calloc(2 * INITIAL_ROWS, sizeof *t->slots);
    t->slot_mask = 2 * INITIAL_ROWS - 1;
    if (!t->slots) return SSW_ENOMEM;
  }
  for (uint32_t i = 0; spec->match == SSW_MATCH_LPM && i < spec->key_count; ++i)
    if (spec->keys[i].match == SSW_MATCH_LPM) {
      t->lpm = &spec->keys[i];
      t->prefixes = calloc(t->lpm->bits + 1, sizeof *t->prefixes);
      t->prefix_rows = calloc(t->lpm->bits + 1, sizeof *t->prefix_rows);
      if (!t->prefixes || !t->prefix_rows) return SSW_ENOMEM;
    }
  return add_const_entries(t);
}

void ssw_table_destroy(ssw_table *t) {
  for (uint64_t i = 0; i < t->row_room; ++i) free(t->rows[i]);
  free(t->rows);
  free(t->versions);
  free(t->fallback);
  free(t->slots);
  free(t->prefixes);
  free(t->prefix_rows);
  free(t->order);
}

int ssw_table_insert(ssw_table *t, const ssw_entry *entry, uint64_t *handle) {
  const ssw_table_spec *spec = t->spec;
  if (spec->const_entries) return SSW_ECONST;
  if (spec->key_count == 0) return SSW_EINVAL;
  int action = action_index(spec, entry->action);
  if (action < 0) return SSW_EINVAL;
  ssw_row *row = new_row(spec);
  if (!row) return SSW_ENOMEM;
  row->action = (uint32_t)action;
  row->priority = hashed(spec) ? 0 : entry->priority;
  int status = read_key(spec, entry, row->words, row->words + spec->key_words, &row->prefix);
  if (status == SSW_OK) status = read_data(spec->actions[action], entry->data, entry->data_length, row->data);
  if (status != SSW_OK) {
    free(row);
    return status;
  }
  return add_row(t, row, handle);
}

static int replace_action(const ssw_table_spec *spec, ssw_row *row, uint32_t action, const uint8_t *data,
                          uint32_t length) {
  int index = action_index(spec, action);
  if (index < 0) return SSW_EINVAL;
  uint64_t words[spec->data_words + 1];
  int status = read_data(spec->actions[index], data, length, words);
  if (status != SSW_OK) return status;
  row->action = (uint32_t)index;
  memcpy(row->data, words, 8 * (size_t)spec->actions[index]->words);
  return SSW_OK;
}

int ssw_table_modify(ssw_table *t, uint64_t handle, uint32_t action, const uint8_t *data, uint32_t length) {
  if (t->spec->const_entries) return SSW_ECONST;
  ssw_row *row = row_of(t, handle);
  return row ? replace_action(t->spec, row, action, data, length) : SSW_ENOENT;
}

int ssw_table_delete(ssw_table *t, uint64_t handle) {
  if (t->spec->const_entries) return SSW_ECONST;
  ssw_row *row = row_of(t, handle);
  if (!row) return SSW_ENOENT;
  if (hashed(t->spec)) {
    unplace(t, row);
    if (t->lpm) unuse_prefix(t, row->prefix);
  } else {
    remove_ordered(t, row);
  }
  t->rows[row->number] = NULL;
  if (row->number < t->first_free) t->first_free = row->number;
  --t->row_count;
  free(row);
  return SSW_OK;
}

int ssw_table_set_default(ssw_table *t, uint32_t action, const uint8_t *data, uint32_t length) {
  if (t->spec->const_default_action) return SSW_ECONST;
  return replace_action(t->spec, t->fallback, action, data, length);
}

int ssw_table_reset_default(ssw_table *t) {
  const ssw_table_spec *spec = t->spec;
  t->fallback->action = spec->default_action;
  if (spec->default_action != UINT32_MAX)
    memcpy(t->fallback->data, spec->default_data, 8 * (size_t)spec->actions[spec->default_action]->words);
  return SSW_OK;
}

ssw_counter *ssw_table_counter(ssw_table *t, uint64_t handle) {
  ssw_row *row = handle ? row_of(t, handle) : t->fallback;
  return row ? &row->counter : NULL;
}
