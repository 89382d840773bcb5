/* Memories, images of their windows, and copies that are waited for. */
#include "kit_internal.h"

#include <string.h>

_Alignas(HAL_KIT_MAIN_ALIGNMENT) uint8_t kit_before[KIT_WINDOW];
_Alignas(HAL_KIT_MAIN_ALIGNMENT) uint8_t kit_expected[KIT_WINDOW];
_Alignas(HAL_KIT_MAIN_ALIGNMENT) uint8_t kit_got[KIT_WINDOW];
_Alignas(HAL_KIT_MAIN_ALIGNMENT) uint8_t kit_weights[KIT_WINDOW];
_Alignas(HAL_KIT_MAIN_ALIGNMENT) uint8_t kit_main_memory[HAL_KIT_MAIN];

const kit_memory_t kit_memories[KIT_MEMORIES] = {
    {HWLIB_LOCAL_ACTIVATIONS, "local activations", HWLIB_ACCELERATOR_ACTIVATION_MEMORY / KIT_UNIT * KIT_UNIT},
    {HWLIB_LOCAL_WEIGHTS, "local weights", HWLIB_ACCELERATOR_WEIGHT_MEMORY / KIT_UNIT * KIT_UNIT},
};

uint32_t kit_base(const kit_memory_t *memory, unsigned place)
{
  return place == KIT_AT_START ? 0 : (memory->size - KIT_WINDOW) / 4 * 4; /* sums and parameters are aligned in it */
}

uint32_t kit_random(void)
{
  static uint32_t state = 1;
  state = state * 1664525u + 1013904223u;
  return state ^ state >> 16;
}

void kit_fill(uint8_t *bytes, uint32_t count)
{
  for (uint32_t i = 0; i < count; ++i) {
    bytes[i] = (uint8_t)kit_random();
  }
}

int kit_equal(const uint8_t *one, const uint8_t *other, uint32_t count) { return memcmp(one, other, count) == 0; }

hwlib_place_t kit_local(const kit_memory_t *memory, uint32_t address)
{
  return (hwlib_place_t){memory->memory, address};
}

hwlib_place_t kit_main(const void *pointer) { return (hwlib_place_t){HWLIB_MAIN, (uintptr_t)pointer}; }

static int copy(hwlib_place_t target, hwlib_place_t source, uint32_t count)
{
  hwlib_token_t token = 0;
  return kit_ok("hwlib_hal_copy_1d", hwlib_hal_copy_1d(target, source, count, &token)) &&
         kit_ok("hwlib_hal_copy_wait", hwlib_hal_copy_wait(token));
}

int kit_load(const kit_memory_t *memory, uint32_t address, const uint8_t *bytes, uint32_t count)
{
  return copy(kit_local(memory, address), kit_main(bytes), count);
}

int kit_fetch(const kit_memory_t *memory, uint32_t address, uint8_t *bytes, uint32_t count)
{
  memset(bytes, 0xa5, count); /* not what an earlier check left there */
  return copy(kit_main(bytes), kit_local(memory, address), count);
}

void kit_settle(void)
{
  static _Alignas(HAL_KIT_MAIN_ALIGNMENT) uint8_t unit[KIT_UNIT];
  hwlib_token_t token = 0;
  for (unsigned i = 0; i < 100000; ++i) {
    (void)hwlib_hal_cycles();
  }
  if (hwlib_hal_copy_1d(kit_main(unit), kit_local(&kit_memories[0], 0), KIT_UNIT, &token) == HWLIB_OK) {
    (void)hwlib_hal_copy_wait(token);
  }
  (void)hwlib_hal_init();
}

static uint32_t first_difference(const uint8_t *one, const uint8_t *other, uint32_t count)
{
  uint32_t at = 0;
  while (at < count && one[at] == other[at]) {
    ++at;
  }
  return at;
}

int kit_compare(const char *function, const uint8_t *expected, uint32_t count)
{
  uint32_t at = first_difference(expected, kit_got, count);
  if (at == count) {
    return 1;
  }
  int8_t got = (int8_t)kit_got[at];
  kit_settle();
  int late = kit_equal(expected, kit_got, count);
  kit_fail(late ? "hwlib_hal_copy_wait" : function, late ? "too early, byte" : "byte", at, (int8_t)expected[at],
           got);
  return 0;
}
