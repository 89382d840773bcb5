/* Expected results of layers with a window, from the formulas of hwlib_hal.h, as in kit_scale.c. */
#include "kit_internal.h"

#include <string.h>

/* The value of an activation, or `padding` outside the tile's rows and columns. */
static int32_t activation(const hwlib_tile_t *tile, int64_t row, int64_t column, uint32_t channel, int32_t padding)
{
  if (row < 0 || row >= tile->ifm_h || column < 0 || column >= tile->ifm_w) {
    return padding;
  }
  return (int8_t)kit_activation(tile->ifm + (uint32_t)row * tile->ifm_row + (uint32_t)column * tile->ifm_pixel +
                                channel);
}

int32_t kit_weight(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile, uint32_t k, uint32_t index)
{
  uint32_t at = index * layer->weight_bits; /* 8, 4 or 2 bits: all in one byte */
  uint8_t byte = kit_weight_byte(tile->weights + k * kit_filter_bytes(layer, tile) + at / 8);
  int32_t power = 1 << layer->weight_bits, value = byte >> at % 8 & (power - 1);
  return value < power / 2 ? value : value - power;
}

static uint32_t window_sum(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile, uint32_t row, uint32_t column,
                           uint32_t k)
{
  int depthwise = layer->layer.kind == HWLIB_DEPTHWISE_CONV2D;
  uint32_t channels = depthwise ? 1 : tile->ifm_c, index = 0, sum = 0;
  for (uint32_t fy = 0; fy < tile->kernel_h; ++fy) {
    for (uint32_t fx = 0; fx < tile->kernel_w; ++fx) {
      for (uint32_t c = 0; c < channels; ++c) {
        int32_t ifm = activation(tile, (int64_t)row * layer->stride_h + fy * layer->dilation_h - tile->pad_top,
                                 (int64_t)column * layer->stride_w + fx * layer->dilation_w - tile->pad_left,
                                 depthwise ? k : c, layer->ifm_zero_point);
        sum += (uint32_t)(ifm * (kit_weight(layer, tile, k, index++) - layer->weight_zero_point));
      }
    }
  }
  return sum;
}

/* Where results go: of the last job of a sum the output, of others the sums. */
typedef struct {
  uint32_t address, row, pixel, channel;
} results_t;

static results_t results_of(const hwlib_tile_t *tile)
{
  if ((tile->flags & HWLIB_TILE_LAST) != 0) {
    return (results_t){tile->ofm, tile->ofm_row, tile->ofm_pixel, 1};
  }
  return (results_t){tile->psum, 4 * tile->ofm_w * tile->ofm_c, 4 * tile->ofm_c, 4};
}

/* Calls `compute` for each result that kit_expected shows. */
static void for_each_result(const hwlib_layer_t *layer, const hwlib_tile_t *tile,
                            void (*compute)(const hwlib_layer_t *layer, const hwlib_tile_t *tile, uint32_t row,
                                            uint32_t column, uint32_t k, uint32_t address))
{
  results_t to = results_of(tile);
  uint64_t pixel = (uint64_t)tile->ofm_c * to.channel, row = (uint64_t)(tile->ofm_w - 1) * to.pixel + pixel;
  kit_range_t rows = kit_shown(to.address, to.row, row, tile->ofm_h);
  for (uint32_t y = rows.first; y < rows.end; ++y) {
    uint32_t row_address = to.address + y * to.row;
    kit_range_t columns = kit_shown(row_address, to.pixel, pixel, tile->ofm_w);
    for (uint32_t x = columns.first; x < columns.end; ++x) {
      uint32_t pixel_address = row_address + x * to.pixel;
      kit_range_t channels = kit_shown(pixel_address, to.channel, to.channel, tile->ofm_c);
      for (uint32_t k = channels.first; k < channels.end; ++k) {
        compute(layer, tile, y, x, k, pixel_address + k * to.channel);
      }
    }
  }
}

static hwlib_params_t params_at(uint32_t address)
{
  uint8_t bytes[sizeof(hwlib_params_t)];
  hwlib_params_t params;
  for (uint32_t i = 0; i < sizeof bytes; ++i) {
    bytes[i] = kit_weight_byte(address + i);
  }
  memcpy(&params, bytes, sizeof params);
  return params;
}

static uint32_t psum_at(const hwlib_tile_t *tile, uint32_t row, uint32_t column, uint32_t k)
{
  uint32_t address = tile->psum + 4 * ((row * tile->ofm_w + column) * tile->ofm_c + k), sum;
  uint8_t bytes[sizeof sum];
  for (uint32_t i = 0; i < sizeof bytes; ++i) {
    bytes[i] = kit_activation(address + i);
  }
  memcpy(&sum, bytes, sizeof sum);
  return sum;
}

static void convolve(const hwlib_layer_t *kind, const hwlib_tile_t *tile, uint32_t row, uint32_t column, uint32_t k,
                     uint32_t address)
{
  const hwlib_conv2d_t *layer = (const hwlib_conv2d_t *)kind;
  hwlib_params_t params = params_at(tile->params + k * (uint32_t)sizeof params);
  int first = (tile->flags & HWLIB_TILE_FIRST) != 0;
  uint32_t sum = first ? (uint32_t)params.bias : psum_at(tile, row, column, k);
  sum += window_sum(layer, tile, row, column, k);
  if ((tile->flags & HWLIB_TILE_LAST) == 0) {
    uint8_t bytes[sizeof sum];
    memcpy(bytes, &sum, sizeof sum);
    for (uint32_t i = 0; i < sizeof bytes; ++i) {
      kit_put(address + i, bytes[i]);
    }
    return;
  }
  hwlib_scale_t by = {params.multiplier, params.left, params.right};
  int64_t value = kit_scale(layer->layer.rounding, kit_wrap32(sum), by);
  kit_put(address, kit_clamp(value + layer->ofm_zero_point, layer->act_min, layer->act_max));
}

void kit_expect_conv2d(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile)
{
  for_each_result(&layer->layer, tile, convolve);
}

static int64_t average(const hwlib_pool2d_t *layer, int32_t sum, int32_t count)
{
  if (layer->layer.rounding == HWLIB_ROUND_TFLITE) {
    return (sum + (sum < 0 ? -(count / 2) : count / 2)) / count;
  }
  return sum / count;
}

static void pool(const hwlib_layer_t *kind, const hwlib_tile_t *tile, uint32_t row, uint32_t column, uint32_t channel,
                 uint32_t address)
{
  const hwlib_pool2d_t *layer = (const hwlib_pool2d_t *)kind;
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
    kit_put(address, kit_clamp(maximum, layer->act_min, layer->act_max));
    return;
  }
  inside = inside == 0 ? 1 : inside;
  int64_t value = layer->mode == HWLIB_POOL_SUM
                      ? sum + layer->offset
                      : average(layer, sum, layer->count_include_pad ? layer->kernel_h * layer->kernel_w : inside) -
                            layer->ifm_zero_point;
  value = kit_scale(layer->layer.rounding, value, layer->scale);
  kit_put(address, kit_clamp(value + layer->ofm_zero_point, layer->act_min, layer->act_max));
}

void kit_expect_pool2d(const hwlib_pool2d_t *layer, const hwlib_tile_t *tile)
{
  for_each_result(&layer->layer, tile, pool);
}
