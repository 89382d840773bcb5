/* From a sum to an output, bit for bit as hwlib_hal.h states it. Sums wrap in 32 bits and scaled
 * products in 64, so they are formed unsigned; nothing here depends on how C shifts a negative. */
#include "sim_internal.h"

int32_t hwlib_sim_signed32(uint32_t value)
{
  return value <= INT32_MAX ? (int32_t)value : -(int32_t)(UINT32_MAX - value) - 1;
}

static int64_t signed64(uint64_t value)
{
  return value <= INT64_MAX ? (int64_t)value : -(int64_t)(UINT64_MAX - value) - 1;
}

int64_t hwlib_sim_shift_right(int64_t value, unsigned bits)
{
  return value < 0 ? ~(~value >> bits) : value >> bits;
}

/* value / 2^bits to the nearest, halves away from zero; of values of 33 bits or so. */
int64_t hwlib_sim_divide(int64_t value, unsigned bits)
{
  int64_t half = (int64_t)(((uint64_t)1 << bits) >> 1);
  return value < 0 ? -((half - value) >> bits) : (value + half) >> bits;
}

static int64_t scale_upward(int32_t value, hwlib_scale_t by)
{
  uint64_t product = ((uint64_t)value << by.left) * (uint64_t)by.multiplier;
  return hwlib_sim_shift_right(signed64(product + ((uint64_t)1 << (by.right - 1))), by.right);
}

static int64_t scale_tflite(int32_t value, hwlib_scale_t by)
{
  int64_t product = (int64_t)hwlib_sim_signed32((uint32_t)value << by.left) * by.multiplier;
  return hwlib_sim_divide(hwlib_sim_shift_right(product + (1 << 30), 31), by.right - 31u);
}

int64_t hwlib_sim_scale(uint8_t rounding, int32_t value, hwlib_scale_t by)
{
  return rounding == HWLIB_ROUND_TFLITE ? scale_tflite(value, by) : scale_upward(value, by);
}

/* clamp(value + zero_point), with no sum that could overflow. */
int8_t hwlib_sim_finish(int64_t value, int8_t zero_point, int8_t act_min, int8_t act_max)
{
  if (value < act_min - zero_point) {
    return act_min;
  }
  if (value > act_max - zero_point) {
    return act_max;
  }
  return (int8_t)(value + zero_point);
}

/* ---------------------------------------------------------------- what the array takes */

/* TFLite's second rounding divides by 2^(right - 31). */
static unsigned least_right(uint8_t rounding) { return rounding == HWLIB_ROUND_TFLITE ? 31 : 1; }

hwlib_status_t hwlib_sim_check_scale(const char *name, uint8_t rounding, hwlib_scale_t scale)
{
  return hwlib_sim_check_scale_from(name, rounding, scale, 1 << 30);
}

hwlib_status_t hwlib_sim_check_scale_from(const char *name, uint8_t rounding, hwlib_scale_t scale,
                                          int32_t least_multiplier)
{
  unsigned least = least_right(rounding);
  if (scale.multiplier != 0 && scale.multiplier < least_multiplier) {
    return hwlib_sim_refuse(HWLIB_ERROR_LIMIT, name,
                            least_multiplier == 1 << 30 ? "multiplier is neither 0 nor 2^30 or more"
                                                        : "multiplier is neither 0 nor 2^29 or more",
                            NULL);
  }
  if (hwlib_sim_numbers.shift_only && scale.multiplier != 0 && scale.multiplier != 1 << 30) {
    return hwlib_sim_refuse(HWLIB_ERROR_LIMIT, name, "multiplier is neither 0 nor 2^30: the array has shifts alone",
                            NULL);
  }
  if (scale.left > 31 || scale.right < least || scale.right > 62) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, name, "shifts # left and # right are not within 0..31 and #..62",
                            scale.left, scale.right, least);
  }
  return HWLIB_OK;
}

hwlib_status_t hwlib_sim_check_clamp(int8_t act_min, int8_t act_max)
{
  if (act_min > act_max) {
    return hwlib_sim_refuse(HWLIB_ERROR_LIMIT, "job", "act_min is above act_max", NULL);
  }
  return HWLIB_OK;
}
