/* A lock that is granted in the order of asking (a ticket lock on a mutex and a condition), because
 * the packet thread re-takes it at once and would starve control calls under a plain mutex. */
#ifndef SOFTSWITCH_TURN_LOCK_H
#define SOFTSWITCH_TURN_LOCK_H

#include <pthread.h>
#include <stdint.h>

typedef struct turn_lock {
  pthread_mutex_t mutex;
  pthread_cond_t turn;
  uint64_t next;
  uint64_t serving;
} turn_lock;

static inline void turn_lock_init(turn_lock *lock) {
  pthread_mutex_init(&lock->mutex, NULL);
  pthread_cond_init(&lock->turn, NULL);
  lock->next = lock->serving = 0;
}

static inline void turn_lock_destroy(turn_lock *lock) {
  pthread_cond_destroy(&lock->turn);
  pthread_mutex_destroy(&lock->mutex);
}

static inline void turn_lock_take(turn_lock *lock) {
  pthread_mutex_lock(&lock->mutex);
  uint64_t mine = lock->next++;
  while (mine != lock->serving) pthread_cond_wait(&lock->turn, &lock->mutex);
  pthread_mutex_unlock(&lock->mutex);
}

static inline void turn_lock_give(turn_lock *lock) {
  pthread_mutex_lock(&lock->mutex);
  lock->serving++;
  if (lock->serving != lock->next) pthread_cond_broadcast(&lock->turn);
  pthread_mutex_unlock(&lock->mutex);
}

#endif /* SOFTSWITCH_TURN_LOCK_H */
