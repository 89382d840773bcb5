/* Running jobs on a window, and what checks of jobs have in common. */
#include "kit_internal.h"

#include <string.h>

#define COPY_WAIT "hwlib_hal_copy_wait"
#define JOB_START "hwlib_hal_job_start"
#define JOB_WAIT "hwlib_hal_job_wait"

int kit_has_kind(unsigned kind) { return (HWLIB_ACCELERATOR_KINDS >> kind & 1u) != 0; }

int kit_has_rounding(unsigned rounding) { return (HWLIB_ACCELERATOR_ROUNDINGS >> rounding & 1u) != 0; }

unsigned kit_some_rounding(void)
{
  return kit_has_rounding(HWLIB_ROUND_UPWARD) ? HWLIB_ROUND_UPWARD : HWLIB_ROUND_TFLITE;
}

/* A mask of roundings for each kind. */
static uint32_t noted[32];

void kit_note_kind(unsigned kind, unsigned rounding) { noted[kind] |= 1u << rounding; }

void kit_check_kinds(void)
{
  kit_begin(JOB_START, "", "every layer kind of the accelerator has checks, in each rounding");
  for (unsigned kind = 0; kind < 32; ++kind) {
    uint32_t roundings = kind == HWLIB_SOFTMAX ? 1u << HWLIB_ROUND_TFLITE : UINT32_MAX;
    if (kit_has_kind(kind) && (HWLIB_ACCELERATOR_ROUNDINGS & roundings & ~noted[kind]) != 0) {
      kit_fail(JOB_START, "roundings of layer kind", kind, HWLIB_ACCELERATOR_ROUNDINGS & roundings, noted[kind]);
    }
  }
  kit_end();
}

int kit_mask_has(uint32_t mask, unsigned member) { return member < 32 && (mask >> member & 1u) != 0; }

static hwlib_tile_t moved_to(const hwlib_tile_t *tile, unsigned place)
{
  uint32_t activations = kit_base(&kit_memories[0], place), weights = kit_base(&kit_memories[1], place);
  hwlib_tile_t moved = *tile;
  moved.ifm += activations;
  moved.ifm2 += activations;
  moved.ofm += activations;
  moved.psum += activations;
  moved.weights += weights;
  moved.params += weights;
  return moved;
}

void kit_expect_unchanged(void) { memcpy(kit_expected, kit_before, KIT_WINDOW); }

int kit_load_window(unsigned place)
{
  return kit_load(&kit_memories[0], kit_base(&kit_memories[0], place), kit_before, KIT_WINDOW) &&
         kit_load(&kit_memories[1], kit_base(&kit_memories[1], place), kit_weights, KIT_WINDOW);
}

static int start_and_wait(const hwlib_layer_t *layer, const hwlib_tile_t *tile)
{
  hwlib_token_t token = 0;
  hwlib_job_t job = {layer, tile};
  hwlib_status_t status = hwlib_hal_job_start(&job, &token);
  memset(&job, 0, sizeof job); /* the HAL may not read it after job_start returns */
  return kit_ok(JOB_START, status) && kit_ok(JOB_WAIT, hwlib_hal_job_wait(token));
}

static int fetched_as_expected(uint32_t address)
{
  return kit_fetch(&kit_memories[0], address, kit_got, KIT_WINDOW) && kit_equal(kit_expected, kit_got, KIT_WINDOW);
}

int kit_compare_window(uint32_t address, const hwlib_layer_t *layer, const hwlib_tile_t *repeat)
{
  uint32_t at = 0;
  while (at < KIT_WINDOW && kit_expected[at] == kit_got[at]) {
    ++at;
  }
  if (at == KIT_WINDOW) {
    return 1;
  }
  int8_t got = (int8_t)kit_got[at], expected = (int8_t)kit_expected[at];
  const char *function = COPY_WAIT;
  int late = 1;
  kit_settle();
  if (kit_equal(kit_expected, kit_got, KIT_WINDOW)) {
    function = COPY_WAIT; /* for the copy out */
  } else if (fetched_as_expected(address)) {
    function = JOB_WAIT;
  } else if (repeat == NULL || !start_and_wait(layer, repeat) || !fetched_as_expected(address)) {
    function = JOB_START;
    late = 0;
  }
  kit_fail(function, late ? "too early, byte" : "byte", at, expected, got);
  return 0;
}

int kit_run_job(const hwlib_layer_t *layer, const hwlib_tile_t *tile, unsigned place)
{
  uint32_t address = kit_base(&kit_memories[0], place);
  hwlib_tile_t moved = moved_to(tile, place);
  int single = tile->flags == (HWLIB_TILE_FIRST | HWLIB_TILE_LAST);
  return start_and_wait(layer, &moved) && kit_fetch(&kit_memories[0], address, kit_got, KIT_WINDOW) &&
         kit_compare_window(address, layer, single ? &moved : NULL);
}

void kit_check_job(const char *subject, const char *what, const hwlib_layer_t *layer, const hwlib_tile_t *tile)
{
  kit_begin(JOB_START, subject, what);
  kit_note_kind(layer->kind, layer->rounding);
  for (unsigned place = 0; place < KIT_PLACES; ++place) {
    if (!kit_load_window(place) || !kit_run_job(layer, tile, place)) {
      break;
    }
  }
  kit_end();
}
