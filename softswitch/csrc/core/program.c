/* Loading compiled pipelines, and calling them in turn with the packet thread. */
#define _GNU_SOURCE
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

ssw_program *ssw_program_load(ssw_core *core, const char *path, char *error, size_t error_size) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(error, error_size, "cannot load the compiled pipeline: %s", dlerror());
    return NULL;
  }
  const ssw_pipeline_ops *ops = dlsym(library, "ssw_pipeline_ops_v1");
  ssw_program *program = NULL;
  if (!ops)
    snprintf(error, error_size, "%s is not a compiled pipeline: it lacks ssw_pipeline_ops_v1", path);
  else if (ops->abi != SSW_PIPELINE_ABI)
    snprintf(error, error_size, "%s was compiled for pipeline interface %u, this switch has %u", path,
             ops->abi, SSW_PIPELINE_ABI);
  else if (!(program = calloc(1, sizeof *program)) || !(program->instance = ops->create(&core->host)))
    snprintf(error, error_size, "%s: not enough memory for its tables and registers", path);
  if (!program || !program->instance) {
    free(program);
    dlclose(library);
    return NULL;
  }
  program->core = core;
  program->library = library;
  program->ops = ops;
  turn_lock_take(&core->lock);
  program->next = core->programs;
  core->programs = program;
  turn_lock_give(&core->lock);
  return program;
}

void ssw_program_attach(ssw_core *core, ssw_program *program) {
  turn_lock_take(&core->lock);
  core->program = program;
  turn_lock_give(&core->lock);
}

void ssw_program_unload(ssw_program *program) {
  ssw_core *core = program->core;
  turn_lock_take(&core->lock);
  if (core->program == program) core->program = NULL;
  for (ssw_program **at = &core->programs; *at; at = &(*at)->next) {
    if (*at != program) continue;
    *at = program->next;
    break;
  }
  turn_lock_give(&core->lock);
  program->ops->destroy(program->instance);
  dlclose(program->library);
  free(program);
}

/* --- Calls in turn ---------------------------------------------------------------------------- */

static ssw_program *of(ssw_pipeline *pipeline) { return (ssw_program *)(void *)pipeline; }

/* The program may have sent frames: hand them on before the lock is given back. */
static void finish(ssw_core *core) {
  core_flush(core);
  if (core->any_held || core->any_broken) core_poke(core);
}

#define IN_TURN(name, parameters, arguments)                          \
  static int name(ssw_pipeline *pipeline, PASS parameters) {          \
    ssw_program *program = of(pipeline);                              \
    turn_lock_take(&program->core->lock);                             \
    int status = program->ops->name(program->instance, PASS arguments); \
    turn_lock_give(&program->core->lock);                             \
    return status;                                                    \
  }
#define PASS(...) __VA_ARGS__

IN_TURN(table_insert, (uint32_t table, const ssw_entry *entry, uint64_t *handle), (table, entry, handle))
IN_TURN(table_modify,
        (uint32_t table, uint64_t handle, uint32_t action, const uint8_t *data, uint32_t length),
        (table, handle, action, data, length))
IN_TURN(table_delete, (uint32_t table, uint64_t handle), (table, handle))
IN_TURN(table_set_default, (uint32_t table, uint32_t action, const uint8_t *data, uint32_t length),
        (table, action, data, length))
IN_TURN(table_reset_default, (uint32_t table), (table))
IN_TURN(table_counter_read, (uint32_t table, uint64_t handle, ssw_counter *counter),
        (table, handle, counter))
IN_TURN(table_counter_write, (uint32_t table, uint64_t handle, const ssw_counter *counter),
        (table, handle, counter))
IN_TURN(counter_read, (uint32_t counter, uint64_t first, uint64_t count, ssw_counter *out),
        (counter, first, count, out))
IN_TURN(counter_write, (uint32_t counter, uint64_t index, const ssw_counter *value),
        (counter, index, value))
IN_TURN(register_read, (uint32_t reg, uint64_t index, uint8_t *out, uint32_t length),
        (reg, index, out, length))
IN_TURN(register_write, (uint32_t reg, uint64_t index, const uint8_t *in, uint32_t length),
        (reg, index, in, length))
IN_TURN(multicast_set, (uint32_t group, const ssw_replica *replicas, uint32_t count),
        (group, replicas, count))
IN_TURN(clone_session_set,
        (uint32_t session, const ssw_replica *replicas, uint32_t count, uint32_t truncate_bytes),
        (session, replicas, count, truncate_bytes))

static void process_in_turn(ssw_pipeline *pipeline, uint32_t port, const uint8_t *frame,
                            uint32_t length) {
  ssw_program *program = of(pipeline);
  turn_lock_take(&program->core->lock);
  program->ops->process(program->instance, port, frame, length);
  finish(program->core);
  turn_lock_give(&program->core->lock);
}

const ssw_pipeline_ops *ssw_program_ops(void) {
  static const ssw_pipeline_ops ops = {
      .abi = SSW_PIPELINE_ABI,
      .process = process_in_turn,
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
  return &ops;
}

int ssw_core_packet_out(ssw_core *core, const uint8_t *frame, uint32_t length) {
  if (core->cpu_port >= SSW_PORT_COUNT) return -ENODEV;
  if (length > SSW_MAX_FRAME) return -EMSGSIZE;
  turn_lock_take(&core->lock);
  core_receive(core, &core->ports[core->cpu_port], frame, length);
  finish(core);
  turn_lock_give(&core->lock);
  return 0;
}
