/* The array's arithmetic, bit for bit as hwlib_hal.h states it. Sums wrap in 32 bits and scaled
 * products in 64, so they are formed unsigned; nothing here depends on how C shifts a negative. */
#include "sim_internal.h"

#include <string.h>

/* Values of one filter that local weight memory can hold, at 2 bits each. */
static int8_t unpacked[(size_t)HWLIB_SIM_WEIGHT_MEMORY * 4];

/* ---------------------------------------------------------------- scaling */

static int32_t signed32(uint32_t value)
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

static int64_t scale_upward(int32_t value, int32_t multiplier, uint8_t left, uint8_t right)
{
  uint64_t product = ((uint64_t)value << left) * (uint64_t)multiplier;
  return hwlib_sim_shift_right(signed64(product + ((uint64_t)1 << (right - 1))), right);
}

static int64_t scale_tflite(int32_t value, int32_t multiplier, uint8_t left, uint8_t right)
{
  int64_t product = (int64_t)signed32((uint32_t)value << left) * multiplier;
  return hwlib_sim_divide(hwlib_sim_shift_right(product + (1 << 30), 31), right - 31u);
}

int64_t hwlib_sim_scale(uint8_t rounding, int32_t value, int32_t multiplier, uint8_t left, uint8_t right)
{
  return rounding == HWLIB_ROUND_TFLITE ? scale_tflite(value, multiplier, left, right)
                                        : scale_upward(value, multiplier, left, right);
}

static int64_t scale_with(const hwlib_layer_t *layer, int32_t value, const hwlib_scale_t *by)
{
  return hwlib_sim_scale(layer->rounding, value, by->multiplier, by->left, by->right);
}

/* clamp(value + zero_point), with no sum that could overflow. */
static int8_t finish(int64_t value, int8_t zero_point, int8_t act_min, int8_t act_max)
{
  if (value < act_min - zero_point) {
    return act_min;
  }
  if (value > act_max - zero_point) {
    return act_max;
  }
  return (int8_t)(value + zero_point);
}

/* TFLite's second rounding divides by 2^(right - 31). */
static unsigned least_right(uint8_t rounding) { return rounding == HWLIB_ROUND_TFLITE ? 31 : 1; }

static hwlib_status_t check_scale(const char *name, const hwlib_layer_t *layer, int32_t multiplier, uint8_t left,
                                  uint8_t right)
{
  unsigned least = least_right(layer->rounding);
  if (multiplier != 0 && multiplier < (1 << 30)) {
    return hwlib_sim_refuse(HWLIB_ERROR_LIMIT, name, "multiplier is neither 0 nor 2^30 or more", NULL);
  }
  if (left > 31 || right < least || right > 62) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, name, "shifts # left and # right are not within 0..31 and #..62",
                            left, right, least);
  }
  return HWLIB_OK;
}

static hwlib_status_t check_scale_of(const char *name, const hwlib_layer_t *layer, const hwlib_scale_t *scale)
{
  return check_scale(name, layer, scale->multiplier, scale->left, scale->right);
}

static hwlib_params_t params_of(const hwlib_tile_t *tile, uint32_t channel)
{
  hwlib_params_t params;
  memcpy(&params, hwlib_sim_local(HWLIB_LOCAL_WEIGHTS, tile->params + (uint64_t)channel * sizeof params),
         sizeof params);
  return params;
}

/* Reads local memory: call it once the job's bytes are known to be there. */
hwlib_status_t hwlib_sim_check_scales(const hwlib_job_t *job)
{
  const hwlib_layer_t *layer = job->layer;
  const hwlib_add_t *add = (const hwlib_add_t *)layer;
  const hwlib_pool2d_t *pool2d = (const hwlib_pool2d_t *)layer;
  hwlib_status_t status = HWLIB_OK;
  switch (layer->kind) {
  case HWLIB_ADD:
    status = check_scale_of("ifm_scale", layer, &add->ifm_scale);
    if (status == HWLIB_OK) {
      status = check_scale_of("ifm2_scale", layer, &add->ifm2_scale);
    }
    if (status == HWLIB_OK && layer->rounding == HWLIB_ROUND_TFLITE) {
      status = check_scale_of("sum_scale", layer, &add->sum_scale);
    }
    return status;
  case HWLIB_SOFTMAX:
    return check_scale_of("scale", layer, &((const hwlib_softmax_t *)layer)->scale);
  case HWLIB_POOL2D:
    if (pool2d->mode == HWLIB_POOL_AVG) {
      status = check_scale_of("scale", layer, &pool2d->scale);
    }
    return status;
  default:
    if ((job->tile->flags & HWLIB_TILE_LAST) == 0) {
      return HWLIB_OK;
    }
    for (uint32_t channel = 0; status == HWLIB_OK && channel < job->tile->ofm_c; ++channel) {
      hwlib_params_t params = params_of(job->tile, channel);
      status = check_scale("params", layer, params.multiplier, params.left, params.right);
    }
    return status;
  }
}

