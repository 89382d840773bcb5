/* The local memories, and who may touch them. */
#include "sim_internal.h"

#include <string.h>

/* For every local byte: whether something wrote it, and a mark for comparing two areas. */
enum { WRITTEN = 1, MARKED = 2 };

static const char *const beyond[] = {
    [HWLIB_LOCAL_ACTIVATIONS] = "# bytes at # reach beyond the # bytes of local activations",
    [HWLIB_LOCAL_WEIGHTS] = "# bytes at # reach beyond the # bytes of local weights",
};

void hwlib_sim_memory_reset(void)
{
  for (size_t memory = 0; memory < HWLIB_SIM_MEMORIES; ++memory) {
    memset(hwlib_sim_numbers.memories[memory].states, 0, hwlib_sim_numbers.memories[memory].size);
  }
}

uint8_t *hwlib_sim_local(uint8_t memory, uint64_t address)
{
  return hwlib_sim_numbers.memories[memory].bytes + address;
}

const uint8_t *hwlib_sim_look(uint32_t address) { return hwlib_sim_local(HWLIB_LOCAL_ACTIVATIONS, address); }

void hwlib_sim_add_run(hwlib_sim_work_t *work, const char *name, uint8_t memory, unsigned access, uint32_t address,
                       uint64_t bytes)
{
  work->area[work->areas++] = (hwlib_sim_area_t){.name = name,
                                                 .memory = memory,
                                                 .access = (uint8_t)access,
                                                 .rows = 1,
                                                 .pixels = 1,
                                                 .address = address,
                                                 .bytes = bytes};
}

/* Bytes from the first to the last of an area. */
static uint64_t span(const hwlib_sim_area_t *area)
{
  return (uint64_t)(area->rows - 1) * area->row_stride + (uint64_t)(area->pixels - 1) * area->pixel_stride +
         area->bytes;
}

static uint8_t *states_of(const hwlib_sim_area_t *area, uint32_t row, uint32_t pixel)
{
  return hwlib_sim_numbers.memories[area->memory].states + area->address + (uint64_t)row * area->row_stride +
         (uint64_t)pixel * area->pixel_stride;
}

/* Whether the masked state of any byte is `state`, but for the last `padding` bytes of each row of them. */
static int any(const hwlib_sim_area_t *area, uint32_t padding, uint8_t mask, uint8_t state)
{
  for (uint32_t row = 0; row < area->rows; ++row) {
    for (uint32_t pixel = 0; pixel < area->pixels; ++pixel) {
      const uint8_t *states = states_of(area, row, pixel);
      for (uint64_t i = 0; i + padding < area->bytes; ++i) {
        if ((states[i] & mask) == state) {
          return 1;
        }
      }
    }
  }
  return 0;
}

static void change(const hwlib_sim_area_t *area, uint8_t clear, uint8_t set)
{
  for (uint32_t row = 0; row < area->rows; ++row) {
    for (uint32_t pixel = 0; pixel < area->pixels; ++pixel) {
      uint8_t *states = states_of(area, row, pixel);
      for (uint64_t i = 0; i < area->bytes; ++i) {
        states[i] = (uint8_t)((states[i] & ~(unsigned)clear) | set);
      }
    }
  }
}

/* Every area inside its memory, and nothing read that was never written. */
hwlib_status_t hwlib_sim_access(const hwlib_sim_work_t *work)
{
  for (uint32_t i = 0; i < work->areas; ++i) {
    const hwlib_sim_area_t *area = &work->area[i];
    uint64_t bytes = span(area);
    uint32_t size = hwlib_sim_numbers.memories[area->memory].size;
    if (area->address > size || bytes > size - area->address) {
      return HWLIB_SIM_REFUSE(HWLIB_ERROR_ADDRESS, area->name, beyond[area->memory], bytes,
                              area->address, size);
    }
    if ((area->access & HWLIB_SIM_READS) != 0 && any(area, area->padding, WRITTEN, 0)) {
      return HWLIB_SIM_REFUSE(HWLIB_ERROR_UNWRITTEN, area->name,
                              "reads bytes of the # at # that nothing has written", bytes, area->address);
    }
  }
  return HWLIB_OK;
}

void hwlib_sim_written(const hwlib_sim_work_t *work)
{
  for (uint32_t i = 0; i < work->areas; ++i) {
    if ((work->area[i].access & HWLIB_SIM_WRITES) != 0) {
      change(&work->area[i], 0, WRITTEN);
    }
  }
}

/* Exact for strided areas too: two channel slices of one tensor do not overlap. */
int hwlib_sim_overlap(const hwlib_sim_area_t *one, const hwlib_sim_area_t *other)
{
  if (one->memory != other->memory || one->address + span(one) <= other->address ||
      other->address + span(other) <= one->address) {
    return 0;
  }
  change(one, 0, MARKED);
  int overlap = any(other, 0, MARKED, MARKED);
  change(one, MARKED, 0);
  return overlap;
}
