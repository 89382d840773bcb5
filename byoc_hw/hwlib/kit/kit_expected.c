/* What jobs are to compute: the formulas of hwlib_hal.h, word for word and as slow as that is. */
#include "kit_internal.h"

#include <string.h>

/* ---------------------------------------------------------------- scaling */

/* value / 2^bits, towards minus infinity: an arithmetic shift. */
static int64_t shift(int64_t value, unsigned bits)
{
  int64_t divisor = (int64_t)1 << bits;
  return value / divisor - (value % divisor < 0 ? 1 : 0);
}

/* value / 2^bits to the nearest integer, halves away from zero. */
static int64_t nearest(int64_t value, unsigned bits)
{
  int64_t divisor = (int64_t)1 << bits;
  return (value + (value < 0 ? -(divisor / 2) : divisor / 2)) / divisor;
}

static int32_t wrap32(uint32_t value)
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

static int64_t scale(unsigned rounding, int64_t value, hwlib_scale_t by)
{
  uint64_t shifted = (uint64_t)value << by.left;
  if (rounding == HWLIB_ROUND_TFLITE) {
    int64_t high = shift((int64_t)wrap32((uint32_t)shifted) * by.multiplier + ((int64_t)1 << 30), 31);
    return nearest(high, by.right - 31u);
  }
  uint64_t product = shifted * (uint64_t)(int64_t)by.multiplier;
  return shift(wrap64(product + ((uint64_t)1 << (by.right - 1))), by.right);
}

static uint8_t clamp(int64_t value, int8_t low, int8_t high)
{
  return (uint8_t)(value < low ? low : value > high ? high : value);
}

/* ---------------------------------------------------------------- windows */

/* The value of an activation, or `padding` outside the rows and columns that are there. */
static int32_t activation(const hwlib_tile_t *tile, const uint8_t *activations, int64_t row, int64_t column,
                          uint32_t channel, int32_t padding)
{
  if (row < 0 || row >= tile->ifm_h || column < 0 || column >= tile->ifm_w) {
    return padding;
  }
  return (int8_t)activations[tile->ifm + (uint32_t)row * tile->ifm_row + (uint32_t)column * tile->ifm_pixel + channel];
}

static uint8_t *output(const hwlib_tile_t *tile, uint8_t *activations, uint32_t row, uint32_t column, uint32_t channel)
{
  return &activations[tile->ofm + row * tile->ofm_row + column * tile->ofm_pixel + channel];
}

uint32_t kit_filter_values(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile)
{
  uint32_t places = (uint32_t)layer->kernel_h * layer->kernel_w;
  return layer->layer.kind == HWLIB_DEPTHWISE_CONV2D ? places : places * tile->ifm_c;
}

uint32_t kit_filter_bytes(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile)
{
  return (kit_filter_values(layer, tile) * layer->weight_bits + 7) / 8;
}

int32_t kit_weight(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile, const uint8_t *weights, uint32_t k,
                   uint32_t index)
{
  const uint8_t *filter = weights + tile->weights + k * kit_filter_bytes(layer, tile);
  int32_t value = 0;
  for (uint32_t bit = 0; bit < layer->weight_bits; ++bit) {
    uint32_t at = index * layer->weight_bits + bit;
    if ((filter[at / 8] >> at % 8 & 1) != 0) {
      value += bit + 1 == layer->weight_bits ? -(1 << bit) : 1 << bit;
    }
  }
  return value;
}

