/* conv2d, depthwise_conv2d and dense: bit for bit as hwlib_hal.h states them. */
#include "sim_internal.h"

#include <string.h>

/* ---------------------------------------------------------------- limits */

static hwlib_status_t check_weight_bits(uint8_t bits, uint32_t allowed)
{
  if (bits > 31 || (allowed >> bits & 1u) == 0) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "job", "the array has no weights of # bits", bits);
  }
  return HWLIB_OK;
}

static hwlib_status_t check_part(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile, uint32_t parts)
{
  int whole = tile->kernel_h == layer->kernel_h && tile->kernel_w == layer->kernel_w;
  if (tile->kernel_h > layer->kernel_h || tile->kernel_w > layer->kernel_w || (!whole && !parts)) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "job", "a tile's kernel # x # in a layer's # x #", tile->kernel_h,
                            tile->kernel_w, layer->kernel_h, layer->kernel_w);
  }
  return HWLIB_OK;
}

static const hwlib_sim_limits_t *limits_of(uint8_t kind)
{
  switch (kind) {
  case HWLIB_DENSE:
    return &hwlib_sim_numbers.dense;
  case HWLIB_DEPTHWISE_CONV2D:
    return &hwlib_sim_numbers.depthwise_conv2d;
  default:
    return &hwlib_sim_numbers.conv2d;
  }
}

static hwlib_status_t check(const hwlib_job_t *job)
{
  const hwlib_conv2d_t *layer = (const hwlib_conv2d_t *)job->layer;
  const hwlib_tile_t *tile = job->tile;
  const hwlib_sim_limits_t *limits = limits_of(layer->layer.kind);
  const hwlib_sim_window_t window = {tile->kernel_h,  tile->kernel_w,    layer->stride_h,
                                     layer->stride_w, layer->dilation_h, layer->dilation_w};
  hwlib_status_t status = check_weight_bits(layer->weight_bits, limits->weight_bits);
  if (status == HWLIB_OK) {
    status = hwlib_sim_check_window(window, limits);
  }
  if (status == HWLIB_OK && layer->layer.kind == HWLIB_DENSE &&
      (tile->ofm_h != 1 || tile->ofm_w > hwlib_sim_numbers.dense_pixels)) {
    status = HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "dense", "# x # outputs are not one row of at most #", tile->ofm_h,
                              tile->ofm_w, hwlib_sim_numbers.dense_pixels);
  }
  if (status == HWLIB_OK && layer->layer.kind == HWLIB_DEPTHWISE_CONV2D) {
    status = hwlib_sim_check_same_channels(tile);
    if (status == HWLIB_OK && !limits->kernel_parts &&
        (~(unsigned)tile->flags & (HWLIB_TILE_FIRST | HWLIB_TILE_LAST)) != 0) {
      status = hwlib_sim_refuse(HWLIB_ERROR_LIMIT, "depthwise",
                                "a channel has no slices: a tile is FIRST and LAST", NULL);
    }
  }
  if (status == HWLIB_OK) {
    status = check_part(layer, tile, limits->kernel_parts);
  }
  if (status == HWLIB_OK) {
    status = hwlib_sim_check_tile(tile, window, limits->wide_padding);
  }
  return status == HWLIB_OK ? hwlib_sim_check_clamp(layer->act_min, layer->act_max) : status;
}

/* ---------------------------------------------------------------- bytes and cycles */

/* Weights of one output channel. */
static uint64_t filter_values(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile)
{
  uint32_t channels = layer->layer.kind == HWLIB_DEPTHWISE_CONV2D ? 1 : tile->ifm_c;
  return (uint64_t)tile->kernel_h * tile->kernel_w * channels;
}

static uint64_t filter_bytes(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile)
{
  return hwlib_sim_divide_up(filter_values(layer, tile) * layer->weight_bits, 8);
}

static hwlib_status_t add_words(hwlib_sim_work_t *work, const char *name, uint8_t memory, unsigned access,
                                uint32_t address, uint64_t bytes)
{
  if (address % 4 != 0) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_ALIGNMENT, name, "address # is not a multiple of 4", address);
  }
  hwlib_sim_add_run(work, name, memory, access, address, bytes);
  return HWLIB_OK;
}

/* Each job of a sum touches what it needs: the first reads the bias, the last the scales, those between
 * carry sums from psum to psum. */
static hwlib_status_t add_areas(hwlib_sim_work_t *work, const hwlib_conv2d_t *layer, const hwlib_tile_t *tile)
{
  int first = (tile->flags & HWLIB_TILE_FIRST) != 0, last = (tile->flags & HWLIB_TILE_LAST) != 0;
  hwlib_status_t status = HWLIB_OK;
  hwlib_sim_add_ifm(work, tile);
  hwlib_sim_add_run(work, "weights", HWLIB_LOCAL_WEIGHTS, HWLIB_SIM_READS, tile->weights,
                    tile->ofm_c * filter_bytes(layer, tile));
  if (first || last) {
    status = add_words(work, "params", HWLIB_LOCAL_WEIGHTS, HWLIB_SIM_READS, tile->params,
                       (uint64_t)tile->ofm_c * sizeof(hwlib_params_t));
  }
  if (status == HWLIB_OK && !(first && last)) {
    status = add_words(work, "psum", HWLIB_LOCAL_ACTIVATIONS,
                       (first ? 0u : HWLIB_SIM_READS) | (last ? 0u : HWLIB_SIM_WRITES), tile->psum,
                       (uint64_t)tile->ofm_h * tile->ofm_w * tile->ofm_c * sizeof(int32_t));
  }
  if (last) {
    hwlib_sim_add_ofm(work, tile);
  }
  return status;
}

