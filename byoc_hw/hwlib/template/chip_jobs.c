/* The array: one output after another. */
#include "software.h"

#include <stddef.h>
#include <string.h>

/* As every compiler that this is for does it: >> of a negative keeps its sign, conversions wrap. */
int64_t chip_nearest(int64_t value, unsigned bits)
{
  int64_t half = bits == 0 ? 0 : (int64_t)1 << (bits - 1);
  return value < 0 ? -((half - value) >> bits) : (half + value) >> bits;
}

int64_t chip_scale(int rounding, int32_t value, hwlib_scale_t by)
{
  if (rounding == HWLIB_ROUND_TFLITE) {
    int64_t product = (int64_t)(int32_t)((uint32_t)value << by.left) * by.multiplier;
    return chip_nearest((product + (1 << 30)) >> 31, by.right - 31u);
  }
  uint64_t product = ((uint64_t)value << by.left) * (uint64_t)by.multiplier;
  uint64_t half = (uint64_t)1 << (by.right - 1);
  return (int64_t)(product + half) >> by.right;
}

static int8_t clamp(int64_t value, int8_t low, int8_t high)
{
  return (int8_t)(value < low ? low : value > high ? high : value);
}

/* NULL where there is padding. */
static const int8_t *ifm_at(const hwlib_tile_t *tile, uint32_t row, uint32_t column)
{
  row -= tile->pad_top; /* wraps to a large number */
  column -= tile->pad_left;
  if (row >= tile->ifm_h || column >= tile->ifm_w) {
    return NULL;
  }
  return chip_activations + tile->ifm + row * tile->ifm_row + column * tile->ifm_pixel;
}

static int32_t weight_at(const int8_t *filter, unsigned bits, uint32_t index)
{
  unsigned in_byte = 8 / bits, place = index % in_byte;
  unsigned shifted = (unsigned)(uint8_t)filter[index / in_byte] << (8 - bits - place * bits);
  return (int8_t)shifted >> (8 - bits);
}

static void run_conv2d(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile)
{
  int depthwise = layer->layer.kind == HWLIB_DEPTHWISE_CONV2D;
  int first = (tile->flags & HWLIB_TILE_FIRST) != 0, last = (tile->flags & HWLIB_TILE_LAST) != 0;
  uint32_t channels = depthwise ? 1 : tile->ifm_c;
  uint32_t filter_bytes = ((uint32_t)tile->kernel_h * tile->kernel_w * channels * layer->weight_bits + 7) / 8;
  int8_t *psum = chip_activations + tile->psum;
  for (uint32_t y = 0; y < tile->ofm_h; ++y) {
    for (uint32_t x = 0; x < tile->ofm_w; ++x) {
      for (uint32_t k = 0; k < tile->ofm_c; ++k, psum += sizeof(int32_t)) {
        uint32_t index = 0, sum = 0;
        const int8_t *filter = chip_weights + tile->weights + k * filter_bytes;
        hwlib_params_t params;
        memcpy(&params, chip_weights + tile->params + k * sizeof params, sizeof params);
        if (first) {
          sum = (uint32_t)params.bias;
        } else {
          memcpy(&sum, psum, sizeof sum);
        }
        for (uint32_t fy = 0; fy < tile->kernel_h; ++fy) {
          for (uint32_t fx = 0; fx < tile->kernel_w; ++fx) {
            const int8_t *ifm = ifm_at(tile, y * layer->stride_h + fy * layer->dilation_h,
                                       x * layer->stride_w + fx * layer->dilation_w);
            for (uint32_t c = 0; c < channels; ++c) {
              int32_t value = ifm == NULL ? layer->ifm_zero_point : ifm[depthwise ? k : c];
              int32_t weight = weight_at(filter, layer->weight_bits, index++) - layer->weight_zero_point;
              sum += (uint32_t)(value * weight);
            }
          }
        }
        if (last) {
          hwlib_scale_t by = {params.multiplier, params.left, params.right};
          chip_activations[tile->ofm + y * tile->ofm_row + x * tile->ofm_pixel + k] =
              clamp(chip_scale(layer->layer.rounding, (int32_t)sum, by) + layer->ofm_zero_point, layer->act_min,
                    layer->act_max);
        } else {
          memcpy(psum, &sum, sizeof sum);
        }
      }
    }
  }
}

static int8_t pool(const hwlib_pool2d_t *layer, const hwlib_tile_t *tile, uint32_t y, uint32_t x, uint32_t channel)
{
  int32_t sum = 0, count = 0, maximum = INT8_MIN;
  for (uint32_t fy = 0; fy < layer->kernel_h; ++fy) {
    for (uint32_t fx = 0; fx < layer->kernel_w; ++fx) {
      const int8_t *ifm = ifm_at(tile, y * layer->stride_h + fy, x * layer->stride_w + fx);
      if (ifm != NULL) {
        sum += ifm[channel];
        count += 1;
        maximum = ifm[channel] > maximum ? ifm[channel] : maximum;
      }
    }
  }
  if (layer->mode == HWLIB_POOL_MAX) {
    return clamp(maximum, layer->act_min, layer->act_max);
  }
  if (layer->mode == HWLIB_POOL_SUM) {
    return clamp(chip_scale(layer->layer.rounding, sum + layer->offset, layer->scale) + layer->ofm_zero_point,
                 layer->act_min, layer->act_max);
  }
  count = layer->count_include_pad ? layer->kernel_h * layer->kernel_w : count == 0 ? 1 : count;
  if (layer->layer.rounding == HWLIB_ROUND_TFLITE) {
    sum += sum < 0 ? -(count / 2) : count / 2;
  }
  int64_t average = chip_scale(layer->layer.rounding, sum / count - layer->ifm_zero_point, layer->scale);
  return clamp(average + layer->ofm_zero_point, layer->act_min, layer->act_max);
}

