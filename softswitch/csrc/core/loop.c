/* The packet thread, and the life of ports and of the core. */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define MAX_SPIN 64u       /* polls of all rings before going to sleep, at most: some ten microseconds */
#define EVENTS_PER_WAIT 64
#define ROUNDS_PER_EVENT_CHECK 16u

uint32_t ssw_core_abi(void) { return SSW_CORE_ABI; }

static uint64_t monotonic_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

uint64_t core_now_us(const ssw_core *core) { return monotonic_us() - core->start_us; }

void core_log(const ssw_core *core, enum ssw_log_level level, const char *format, ...) {
  static const char *const names[] = {"error", "warning", "info", "debug"};
  if ((int)level > core->log_level) return;
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  fprintf(stderr, "netreduce switch: %s: %s\n", names[level], line);
}

int core_watch(ssw_core *core, int fd, uint32_t events, uint64_t tag) {
  struct epoll_event event = {.events = events, .data.u64 = tag};
  return epoll_ctl(core->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

void core_poke(ssw_core *core) {
  uint64_t one = 1;
  if (__atomic_load_n(&core->sleeping, __ATOMIC_SEQ_CST) && write(core->wake, &one, sizeof one) < 0)
    core_log(core, SSW_LOG_DEBUG, "wake-up: %s", strerror(errno)); /* EAGAIN: it is awake already */
}

/* --- Frames ----------------------------------------------------------------------------------- */

typedef struct gate_context {
  ssw_core *core;
  ssw_port *port;
} gate_context;

static void process(void *context, const uint8_t *frame, uint32_t length) {
  const gate_context *at = context;
  ssw_program *program = at->core->program;
  if (program)
    program->ops->process(program->instance, at->port->number, frame, length);
  else
    at->core->stats.no_program++;
}

static void send_frame(void *context, const uint8_t *frame, uint32_t length) {
  const gate_context *at = context;
  switch (at->port->kind) {
    case SSW_PORT_SHM: shm_transmit(at->core, at->port, frame, length); break;
    case SSW_PORT_INTERFACE: interface_transmit(at->core, at->port, frame, length); break;
    case SSW_PORT_CPU: cpu_transmit(at->core, at->port, frame, length); break;
    case SSW_PORT_NONE: break;
  }
}

void core_receive(ssw_core *core, ssw_port *port, const uint8_t *frame, uint32_t length) {
  gate_context at = {core, port};
  port->stats.rx_frames++;
  port->stats.rx_bytes += length;
  if (!port->in.enabled) {
    process(&at, frame, length);
    return;
  }
  fault_gate_pass(&port->in, core_now_us(core), frame, length, process, &at);
  core->any_held |= port->in.held_count != 0;
}

void core_transmit(void *context, uint32_t number, const uint8_t *frame, uint32_t length) {
  ssw_core *core = context;
  if (number == core->drop_port) return;
  if (number >= SSW_PORT_COUNT || core->ports[number].kind == SSW_PORT_NONE) {
    core->stats.no_port++;
    return;
  }
  ssw_port *port = &core->ports[number];
  gate_context at = {core, port};
  if (!port->out.enabled) {
    send_frame(&at, frame, length);
    return;
  }
  fault_gate_pass(&port->out, core_now_us(core), frame, length, send_frame, &at);
  core->any_held |= port->out.held_count != 0;
}

static void drop_digest(void *context, uint32_t digest, const uint8_t *data, uint32_t length) {
  (void)digest, (void)data, (void)length;
  ((ssw_core *)context)->stats.digests_dropped++;
}

static void program_log(void *context, int level, const char *message) {
  core_log(context, level < SSW_LOG_ERROR ? SSW_LOG_ERROR : level > SSW_LOG_DEBUG ? SSW_LOG_DEBUG : level,
           "program: %s", message);
}

static uint64_t program_now_us(void *context) { return core_now_us(context); }

/* --- Ports ------------------------------------------------------------------------------------ */

void core_mark_dirty(ssw_core *core, ssw_port *port) {
  if (port->dirty) return;
  port->dirty = true;
  core->dirty[core->dirty_count++] = port;
}

void core_flush(ssw_core *core) {
  for (uint32_t i = 0; i < core->dirty_count; i++) {
    ssw_port *port = core->dirty[i];
    port->dirty = false;
    if (port->kind == SSW_PORT_SHM) shm_flush(core, port);
    if (port->kind == SSW_PORT_INTERFACE) interface_flush(core, port);
  }
  core->dirty_count = 0;
}

void core_break(ssw_core *core, ssw_port *port, const char *why) {
  if (port->broken) return;
  port->broken = true;
  port->up = false;
  port->why = why;
  core->any_broken = true;
  core_poke(core);
}

void core_plug(ssw_core *core, ssw_port *port, enum ssw_port_kind kind) {
  port->kind = kind;
  port->stats.kind = kind;
  port->broken = false;
  fault_gate_restart(&port->in);
  fault_gate_restart(&port->out);
  if (kind != SSW_PORT_CPU) core->active[core->active_count++] = port;
}

void core_unplug(ssw_core *core, ssw_port *port) {
  switch (port->kind) {
    case SSW_PORT_SHM: shm_unplug(core, port); break;
    case SSW_PORT_INTERFACE: interface_unplug(core, port); break;
    default: break;
  }
  fault_gate_restart(&port->in);
  fault_gate_restart(&port->out);
  port->kind = SSW_PORT_NONE;
  port->stats.kind = SSW_PORT_NONE;
  port->up = port->broken = false;
  port->generation++;
  for (uint32_t i = 0; i < core->active_count; i++) {
    if (core->active[i] != port) continue;
    core->active[i] = core->active[--core->active_count];
    break;
  }
}

static void reap(ssw_core *core) {
  core->any_broken = false;
  for (uint32_t i = 0; i < core->active_count;) {
    ssw_port *port = core->active[i];
    if (port->broken) {
      core_log(core, SSW_LOG_INFO, "port %u: unplugged (%s)", port->number, port->why);
      core_unplug(core, port);
    } else {
      i++;
    }
  }
}

/* --- Held frames ------------------------------------------------------------------------------ */

/* The ports that may hold frames: the polled ones and the CPU port; NULL after the last. */
static ssw_port *plugged_port(const ssw_core *core, uint32_t index) {
  if (index < core->active_count) return core->active[index];
  bool cpu = index == core->active_count && core->cpu_port < SSW_PORT_COUNT;
  return cpu ? (ssw_port *)&core->ports[core->cpu_port] : NULL;
}

static void expire_held(ssw_core *core) {
  uint64_t now = core_now_us(core);
  ssw_port *port;
  for (uint32_t i = 0; (port = plugged_port(core, i)); i++) {
    gate_context at = {core, port};
    if (port->in.held_count) fault_gate_expire(&port->in, now, process, &at);
    if (port->out.held_count) fault_gate_expire(&port->out, now, send_frame, &at);
  }
  /* A second look: releasing an incoming frame may have held an outgoing one. */
  core->any_held = false;
  for (uint32_t i = 0; (port = plugged_port(core, i)); i++)
    core->any_held |= port->in.held_count || port->out.held_count;
  core_flush(core);
}

static uint64_t next_deadline(const ssw_core *core) {
  uint64_t first = shm_pending_deadline(core);
  const ssw_port *port;
  for (uint32_t i = 0; core->any_held && (port = plugged_port(core, i)); i++) {
    uint64_t in = fault_gate_deadline(&port->in), out = fault_gate_deadline(&port->out);
    if (in < first) first = in;
    if (out < first) first = out;
  }
  return first;
}

/* --- The packet thread ------------------------------------------------------------------------ */

static uint32_t poll_port(ssw_core *core, ssw_port *port) {
  if (port->broken) return 0;
  uint32_t frames = port->kind == SSW_PORT_SHM ? shm_poll(core, port, BATCH)
                                               : interface_poll(core, port, BATCH);
  if (frames) core_flush(core);
  return frames;
}

/* One turn for every port; returns the number of frames handled. */
static uint32_t poll_ports(ssw_core *core) {
  uint32_t frames = 0, count = core->active_count;
  if (count) {
    core->first = (core->first + 1) % count;
    for (uint32_t i = 0; i < count; i++)
      frames += poll_port(core, core->active[(core->first + i) % count]);
  }
  if (core->any_held) expire_held(core);
  if (core->any_broken) reap(core);
  return frames;
}

static bool frames_waiting(const ssw_core *core) {
  if (core->any_broken) return true;
  for (uint32_t i = 0; i < core->active_count; i++) {
    const ssw_port *port = core->active[i];
    if (port->kind == SSW_PORT_SHM ? shm_has_frames(port) : interface_readable(port)) return true;
  }
  return false;
}

static void set_sleeping(ssw_core *core, uint32_t sleeping) {
  for (uint32_t i = 0; i < core->active_count; i++)
    if (core->active[i]->kind == SSW_PORT_SHM) shm_set_sleeping(core->active[i], sleeping);
}

static void handle_event(ssw_core *core, uint64_t tag) {
  enum event_kind kind = (enum event_kind)(tag >> 56);
  uint32_t index = (uint32_t)(tag >> 32) & 0xFFFFFFu, generation = (uint32_t)tag;
  uint64_t count;
  switch (kind) {
    case EVENT_WAKE:
      if (read(core->wake, &count, sizeof count) < 0 && errno != EAGAIN)
        core_log(core, SSW_LOG_ERROR, "wake-up descriptor: %s", strerror(errno));
      return;
    case EVENT_LISTENER: shm_accept(core); return;
    case EVENT_PENDING: shm_hello(core, index, generation); return;
    case EVENT_LINKS: interface_links_changed(core); return;
    case EVENT_DOORBELL: return; /* the rings are looked at anyway */
    case EVENT_CLIENT:
    case EVENT_INTERFACE: break;
  }
  ssw_port *port = &core->ports[index];
  if (port->generation != generation) return;
  if (kind == EVENT_CLIENT && port->kind == SSW_PORT_SHM) shm_client_event(core, port);
  if (kind == EVENT_INTERFACE && port->kind == SSW_PORT_INTERFACE) interface_event(core, port);
}

static void handle_events(ssw_core *core, int timeout_ms) {
  struct epoll_event events[EVENTS_PER_WAIT];
  int count = epoll_wait(core->epoll, events, EVENTS_PER_WAIT, timeout_ms);
  if (count <= 0) return;
  turn_lock_take(&core->lock);
  for (int i = 0; i < count; i++) handle_event(core, events[i].data.u64);
  turn_lock_give(&core->lock);
}

static void sleep_until_frames(ssw_core *core) {
  turn_lock_take(&core->lock);
  __atomic_store_n(&core->sleeping, 1, __ATOMIC_SEQ_CST);
  set_sleeping(core, 1);
  int timeout_ms = -1;
  if (__atomic_load_n(&core->stop, __ATOMIC_SEQ_CST) || frames_waiting(core)) {
    timeout_ms = 0;
  } else {
    uint64_t deadline = next_deadline(core), now = core_now_us(core);
    if (deadline != UINT64_MAX) timeout_ms = deadline <= now ? 0 : (int)((deadline - now + 999) / 1000);
    core->stats.sleeps++;
  }
  turn_lock_give(&core->lock);

  handle_events(core, timeout_ms);

  turn_lock_take(&core->lock);
  __atomic_store_n(&core->sleeping, 0, __ATOMIC_SEQ_CST);
  set_sleeping(core, 0);
  shm_expire_pending(core, core_now_us(core));
  turn_lock_give(&core->lock);
}

static void *packet_thread(void *context) {
  ssw_core *core = context;
  uint32_t rounds = 0, spin = MAX_SPIN / 2, spun = 0;
  while (!__atomic_load_n(&core->stop, __ATOMIC_ACQUIRE)) {
    turn_lock_take(&core->lock);
    uint32_t frames = poll_ports(core);
    turn_lock_give(&core->lock);
    if (frames) {
      /* Spinning paid off: allow more of it. */
      if (spun && spin < MAX_SPIN) spin *= 2;
      spun = 0;
      if (core->interfaces || ++rounds % ROUNDS_PER_EVENT_CHECK == 0) handle_events(core, 0);
    } else if (spun < spin) {
      spun++;
      sched_yield(); /* the senders may share our processor */
    } else {
      if (spin > 1) spin /= 2;
      spun = 0;
      sleep_until_frames(core);
    }
  }
  return NULL;
}

/* --- The core --------------------------------------------------------------------------------- */

ssw_core *ssw_core_create(uint32_t cpu_port, uint32_t drop_port, int log_level) {
  ssw_core *core = calloc(1, sizeof *core);
  if (!core) return NULL;
  core->log_level = log_level;
  core->start_us = monotonic_us();
  core->cpu_port = cpu_port;
  core->drop_port = drop_port;
  core->host = (ssw_host){
      .context = core,
      .transmit = core_transmit,
      .digest = drop_digest,
      .log = program_log,
      .now_us = program_now_us,
  };
  core->listener = core->links = core->wake = -1;
  for (uint32_t i = 0; i < PENDING_CLIENTS; i++) core->pending[i].socket = -1;
  for (uint32_t i = 0; i < SSW_PORT_COUNT; i++) core->ports[i].number = i;
  turn_lock_init(&core->lock);
  pthread_mutex_init(&core->packet_in_mutex, NULL);
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&core->packet_in_ready, &monotonic);
  pthread_condattr_destroy(&monotonic);
  core->epoll = epoll_create1(EPOLL_CLOEXEC);
  core->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (core->epoll < 0 || core->wake < 0 ||
      core_watch(core, core->wake, EPOLLIN, event_tag(EVENT_WAKE, 0, 0))) {
    int why = errno;
    ssw_core_destroy(core);
    errno = why;
    return NULL;
  }
  if (cpu_port < SSW_PORT_COUNT) {
    core_plug(core, &core->ports[cpu_port], SSW_PORT_CPU);
    core->ports[cpu_port].up = true;
  }
  return core;
}

int ssw_core_set_fault(ssw_core *core, uint32_t port, uint32_t directions, const ssw_fault *fault) {
  if (port != SSW_NO_PORT && port >= SSW_PORT_COUNT) return -EINVAL;
  int status = 0;
  turn_lock_take(&core->lock);
  for (uint32_t i = 0; i < SSW_PORT_COUNT && !status; i++) {
    if (port != SSW_NO_PORT && i != port) continue;
    if (directions & SSW_IN) status = fault_gate_configure(&core->ports[i].in, i, SSW_IN, fault);
    if (!status && directions & SSW_OUT)
      status = fault_gate_configure(&core->ports[i].out, i, SSW_OUT, fault);
  }
  turn_lock_give(&core->lock);
  return status;
}

int ssw_core_allow_shm(ssw_core *core, uint32_t first, uint32_t last) {
  if (first > last || last >= SSW_PORT_COUNT) return -EINVAL;
  turn_lock_take(&core->lock);
  memset(&core->shm_allowed[first], 1, last - first + 1);
  turn_lock_give(&core->lock);
  return 0;
}

int ssw_core_listen(ssw_core *core, const char *name, char *error, size_t error_size) {
  turn_lock_take(&core->lock);
  int status = shm_listen(core, name, error, error_size);
  turn_lock_give(&core->lock);
  return status;
}

int ssw_core_add_interface(ssw_core *core, uint32_t number, const char *name, char *error,
                           size_t error_size) {
  if (number >= SSW_PORT_COUNT) {
    snprintf(error, error_size, "port %u: port numbers run from 0 to %u", number, SSW_PORT_COUNT - 1);
    return -EINVAL;
  }
  turn_lock_take(&core->lock);
  int status = -EBUSY;
  if (core->ports[number].kind != SSW_PORT_NONE)
    snprintf(error, error_size, "port %u is in use already", number);
  else
    status = interface_plug(core, &core->ports[number], name, error, error_size);
  turn_lock_give(&core->lock);
  if (!status) core_poke(core);
  return status;
}

int ssw_core_remove_interface(ssw_core *core, uint32_t number) {
  int status = -ENODEV;
  turn_lock_take(&core->lock);
  if (number < SSW_PORT_COUNT && core->ports[number].kind == SSW_PORT_INTERFACE) {
    core_unplug(core, &core->ports[number]);
    status = 0;
  }
  turn_lock_give(&core->lock);
  return status;
}

int ssw_core_start(ssw_core *core) {
  if (core->running) return -EALREADY;
  /* Signals are for the threads of the embedding program. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  __atomic_store_n(&core->stop, 0, __ATOMIC_RELEASE);
  int status = pthread_create(&core->thread, NULL, packet_thread, core);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (status) return -status;
  pthread_setname_np(core->thread, "switch-packets");
  core->running = true;
  return 0;
}

void ssw_core_stop(ssw_core *core) {
  pthread_mutex_lock(&core->packet_in_mutex);
  core->packet_in_closed = true;
  pthread_cond_broadcast(&core->packet_in_ready);
  pthread_mutex_unlock(&core->packet_in_mutex);
  if (!core->running) return;
  uint64_t one = 1;
  __atomic_store_n(&core->stop, 1, __ATOMIC_SEQ_CST);
  if (write(core->wake, &one, sizeof one) < 0)
    core_log(core, SSW_LOG_DEBUG, "wake-up: %s", strerror(errno));
  pthread_join(core->thread, NULL);
  core->running = false;
}

void ssw_core_destroy(ssw_core *core) {
  if (!core) return;
  ssw_core_stop(core);
  core->program = NULL;
  while (core->programs) ssw_program_unload(core->programs);
  while (core->active_count) core_unplug(core, core->active[0]);
  shm_close(core);
  interface_close(core);
  cpu_close(core);
  for (uint32_t i = 0; i < SSW_PORT_COUNT; i++) {
    fault_gate_restart(&core->ports[i].in);
    fault_gate_restart(&core->ports[i].out);
  }
  if (core->wake >= 0) close(core->wake);
  if (core->epoll >= 0) close(core->epoll);
  pthread_cond_destroy(&core->packet_in_ready);
  pthread_mutex_destroy(&core->packet_in_mutex);
  turn_lock_destroy(&core->lock);
  free(core);
}

int ssw_core_port_stats(ssw_core *core, uint32_t number, ssw_port_stats *out) {
  if (number >= SSW_PORT_COUNT) return -EINVAL;
  turn_lock_take(&core->lock);
  const ssw_port *port = &core->ports[number];
  *out = port->stats;
  out->up = port->up;
  out->in = port->in.stats;
  out->out = port->out.stats;
  turn_lock_give(&core->lock);
  return 0;
}

void ssw_core_stats_read(ssw_core *core, ssw_core_stats *out) {
  turn_lock_take(&core->lock);
  *out = core->stats;
  turn_lock_give(&core->lock);
}
