/* Expected results of layers with a window, from the formulas of hwlib_hal.h, as in kit_scale.c. */
#include "kit_internal.h"

#include <string.h>

/* The value of an activation, or `padding` outside the tile's rows and columns. */
static int32_t activation(const hwlib_tile_t *tile, int64_t row, int64_t column, uint32_t channel, int32_t padding)
{
  if (row < 0 || row >= tile->ifm_h || column < 0 || column >= tile->ifm_w) {
    return padding;
  }
  return (int8_t)kit_expected[tile->ifm + (uint32_t)row * tile->ifm_row + (uint32_t)column * tile->ifm_pixel + channel];
}

static uint8_t *output(const hwlib_tile_t *tile, uint32_t row, uint32_t column, uint32_t channel)
{
  return &kit_expected[tile->ofm + row * tile->ofm_row + column * tile->ofm_pixel + channel];
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

int32_t kit_weight(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile, uint32_t k, uint32_t index)
{
  const uint8_t *filter = kit_weights + tile->weights + k * kit_filter_bytes(layer, tile);
  int32_t value = 0;
  for (uint32_t bit = 0; bit < layer->weight_bits; ++bit) {
    uint32_t at = index * layer->weight_bits + bit;
    if ((filter[at / 8] >> at % 8 & 1) != 0) {
      value += bit + 1 == layer->weight_bits ? -(1 << bit) : 1 << bit;
    }
  }
  return value;
}

static uint32_t window_sum(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile, uint32_t row, uint32_t column,
                           uint32_t k)
{
  int depthwise = layer->layer.kind == HWLIB_DEPTHWISE_CONV2D;
  uint32_t channels = depthwise ? 1 : tile->ifm_c, index = 0, sum = 0;
  for (uint32_t fy = 0; fy < layer->kernel_h; ++fy) {
    for (uint32_t fx = 0; fx < layer->kernel_w; ++fx) {
      for (uint32_t c = 0; c < channels; ++c) {
        int32_t ifm = activation(tile, (int64_t)row * layer->stride_h + fy - tile->pad_top,
                                 (int64_t)column * layer->stride_w + fx - tile->pad_left, depthwise ? k : c,
                                 layer->ifm_zero_point);
        sum += (uint32_t)(ifm * (kit_weight(layer, tile, k, index++) - layer->weight_zero_point));
      }
    }
  }
  return sum;
}

void kit_expect_conv2d(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile)
{
  for (uint32_t row = 0; row < tile->ofm_h; ++row) {
    for (uint32_t column = 0; column < tile->ofm_w; ++column) {
      for (uint32_t k = 0; k < tile->ofm_c; ++k) {
        uint8_t *psum = kit_expected + tile->psum + 4 * ((row * tile->ofm_w + column) * tile->ofm_c + k);
        hwlib_params_t params;
        memcpy(&params, kit_weights + tile->params + k * sizeof params, sizeof params);
        uint32_t sum = (uint32_t)params.bias;
        if ((tile->flags & HWLIB_TILE_FIRST) == 0) {
          memcpy(&sum, psum, sizeof sum);
        }
        sum += window_sum(layer, tile, row, column, k);
        if ((tile->flags & HWLIB_TILE_LAST) == 0) {
          memcpy(psum, &sum, sizeof sum);
          continue;
        }
        hwlib_scale_t by = {params.multiplier, params.left, params.right};
        int64_t value = kit_scale(layer->layer.rounding, kit_wrap32(sum), by);
        *output(tile, row, column, k) = kit_clamp(value + layer->ofm_zero_point, layer->act_min, layer->act_max);
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

static uint8_t pool(const hwlib_pool2d_t *layer, const hwlib_tile_t *tile, uint32_t row, uint32_t column,
                    uint32_t channel)
{
  enum { OUTSIDE = 1000 };
  int32_t sum = 0, inside = 0, maximum = -128;
  for (uint32_t fy = 0; fy < layer->kernel_h; ++fy) {
    for (uint32_t fx = 0; fx < layer->kernel_w; ++fx) {
      int32_t value = activation(tile, (int64_t)row * layer->stride_h + fy - tile->pad_top,
                                 (int64_t)column * layer->stride_w + fx - tile->pad_left, channel, OUTSIDE);
      if (value != OUTSIDE) {
        sum += value;
        inside += 1;
        maximum = value > maximum ? value : maximum;
      }
    }
  }
  if (layer->mode == HWLIB_POOL_MAX) {
    return kit_clamp(maximum, layer->act_min, layer->act_max);
  }
  int64_t value = average(layer, sum, layer->count_include_pad ? layer->kernel_h * layer->kernel_w : inside);
  value = kit_scale(layer->layer.rounding, value - layer->ifm_zero_point, layer->scale);
  return kit_clamp(value + layer->ofm_zero_point, layer->act_min, layer->act_max);
}

void kit_expect_pool2d(const hwlib_pool2d_t *layer, const hwlib_tile_t *tile)
{
  for (uint32_t row = 0; row < tile->ofm_h; ++row) {
    for (uint32_t column = 0; column < tile->ofm_w; ++column) {
      for (uint32_t channel = 0; channel < tile->ofm_c; ++channel) {
        *output(tile, row, column, channel) = pool(layer, tile, row, column, channel);
      }
    }
  }
}
