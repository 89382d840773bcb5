/* hwlib_hal_job_start: element-wise kinds (add, mul), with their expected results from the formulas of hwlib_hal.h,
 * as in kit_scale.c. */
#include "kit_internal.h"

enum { QUARTER = KIT_WINDOW / 4, MANY = QUARTER < 1000 ? QUARTER : 1000 }; /* 256 elements fit a quarter */

static const hwlib_scale_t identity = {1 << 30, 1, 31};

static hwlib_tile_t run_of_elements(uint32_t count)
{
  return (hwlib_tile_t){.ifm2 = QUARTER,
                        .ofm = 2 * QUARTER,
                        .ifm_h = 1,
                        .ifm_w = count,
                        .ifm_c = 1,
                        .ofm_h = 1,
                        .ofm_w = count,
                        .ofm_c = 1,
                        .flags = HWLIB_TILE_FIRST | HWLIB_TILE_LAST};
}

/* Every value as the first input, beside random ones. */
static void fill(const hwlib_tile_t *tile)
{
  kit_fill(kit_before, KIT_WINDOW);
  for (unsigned i = 0; i < 256; ++i) {
    kit_before[tile->ifm + i] = (uint8_t)i;
  }
}

/* Numbers of elements: around those that an array may process at a time, and many. */
static const struct {
  uint32_t count;
  const char *what;
} counts[] = {
    {1, "one element"},
    {HWLIB_ACCELERATOR_ARRAY_ROWS - 1, "one element less than the array's rows"},
    {HWLIB_ACCELERATOR_ARRAY_ROWS + 1, "one element more than the array's rows"},
    {MANY, "many elements"},
};
enum { COUNTS = sizeof counts / sizeof counts[0] };

/* Where the second input of element i lies. */
static uint32_t second(const hwlib_tile_t *tile, uint32_t i, uint8_t broadcast)
{
  return tile->ifm2 + (broadcast ? i % tile->ifm_c : i);
}

static kit_range_t shown_of(const hwlib_tile_t *tile) { return kit_shown(tile->ofm, 1, 1, tile->ifm_w * tile->ifm_c); }

/* Channels of a second input that is broadcast: one value for all, and around what an array may process at a time. */
static const struct {
  uint32_t channels;
  const char *what;
} broadcasts[] = {
    {1, "a second input of one element"},
    {3, "a second input of a few channels"},
    {HWLIB_ACCELERATOR_ARRAY_ROWS + 1, "a second input of one channel more than the array's rows"},
    {MANY / 3, "a second input of many channels"},
};
enum { BROADCASTS = sizeof broadcasts / sizeof broadcasts[0] };

/* As many pixels of so many channels as a quarter of the window holds, from odd addresses on. Returns whether any. */
static int set_pixels(hwlib_tile_t *tile, hwlib_shape_t *shape, uint32_t channels)
{
  uint32_t most = (QUARTER - 4) / channels, pixels = most < 300 ? most : 300;
  tile->ifm_w = tile->ofm_w = pixels;
  tile->ifm_c = tile->ofm_c = tile->ifm_pixel = tile->ofm_pixel = channels;
  tile->ifm_row = tile->ofm_row = pixels * channels;
  tile->ifm = 1;
  tile->ifm2 = QUARTER + 3;
  tile->ofm = 2 * QUARTER + 2;
  *shape = (hwlib_shape_t){1, pixels, channels};
  return pixels > 0;
}

/* ---------------------------------------------------------------- additions */

kit_addition_t kit_addition(unsigned rounding, uint32_t count)
{
  kit_addition_t addition = {
      .layer = {.layer = {.kind = HWLIB_ADD, .rounding = (uint8_t)rounding},
                .shape = {1, count, 1},
                .ifm_scale = {KIT_MULTIPLIER(1518500250), 0, 31},
                .ifm2_scale = {KIT_MULTIPLIER(1105322465), 0, 32},
                .ifm_zero_point = 5,
                .ifm2_zero_point = -9,
                .ofm_zero_point = 3,
                .act_min = -128,
                .act_max = 127},
      .tile = run_of_elements(count),
  };
  if (rounding == HWLIB_ROUND_TFLITE) { /* inputs shifted left by 20, as in TFLite's kernels */
    addition.layer.ifm_scale = (hwlib_scale_t){1073741824, 20, 31};
    addition.layer.ifm2_scale = (hwlib_scale_t){KIT_MULTIPLIER(1288490189), 20, 32};
    addition.layer.sum_scale = (hwlib_scale_t){KIT_MULTIPLIER(1431655765), 0, 50};
  }
  return addition;
}