static void run_pool2d(const hwlib_pool2d_t *layer, const hwlib_tile_t *tile)
{
  for (uint32_t y = 0; y < tile->ofm_h; ++y) {
    for (uint32_t x = 0; x < tile->ofm_w; ++x) {
      for (uint32_t channel = 0; channel < tile->ofm_c; ++channel) {
        chip_activations[tile->ofm + y * tile->ofm_row + x * tile->ofm_pixel + channel] =
            pool(layer, tile, y, x, channel);
      }
    }
  }
}

static int8_t second(const hwlib_tile_t *tile, uint32_t i, uint8_t broadcast)
{
  return chip_activations[tile->ifm2 + (broadcast ? i % tile->ifm_c : i)];
}

static void run_add(const hwlib_add_t *layer, const hwlib_tile_t *tile)
{
  int rounding = layer->layer.rounding;
  for (uint32_t i = 0; i < tile->ifm_w * tile->ifm_c; ++i) {
    int64_t sum = chip_scale(rounding, chip_activations[tile->ifm + i] - layer->ifm_zero_point, layer->ifm_scale);
    int64_t other =
        chip_scale(rounding, second(tile, i, layer->broadcast) - layer->ifm2_zero_point, layer->ifm2_scale);
    sum = (layer->subtract == 2 ? -sum : sum) + (layer->subtract == 1 ? -other : other);
    if (rounding == HWLIB_ROUND_TFLITE) {
      sum = chip_scale(rounding, (int32_t)sum, layer->sum_scale);
    }
    chip_activations[tile->ofm + i] = clamp(sum + layer->ofm_zero_point, layer->act_min, layer->act_max);
  }
}

static void run_mul(const hwlib_mul_t *layer, const hwlib_tile_t *tile)
{
  for (uint32_t i = 0; i < tile->ifm_w * tile->ifm_c; ++i) {
    int32_t one = chip_activations[tile->ifm + i] - layer->ifm_zero_point;
    int32_t other = second(tile, i, layer->broadcast) - layer->ifm2_zero_point;
    chip_activations[tile->ofm + i] =
        clamp(chip_scale(layer->layer.rounding, one * other, layer->scale) + layer->ofm_zero_point, layer->act_min,
              layer->act_max);
  }
}

static void run_matmul(const hwlib_matmul_t *layer, const hwlib_tile_t *tile)
{
  for (uint32_t row = 0; row < tile->ofm_w; ++row) {
    for (uint32_t k = 0; k < tile->ofm_c; ++k) {
      uint32_t sum = 0;
      for (uint32_t c = 0; c < tile->ifm_c; ++c) {
        int32_t one = chip_activations[tile->ifm + row * tile->ifm_c + c] - layer->ifm_zero_point;
        int32_t other = chip_activations[tile->ifm2 + k * tile->ifm_c + c] - layer->ifm2_zero_point;
        sum += (uint32_t)(one * other);
      }
      chip_activations[tile->ofm + row * tile->ofm_c + k] =
          clamp(chip_scale(layer->layer.rounding, (int32_t)sum, layer->scale) + layer->ofm_zero_point, layer->act_min,
                layer->act_max);
    }
  }
}

static void run_lookup(const hwlib_lookup_t *layer, const hwlib_tile_t *tile)
{
  for (uint32_t i = 0; i < tile->ifm_w * tile->ifm_c; ++i) {
    const uint8_t *table = layer->tables + (layer->by_channel ? 256 * (i % tile->ifm_c) : 0);
    chip_activations[tile->ofm + i] = (int8_t)table[(uint8_t)chip_activations[tile->ifm + i]];
  }
}

static void run_softmax(const hwlib_softmax_t *layer, const hwlib_tile_t *tile)
{
  for (uint32_t row = 0; row < tile->ifm_w; ++row) {
    chip_softmax(layer, chip_activations + tile->ifm + row * tile->ifm_c,
                  chip_activations + tile->ofm + row * tile->ifm_c, tile->ifm_c);
  }
}

void chip_run(const hwlib_job_t *job)
{
  switch (job->layer->kind) {
  case HWLIB_ADD:
    run_add((const hwlib_add_t *)job->layer, job->tile);
    break;
  case HWLIB_MUL:
    run_mul((const hwlib_mul_t *)job->layer, job->tile);
    break;
  case HWLIB_MATMUL:
    run_matmul((const hwlib_matmul_t *)job->layer, job->tile);
    break;
  case HWLIB_LOOKUP:
    run_lookup((const hwlib_lookup_t *)job->layer, job->tile);
    break;
  case HWLIB_POOL2D:
    run_pool2d((const hwlib_pool2d_t *)job->layer, job->tile);
    break;
  case HWLIB_SOFTMAX:
    run_softmax((const hwlib_softmax_t *)job->layer, job->tile);
    break;
  default:
    run_conv2d((const hwlib_conv2d_t *)job->layer, job->tile);
    break;
  }
}