static uint32_t window_sum(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile, const uint8_t *weights,
                           const uint8_t *activations, uint32_t row, uint32_t column, uint32_t k)
{
  int depthwise = layer->layer.kind == HWLIB_DEPTHWISE_CONV2D;
  uint32_t channels = depthwise ? 1 : tile->ifm_c, index = 0, sum = 0;
  for (uint32_t fy = 0; fy < layer->kernel_h; ++fy) {
    for (uint32_t fx = 0; fx < layer->kernel_w; ++fx) {
      for (uint32_t c = 0; c < channels; ++c) {
        int32_t ifm = activation(tile, activations, (int64_t)row * layer->stride_h + fy - tile->pad_top,
                                 (int64_t)column * layer->stride_w + fx - tile->pad_left, depthwise ? k : c,
                                 layer->ifm_zero_point);
        sum += (uint32_t)(ifm * (kit_weight(layer, tile, weights, k, index++) - layer->weight_zero_point));
      }
    }
  }
  return sum;
}

static void compute_conv2d(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile, const uint8_t *weights,
                           uint8_t *activations)
{
  for (uint32_t row = 0; row < tile->ofm_h; ++row) {
    for (uint32_t column = 0; column < tile->ofm_w; ++column) {
      for (uint32_t k = 0; k < tile->ofm_c; ++k) {
        uint8_t *psum = activations + tile->psum + 4 * ((row * tile->ofm_w + column) * tile->ofm_c + k);
        hwlib_params_t params;
        memcpy(&params, weights + tile->params + k * sizeof params, sizeof params);
        uint32_t sum = (uint32_t)params.bias;
        if ((tile->flags & HWLIB_TILE_FIRST) == 0) {
          memcpy(&sum, psum, sizeof sum);
        }
        sum += window_sum(layer, tile, weights, activations, row, column, k);
        if ((tile->flags & HWLIB_TILE_LAST) == 0) {
          memcpy(psum, &sum, sizeof sum);
          continue;
        }
        hwlib_scale_t by = {params.multiplier, params.left, params.right};
        *output(tile, activations, row, column, k) =
            clamp(scale(layer->layer.rounding, wrap32(sum), by) + layer->ofm_zero_point, layer->act_min,
                  layer->act_max);
      }
    }
  }
}

static int64_t average(const hwlib_pool2d_t *layer, int32_t sum, int32_t count)
{
  if (layer->layer.rounding == HWLIB_ROUND_TFLITE) {
    return (sum + (sum < 0 ? -(count / 2) : count / 2)) / count;
  }
  return sum / count;
}

static uint8_t pool(const hwlib_pool2d_t *layer, const hwlib_tile_t *tile, const uint8_t *activations, uint32_t row,
                    uint32_t column, uint32_t channel)
{
  enum { OUTSIDE = 1000 };
  int32_t sum = 0, inside = 0, maximum = -128;
  for (uint32_t fy = 0; fy < layer->kernel_h; ++fy) {
    for (uint32_t fx = 0; fx < layer->kernel_w; ++fx) {
      int32_t value = activation(tile, activations, (int64_t)row * layer->stride_h + fy - tile->pad_top,
                                 (int64_t)column * layer->stride_w + fx - tile->pad_left, channel, OUTSIDE);
      if (value != OUTSIDE) {
        sum += value;
        inside += 1;
        maximum = value > maximum ? value : maximum;
      }
    }
  }
  if (layer->mode == HWLIB_POOL_MAX) {
    return clamp(maximum, layer->act_min, layer->act_max);
  }
  int64_t value = average(layer, sum, layer->count_include_pad ? layer->kernel_h * layer->kernel_w : inside);
  return clamp(scale(layer->layer.rounding, value - layer->ifm_zero_point, layer->scale) + layer->ofm_zero_point,
               layer->act_min, layer->act_max);
}

static void compute_pool2d(const hwlib_pool2d_t *layer, const hwlib_tile_t *tile, uint8_t *activations)
{
  for (uint32_t row = 0; row < tile->ofm_h; ++row) {
    for (uint32_t column = 0; column < tile->ofm_w; ++column) {
      for (uint32_t channel = 0; channel < tile->ofm_c; ++channel) {
        *output(tile, activations, row, column, channel) = pool(layer, tile, activations, row, column, channel);
      }
    }
  }
}

