/* Which jobs the array takes: the limits of each layer kind, and a geometry that adds up. */
#include "sim_internal.h"

typedef struct {
  uint32_t kernel_h, kernel_w, stride_h, stride_w;
} window_t;

static hwlib_status_t check_layer(const hwlib_layer_t *layer)
{
  if (layer->kind > 31 || (HWLIB_SIM_KINDS >> layer->kind & 1u) == 0) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "job", "the array has no layer kind #", layer->kind);
  }
  if (layer->rounding > 31 || (HWLIB_SIM_ROUNDINGS >> layer->rounding & 1u) == 0) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "job", "the array has no rounding #", layer->rounding);
  }
  return HWLIB_OK;
}

/* A kernel of 0 wraps, and so is refused with those that are too large. */
static hwlib_status_t check_window(window_t window, uint32_t max_h, uint32_t max_w, uint32_t strides)
{
  if (window.kernel_h - 1 >= max_h || window.kernel_w - 1 >= max_w) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "job", "kernel # x # is not within # x #", window.kernel_h,
                            window.kernel_w, max_h, max_w);
  }
  if (window.stride_h > 31 || window.stride_w > 31 || (strides >> window.stride_h & 1u) == 0 ||
      (strides >> window.stride_w & 1u) == 0) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "job", "the array has no stride # x #", window.stride_h,
                            window.stride_w);
  }
  return HWLIB_OK;
}

static hwlib_status_t check_weight_bits(uint8_t bits, uint32_t allowed)
{
  if (bits > 31 || (allowed >> bits & 1u) == 0) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "job", "the array has no weights of # bits", bits);
  }
  return HWLIB_OK;
}

/* The output is as long as the window has places over the padded input. */
static hwlib_status_t check_extent(const char *name, uint32_t ifm, uint32_t before, uint32_t after,
                                   uint32_t kernel, uint32_t stride, uint32_t ofm)
{
  if (before >= kernel || after >= kernel) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, name, "padding # before and # after reach a kernel of #", before,
                            after, kernel);
  }
  uint64_t padded = (uint64_t)ifm + before + after;
  if (ifm == 0 || padded < kernel || (padded - kernel) / stride + 1 != ofm) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, name,
                            "# inputs padded by # and # under a kernel of # and stride # do not make # outputs",
                            ifm, before, after, kernel, stride, ofm);
  }
  return HWLIB_OK;
}

static hwlib_status_t check_tile(const hwlib_tile_t *tile, window_t window)
{
  hwlib_status_t status = check_extent("tile height", tile->ifm_h, tile->pad_top, tile->pad_bottom,
                                       window.kernel_h, window.stride_h, tile->ofm_h);
  if (status == HWLIB_OK) {
    status = check_extent("tile width", tile->ifm_w, tile->pad_left, tile->pad_right, window.kernel_w,
                          window.stride_w, tile->ofm_w);
  }
  if (status == HWLIB_OK && (tile->ifm_c == 0 || tile->ofm_c == 0)) {
    status = HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "tile channels", "# in and # out are nothing to compute",
                              tile->ifm_c, tile->ofm_c);
  }
  return status;
}

static hwlib_status_t check_same_channels(const hwlib_tile_t *tile)
{
  if (tile->ifm_c != tile->ofm_c) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "tile channels", "# in are not # out", tile->ifm_c, tile->ofm_c);
  }
  return HWLIB_OK;
}

static hwlib_status_t check_clamp(int8_t act_min, int8_t act_max)
{
  if (act_min > act_max) {
    return hwlib_sim_refuse(HWLIB_ERROR_LIMIT, "job", "act_min is above act_max", NULL);
  }
  return HWLIB_OK;
}

