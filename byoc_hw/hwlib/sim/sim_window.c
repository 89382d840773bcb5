/* What layers with a window share: its limits, a geometry that adds up, and the tiles that it moves over. */
#include "sim_internal.h"

static int both_in(uint32_t mask, uint32_t one, uint32_t other)
{
  return one <= 31 && other <= 31 && (mask >> one & 1u) != 0 && (mask >> other & 1u) != 0;
}

/* A kernel of 0 wraps, and so is refused with those that are too large. */
hwlib_status_t hwlib_sim_check_window(hwlib_sim_window_t window, const hwlib_sim_limits_t *limits)
{
  if (window.kernel_h - 1 >= limits->kernel_h || window.kernel_w - 1 >= limits->kernel_w) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "job", "kernel # x # is not within # x #", window.kernel_h,
                            window.kernel_w, limits->kernel_h, limits->kernel_w);
  }
  if (!both_in(limits->strides, window.stride_h, window.stride_w)) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "job", "the array has no stride # x #", window.stride_h,
                            window.stride_w);
  }
  if (!both_in(limits->dilations, window.dilation_h, window.dilation_w)) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "job", "the array has no dilation # x #", window.dilation_h,
                            window.dilation_w);
  }
  return HWLIB_OK;
}

/* The output is as long as the window has places over the padded input, or over the padding before it. */
static hwlib_status_t check_extent(const char *name, uint32_t ifm, uint32_t before, uint32_t after,
                                   uint32_t kernel, uint32_t stride, uint32_t ofm, uint32_t wide_padding)
{
  if (!wide_padding && (before >= kernel || after >= kernel)) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, name, "padding # before and # after reach a kernel of #", before,
                            after, kernel);
  }
  uint64_t padded = (uint64_t)ifm + before + after, seen = (uint64_t)(ofm - 1) * stride + kernel;
  if (wide_padding && ifm == 1 && after == 0 && ofm != 0 && seen == before) {
    return HWLIB_OK;
  }
  if (ifm == 0 || padded < kernel || (padded - kernel) / stride + 1 != ofm) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, name,
                            "# inputs padded by # and # under a kernel of # and stride # do not make # outputs",
                            ifm, before, after, kernel, stride, ofm);
  }
  return HWLIB_OK;
}

/* Rows that overlap hold several rows of an image as one. */
static hwlib_status_t check_rows(const hwlib_tile_t *tile)
{
  uint64_t row = (uint64_t)(tile->ifm_w - 1) * tile->ifm_pixel + tile->ifm_c;
  if (!hwlib_sim_numbers.packed_rows && tile->ifm_h > 1 && tile->ifm_row < row) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "ifm", "rows of # bytes that are # apart overlap", row, tile->ifm_row);
  }
  return HWLIB_OK;
}

/* Rows or columns from the first to the last of a window. */
static uint32_t reach(uint32_t kernel, uint32_t dilation) { return (kernel - 1) * dilation + 1; }

hwlib_status_t hwlib_sim_check_tile(const hwlib_tile_t *tile, hwlib_sim_window_t window, uint32_t wide_padding)
{
  hwlib_status_t status = check_extent("tile height", tile->ifm_h, tile->pad_top, tile->pad_bottom,
                                       reach(window.kernel_h, window.dilation_h), window.stride_h, tile->ofm_h,
                                       wide_padding);
  if (status == HWLIB_OK) {
    status = check_extent("tile width", tile->ifm_w, tile->pad_left, tile->pad_right,
                          reach(window.kernel_w, window.dilation_w), window.stride_w, tile->ofm_w, wide_padding);
  }
  if (status == HWLIB_OK && (tile->ifm_c == 0 || tile->ofm_c == 0)) {
    status = HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "tile channels", "# in and # out are nothing to compute",
                              tile->ifm_c, tile->ofm_c);
  }
  return status == HWLIB_OK ? check_rows(tile) : status;
}

hwlib_status_t hwlib_sim_check_same_channels(const hwlib_tile_t *tile)
{
  if (tile->ifm_c != tile->ofm_c) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "tile channels", "# in are not # out", tile->ifm_c, tile->ofm_c);
  }
  return HWLIB_OK;
}

/* ---------------------------------------------------------------- tiles in local memory */

void hwlib_sim_add_ifm(hwlib_sim_work_t *work, const hwlib_tile_t *tile)
{
  work->area[work->areas++] = (hwlib_sim_area_t){.name = "ifm",
                                                 .memory = HWLIB_LOCAL_ACTIVATIONS,
                                                 .access = HWLIB_SIM_READS,
                                                 .rows = tile->ifm_h,
                                                 .pixels = tile->ifm_w,
                                                 .row_stride = tile->ifm_row,
                                                 .pixel_stride = tile->ifm_pixel,
                                                 .address = tile->ifm,
                                                 .bytes = tile->ifm_c};
}

void hwlib_sim_add_ofm(hwlib_sim_work_t *work, const hwlib_tile_t *tile)
{
  work->area[work->areas++] = (hwlib_sim_area_t){.name = "ofm",
                                                 .memory = HWLIB_LOCAL_ACTIVATIONS,
                                                 .access = HWLIB_SIM_WRITES,
                                                 .rows = tile->ofm_h,
                                                 .pixels = tile->ofm_w,
                                                 .row_stride = tile->ofm_row,
                                                 .pixel_stride = tile->ofm_pixel,
                                                 .address = tile->ofm,
                                                 .bytes = tile->ofm_c};
}