void kit_expect_add(const hwlib_add_t *layer, const hwlib_tile_t *tile)
{
  unsigned rounding = layer->layer.rounding;
  kit_range_t shown = shown_of(tile);
  for (uint32_t i = shown.first; i < shown.end; ++i) {
    int32_t one = (int8_t)kit_activation(tile->ifm + i) - layer->ifm_zero_point;
    int32_t other = (int8_t)kit_activation(second(tile, i, layer->broadcast)) - layer->ifm2_zero_point;
    int64_t terms[] = {kit_scale(rounding, one, layer->ifm_scale), kit_scale(rounding, other, layer->ifm2_scale)};
    int64_t sum = layer->subtract == 2   ? terms[1] - terms[0]
                  : layer->subtract == 1 ? terms[0] - terms[1]
                                         : terms[0] + terms[1];
    if (rounding == HWLIB_ROUND_TFLITE) {
      sum = kit_scale(rounding, sum, layer->sum_scale);
    }
    kit_put(tile->ofm + i, kit_clamp(sum + layer->ofm_zero_point, layer->act_min, layer->act_max));
  }
}

static void check_addition(const char *what, const kit_addition_t *addition)
{
  fill(&addition->tile);
  kit_expect_unchanged();
  kit_expect_add(&addition->layer, &addition->tile);
  kit_check_job(addition->layer.layer.rounding == HWLIB_ROUND_TFLITE ? "add, tflite" : "add, upward", what,
                &addition->layer.layer, &addition->tile);
}

