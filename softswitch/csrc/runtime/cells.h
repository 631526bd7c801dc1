/* Arrays of stateful cells: registers and counters. */
#ifndef SSW_RUNTIME_CELLS_H
#define SSW_RUNTIME_CELLS_H

#include "../pipeline.h"
#include "bytes.h"

typedef struct ssw_array_spec {
  uint32_t id; /* JSON id */
  const char *name;
  uint64_t size;  /* cells */
  uint32_t bits;  /* of a register cell; 0 for counters */
  uint32_t bytes; /* a cell's room in memory: 1, 2, 4, 8 or whole limbs */
} ssw_array_spec;

/* `size` zeroed bytes on a page boundary that take no memory before they are touched; NULL when
 * the address space is exhausted.  Large arrays may use huge pages. */
void *ssw_pages_allocate(uint64_t size);
void ssw_pages_free(void *pages, uint64_t size);

int ssw_register_read(const ssw_array_spec *, const void *cells, uint64_t index, uint8_t *out,
                      uint32_t length);
int ssw_register_write(const ssw_array_spec *, void *cells, uint64_t index, const uint8_t *in,
                       uint32_t length);

SSW_INLINE void ssw_count(ssw_counter *counter, uint32_t bytes) {
  counter->packets += 1;
  counter->bytes += bytes;
}

#endif
