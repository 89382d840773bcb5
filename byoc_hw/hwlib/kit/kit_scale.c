/* From a sum to an output: a direct transcription of the formulas of hwlib_hal.h, without optimization. */
#include "kit_internal.h"

#include <string.h>

/* value / 2^bits, towards minus infinity: an arithmetic shift. */
int64_t kit_shift(int64_t value, unsigned bits)
{
  int64_t divisor = (int64_t)1 << bits;
  return value / divisor - (value % divisor < 0 ? 1 : 0);
}

/* value / 2^bits to the nearest integer, halves away from zero. */
int64_t kit_nearest(int64_t value, unsigned bits)
{
  int64_t divisor = (int64_t)1 << bits;
  return (value + (value < 0 ? -(divisor / 2) : divisor / 2)) / divisor;
}

int32_t kit_wrap32(uint32_t value)
{
  int32_t wrapped;
  memcpy(&wrapped, &value, sizeof wrapped);
  return wrapped;
}

static int64_t wrap64(uint64_t value)
{
  int64_t wrapped;
  memcpy(&wrapped, &value, sizeof wrapped);
  return wrapped;
}

int64_t kit_scale(unsigned rounding, int64_t value, hwlib_scale_t by)
{
  uint64_t shifted = (uint64_t)value << by.left;
  if (rounding == HWLIB_ROUND_TFLITE) {
    int64_t high = kit_shift((int64_t)kit_wrap32((uint32_t)shifted) * by.multiplier + ((int64_t)1 << 30), 31);
    return kit_nearest(high, by.right - 31u);
  }
  uint64_t product = shifted * (uint64_t)(int64_t)by.multiplier;
  return kit_shift(wrap64(product + ((uint64_t)1 << (by.right - 1))), by.right);
}

uint8_t kit_clamp(int64_t value, int8_t low, int8_t high)
{
  return (uint8_t)(value < low ? low : value > high ? high : value);
}
