/* The interface of pipeline.h over a generated ssw_program_spec. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

static void destroy(ssw_pipeline *pl) {
  if (!pl) return;
  for (uint32_t i = 0; pl->tables && i < ssw_program.table_count; ++i)
    if (pl->tables[i].spec) ssw_table_destroy(&pl->tables[i]);
  for (uint32_t i = 0; pl->counters && i < ssw_program.counter_count; ++i)
    ssw_pages_free(pl->counters[i], ssw_program.counters[i].size * sizeof(ssw_counter));
  for (uint32_t i = 0; pl->registers && i < ssw_program.register_count; ++i)
    ssw_pages_free(pl->registers[i], ssw_program.registers[i].size * ssw_program.registers[i].bytes);
  ssw_replication_destroy(&pl->replication);
  ssw_pages_free(pl->headers, ssw_program.headers_size);
  free(pl->tables);
  free(pl->counters);
  free(pl->registers);
  free(pl->output);
  free(pl);
}

static bool create_state(ssw_pipeline *pl) {
  pl->headers = ssw_pages_allocate(ssw_program.headers_size);
  pl->tables = calloc(ssw_program.table_count + 1, sizeof *pl->tables);
  pl->counters = calloc(ssw_program.counter_count + 1, sizeof *pl->counters);
  pl->registers = calloc(ssw_program.register_count + 1, sizeof *pl->registers);
  if (!pl->headers || !pl->tables || !pl->counters || !pl->registers) return false;
  for (uint32_t i = 0; i < ssw_program.table_count; ++i)
    if (ssw_table_create(&pl->tables[i], ssw_program.tables[i]) != SSW_OK) return false;
  for (uint32_t i = 0; i < ssw_program.counter_count; ++i) {
    pl->counters[i] = ssw_pages_allocate(ssw_program.counters[i].size * sizeof(ssw_counter));
    if (!pl->counters[i]) return false;
  }
  for (uint32_t i = 0; i < ssw_program.register_count; ++i) {
    pl->registers[i] = ssw_pages_allocate(ssw_program.registers[i].size * ssw_program.registers[i].bytes);
    if (!pl->registers[i]) return false;
  }
  return ssw_replication_create(&pl->replication) == SSW_OK && ssw_output_reserve(pl, 0);
}

static ssw_pipeline *create(const ssw_host *host) {
  ssw_pipeline *pl = calloc(1, sizeof *pl);
  if (!pl) return NULL;
  pl->host = *host;
  if (create_state(pl)) return pl;
  destroy(pl);
  return NULL;
}

#define OUTPUT_MINIMUM 16384u

bool ssw_output_reserve(ssw_pipeline *pl, uint32_t bytes) {
  if (bytes <= pl->output_room) return true;
  uint32_t room = bytes < OUTPUT_MINIMUM ? OUTPUT_MINIMUM : bytes + bytes / 2;
  uint8_t *output = realloc(pl->output, room);
  if (!output) return false;
  pl->output = output;
  pl->output_room = room;
  return true;
}

static void append(char *text, size_t size, size_t *at, char c) {
  if (*at + 1 < size) text[(*at)++] = c;
}

void ssw_log(const ssw_pipeline *pl, int level, const char *format, const uint64_t *arguments, unsigned count) {
  if (!pl->host.log) return;
  char text[512];
  size_t at = 0;
  unsigned used = 0;
  for (const char *p = format; *p; ++p) {
    if (p[0] == '{' && p[1] == '}' && used < count) {
      char number[24];
      snprintf(number, sizeof number, "%llu", (unsigned long long)arguments[used++]);
      for (const char *d = number; *d; ++d) append(text, sizeof text, &at, *d);
      ++p;
    } else {
      append(text, sizeof text, &at, *p);
    }
  }
  text[at] = 0;
  pl->host.log(pl->host.context, level, text);
}

static ssw_table *find_table(ssw_pipeline *pl, uint32_t id) {
  for (uint32_t i = 0; i < ssw_program.table_count; ++i)
    if (pl->tables[i].spec->id == id) return &pl->tables[i];
  return NULL;
}

/* Index of the array with this JSON id, or -1. */
static int find_array(const ssw_array_spec *specs, uint32_t count, uint32_t id) {
  for (uint32_t i = 0; i < count; ++i)
    if (specs[i].id == id) return (int)i;
  return -1;
}

static int table_insert(ssw_pipeline *pl, uint32_t table, const ssw_entry *entry, uint64_t *handle) {
  ssw_table *t = find_table(pl, table);
  return t ? ssw_table_insert(t, entry, handle) : SSW_ENOENT;
}

