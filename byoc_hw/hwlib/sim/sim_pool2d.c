/* Pooling: maxima, averages and sums, bit for bit as hwlib_hal.h states them. */
#include "sim_internal.h"

static hwlib_status_t check(const hwlib_job_t *job)
{
  const hwlib_pool2d_t *layer = (const hwlib_pool2d_t *)job->layer;
  const hwlib_sim_window_t window = {layer->kernel_h, layer->kernel_w, layer->stride_h, layer->stride_w, 1, 1};
  if (layer->mode > HWLIB_POOL_SUM) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "job", "the array has no pooling mode #", layer->mode);
  }
  const hwlib_sim_limits_t *limits = &hwlib_sim_numbers.pool2d;
  hwlib_status_t status = hwlib_sim_check_window(window, limits);
  if (status == HWLIB_OK) {
    status = hwlib_sim_check_same_channels(job->tile);
  }
  if (status == HWLIB_OK) {
    status = hwlib_sim_check_tile(job->tile, window, limits->wide_padding);
  }
  return status == HWLIB_OK ? hwlib_sim_check_clamp(layer->act_min, layer->act_max) : status;
}

/* Cycles: ceil(ofm_h * ofm_w * ofm_c * FY * FX / elementwise_width); FY and FX count in full at the borders. */
static hwlib_status_t work_of(const hwlib_job_t *job, hwlib_sim_work_t *work)
{
  const hwlib_pool2d_t *layer = (const hwlib_pool2d_t *)job->layer;
  const hwlib_tile_t *tile = job->tile;
  uint64_t outputs = (uint64_t)tile->ofm_h * tile->ofm_w * tile->ofm_c;
  work->cycles = hwlib_sim_divide_up(outputs * layer->kernel_h * layer->kernel_w, hwlib_sim_numbers.elementwise_width);
  hwlib_sim_add_ifm(work, tile);
  hwlib_sim_add_ofm(work, tile);
  return HWLIB_OK;
}

static hwlib_status_t check_scales(const hwlib_job_t *job)
{
  const hwlib_pool2d_t *layer = (const hwlib_pool2d_t *)job->layer;
  if (layer->mode == HWLIB_POOL_MAX) {
    return HWLIB_OK;
  }
  int32_t least = layer->mode == HWLIB_POOL_SUM ? 1 << 29 : 1 << 30;
  return hwlib_sim_check_scale_from("scale", layer->layer.rounding, layer->scale, least);
}

static int8_t pool_window(const hwlib_pool2d_t *layer, const hwlib_tile_t *tile, uint32_t first_row,
                          uint32_t first_column, uint32_t channel)
{
  int32_t sum = 0, maximum = INT8_MIN, count = 0;
  for (uint32_t fy = 0; fy < layer->kernel_h; ++fy) {
    for (uint32_t fx = 0; fx < layer->kernel_w; ++fx) {
      uint32_t row = first_row + fy, column = first_column + fx;
      if (row < tile->ifm_h && column < tile->ifm_w) {
        int32_t value = hwlib_sim_ifm_at(tile, row, column)[channel];
        sum += value;
        maximum = value > maximum ? value : maximum;
        count += 1;
      }
    }
  }
  if (layer->mode == HWLIB_POOL_MAX) {
    return hwlib_sim_finish(maximum, 0, layer->act_min, layer->act_max);
  }
  if (layer->mode == HWLIB_POOL_SUM) {
    return hwlib_sim_finish(hwlib_sim_scale(layer->layer.rounding, sum + layer->offset, layer->scale),
                            layer->ofm_zero_point, layer->act_min, layer->act_max);
  }
  if (layer->count_include_pad) {
    count = layer->kernel_h * layer->kernel_w;
  }
  count = count == 0 ? 1 : count;
  if (layer->layer.rounding == HWLIB_ROUND_TFLITE) {
    sum += sum > 0 ? count / 2 : -(count / 2);
  }
  return hwlib_sim_finish(hwlib_sim_scale(layer->layer.rounding, sum / count - layer->ifm_zero_point, layer->scale),
                          layer->ofm_zero_point, layer->act_min, layer->act_max);
}

static void compute(const hwlib_job_t *job)
{
  const hwlib_pool2d_t *layer = (const hwlib_pool2d_t *)job->layer;
  const hwlib_tile_t *tile = job->tile;
  for (uint32_t row = 0; row < tile->ofm_h; ++row) {
    for (uint32_t column = 0; column < tile->ofm_w; ++column) {
      int8_t *ofm = hwlib_sim_ofm_at(tile, row, column);
      for (uint32_t channel = 0; channel < tile->ofm_c; ++channel) {
        ofm[channel] = pool_window(layer, tile, row * layer->stride_h - tile->pad_top,
                                   column * layer->stride_w - tile->pad_left, channel);
      }
    }
  }
}

const hwlib_sim_family_t hwlib_sim_pool2d = {check, work_of, check_scales, compute};