static hwlib_status_t check_conv2d(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile)
{
  const window_t window = {layer->kernel_h, layer->kernel_w, layer->stride_h, layer->stride_w};
  hwlib_status_t status = HWLIB_OK;
  switch (layer->layer.kind) {
  case HWLIB_DENSE:
    status = check_weight_bits(layer->weight_bits, HWLIB_SIM_DENSE_WEIGHT_BITS);
    if (status == HWLIB_OK) {
      status = check_window(window, 1, 1, 1u << 1);
    }
    if (status == HWLIB_OK && (tile->ofm_h != 1 || tile->ofm_w != 1)) {
      status = HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "dense", "# x # outputs are not one pixel", tile->ofm_h,
                                tile->ofm_w);
    }
    break;
  case HWLIB_DEPTHWISE_CONV2D:
    status = check_weight_bits(layer->weight_bits, HWLIB_SIM_DEPTHWISE_CONV2D_WEIGHT_BITS);
    if (status == HWLIB_OK) {
      status = check_window(window, HWLIB_SIM_DEPTHWISE_CONV2D_KERNEL_H, HWLIB_SIM_DEPTHWISE_CONV2D_KERNEL_W,
                            HWLIB_SIM_DEPTHWISE_CONV2D_STRIDES);
    }
    if (status == HWLIB_OK) {
      status = check_same_channels(tile);
    }
    if (status == HWLIB_OK && (~(unsigned)tile->flags & (HWLIB_TILE_FIRST | HWLIB_TILE_LAST)) != 0) {
      status = hwlib_sim_refuse(HWLIB_ERROR_LIMIT, "depthwise",
                                "a channel has no slices: a tile is FIRST and LAST", NULL);
    }
    break;
  default:
    status = check_weight_bits(layer->weight_bits, HWLIB_SIM_CONV2D_WEIGHT_BITS);
    if (status == HWLIB_OK) {
      status = check_window(window, HWLIB_SIM_CONV2D_KERNEL_H, HWLIB_SIM_CONV2D_KERNEL_W,
                            HWLIB_SIM_CONV2D_STRIDES);
    }
    break;
  }
  if (status == HWLIB_OK) {
    status = check_tile(tile, window);
  }
  return status == HWLIB_OK ? check_clamp(layer->act_min, layer->act_max) : status;
}

static hwlib_status_t check_pool2d(const hwlib_pool2d_t *layer, const hwlib_tile_t *tile)
{
  const window_t window = {layer->kernel_h, layer->kernel_w, layer->stride_h, layer->stride_w};
  if (layer->mode != HWLIB_POOL_AVG && layer->mode != HWLIB_POOL_MAX) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "job", "the array has no pooling mode #", layer->mode);
  }
  hwlib_status_t status = check_window(window, HWLIB_SIM_POOL2D_KERNEL_H, HWLIB_SIM_POOL2D_KERNEL_W,
                                       HWLIB_SIM_POOL2D_STRIDES);
  if (status == HWLIB_OK) {
    status = check_same_channels(tile);
  }
  if (status == HWLIB_OK) {
    status = check_tile(tile, window);
  }
  return status == HWLIB_OK ? check_clamp(layer->act_min, layer->act_max) : status;
}

static hwlib_status_t check_add(const hwlib_add_t *layer, const hwlib_tile_t *tile)
{
  if (tile->ifm_h != 1 || tile->ifm_w == 0 || tile->ifm_c != 1) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "add", "# x # x # inputs are not one run of elements",
                            tile->ifm_h, tile->ifm_w, tile->ifm_c);
  }
  return check_clamp(layer->act_min, layer->act_max);
}

static hwlib_status_t check_softmax(const hwlib_softmax_t *layer, const hwlib_tile_t *tile)
{
  if (layer->layer.rounding != HWLIB_ROUND_TFLITE) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "softmax", "there is none with rounding #", layer->layer.rounding);
  }
  if (tile->ifm_h != 1 || tile->ifm_w == 0 || tile->ifm_c == 0 || tile->ifm_c > HWLIB_SIM_SOFTMAX_CHANNELS) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "softmax", "# x # x # inputs are not rows of 1 to # values",
                            tile->ifm_h, tile->ifm_w, tile->ifm_c, HWLIB_SIM_SOFTMAX_CHANNELS);
  }
  return HWLIB_OK;
}

/* Refuses extents that no memory holds before anything multiplies them. */
static hwlib_status_t check_extents(const hwlib_tile_t *tile)
{
  const uint32_t extents[] = {tile->ifm_h, tile->ifm_w, tile->ifm_c, tile->ofm_h, tile->ofm_w, tile->ofm_c};
  for (size_t i = 0; i < sizeof extents / sizeof extents[0]; ++i) {
    if (extents[i] > HWLIB_SIM_ACTIVATION_MEMORY) {
      return HWLIB_SIM_REFUSE(HWLIB_ERROR_ADDRESS, "tile", "an extent of # is beyond the # bytes of local activations",
                              extents[i], HWLIB_SIM_ACTIVATION_MEMORY);
    }
  }
  return HWLIB_OK;
}

hwlib_status_t hwlib_sim_check_job(const hwlib_job_t *job)
{
  hwlib_status_t status = check_layer(job->layer);
  if (status == HWLIB_OK) {
    status = check_extents(job->tile);
  }
  if (status != HWLIB_OK) {
    return status;
  }
  switch (job->layer->kind) {
  case HWLIB_ADD:
    return check_add((const hwlib_add_t *)job->layer, job->tile);
  case HWLIB_SOFTMAX:
    return check_softmax((const hwlib_softmax_t *)job->layer, job->tile);
  case HWLIB_POOL2D:
    return check_pool2d((const hwlib_pool2d_t *)job->layer, job->tile);
  default:
    return check_conv2d((const hwlib_conv2d_t *)job->layer, job->tile);
  }
}