/* conv2d, dense: ofm_h * ceil(ofm_c / rows) * ceil(ofm_w / columns)
 *                * (ceil(C * FY * FX * bits / 8) + 2 * C * FY + overhead)
 * depthwise: the same with C = 1 and depthwise_rows for rows.
 * C, FY and FX are of the tile, so a job pays for its slice and its part; FY and FX count in full at the borders. */
static uint64_t cycles_of(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile)
{
  int depthwise = layer->layer.kind == HWLIB_DEPTHWISE_CONV2D;
  uint64_t rows = depthwise ? hwlib_sim_numbers.depthwise_rows : hwlib_sim_numbers.array_rows;
  uint64_t channels = depthwise ? 1 : tile->ifm_c;
  uint64_t groups = tile->ofm_h * hwlib_sim_divide_up(tile->ofm_c, rows) *
                    hwlib_sim_divide_up(tile->ofm_w, hwlib_sim_numbers.array_columns);
  return groups * (filter_bytes(layer, tile) + 2 * channels * tile->kernel_h + hwlib_sim_numbers.job_overhead);
}

static hwlib_status_t work_of(const hwlib_job_t *job, hwlib_sim_work_t *work)
{
  const hwlib_conv2d_t *layer = (const hwlib_conv2d_t *)job->layer;
  work->cycles = cycles_of(layer, job->tile);
  return add_areas(work, layer, job->tile);
}

/* ---------------------------------------------------------------- parameters */

static hwlib_params_t params_of(const hwlib_tile_t *tile, uint32_t channel)
{
  hwlib_params_t params;
  memcpy(&params, hwlib_sim_local(HWLIB_LOCAL_WEIGHTS, tile->params + (uint64_t)channel * sizeof params),
         sizeof params);
  return params;
}

static hwlib_scale_t scale_of(const hwlib_params_t *params)
{
  return (hwlib_scale_t){params->multiplier, params->left, params->right};
}

static hwlib_status_t check_scales(const hwlib_job_t *job)
{
  hwlib_status_t status = HWLIB_OK;
  if ((job->tile->flags & HWLIB_TILE_LAST) == 0) {
    return HWLIB_OK;
  }
  for (uint32_t channel = 0; status == HWLIB_OK && channel < job->tile->ofm_c; ++channel) {
    hwlib_params_t params = params_of(job->tile, channel);
    status = hwlib_sim_check_scale("params", job->layer->rounding, scale_of(&params));
  }
  return status;
}

/* ---------------------------------------------------------------- sums */

/* The weights of an output channel as bytes, [fy][fx][c]. */
static const int8_t *filter_of(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile, uint32_t channel)
{
  const uint8_t *packed =
      hwlib_sim_local(HWLIB_LOCAL_WEIGHTS, tile->weights + channel * filter_bytes(layer, tile));
  if (layer->weight_bits == 8) {
    return (const int8_t *)packed;
  }
  unsigned bits = layer->weight_bits, sign = 1u << (bits - 1), mask = 2 * sign - 1, in_byte = 8 / bits;
  uint64_t values = filter_values(layer, tile);
  int8_t *unpacked = hwlib_sim_numbers.unpacked;
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
  for (uint32_t fy = 0; fy < tile->kernel_h; ++fy) {
    for (uint32_t fx = 0; fx < tile->kernel_w; ++fx, filter += channels) {
      uint32_t row = first_row + fy * layer->dilation_h, column = first_column + fx * layer->dilation_w;
      if (row < tile->ifm_h && column < tile->ifm_w) {
        sum += dot(hwlib_sim_ifm_at(tile, row, column) + first_channel, filter, layer->weight_zero_point, channels);
      } else {
        sum += dot_padding(layer->ifm_zero_point, filter, layer->weight_zero_point, channels);
      }
    }
  }
  return sum;
}

static void compute(const hwlib_job_t *job)
{
  const hwlib_conv2d_t *layer = (const hwlib_conv2d_t *)job->layer;
  const hwlib_tile_t *tile = job->tile;
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
          memcpy(&sum, hwlib_sim_activations(psum), sizeof sum);
        }
        sum += window_sum(layer, tile, filter, row * layer->stride_h - tile->pad_top,
                          column * layer->stride_w - tile->pad_left, depthwise ? k : 0,
                          depthwise ? 1 : tile->ifm_c);
        if (last) {
          int64_t value = hwlib_sim_scale(layer->layer.rounding, hwlib_sim_signed32(sum), scale_of(&params));
          hwlib_sim_ofm_at(tile, row, column)[k] =
              hwlib_sim_finish(value, layer->ofm_zero_point, layer->act_min, layer->act_max);
        } else {
          memcpy(hwlib_sim_activations(psum), &sum, sizeof sum);
        }
      }
    }
  }
}

const hwlib_sim_family_t hwlib_sim_conv2d = {check, work_of, check_scales, compute};
