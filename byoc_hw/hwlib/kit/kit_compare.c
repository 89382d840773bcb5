/* Compares a job's result with the expected one, one part of local activations after the other. */
#include "kit_internal.h"

#define COPY_WAIT "hwlib_hal_copy_wait"
#define JOB_START "hwlib_hal_job_start"
#define JOB_WAIT "hwlib_hal_job_wait"

enum { AROUND = 64 }; /* bytes before and after a result that must stay as they are */

static void expect(const hwlib_layer_t *layer, const hwlib_tile_t *tile)
{
  switch (layer->kind) {
  case HWLIB_POOL2D:
    kit_expect_pool2d((const hwlib_pool2d_t *)layer, tile);
    break;
  case HWLIB_ADD:
    kit_expect_add((const hwlib_add_t *)layer, tile);
    break;
  case HWLIB_MUL:
    kit_expect_mul((const hwlib_mul_t *)layer, tile);
    break;
  case HWLIB_MATMUL:
    kit_expect_matmul((const hwlib_matmul_t *)layer, tile);
    break;
  case HWLIB_SOFTMAX:
    kit_expect_softmax((const hwlib_softmax_t *)layer, tile);
    break;
  case HWLIB_LOOKUP:
    kit_expect_lookup((const hwlib_lookup_t *)layer, tile);
    break;
  default:
    kit_expect_conv2d((const hwlib_conv2d_t *)layer, tile);
    break;
  }
}

/* Local activations from `base` on. */
static int compare(uint32_t base, uint32_t count)
{
  for (uint32_t i = 0; i < count; ++i) {
    if (kit_expected[i] != kit_got[i]) {
      int8_t expected = (int8_t)kit_expected[i], got = (int8_t)kit_got[i];
      kit_settle();
      int out_late = kit_equal(kit_expected, kit_got, count);
      int late = out_late || (kit_fetch(&kit_memories[0], base, kit_got, count) &&
                              kit_equal(kit_expected, kit_got, count));
      const char *function = out_late ? COPY_WAIT : late ? JOB_WAIT : JOB_START;
      kit_fail(function, late ? "too early, address" : "address", base + i, expected, got);
      return 0;
    }
  }
  return 1;
}

int kit_compare_part(const hwlib_layer_t *layer, const hwlib_tile_t *tile, uint64_t address, uint64_t end)
{
  const kit_memory_t *memory = &kit_memories[0];
  uint64_t from = (address < AROUND ? 0 : address - AROUND) / KIT_UNIT * KIT_UNIT;
  uint64_t to = (end + AROUND + KIT_UNIT - 1) / KIT_UNIT * KIT_UNIT;
  int fine = 1;
  to = to < memory->size ? to : memory->size;
  for (uint64_t at = from; fine && at < to; at += KIT_WINDOW) {
    uint32_t base = (uint32_t)at, bytes = to - at < KIT_WINDOW ? (uint32_t)(to - at) : KIT_WINDOW;
    kit_show(base, bytes);
    expect(layer, tile);
    fine = kit_fetch(memory, base, kit_got, bytes) && compare(base, bytes);
  }
  return kit_load_contents(memory, address, end) && fine;
}
