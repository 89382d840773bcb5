/* hwlib_hal_job_start: softmax, with its expected results from the formulas of hwlib_hal.h, as in kit_scale.c. */
#include "kit_internal.h"

static int64_t times(int64_t x, int64_t y) { return kit_shift(x * y + ((int64_t)1 << 30), 31); }

static int64_t shifted_left(int64_t x, unsigned bits)
{
  int64_t y = x * ((int64_t)1 << bits);
  return y > INT32_MAX ? INT32_MAX : y < INT32_MIN ? INT32_MIN : y;
}

static int64_t exponential(int64_t a)
{
  static const int64_t factors[] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
  if (a == 0) {
    return INT32_MAX;
  }
  int64_t quarter = (int64_t)1 << 24, rest = a - kit_shift(a, 24) * quarter - quarter;
  int64_t t = shifted_left(rest, 5) + ((int64_t)1 << 28);
  int64_t t2 = times(t, t), t3 = times(t2, t), t4 = times(t2, t2);
  int64_t p = kit_nearest(times(kit_nearest(t4, 2) + t3, 715827883) + t2, 1);
  int64_t y = 1895147668 + times(1895147668, t + p);
  int64_t quarters = (rest - a) / quarter; /* exact */
  for (unsigned k = 0; k < sizeof factors / sizeof factors[0]; ++k) {
    if (quarters / (1 << k) % 2 != 0) {
      y = times(y, factors[k]);
    }
  }
  return y;
}

static int64_t reciprocal(int64_t a)
{
  int64_t h = (a + INT32_MAX + 1) / 2, x = 1515870810 + times(h, -1010580540);
  for (unsigned i = 0; i < 3; ++i) {
    x += shifted_left(times(x, ((int64_t)1 << 29) - times(h, x)), 2);
  }
  return shifted_left(x, 1);
}

static void softmax_row(const hwlib_softmax_t *layer, uint32_t ifm, uint32_t ofm, uint32_t channels)
{
  int32_t maximum = -128;
  for (uint32_t i = 0; i < channels; ++i) {
    int32_t value = (int8_t)kit_activation(ifm + i);
    maximum = value > maximum ? value : maximum;
  }
  int64_t sum = 0;
  for (uint32_t i = 0; i < channels; ++i) {
    int32_t difference = (int8_t)kit_activation(ifm + i) - maximum;
    if (difference >= layer->diff_min) {
      sum += kit_nearest(exponential(kit_scale(HWLIB_ROUND_TFLITE, difference, layer->scale)), 12);
    }
  }
  unsigned zeros = 0; /* leading zeros of sum, as a uint32_t */
  while (sum < (int64_t)1 << (31 - zeros)) {
    ++zeros;
  }
  int64_t by = reciprocal(sum * ((int64_t)1 << zeros) - ((int64_t)1 << 31));
  kit_range_t shown = kit_shown(ofm, 1, 1, channels);
  for (uint32_t i = shown.first; i < shown.end; ++i) {
    int32_t difference = (int8_t)kit_activation(ifm + i) - maximum;
    int64_t value = -128;
    if (difference >= layer->diff_min) {
      int64_t e = exponential(kit_scale(HWLIB_ROUND_TFLITE, difference, layer->scale));
      value = kit_nearest(times(by, e), 35 - zeros) - 128;
    }
    kit_put(ofm + i, kit_clamp(value, -128, 127));
  }
}

void kit_expect_softmax(const hwlib_softmax_t *layer, const hwlib_tile_t *tile)
{
  kit_range_t rows = kit_shown(tile->ofm, tile->ifm_c, tile->ifm_c, tile->ifm_w);
  for (uint32_t row = rows.first; row < rows.end; ++row) {
    softmax_row(layer, tile->ifm + row * tile->ifm_c, tile->ofm + row * tile->ifm_c, tile->ifm_c);
  }
}

/* ---------------------------------------------------------------- checks */

enum { LONG = KIT_WINDOW / 2 < 4095 ? KIT_WINDOW / 2 : 4095 }; /* 4095 is the most that the sum has room for */

static void check_softmax(const char *what, uint32_t rows, uint32_t channels, hwlib_scale_t scale, int32_t diff_min,
                          unsigned value_bits)
{
  hwlib_softmax_t layer = {.layer = {.kind = HWLIB_SOFTMAX, .rounding = HWLIB_ROUND_TFLITE},
                           .shape = {1, rows, channels},
                           .scale = scale,
                           .diff_min = diff_min};
  hwlib_tile_t tile = {.ifm_h = 1, .ofm_h = 1, .flags = HWLIB_TILE_FIRST | HWLIB_TILE_LAST};
  tile.ifm_w = tile.ofm_w = rows;
  tile.ifm_c = tile.ofm_c = channels;
  tile.ifm_pixel = tile.ofm_pixel = channels;
  tile.ifm_row = tile.ofm_row = rows * channels;
  tile.ofm = KIT_WINDOW / 2;
  kit_fill(kit_before, KIT_WINDOW);
  for (uint32_t i = 0; i < rows * channels; ++i) {
    kit_before[i] = (uint8_t)(kit_before[i] & ((1u << value_bits) - 1u));
  }
  kit_expect_unchanged();
  kit_expect_softmax(&layer, &tile);
  kit_check_job("softmax, tflite", what, &layer.layer, &tile);
}

void kit_check_softmax(void)
{
  if (!kit_has_kind(HWLIB_SOFTMAX) || !kit_has_rounding(HWLIB_ROUND_TFLITE)) {
    return;
  }
  const hwlib_scale_t sixteenth = {1 << 30, 23, 31}, half = {1 << 30, 26, 31}, odd = {KIT_MULTIPLIER(1717986918), 21, 31};
  check_softmax("one value", 1, 1, sixteenth, -248, 8);
  check_softmax("one row", 1, 10, sixteenth, -248, 8);
  check_softmax("several rows", 7, 33, odd, -992, 8);
  check_softmax("values that are all far apart", 3, 50, half, -31, 8);
  check_softmax("values that are all close", 3, 50, sixteenth, -248, 3);
  check_softmax("values that are all the same", 2, 100, sixteenth, -248, 0);
  check_softmax("only the maximum counts", 2, 20, half, 0, 8);
  check_softmax("a long row", 1, LONG, odd, -992, 8);
  check_softmax("a long row of values that are all the same", 1, LONG, odd, -992, 0);
}
