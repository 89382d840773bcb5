/* Copies that do not fit a step. In a file of its own: a program whose plans have none does not link it. */
#include "hwlib.h"

static inline hwlib_place_t place(const uintptr_t *starts, const hwlib_address_t *address)
{
  if (address->space < HWLIB_SPACE_FLASH) {
    return (hwlib_place_t){(uint8_t)address->space, address->offset};
  }
  return (hwlib_place_t){HWLIB_MAIN, starts[address->space - HWLIB_SPACE_FLASH] + address->offset};
}

hwlib_status_t hwlib_start_copy(const hwlib_copy_t *copy, const uintptr_t *starts, hwlib_token_t *token)
{
  hwlib_place_t target = place(starts, &copy->target), source = place(starts, &copy->source);
  if (copy->rows == 1) {
    return hwlib_hal_copy_1d(target, source, copy->bytes, token);
  }
  return hwlib_hal_copy_2d(target, copy->target_stride, source, copy->source_stride, copy->bytes, copy->rows, token);
}
