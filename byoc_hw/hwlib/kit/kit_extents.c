/* hwlib_hal_job_start: the extents that plans can ask for. Each extent of each kind is more than 8, 12 and 16 bits
 * count, and the largest odd number, as far as the memories have room for it. */
#include "kit_internal.h"

enum { LONGEST_ROW = 4095 }; /* of a softmax: more than that many largest values are beyond 32 bits of sum */

typedef enum {
  IFM_CHANNELS,
  OFM_CHANNELS,
  ROWS,
  COLUMNS,
  IFM_ROW,
  IFM_PIXEL,
  OFM_ROW,
  OFM_PIXEL,
  SUMS_OUT,
  SUMS_IN,
  EXTENTS
} extent_t;

static const char *const names[EXTENTS] = {
    [IFM_CHANNELS] = "many input channels",
    [OFM_CHANNELS] = "many channels",
    [ROWS] = "many rows",
    [COLUMNS] = "many columns",
    [IFM_ROW] = "input rows that lie far apart",
    [IFM_PIXEL] = "input pixels that lie far apart",
    [OFM_ROW] = "output rows that lie far apart",
    [OFM_PIXEL] = "output pixels that lie far apart",
    [SUMS_OUT] = "many sums for the next job",
    [SUMS_IN] = "many sums of the job before",
};

static int is_convolution(unsigned kind) { return kind == HWLIB_CONV2D || kind == HWLIB_DENSE; }

static int is_elementwise(unsigned kind)
{
  return kind == HWLIB_ADD || kind == HWLIB_MUL || kind == HWLIB_LOOKUP;
}

/* Whether all operands of a kind are dense: strides are not read. */
static int is_run(unsigned kind) { return is_elementwise(kind) || kind == HWLIB_SOFTMAX || kind == HWLIB_MATMUL; }

static int has_extent(unsigned kind, extent_t extent)
{
  switch (extent) {
  case IFM_CHANNELS:
    return is_convolution(kind) || kind == HWLIB_SOFTMAX || kind == HWLIB_MATMUL;
  case OFM_CHANNELS:
    return !is_run(kind) || kind == HWLIB_MATMUL;
  case COLUMNS:
  case IFM_PIXEL:
  case OFM_PIXEL:
    return !is_run(kind) ? kind != HWLIB_DENSE || HWLIB_ACCELERATOR_DENSE_PIXELS > 1 : extent == COLUMNS;
  case SUMS_OUT:
  case SUMS_IN:
    return is_convolution(kind) || (kind == HWLIB_DEPTHWISE_CONV2D && kit_limits(kind).kernel_parts);
  default:
    return kind != HWLIB_DENSE && !is_run(kind);
  }
}

static uint8_t narrowest_weights(unsigned kind)
{
  uint8_t bits = 2;
  while (bits < 8 && (kit_limits(kind).weight_bits >> bits & 1u) == 0) {
    bits = (uint8_t)(bits * 2);
  }
  return bits;
}

static void set_output(kit_sample_t *sample, uint32_t rows, uint32_t columns, uint32_t ifm_c, uint32_t ofm_c)
{
  unsigned kind = sample->layer.kind;
  uint64_t stride = is_run(kind) || kind == HWLIB_DENSE ? 1 : kit_least_stride(kind);
  hwlib_tile_t *tile = &sample->tile;
  tile->ofm_h = rows;
  tile->ofm_w = columns;
  tile->ofm_c = ofm_c;
  tile->ifm_h = (uint32_t)((rows - 1) * stride + 1);
  tile->ifm_w = (uint32_t)((columns - 1) * stride + 1);
  tile->ifm_c = ifm_c;
  kit_adapt_sample(sample);
}

/* Kernel and padding of a kind with a window. */
static void set_window(kit_sample_t *sample, uint8_t height, uint8_t width, const uint8_t pads[4])
{
  hwlib_tile_t *tile = &sample->tile;
  tile->pad_top = pads[0];
  tile->pad_left = pads[1];
  tile->pad_bottom = pads[2];
  tile->pad_right = pads[3];
  if (sample->layer.kind == HWLIB_POOL2D) {
    hwlib_pool2d_t *layer = &sample->pool2d;
    layer->kernel_h = height;
    layer->kernel_w = width;
    layer->pad_top = pads[0];
    layer->pad_left = pads[1];
    layer->pad_bottom = pads[2];
    layer->pad_right = pads[3];
  } else {
    hwlib_conv2d_t *layer = &sample->conv2d;
    layer->kernel_h = tile->kernel_h = height;
    layer->kernel_w = tile->kernel_w = width;
    layer->pad_top = pads[0];
    layer->pad_left = pads[1];
    layer->pad_bottom = pads[2];
    layer->pad_right = pads[3];
  }
}