/* ---------------------------------------------------------------- addition and softmax */

static void compute_add(const hwlib_add_t *layer, const hwlib_tile_t *tile, uint8_t *activations)
{
  unsigned rounding = layer->layer.rounding;
  for (uint32_t i = 0; i < tile->ifm_w; ++i) {
    int32_t one = (int8_t)activations[tile->ifm + i] - layer->ifm_zero_point;
    int32_t other = (int8_t)activations[tile->ifm2 + i] - layer->ifm2_zero_point;
    int64_t sum = scale(rounding, one, layer->ifm_scale) + scale(rounding, other, layer->ifm2_scale);
    if (rounding == HWLIB_ROUND_TFLITE) {
      sum = scale(rounding, sum, layer->sum_scale);
    }
    activations[tile->ofm + i] = clamp(sum + layer->ofm_zero_point, layer->act_min, layer->act_max);
  }
}

static int64_t times(int64_t x, int64_t y) { return shift(x * y + ((int64_t)1 << 30), 31); }

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
  int64_t quarter = (int64_t)1 << 24, rest = a - shift(a, 24) * quarter - quarter;
  int64_t t = shifted_left(rest, 5) + ((int64_t)1 << 28);
  int64_t t2 = times(t, t), t3 = times(t2, t), t4 = times(t2, t2);
  int64_t p = nearest(times(nearest(t4, 2) + t3, 715827883) + t2, 1);
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

static void softmax_row(const hwlib_softmax_t *layer, const uint8_t *ifm, uint8_t *ofm, uint32_t channels)
{
  int32_t maximum = -128;
  for (uint32_t i = 0; i < channels; ++i) {
    maximum = (int8_t)ifm[i] > maximum ? (int8_t)ifm[i] : maximum;
  }
  int64_t sum = 0;
  for (uint32_t i = 0; i < channels; ++i) {
    int32_t difference = (int8_t)ifm[i] - maximum;
    if (difference >= layer->diff_min) {
      sum += nearest(exponential(scale(HWLIB_ROUND_TFLITE, difference, layer->scale)), 12);
    }
  }
  unsigned zeros = 0; /* leading zeros of sum, as a uint32_t */
  while (sum < (int64_t)1 << (31 - zeros)) {
    ++zeros;
  }
  int64_t by = reciprocal(sum * ((int64_t)1 << zeros) - ((int64_t)1 << 31));
  for (uint32_t i = 0; i < channels; ++i) {
    int32_t difference = (int8_t)ifm[i] - maximum;
    int64_t value = -128;
    if (difference >= layer->diff_min) {
      int64_t e = exponential(scale(HWLIB_ROUND_TFLITE, difference, layer->scale));
      value = nearest(times(by, e), 35 - zeros) - 128;
    }
    ofm[i] = clamp(value, -128, 127);
  }
}

static void compute_softmax(const hwlib_softmax_t *layer, const hwlib_tile_t *tile, uint8_t *activations)
{
  for (uint32_t row = 0; row < tile->ifm_w; ++row) {
    softmax_row(layer, activations + tile->ifm + row * tile->ifm_c, activations + tile->ofm + row * tile->ifm_c,
                tile->ifm_c);
  }
}

void kit_compute(const hwlib_job_t *job, const uint8_t *weights, uint8_t *activations)
{
  switch (job->layer->kind) {
  case HWLIB_ADD:
    compute_add((const hwlib_add_t *)job->layer, job->tile, activations);
    break;
  case HWLIB_POOL2D:
    compute_pool2d((const hwlib_pool2d_t *)job->layer, job->tile, activations);
    break;
  case HWLIB_SOFTMAX:
    compute_softmax((const hwlib_softmax_t *)job->layer, job->tile, activations);
    break;
  default:
    compute_conv2d((const hwlib_conv2d_t *)job->layer, job->tile, weights, activations);
    break;
  }
}