/* ---------------------------------------------------------------- tiles */

static int8_t *activations(uint64_t address)
{
  return (int8_t *)hwlib_sim_local(HWLIB_LOCAL_ACTIVATIONS, address);
}

static const int8_t *ifm_at(const hwlib_tile_t *tile, uint32_t row, uint32_t column)
{
  return activations(tile->ifm + (uint64_t)row * tile->ifm_row + (uint64_t)column * tile->ifm_pixel);
}

static int8_t *ofm_at(const hwlib_tile_t *tile, uint32_t row, uint32_t column)
{
  return activations(tile->ofm + (uint64_t)row * tile->ofm_row + (uint64_t)column * tile->ofm_pixel);
}

/* ---------------------------------------------------------------- convolution */

/* The weights of an output channel as bytes, [fy][fx][c]. */
static const int8_t *filter_of(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile, uint32_t channel)
{
  const uint8_t *packed =
      hwlib_sim_local(HWLIB_LOCAL_WEIGHTS, tile->weights + channel * hwlib_sim_filter_bytes(layer, tile));
  if (layer->weight_bits == 8) {
    return (const int8_t *)packed;
  }
  unsigned bits = layer->weight_bits, sign = 1u << (bits - 1), mask = 2 * sign - 1, in_byte = 8 / bits;
  uint64_t values = hwlib_sim_filter_values(layer, tile);
  for (uint64_t i = 0; i < values; ++i) {
    unsigned value = (unsigned)packed[i / in_byte] >> (i % in_byte * bits) & mask;
    unpacked[i] = (int8_t)((int)(value ^ sign) - (int)sign);
  }
  return unpacked;
}

static uint32_t dot(const int8_t *ifm, const int8_t *weights, int weight_zero_point, uint32_t channels)
{
  uint32_t sum = 0;
  for (uint32_t i = 0; i < channels; ++i) {
    sum += (uint32_t)(ifm[i] * (weights[i] - weight_zero_point));
  }
  return sum;
}

static uint32_t dot_padding(int ifm_zero_point, const int8_t *weights, int weight_zero_point, uint32_t channels)
{
  uint32_t sum = 0;
  for (uint32_t i = 0; i < channels; ++i) {
    sum += (uint32_t)(ifm_zero_point * (weights[i] - weight_zero_point));
  }
  return sum;
}

/* One output channel at one place. Rows and columns before the first wrap to large numbers, so that
 * one comparison finds padding on either side. */
static uint32_t window_sum(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile, const int8_t *filter,
                           uint32_t first_row, uint32_t first_column, uint32_t first_channel, uint32_t channels)
{
  uint32_t sum = 0;
  for (uint32_t fy = 0; fy < layer->kernel_h; ++fy) {
    for (uint32_t fx = 0; fx < layer->kernel_w; ++fx, filter += channels) {
      uint32_t row = first_row + fy, column = first_column + fx;
      if (row < tile->ifm_h && column < tile->ifm_w) {
        sum += dot(ifm_at(tile, row, column) + first_channel, filter, layer->weight_zero_point, channels);
      } else {
        sum += dot_padding(layer->ifm_zero_point, filter, layer->weight_zero_point, channels);
      }
    }
  }
  return sum;
}

static void compute_conv2d(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile)
{
  int depthwise = layer->layer.kind == HWLIB_DEPTHWISE_CONV2D;
  int first = (tile->flags & HWLIB_TILE_FIRST) != 0, last = (tile->flags & HWLIB_TILE_LAST) != 0;
  for (uint32_t k = 0; k < tile->ofm_c; ++k) {
    const int8_t *filter = filter_of(layer, tile, k);
    hwlib_params_t params = {0};
    if (first || last) {
      params = params_of(tile, k);
    }
    for (uint32_t row = 0; row < tile->ofm_h; ++row) {
      for (uint32_t column = 0; column < tile->ofm_w; ++column) {
        uint64_t index = ((uint64_t)row * tile->ofm_w + column) * tile->ofm_c + k;
        uint64_t psum = tile->psum + index * sizeof(int32_t);
        uint32_t sum = (uint32_t)params.bias;
        if (!first) {
          memcpy(&sum, activations(psum), sizeof sum);
        }
        sum += window_sum(layer, tile, filter, row * layer->stride_h - tile->pad_top,
                          column * layer->stride_w - tile->pad_left, depthwise ? k : 0,
                          depthwise ? 1 : tile->ifm_c);
        if (last) {
          ofm_at(tile, row, column)[k] =
              finish(hwlib_sim_scale(layer->layer.rounding, signed32(sum), params.multiplier, params.left, params.right),
                     layer->ofm_zero_point, layer->act_min, layer->act_max);
        } else {
          memcpy(activations(psum), &sum, sizeof sum);
        }
      }
    }
  }
}