/* A kernel of up to 3 rows or columns, padded: each output has one more of them than with a kernel of 1. */
static void pad_rows(kit_sample_t *sample)
{
  uint32_t limit = kit_limits(sample->layer.kind).kernel_h;
  uint8_t kernel = (uint8_t)(limit < 3 ? limit : 3);
  uint8_t dilation = kit_least_dilation(sample->layer.kind);
  const uint8_t pads[4] = {(uint8_t)(kernel / 2 * dilation), 0, (uint8_t)((kernel - 1) / 2 * dilation), 0};
  set_window(sample, kernel, 1, pads);
}

static void pad_columns(kit_sample_t *sample)
{
  uint32_t limit = kit_limits(sample->layer.kind).kernel_w;
  uint8_t kernel = (uint8_t)(limit < 3 ? limit : 3);
  uint8_t dilation = kit_least_dilation(sample->layer.kind);
  const uint8_t pads[4] = {0, (uint8_t)(kernel / 2 * dilation), 0, (uint8_t)((kernel - 1) / 2 * dilation)};
  set_window(sample, 1, kernel, pads);
}

/* The sample with that extent; others are small. Returns whether the memories have room for it. */
static int extend(kit_sample_t *sample, extent_t extent, uint32_t size)
{
  unsigned kind = sample->layer.kind;
  int one_channel = is_convolution(kind) || is_elementwise(kind);
  hwlib_tile_t *tile = &sample->tile;
  switch (extent) {
  case IFM_CHANNELS:
    if (kind == HWLIB_SOFTMAX) {
      set_output(sample, 1, 1, size, size);
      return size <= LONGEST_ROW && kit_lay_out(sample);
    }
    if (kind != HWLIB_MATMUL) {
      sample->conv2d.weight_bits = size % 2 == 0 ? kit_widest_weights(kind) : narrowest_weights(kind);
    }
    set_output(sample, 1, 1, size, 2);
    return kit_lay_out(sample);
  case OFM_CHANNELS:
    set_output(sample, 1, 1, is_convolution(kind) || kind == HWLIB_MATMUL ? 1 : size, size);
    return kit_lay_out(sample);
  case ROWS:
    pad_rows(sample);
    set_output(sample, size, 1, 1, 1);
    return kit_lay_out(sample);
  case COLUMNS:
    if (kind == HWLIB_SOFTMAX) { /* so many different rows that each step of the arithmetic shows */
      set_output(sample, 1, size, 5, 5);
      return kit_lay_out(sample);
    }
    if (kind == HWLIB_DENSE) {
      size = kit_vectors(size);
    } else if (!is_run(kind)) {
      pad_columns(sample);
    }
    set_output(sample, 1, size, one_channel ? 1 : 2, one_channel ? 1 : 2);
    return kit_lay_out(sample);
  case SUMS_OUT:
  case SUMS_IN:
    tile->flags = extent == SUMS_OUT ? HWLIB_TILE_FIRST : HWLIB_TILE_LAST;
    if (kind == HWLIB_DENSE) {
      set_output(sample, 1, 1, 1, size);
    } else {
      set_output(sample, 1, size, 1, 1);
    }
    return kit_lay_out(sample);
  default:
    break;
  }
  int of_rows = extent == IFM_ROW || extent == OFM_ROW;
  set_output(sample, of_rows ? 3 : 1, of_rows ? 1 : kind == HWLIB_DENSE ? kit_vectors(3) : 3, 3, 3);
  tile->ifm_row = extent == IFM_ROW ? size : tile->ifm_row;
  tile->ifm_pixel = extent == IFM_PIXEL ? size : tile->ifm_pixel;
  tile->ofm_row = extent == OFM_ROW ? size : tile->ofm_row;
  tile->ofm_pixel = extent == OFM_PIXEL ? size : tile->ofm_pixel;
  return kit_lay_out(sample);
}

static int fits(const kit_sample_t *sample, extent_t extent, uint32_t size)
{
  kit_sample_t extended = *sample;
  return extend(&extended, extent, size);
}

