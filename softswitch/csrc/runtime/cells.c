#define _GNU_SOURCE
#include "cells.h"

#include <string.h>
#include <sys/mman.h>

#include "wide.h"

#define HUGE_PAGE_MINIMUM (UINT64_C(4) << 20)

void *ssw_pages_allocate(uint64_t size) {
  void *pages = mmap(NULL, size ? size : 1, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
  if (size >= HUGE_PAGE_MINIMUM) madvise(pages, size, MADV_HUGEPAGE);
#endif
  return pages;
}

void ssw_pages_free(void *pages, uint64_t size) {
  if (pages) munmap(pages, size ? size : 1);
}

static uint64_t narrow_load(const uint8_t *cell, uint32_t bytes) {
  uint64_t value = 0;
  memcpy(&value, cell, bytes); /* hosts are little-endian, as the limb order assumes */
  return value;
}

int ssw_register_read(const ssw_array_spec *spec, const void *cells, uint64_t index, uint8_t *out,
                      uint32_t length) {
  if (index >= spec->size) return SSW_ENOENT;
  if (length != (spec->bits + 7) / 8) return SSW_EINVAL;
  const uint8_t *cell = (const uint8_t *)cells + index * spec->bytes;
  if (spec->bits <= 64)
    ssw_store_be(out, length, narrow_load(cell, spec->bytes));
  else
    ssw_wide_store(out, (const uint64_t *)(const void *)cell, 8 * length);
  return SSW_OK;
}

int ssw_register_write(const ssw_array_spec *spec, void *cells, uint64_t index, const uint8_t *in,
                       uint32_t length) {
  if (index >= spec->size) return SSW_ENOENT;
  if (length != (spec->bits + 7) / 8) return SSW_EINVAL;
  if (spec->bits % 8 && in[0] >> spec->bits % 8) return SSW_EINVAL;
  uint8_t *cell = (uint8_t *)cells + index * spec->bytes;
  if (spec->bits <= 64) {
    uint64_t value = ssw_load_be(in, length);
    memcpy(cell, &value, spec->bytes);
  } else {
    ssw_wide_load((uint64_t *)(void *)cell, in, 8 * length);
  }
  return SSW_OK;
}