/* ---------------------------------------------------------------- addition and pooling */

static void compute_add(const hwlib_add_t *layer, const hwlib_tile_t *tile)
{
  const int8_t *ifm = activations(tile->ifm), *ifm2 = activations(tile->ifm2);
  int8_t *ofm = activations(tile->ofm);
  for (uint32_t i = 0; i < tile->ifm_w; ++i) {
    int64_t sum = scale_with(&layer->layer, ifm[i] - layer->ifm_zero_point, &layer->ifm_scale) +
                  scale_with(&layer->layer, ifm2[i] - layer->ifm2_zero_point, &layer->ifm2_scale);
    if (layer->layer.rounding == HWLIB_ROUND_TFLITE) {
      sum = scale_with(&layer->layer, signed32((uint32_t)sum), &layer->sum_scale);
    }
    ofm[i] = finish(sum, layer->ofm_zero_point, layer->act_min, layer->act_max);
  }
}

/* A window always holds at least one element of the input: padding is shorter than the kernel. */
static int8_t pool_window(const hwlib_pool2d_t *layer, const hwlib_tile_t *tile, uint32_t first_row,
                          uint32_t first_column, uint32_t channel)
{
  int32_t sum = 0, maximum = INT8_MIN, count = 0;
  for (uint32_t fy = 0; fy < layer->kernel_h; ++fy) {
    for (uint32_t fx = 0; fx < layer->kernel_w; ++fx) {
      uint32_t row = first_row + fy, column = first_column + fx;
      if (row < tile->ifm_h && column < tile->ifm_w) {
        int32_t value = ifm_at(tile, row, column)[channel];
        sum += value;
        maximum = value > maximum ? value : maximum;
        count += 1;
      }
    }
  }
  if (layer->mode == HWLIB_POOL_MAX) {
    return finish(maximum, 0, layer->act_min, layer->act_max);
  }
  if (layer->count_include_pad) {
    count = layer->kernel_h * layer->kernel_w;
  }
  if (layer->layer.rounding == HWLIB_ROUND_TFLITE) {
    sum += sum > 0 ? count / 2 : -(count / 2);
  }
  return finish(scale_with(&layer->layer, sum / count - layer->ifm_zero_point, &layer->scale),
                layer->ofm_zero_point, layer->act_min, layer->act_max);
}

static void compute_pool2d(const hwlib_pool2d_t *layer, const hwlib_tile_t *tile)
{
  for (uint32_t row = 0; row < tile->ofm_h; ++row) {
    for (uint32_t column = 0; column < tile->ofm_w; ++column) {
      int8_t *ofm = ofm_at(tile, row, column);
      for (uint32_t channel = 0; channel < tile->ofm_c; ++channel) {
        ofm[channel] = pool_window(layer, tile, row * layer->stride_h - tile->pad_top,
                                   column * layer->stride_w - tile->pad_left, channel);
      }
    }
  }
}

/* ---------------------------------------------------------------- softmax */

static void compute_softmax(const hwlib_softmax_t *layer, const hwlib_tile_t *tile)
{
  for (uint32_t row = 0; row < tile->ifm_w; ++row) {
    uint64_t offset = (uint64_t)row * tile->ifm_c;
    hwlib_sim_softmax(layer, activations(tile->ifm + offset), activations(tile->ofm + offset), tile->ifm_c);
  }
}

void hwlib_sim_compute(const hwlib_job_t *job)
{
  switch (job->layer->kind) {
  case HWLIB_ADD:
    compute_add((const hwlib_add_t *)job->layer, job->tile);
    break;
  case HWLIB_SOFTMAX:
    compute_softmax((const hwlib_softmax_t *)job->layer, job->tile);
    break;
  case HWLIB_POOL2D:
    compute_pool2d((const hwlib_pool2d_t *)job->layer, job->tile);
    break;
  default:
    compute_conv2d((const hwlib_conv2d_t *)job->layer, job->tile);
    break;
  }
}
