/* The DMA engine: which copies it takes, what they touch and cost, and what they move. */
#include "sim_internal.h"

#include <string.h>

static hwlib_status_t check_alignment(hwlib_place_t place, uint32_t stride, uint32_t bytes, uint32_t rows)
{
  const uint64_t alignment = hwlib_sim_numbers.dma_alignment;
  if (place.address % alignment != 0 || bytes % alignment != 0 || (rows > 1 && stride % alignment != 0)) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_ALIGNMENT, "copy",
                            "address #, # bytes and stride # are not all multiples of #", place.address,
                            bytes, stride, alignment);
  }
  return HWLIB_OK;
}

static hwlib_status_t check_places(hwlib_place_t target, hwlib_place_t source)
{
  int target_is_main = target.memory == HWLIB_MAIN, source_is_main = source.memory == HWLIB_MAIN;
  if (target.memory > HWLIB_MAIN || source.memory > HWLIB_MAIN || target_is_main == source_is_main) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_ADDRESS, "copy",
                            "from memory # to memory #: one side is local, the other main memory",
                            source.memory, target.memory);
  }
  return HWLIB_OK;
}

#ifdef HWLIB_SIM_FLASH_APART
/* Flash is what the linker places from the first of these symbols to the second, on a host what nothing may write.
 * Unknown where the linker defines none. */
extern const uint8_t __executable_start[] __attribute__((weak)), __data_start[] __attribute__((weak));

static hwlib_status_t check_flash(hwlib_place_t source)
{
  uintptr_t first = (uintptr_t)__executable_start, end = (uintptr_t)__data_start;
  if (first != 0 && source.memory == HWLIB_MAIN && source.address >= first && source.address < end) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_ADDRESS, "copy", "from # in flash, # to #, which the DMA cannot read",
                            source.address, first, end);
  }
  return HWLIB_OK;
}
#else
static hwlib_status_t check_flash(hwlib_place_t source)
{
  (void)source;
  return HWLIB_OK;
}
#endif

hwlib_status_t hwlib_sim_check_copy(const hwlib_sim_copy_t *copy)
{
  if (copy->bytes == 0 || copy->rows == 0) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_ADDRESS, "copy", "# rows of # bytes are nothing to copy", copy->rows,
                            copy->bytes);
  }
  hwlib_status_t status = check_places(copy->target, copy->source);
  if (status == HWLIB_OK) {
    status = check_alignment(copy->target, copy->target_stride, copy->bytes, copy->rows);
  }
  if (status == HWLIB_OK) {
    status = check_alignment(copy->source, copy->source_stride, copy->bytes, copy->rows);
  }
  if (status == HWLIB_OK) {
    status = check_flash(copy->source);
  }
  return status;
}

/* A tensor may end inside the last word of a copy out.
 * Cycles: setup + (rows - 1) * row setup + rows * ceil(bytes / width). */
hwlib_sim_work_t hwlib_sim_copy_work(const hwlib_sim_copy_t *copy)
{
  int inward = copy->source.memory == HWLIB_MAIN;
  hwlib_place_t local = inward ? copy->target : copy->source, main = inward ? copy->source : copy->target;
  return (hwlib_sim_work_t){
      .cycles = hwlib_sim_numbers.dma_setup + (copy->rows - 1) * (uint64_t)hwlib_sim_numbers.dma_row_setup +
                copy->rows * hwlib_sim_divide_up(copy->bytes, hwlib_sim_numbers.dma_width),
      .main = {.address = main.address,
               .rows = copy->rows,
               .stride = inward ? copy->source_stride : copy->target_stride,
               .bytes = copy->bytes,
               .writes = !inward},
      .areas = 1,
      .area[0] = {.name = "copy",
                  .memory = local.memory,
                  .access = inward ? HWLIB_SIM_WRITES : HWLIB_SIM_READS,
                  .address = local.address,
                  .rows = copy->rows,
                  .pixels = 1,
                  .bytes = copy->bytes,
                  .padding = inward ? 0 : hwlib_sim_numbers.dma_alignment - 1,
                  .row_stride = inward ? copy->target_stride : copy->source_stride},
  };
}

static uint8_t *bytes_at(hwlib_place_t place)
{
  return place.memory == HWLIB_MAIN ? (uint8_t *)place.address : hwlib_sim_local(place.memory, place.address);
}

void hwlib_sim_move(const hwlib_sim_copy_t *copy)
{
  uint8_t *target = bytes_at(copy->target);
  const uint8_t *source = bytes_at(copy->source);
  for (uint32_t row = 0; row < copy->rows; ++row) {
    memcpy(target + (size_t)row * copy->target_stride, source + (size_t)row * copy->source_stride, copy->bytes);
  }
}
