/* Softmax in fixed point: the formulas of hwlib_hal.h. */
#include "software.h"

static int64_t times(int64_t x, int64_t y) { return (x * y + (1 << 30)) >> 31; }

static int64_t limited(int64_t x) { return x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : x; }

static int64_t exponential(int64_t a)
{
  static const int64_t factors[] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
  int64_t rest = (a & 0xffffff) - 0x1000000;
  int64_t t = limited(rest * 32) + (1 << 28), t2 = times(t, t), t3 = times(t2, t);
  int64_t p = chip_nearest(times(chip_nearest(times(t2, t2), 2) + t3, 715827883) + t2, 1);
  int64_t y = 1895147668 + times(1895147668, t + p);
  for (int k = 0; k < 7; ++k) {
    y = ((rest - a) >> (24 + k) & 1) != 0 ? times(y, factors[k]) : y;
  }
  return a == 0 ? INT32_MAX : y;
}

static int64_t reciprocal(int64_t a)
{
  int64_t h = (a + ((int64_t)1 << 31)) / 2, x = 1515870810 + times(h, -1010580540);
  for (int i = 0; i < 3; ++i) {
    x += limited(times(x, (1 << 29) - times(h, x)) * 4);
  }
  return limited(x * 2);
}

void chip_softmax(const hwlib_softmax_t *layer, const int8_t *ifm, int8_t *ofm, uint32_t channels)
{
  int32_t maximum = INT8_MIN;
  int64_t sum = 0;
  unsigned zeros = 0;
  for (uint32_t i = 0; i < channels; ++i) {
    maximum = ifm[i] > maximum ? ifm[i] : maximum;
  }
  for (uint32_t i = 0; i < channels; ++i) {
    if (ifm[i] - maximum >= layer->diff_min) {
      sum += chip_nearest(exponential(chip_scale(HWLIB_ROUND_TFLITE, ifm[i] - maximum, layer->scale)), 12);
    }
  }
  for (; (sum << zeros & 0x80000000) == 0; ++zeros) {
  }
  int64_t by = reciprocal((sum << zeros) - 0x80000000);
  for (uint32_t i = 0; i < channels; ++i) {
    int64_t value = 0;
    if (ifm[i] - maximum >= layer->diff_min) {
      int64_t e = exponential(chip_scale(HWLIB_ROUND_TFLITE, ifm[i] - maximum, layer->scale));
      value = chip_nearest(times(by, e), 35 - zeros);
    }
    ofm[i] = (int8_t)(value > 255 ? 127 : value - 128);
  }
}