/* The largest odd one that the memories have room for. */
static uint32_t largest(const kit_sample_t *sample, extent_t extent)
{
  uint32_t low = 1, high = kit_memories[0].size > kit_memories[1].size ? kit_memories[0].size : kit_memories[1].size;
  high *= 2; /* 4 weights in a byte, and both memories of odd sizes */
  while (high - low > 2) {
    uint32_t middle = (low + high) / 4 * 2 + 1;
    if (fits(sample, extent, middle)) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

static void check_extent(const kit_sample_t *sample, extent_t extent)
{
  /* Odd, but the second of each pair, which has the widest weights. */
  enum { SIZES = 7 };
  const uint32_t sizes[SIZES] = {257, 258, 4099, 4100, 65539, 65540, largest(sample, extent)};
  int in_one_rounding = sample->layer.rounding != kit_some_rounding() && sample->layer.kind != HWLIB_SOFTMAX;
  kit_begin("hwlib_hal_job_start", sample->subject, names[extent]);
  for (unsigned i = 0; i < SIZES - (unsigned)in_one_rounding; ++i) { /* the largest take their time: once is enough */
    kit_sample_t extended = *sample;
    if (extend(&extended, extent, sizes[i]) && !kit_run_sample(&extended)) {
      break;
    }
  }
  kit_end();
}

/* ---------------------------------------------------------------- kernels, at the limits of the kind */

typedef enum { WHOLE, PADDED_BEFORE, PADDED_AFTER, WINDOWS } window_t;

/* A kernel over as many pixels; or over 2 x 2 outputs, most of it padding on one side. */
static int set_kernel(kit_sample_t *sample, uint8_t height, uint8_t width, window_t window)
{
  hwlib_tile_t *tile = &sample->tile;
  uint32_t dilation = kit_least_dilation(sample->layer.kind);
  while (kit_reach(height, dilation) > 255) {
    height -= 1;
  }
  while (kit_reach(width, dilation) > 255) {
    width -= 1;
  }
  uint8_t rows = (uint8_t)(kit_reach(height, dilation) - 1), columns = (uint8_t)(kit_reach(width, dilation) - 1);
  set_output(sample, window == WHOLE ? 1 : 2, window == WHOLE ? 1 : 2, 2, 2);
  if (window == WHOLE) {
    tile->ifm_h = rows + 1u;
    tile->ifm_w = columns + 1u;
    kit_adapt_sample(sample);
  }
  int before = window == PADDED_BEFORE, after = window == PADDED_AFTER;
  const uint8_t pads[4] = {before ? rows : 0, before ? columns : 0, after ? rows : 0, after ? columns : 0};
  set_window(sample, height, width, pads);
  return kit_lay_out(sample);
}

static void check_kernel(const kit_sample_t *sample, const char *what, uint32_t height, uint32_t width)
{
  kit_begin("hwlib_hal_job_start", sample->subject, what);
  int fine = 1;
  for (unsigned window = 0; fine && window < WINDOWS; ++window) {
    kit_sample_t extended = *sample;
    fine = !set_kernel(&extended, (uint8_t)height, (uint8_t)width, (window_t)window) || kit_run_sample(&extended);
  }
  kit_end();
}

static void check_kind(unsigned kind, unsigned rounding)
{
  kit_sample_t sample = kit_sample(kind, rounding);
  for (unsigned extent = 0; extent < EXTENTS; ++extent) {
    if (has_extent(kind, (extent_t)extent)) {
      check_extent(&sample, (extent_t)extent);
    }
  }
  if (kind == HWLIB_DENSE || is_run(kind)) {
    return;
  }
  kit_limits_t limits = kit_limits(kind);
  check_kernel(&sample, "the largest kernel, and its padding", limits.kernel_h, limits.kernel_w);
  check_kernel(&sample, "the tallest kernel, and its padding", limits.kernel_h, 1);
  check_kernel(&sample, "the widest kernel, and its padding", 1, limits.kernel_w);
}

void kit_check_extents(void)
{
  if (!kit_use_pattern()) {
    return;
  }
  for (unsigned kind = 0; kind < 32; ++kind) {
    for (unsigned rounding = HWLIB_ROUND_UPWARD; rounding <= HWLIB_ROUND_TFLITE; ++rounding) {
      if (kit_has_sample(kind, rounding)) {
        check_kind(kind, rounding);
      }
    }
  }
  kit_use_images();
}