static void check_additions(unsigned rounding)
{
  kit_addition_t difference = kit_addition(rounding, 256);
  difference.layer.subtract = 1;
  check_addition("the second input subtracted", &difference);
  difference.layer.subtract = 2;
  check_addition("the first input subtracted", &difference);
  for (unsigned i = 0; i < BROADCASTS && HWLIB_ACCELERATOR_ADD_BROADCAST; ++i) {
    kit_addition_t addition = kit_addition(rounding, 1);
    addition.layer.broadcast = 1;
    addition.layer.subtract = (uint8_t)(i % 3);
    if (set_pixels(&addition.tile, &addition.layer.shape, broadcasts[i].channels)) {
      check_addition(broadcasts[i].what, &addition);
    }
  }

  for (unsigned i = 0; i < COUNTS; ++i) {
    if (counts[i].count > 0 && counts[i].count <= QUARTER) {
      kit_addition_t addition = kit_addition(rounding, counts[i].count);
      check_addition(counts[i].what, &addition);
    }
  }

  kit_addition_t addition = kit_addition(rounding, 256);
  addition.tile.ifm = 1;
  addition.tile.ifm2 = QUARTER + 3;
  addition.tile.ofm = 2 * QUARTER + 2;
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

  /* Halves of both signs: x / 2 of each value, then its sum with 0. */
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

/* ---------------------------------------------------------------- multiplications */

typedef struct {
  hwlib_mul_t layer;
  hwlib_tile_t tile;
} multiplication_t;

static multiplication_t multiplication(unsigned rounding, uint32_t count)
{
  return (multiplication_t){
      .layer = {.layer = {.kind = HWLIB_MUL, .rounding = (uint8_t)rounding},
                .shape = {1, count, 1},
                .scale = {KIT_MULTIPLIER(1518500250), 0, 38},
                .ifm_zero_point = 5,
                .ifm2_zero_point = -9,
                .ofm_zero_point = 3,
                .act_min = -128,
                .act_max = 127},
      .tile = run_of_elements(count),
  };
}

void kit_expect_mul(const hwlib_mul_t *layer, const hwlib_tile_t *tile)
{
  kit_range_t shown = shown_of(tile);
  for (uint32_t i = shown.first; i < shown.end; ++i) {
    int32_t one = (int8_t)kit_activation(tile->ifm + i) - layer->ifm_zero_point;
    int32_t other = (int8_t)kit_activation(second(tile, i, layer->broadcast)) - layer->ifm2_zero_point;
    int64_t value = kit_scale(layer->layer.rounding, one * other, layer->scale);
    kit_put(tile->ofm + i, kit_clamp(value + layer->ofm_zero_point, layer->act_min, layer->act_max));
  }
}

/* Expects filled images. */
static void check_filled(const char *what, const multiplication_t *by)
{
  kit_expect_unchanged();
  kit_expect_mul(&by->layer, &by->tile);
  kit_check_job(by->layer.layer.rounding == HWLIB_ROUND_TFLITE ? "mul, tflite" : "mul, upward", what,
                &by->layer.layer, &by->tile);
}

static void check_multiplication(const char *what, const multiplication_t *by)
{
  fill(&by->tile);
  check_filled(what, by);
}

static void check_multiplications(unsigned rounding)
{
  for (unsigned i = 0; i < COUNTS; ++i) {
    if (counts[i].count > 0 && counts[i].count <= QUARTER) {
      multiplication_t by = multiplication(rounding, counts[i].count);
      check_multiplication(counts[i].what, &by);
    }
  }

  for (unsigned i = 0; i < BROADCASTS && HWLIB_ACCELERATOR_MUL_BROADCAST; ++i) {
    multiplication_t by = multiplication(rounding, 1);
    by.layer.broadcast = 1;
    if (set_pixels(&by.tile, &by.layer.shape, broadcasts[i].channels)) {
      check_multiplication(broadcasts[i].what, &by);
    }
  }

  multiplication_t by = multiplication(rounding, 256);
  by.tile.ifm = 1;
  by.tile.ifm2 = QUARTER + 3;
  by.tile.ofm = 2 * QUARTER + 2;
  check_multiplication("tiles at odd addresses", &by);

  by = multiplication(rounding, 256);
  by.layer.ifm_zero_point = -128;
  by.layer.ifm2_zero_point = 127;
  by.layer.ofm_zero_point = -128;
  check_multiplication("zero points at the rails", &by);
  by.layer.ifm_zero_point = 127; /* products above 0, which the case before lacks */
  check_multiplication("zero points at the upper rail", &by);
  by.layer.ofm_zero_point = 127;
  by.layer.ifm2_zero_point = -128;
  check_multiplication("an output zero point at the upper rail", &by);

  by = multiplication(rounding, 256);
  by.layer.act_min = -20;
  check_multiplication("act_min", &by);
  by.layer.act_min = -128;
  by.layer.act_max = 35;
  check_multiplication("act_max", &by);

  by = multiplication(rounding, 256);
  by.layer.scale.multiplier = 0;
  check_multiplication("a multiplier of 0", &by);

  /* x * 1 / 2 of each value. */
  by.layer.ifm_zero_point = 0;
  by.layer.ifm2_zero_point = 0;
  by.layer.ofm_zero_point = 0;
  by.layer.scale = rounding == HWLIB_ROUND_TFLITE ? (hwlib_scale_t){1 << 30, 1, 32} : (hwlib_scale_t){1 << 30, 0, 31};
  fill(&by.tile);
  for (uint32_t i = 0; i < by.tile.ifm_w; ++i) {
    kit_before[by.tile.ifm2 + i] = 1;
  }
  check_filled("rounding of halves", &by);
}

/* ---------------------------------------------------------------- all of a kind */

void kit_check_elementwise(void)
{
  for (unsigned rounding = HWLIB_ROUND_UPWARD; rounding <= HWLIB_ROUND_TFLITE; ++rounding) {
    if (kit_has_kind(HWLIB_ADD) && kit_has_rounding(rounding)) {
      check_additions(rounding);
    }
    if (kit_has_kind(HWLIB_MUL) && kit_has_rounding(rounding)) {
      check_multiplications(rounding);
    }
  }
}