static int table_modify(ssw_pipeline *pl, uint32_t table, uint64_t handle, uint32_t action, const uint8_t *data,
                        uint32_t length) {
  ssw_table *t = find_table(pl, table);
  return t ? ssw_table_modify(t, handle, action, data, length) : SSW_ENOENT;
}

static int table_delete(ssw_pipeline *pl, uint32_t table, uint64_t handle) {
  ssw_table *t = find_table(pl, table);
  return t ? ssw_table_delete(t, handle) : SSW_ENOENT;
}

static int table_set_default(ssw_pipeline *pl, uint32_t table, uint32_t action, const uint8_t *data,
                             uint32_t length) {
  ssw_table *t = find_table(pl, table);
  return t ? ssw_table_set_default(t, action, data, length) : SSW_ENOENT;
}

static int table_reset_default(ssw_pipeline *pl, uint32_t table) {
  ssw_table *t = find_table(pl, table);
  return t ? ssw_table_reset_default(t) : SSW_ENOENT;
}

static int table_counter_read(ssw_pipeline *pl, uint32_t table, uint64_t handle, ssw_counter *out) {
  ssw_table *t = find_table(pl, table);
  ssw_counter *counter = t ? ssw_table_counter(t, handle) : NULL;
  if (!counter) return SSW_ENOENT;
  *out = *counter;
  return SSW_OK;
}

static int table_counter_write(ssw_pipeline *pl, uint32_t table, uint64_t handle, const ssw_counter *in) {
  ssw_table *t = find_table(pl, table);
  ssw_counter *counter = t ? ssw_table_counter(t, handle) : NULL;
  if (!counter) return SSW_ENOENT;
  *counter = *in;
  return SSW_OK;
}

static int counter_read(ssw_pipeline *pl, uint32_t id, uint64_t first, uint64_t count, ssw_counter *out) {
  int i = find_array(ssw_program.counters, ssw_program.counter_count, id);
  if (i < 0) return SSW_ENOENT;
  uint64_t size = ssw_program.counters[i].size;
  if (first > size || count > size - first) return SSW_ENOENT;
  memcpy(out, pl->counters[i] + first, count * sizeof *out);
  return SSW_OK;
}

static int counter_write(ssw_pipeline *pl, uint32_t id, uint64_t index, const ssw_counter *in) {
  int i = find_array(ssw_program.counters, ssw_program.counter_count, id);
  if (i < 0 || index >= ssw_program.counters[i].size) return SSW_ENOENT;
  pl->counters[i][index] = *in;
  return SSW_OK;
}

static int register_read(ssw_pipeline *pl, uint32_t id, uint64_t index, uint8_t *out, uint32_t length) {
  int i = find_array(ssw_program.registers, ssw_program.register_count, id);
  return i < 0 ? SSW_ENOENT : ssw_register_read(&ssw_program.registers[i], pl->registers[i], index, out, length);
}

static int register_write(ssw_pipeline *pl, uint32_t id, uint64_t index, const uint8_t *in, uint32_t length) {
  int i = find_array(ssw_program.registers, ssw_program.register_count, id);
  return i < 0 ? SSW_ENOENT : ssw_register_write(&ssw_program.registers[i], pl->registers[i], index, in, length);
}

static int multicast_set(ssw_pipeline *pl, uint32_t group, const ssw_replica *replicas, uint32_t count) {
  return ssw_multicast_set(&pl->replication, group, replicas, count);
}

static int clone_session_set(ssw_pipeline *pl, uint32_t session, const ssw_replica *replicas, uint32_t count,
                             uint32_t truncate_bytes) {
  return ssw_clone_session_set(&pl->replication, session, replicas, count, truncate_bytes);
}

__attribute__((visibility("default"))) const ssw_pipeline_ops ssw_pipeline_ops_v1 = {
    .abi = SSW_PIPELINE_ABI,
    .create = create,
    .destroy = destroy,
    .process = ssw_program_process,
    .table_insert = table_insert,
    .table_modify = table_modify,
    .table_delete = table_delete,
    .table_set_default = table_set_default,
    .table_reset_default = table_reset_default,
    .table_counter_read = table_counter_read,
    .table_counter_write = table_counter_write,
    .counter_read = counter_read,
    .counter_write = counter_write,
    .register_read = register_read,
    .register_write = register_write,
    .multicast_set = multicast_set,
    .clone_session_set = clone_session_set,
};
