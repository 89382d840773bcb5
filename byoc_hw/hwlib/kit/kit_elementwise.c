/* hwlib_hal_job_start: element-wise kinds (add), and what they are to compute: the formulas of hwlib_hal.h, as
 * kit_scale.c. */
#include "kit_internal.h"

static const hwlib_scale_t identity = {1 << 30, 1, 31};

static const hwlib_tile_t run_of_elements = {
    .ifm_h = 1, .ifm_c = 1, .ofm_h = 1, .ofm_c = 1, .flags = HWLIB_TILE_FIRST | HWLIB_TILE_LAST};

/* ---------------------------------------------------------------- additions */

kit_addition_t kit_addition(unsigned rounding, uint32_t count)
{
  kit_addition_t addition = {
      .layer = {.layer = {.kind = HWLIB_ADD, .rounding = (uint8_t)rounding},
                .shape = {1, count, 1},
                .ifm_scale = {1518500250, 0, 31},
                .ifm2_scale = {1105322465, 0, 32},
                .ifm_zero_point = 5,
                .ifm2_zero_point = -9,
                .ofm_zero_point = 3,
                .act_min = -128,
                .act_max = 127},
      .tile = run_of_elements,
  };
  if (rounding == HWLIB_ROUND_TFLITE) { /* inputs shifted left by 20, as its kernels do */
    addition.layer.ifm_scale = (hwlib_scale_t){1073741824, 20, 31};
    addition.layer.ifm2_scale = (hwlib_scale_t){1288490189, 20, 32};
    addition.layer.sum_scale = (hwlib_scale_t){1431655765, 0, 50};
  }
  addition.tile.ifm_w = count;
  addition.tile.ofm_w = count;
  addition.tile.ifm2 = 2048;
  addition.tile.ofm = 4096;
  return addition;
}

void kit_expect_addition(const kit_addition_t *addition)
{
  const hwlib_add_t *layer = &addition->layer;
  const hwlib_tile_t *tile = &addition->tile;
  unsigned rounding = layer->layer.rounding;
  for (uint32_t i = 0; i < tile->ifm_w; ++i) {
    int32_t one = (int8_t)kit_expected[tile->ifm + i] - layer->ifm_zero_point;
    int32_t other = (int8_t)kit_expected[tile->ifm2 + i] - layer->ifm2_zero_point;
    int64_t sum = kit_scale(rounding, one, layer->ifm_scale) + kit_scale(rounding, other, layer->ifm2_scale);
    if (rounding == HWLIB_ROUND_TFLITE) {
      sum = kit_scale(rounding, sum, layer->sum_scale);
    }
    kit_expected[tile->ofm + i] = kit_clamp(sum + layer->ofm_zero_point, layer->act_min, layer->act_max);
  }
}

static void check_addition(const char *what, const kit_addition_t *addition)
{
  kit_fill(kit_before, KIT_WINDOW);
  for (unsigned i = 0; i < 256; ++i) { /* every value, beside random ones */
    kit_before[addition->tile.ifm + i] = (uint8_t)i;
  }
  kit_expect_unchanged();
  kit_expect_addition(addition);
  kit_check_job(addition->layer.layer.rounding == HWLIB_ROUND_TFLITE ? "add, tflite" : "add, upward", what,
                &addition->layer.layer, &addition->tile);
}

static void check_additions(unsigned rounding)
{
  static const uint32_t counts[] = {1, HAL_KIT_ARRAY_ROWS - 1, HAL_KIT_ARRAY_ROWS + 1, 1000};
  static const char *const names[] = {"one element", "one element less than the array's rows",
                                      "one element more than the array's rows", "1000 elements"};
  for (unsigned i = 0; i < 4; ++i) {
    if (counts[i] > 0) {
      kit_addition_t addition = kit_addition(rounding, counts[i]);
      check_addition(names[i], &addition);
    }
  }

  kit_addition_t addition = kit_addition(rounding, 256);
  addition.tile.ifm = 1;
  addition.tile.ifm2 = 2051;
  addition.tile.ofm = 4098;
  check_addition("tiles at odd addresses", &addition);

  addition = kit_addition(rounding, 256);
  addition.layer.ifm_zero_point = -128;
  addition.layer.ifm2_zero_point = 127;
  addition.layer.ofm_zero_point = -128;
  check_addition("zero points at the rails", &addition);
  addition.layer.ofm_zero_point = 127;
  check_addition("an output zero point at the upper rail", &addition);

  addition = kit_addition(rounding, 256);
  addition.layer.act_min = -20;
  check_addition("act_min", &addition);
  addition.layer.act_min = -128;
  addition.layer.act_max = 35;
  check_addition("act_max", &addition);

  /* Halves of both signs: x / 2 of each value, then the sum of it and 0. */
  addition = kit_addition(rounding, 256);
  addition.layer.ifm_zero_point = 0;
  addition.layer.ofm_zero_point = 0;
  addition.layer.ifm2_scale.multiplier = 0;
  if (rounding == HWLIB_ROUND_UPWARD) {
    addition.layer.ifm_scale = (hwlib_scale_t){1 << 30, 0, 31};
  } else {
    addition.layer.ifm_scale = identity;
    addition.layer.sum_scale = (hwlib_scale_t){1 << 30, 1, 32};
  }
  check_addition("rounding of halves, and a multiplier of 0", &addition);
}

void kit_check_elementwise(void)
{
  for (unsigned rounding = HWLIB_ROUND_UPWARD; rounding <= HWLIB_ROUND_TFLITE; ++rounding) {
    if (kit_has_kind(HWLIB_ADD) && kit_has_rounding(rounding)) {
      check_additions(rounding);
    }
  }
}
