/* hwlib_hal_job_start: matmul, with its expected results from the formulas of hwlib_hal.h, as in kit_scale.c. */
#include "kit_internal.h"

static uint8_t product(const hwlib_matmul_t *layer, const hwlib_tile_t *tile, uint32_t row, uint32_t k)
{
  uint32_t sum = 0, ifm = tile->ifm + row * tile->ifm_c, ifm2 = tile->ifm2 + k * tile->ifm_c;
  for (uint32_t c = 0; c < tile->ifm_c; ++c) {
    int32_t one = (int8_t)kit_activation(ifm + c) - layer->ifm_zero_point;
    int32_t other = (int8_t)kit_activation(ifm2 + c) - layer->ifm2_zero_point;
    sum += (uint32_t)(one * other);
  }
  int64_t value = kit_scale(layer->layer.rounding, kit_wrap32(sum), layer->scale);
  return kit_clamp(value + layer->ofm_zero_point, layer->act_min, layer->act_max);
}

void kit_expect_matmul(const hwlib_matmul_t *layer, const hwlib_tile_t *tile)
{
  kit_range_t rows = kit_shown(tile->ofm, tile->ofm_c, tile->ofm_c, tile->ofm_w);
  for (uint32_t row = rows.first; row < rows.end; ++row) {
    uint32_t address = tile->ofm + row * tile->ofm_c;
    kit_range_t channels = kit_shown(address, 1, 1, tile->ofm_c);
    for (uint32_t k = channels.first; k < channels.end; ++k) {
      kit_put(address + k, product(layer, tile, row, k));
    }
  }
}

/* ---------------------------------------------------------------- checks */

typedef struct {
  const char *what;
  uint32_t rows, depth, channels;
  hwlib_scale_t scale;
  int8_t ifm_zero_point, ifm2_zero_point, ofm_zero_point, act_min, act_max;
} case_t;

#define FULL .act_min = -128, .act_max = 127

static void check_product(unsigned rounding, const case_t *from)
{
  static const char *const subjects[] = {"matmul, upward", "matmul, tflite"};
  uint32_t rows = from->rows, depth = from->depth, channels = from->channels;
  while (rows * depth + channels * depth + rows * channels > KIT_WINDOW) {
    rows = (rows + 1) / 2;
    depth = (depth + 1) / 2;
    channels = (channels + 1) / 2;
  }
  hwlib_matmul_t layer = {.layer = {.kind = HWLIB_MATMUL, .rounding = (uint8_t)rounding},
                          .ifm = {rows, 1, depth},
                          .ifm2 = {1, channels, depth},
                          .ofm = {rows, 1, channels},
                          .scale = {KIT_MULTIPLIER(from->scale.multiplier), from->scale.left, from->scale.right},
                          .ifm_zero_point = from->ifm_zero_point,
                          .ifm2_zero_point = from->ifm2_zero_point,
                          .ofm_zero_point = from->ofm_zero_point,
                          .act_min = from->act_min,
                          .act_max = from->act_max};
  hwlib_tile_t tile = {.ifm_h = 1, .ofm_h = 1, .flags = HWLIB_TILE_FIRST | HWLIB_TILE_LAST};
  tile.ifm_w = tile.ofm_w = rows;
  tile.ifm_c = tile.ifm_pixel = depth;
  tile.ofm_c = tile.ofm_pixel = channels;
  tile.ifm_row = rows * depth;
  tile.ofm_row = rows * channels;
  tile.ifm2 = rows * depth;
  tile.ofm = tile.ifm2 + channels * depth;
  kit_fill(kit_before, KIT_WINDOW);
  kit_expect_unchanged();
  kit_expect_matmul(&layer, &tile);
  kit_check_job(subjects[rounding], from->what, &layer.layer, &tile);
}

void kit_check_matmul(void)
{
  static const case_t cases[] = {
      {"one product", 1, 1, 1, {1 << 30, 1, 38}, FULL},
      {"one vector by several", 1, 9, 5, {1518500250, 0, 40}, FULL, .ifm_zero_point = 5, .ifm2_zero_point = -9},
      {"several vectors by one", 5, 9, 1, {1518500250, 0, 40}, FULL, .ofm_zero_point = -11},
      {"more vectors than the array has rows and columns", 37, 12, 35, {1518500250, 0, 40}, FULL,
       .ifm_zero_point = 1, .ifm2_zero_point = 2, .ofm_zero_point = 3},
      {"zero points at the lower rail", 3, 20, 4, {1518500250, 0, 44}, FULL, .ifm_zero_point = -128,
       .ifm2_zero_point = -128, .ofm_zero_point = -128},
      {"zero points at the upper rail", 3, 20, 4, {1518500250, 0, 44}, FULL, .ifm_zero_point = 127,
       .ifm2_zero_point = 127, .ofm_zero_point = 127},
      {"zero points at both rails", 3, 20, 4, {1518500250, 0, 44}, FULL, .ifm_zero_point = 127,
       .ifm2_zero_point = -128},
      {"act_min and act_max", 4, 6, 7, {1518500250, 0, 38}, .act_min = -20, .act_max = 35},
      {"halves", 9, 1, 9, {1 << 30, 0, 32}, FULL},
      {"the largest multiplier", 9, 2, 9, {INT32_MAX, 0, 39}, FULL},
      {"a multiplier of 0", 3, 4, 5, {0, 0, 31}, FULL, .ofm_zero_point = 17},
      {"a shift to the left", 4, 3, 5, {1 << 30, 7, 45}, FULL},
  };
  for (unsigned rounding = HWLIB_ROUND_UPWARD; rounding <= HWLIB_ROUND_TFLITE; ++rounding) {
    for (size_t i = 0; kit_has_kind(HWLIB_MATMUL) && kit_has_rounding(rounding) && i < sizeof cases / sizeof cases[0];
         ++i) {
      check_product(rounding, &cases[i]);
    }
  }
}
