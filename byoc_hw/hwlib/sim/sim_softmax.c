/* Softmax of rows in fixed point, bit for bit as hwlib_hal.h states it. */
#include "sim_internal.h"

/* Exponentials of up to 1 that a Q12 can hold the sum of. */
enum { MOST_CHANNELS = 4095 };

static hwlib_status_t check(const hwlib_job_t *job)
{
  const hwlib_tile_t *tile = job->tile;
  if (job->layer->rounding != HWLIB_ROUND_TFLITE) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "softmax", "there is none with rounding #", job->layer->rounding);
  }
  if (tile->ifm_h != 1 || tile->ifm_w == 0 || tile->ifm_c == 0 || tile->ifm_c > MOST_CHANNELS) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "softmax", "# x # x # inputs are not rows of 1 to # values",
                            tile->ifm_h, tile->ifm_w, tile->ifm_c, MOST_CHANNELS);
  }
  return HWLIB_OK;
}

/* Cycles: ceil(3 * elements / elementwise_width), for maximum, sum of exponentials and quotients. */
static hwlib_status_t work_of(const hwlib_job_t *job, hwlib_sim_work_t *work)
{
  const hwlib_tile_t *tile = job->tile;
  uint64_t elements = (uint64_t)tile->ifm_w * tile->ifm_c;
  work->cycles = hwlib_sim_divide_up(3 * elements, hwlib_sim_numbers.elementwise_width);
  hwlib_sim_add_run(work, "ifm", HWLIB_LOCAL_ACTIVATIONS, HWLIB_SIM_READS, tile->ifm, elements);
  hwlib_sim_add_run(work, "ofm", HWLIB_LOCAL_ACTIVATIONS, HWLIB_SIM_WRITES, tile->ofm, elements);
  return HWLIB_OK;
}

static hwlib_status_t check_scales(const hwlib_job_t *job)
{
  const hwlib_softmax_t *layer = (const hwlib_softmax_t *)job->layer;
  return hwlib_sim_check_scale("scale", layer->layer.rounding, layer->scale);
}

/* ---------------------------------------------------------------- fixed point */

/* Values are the raw integers of the fixed points, wide enough that nothing overflows. */
typedef int64_t fixed_t;

enum { EXPONENT_FRACTION = 26, SUM_INTEGER_BITS = 12, OUTPUT_BITS = 8 };

static const fixed_t ONE = INT32_MAX; /* as a Q0 */

static fixed_t times(fixed_t x, fixed_t y) { return hwlib_sim_shift_right(x * y + (1 << 30), 31); }

static fixed_t shift_left(fixed_t x, unsigned bits)
{
  fixed_t shifted = x * ((fixed_t)1 << bits);
  return shifted > INT32_MAX ? INT32_MAX : shifted < INT32_MIN ? INT32_MIN : shifted;
}

/* exp(a) of a Q5 that is not positive, a Q0: a polynomial around -1/8 for what is left of a multiple
 * of a quarter, and one factor for each bit of that multiple. */
static fixed_t exponential(fixed_t a)
{
  static const fixed_t factors[] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
  const fixed_t quarter = 1 << (EXPONENT_FRACTION - 2), eighth_q0 = 1 << 28, third = 715827883, centre = 1895147668;
  if (a == 0) {
    return ONE;
  }
  fixed_t rest = (fixed_t)((uint64_t)a & (uint64_t)(quarter - 1)) - quarter;
  fixed_t t = shift_left(rest, 5) + eighth_q0;
  fixed_t square = times(t, t), cube = times(square, t), fourth = times(square, square);
  fixed_t higher = hwlib_sim_divide(times(hwlib_sim_divide(fourth, 2) + cube, third) + square, 1);
  fixed_t result = centre + times(centre, t + higher);
  for (unsigned bit = 0; bit < sizeof factors / sizeof factors[0]; ++bit) {
    if (((rest - a) >> (EXPONENT_FRACTION - 2 + bit) & 1) != 0) {
      result = times(result, factors[bit]);
    }
  }
  return result;
}

/* 1 / (1 + a) of a Q0 in [0, 1), a Q0: Newton's method. */
static fixed_t reciprocal(fixed_t a)
{
  const fixed_t one_q2 = 1 << 29;
  fixed_t half_denominator = (a + ONE + 1) / 2;
  fixed_t x = 1515870810 + times(half_denominator, -1010580540);
  for (int i = 0; i < 3; ++i) {
    x += shift_left(times(x, one_q2 - times(half_denominator, x)), 2);
  }
  return shift_left(x, 1);
}

static unsigned leading_zeros(uint32_t value)
{
  unsigned count = 0;
  for (; count < 32 && (value & 0x80000000u) == 0; value <<= 1) {
    ++count;
  }
  return count;
}

/* ---------------------------------------------------------------- rows */

static fixed_t exponential_of(const hwlib_softmax_t *layer, int32_t difference)
{
  return exponential(hwlib_sim_scale(HWLIB_ROUND_TFLITE, difference, layer->scale));
}

static void compute_row(const hwlib_softmax_t *layer, const int8_t *ifm, int8_t *ofm, uint32_t channels)
{
  int32_t maximum = INT8_MIN;
  for (uint32_t i = 0; i < channels; ++i) {
    maximum = ifm[i] > maximum ? ifm[i] : maximum;
  }
  uint32_t sum = 0;
  for (uint32_t i = 0; i < channels; ++i) {
    if (ifm[i] - maximum >= layer->diff_min) {
      sum += (uint32_t)hwlib_sim_divide(exponential_of(layer, ifm[i] - maximum), SUM_INTEGER_BITS);
    }
  }
  unsigned headroom = leading_zeros(sum);
  fixed_t scale = reciprocal((fixed_t)((uint64_t)sum << headroom) - (fixed_t)0x80000000u);
  for (uint32_t i = 0; i < channels; ++i) {
    int32_t difference = ifm[i] - maximum;
    ofm[i] = INT8_MIN;
    if (difference >= layer->diff_min) {
      fixed_t output = hwlib_sim_divide(times(scale, exponential_of(layer, difference)),
                                        SUM_INTEGER_BITS + 31 - OUTPUT_BITS - headroom);
      ofm[i] = (int8_t)(output > 255 ? INT8_MAX : output + INT8_MIN);
    }
  }
}

static void compute(const hwlib_job_t *job)
{
  const hwlib_tile_t *tile = job->tile;
  for (uint32_t row = 0; row < tile->ifm_w; ++row) {
    uint64_t offset = (uint64_t)row * tile->ifm_c;
    compute_row((const hwlib_softmax_t *)job->layer, hwlib_sim_activations(tile->ifm + offset),
                hwlib_sim_activations(tile->ofm + offset), tile->ifm_c);
  }
}

const hwlib_sim_family_t hwlib_sim_softmax = {check, work_of, check_scales, compute};
