/* hwlib_hal_job_start: the kinds with a window (conv2d, depthwise_conv2d, dense, pool2d), at their limits. */
#include "kit_internal.h"

#include <string.h>

/* A case. Values beyond the limits of the accelerator are reduced to them. */
typedef struct {
  const char *what;
  uint8_t kernel_h, kernel_w, stride_h, stride_w;
  uint8_t pad[4]; /* top, left, bottom, right */
  uint8_t ifm_h, ifm_w, ifm_c, ofm_c;
  int8_t ifm_zero_point, weight_zero_point, ofm_zero_point, act_min, act_max;
  uint8_t row_gap, pixel_gap, offset; /* gap bytes between rows and between pixels, and before the first */
  uint8_t windowed;                   /* about the window: not for dense layers */
  uint8_t dilation_h, dilation_w;     /* 0: the least */
  uint8_t unreached_h, unreached_w;   /* places of the window behind the last output, which reach the input */
  uint8_t pitch;                      /* pixels from one row to the next, of rows that overlap; 0: they do not */
  uint8_t turned;                     /* 0 or 1: the pixels of a column lie side by side, not those of a row */
} case_t;

kit_limits_t kit_limits(unsigned kind)
{
  switch (kind) {
  case HWLIB_CONV2D:
    return (kit_limits_t){HWLIB_ACCELERATOR_CONV2D_KERNEL_H, HWLIB_ACCELERATOR_CONV2D_KERNEL_W,
                          HWLIB_ACCELERATOR_CONV2D_STRIDES, HWLIB_ACCELERATOR_CONV2D_DILATIONS,
                          HWLIB_ACCELERATOR_CONV2D_WEIGHT_BITS, HWLIB_ACCELERATOR_CONV2D_WIDE_PADDING,
                          HWLIB_ACCELERATOR_CONV2D_KERNEL_PARTS};
  case HWLIB_DEPTHWISE_CONV2D:
    return (kit_limits_t){HWLIB_ACCELERATOR_DEPTHWISE_CONV2D_KERNEL_H, HWLIB_ACCELERATOR_DEPTHWISE_CONV2D_KERNEL_W,
                          HWLIB_ACCELERATOR_DEPTHWISE_CONV2D_STRIDES, HWLIB_ACCELERATOR_DEPTHWISE_CONV2D_DILATIONS,
                          HWLIB_ACCELERATOR_DEPTHWISE_CONV2D_WEIGHT_BITS,
                          HWLIB_ACCELERATOR_DEPTHWISE_CONV2D_WIDE_PADDING,
                          HWLIB_ACCELERATOR_DEPTHWISE_CONV2D_KERNEL_PARTS};
  case HWLIB_DENSE:
    return (kit_limits_t){1, 1, 1u << 1, 1u << 1, HWLIB_ACCELERATOR_DENSE_WEIGHT_BITS, 0, 0};
  default:
    return (kit_limits_t){HWLIB_ACCELERATOR_POOL2D_KERNEL_H, HWLIB_ACCELERATOR_POOL2D_KERNEL_W,
                          HWLIB_ACCELERATOR_POOL2D_STRIDES, 1u << 1, 0, HWLIB_ACCELERATOR_POOL2D_WIDE_PADDING, 0};
  }
}

enum {
  ROWS = HWLIB_ACCELERATOR_ARRAY_ROWS < 100 ? HWLIB_ACCELERATOR_ARRAY_ROWS : 100,
  COLUMNS = HWLIB_ACCELERATOR_ARRAY_COLUMNS < 100 ? HWLIB_ACCELERATOR_ARRAY_COLUMNS : 100,
  /* Rows and columns of a kernel that fit the window twice: larger ones are for kit_extents.c. */
  LARGEST = KIT_WINDOW >= 8192 ? 56 : KIT_WINDOW >= 4096 ? 40 : KIT_WINDOW >= 2048 ? 28 : 18,
};

#define FULL .act_min = -128, .act_max = 127

static const case_t cases[] = {
    {"one pixel, one channel", 1, 1, 1, 1, {0}, 1, 1, 1, 1, FULL},
    {"1 x 1 over many channels", 1, 1, 1, 1, {0}, 2, 3, 67, 5, FULL},
    {"padding on all sides", 3, 3, 1, 1, {1, 1, 1, 1}, 5, 6, 4, 3, FULL, .ifm_zero_point = -7,
     .ofm_zero_point = 4, .windowed = 1},
    {"a wide kernel", 1, 5, 1, 1, {0}, 3, 8, 3, 2, FULL, .windowed = 1},
    {"a tall kernel", 5, 1, 1, 1, {0}, 8, 3, 3, 2, FULL, .windowed = 1},
    {"padding on one side", 3, 3, 1, 1, {2, 0, 0, 1}, 4, 5, 3, 2, FULL, .ifm_zero_point = 11, .windowed = 1},
    {"the most padding", 5, 5, 1, 1, {4, 4, 4, 4}, 3, 4, 2, 3, FULL, .ifm_zero_point = 23, .windowed = 1},
    {"one output channel more than the array has rows", 1, 1, 1, 1, {0}, 2, 3, ROWS + 1, ROWS + 1, FULL},
    {"one output column more than the array has columns", 1, 3, 1, 1, {0}, 1, COLUMNS + 3, 2, 2, FULL,
     .windowed = 1},
    {"zero points at the lower rail", 3, 3, 1, 1, {1, 1, 1, 1}, 4, 4, 3, 3, FULL, .ifm_zero_point = -128,
     .weight_zero_point = -128, .ofm_zero_point = -128},
    {"zero points at the upper rail", 3, 3, 1, 1, {1, 1, 1, 1}, 4, 4, 3, 3, FULL, .ifm_zero_point = 127,
     .weight_zero_point = 127, .ofm_zero_point = 127},
    {"act_min", 3, 3, 1, 1, {0}, 6, 6, 5, 9, .act_min = -20, .act_max = 127},
    {"act_max", 3, 3, 1, 1, {0}, 6, 6, 5, 9, .act_min = -128, .act_max = 35},
    {"a narrow range of outputs", 1, 1, 1, 1, {0}, 6, 6, 5, 9, .act_min = -3, .act_max = 4},
    {"rows and pixels that lie apart, at odd addresses", 3, 3, 1, 1, {1, 0, 0, 1}, 4, 5, 3, 2, FULL, .row_gap = 5,
     .pixel_gap = 2, .offset = 3},
};

static uint8_t smaller(uint32_t one, uint32_t other) { return (uint8_t)(one < other ? one : other); }

static uint8_t least(uint32_t mask)
{
  uint8_t member = 1;
  while (!kit_mask_has(mask, member)) {
    ++member;
  }
  return member;
}

uint8_t kit_least_stride(unsigned kind) { return least(kit_limits(kind).strides); }
uint8_t kit_least_dilation(unsigned kind) { return least(kit_limits(kind).dilations); }

uint32_t kit_reach(uint32_t kernel, uint32_t dilation) { return (kernel - 1) * dilation + 1; }

static uint8_t member_of(uint32_t mask, uint8_t wanted) { return kit_mask_has(mask, wanted) ? wanted : least(mask); }

uint8_t kit_widest_weights(unsigned kind)
{
  uint8_t bits = 8;
  while (bits > 2 && (kit_limits(kind).weight_bits >> bits & 1u) == 0) {
    bits /= 2;
  }
  return bits;
}

static uint8_t rows_of(const case_t *from) { return (uint8_t)kit_reach(from->kernel_h, from->dilation_h); }
static uint8_t columns_of(const case_t *from) { return (uint8_t)kit_reach(from->kernel_w, from->dilation_w); }

static hwlib_tile_t tile_of(const case_t *from)
{
  uint32_t ofm_h = (from->ifm_h + (uint32_t)from->pad[0] + from->pad[2] - rows_of(from)) / from->stride_h + 1 -
                   from->unreached_h;
  uint32_t ofm_w = (from->ifm_w + (uint32_t)from->pad[1] + from->pad[3] - columns_of(from)) / from->stride_w + 1 -
                   from->unreached_w;
  hwlib_tile_t tile = {
      .ifm = from->offset,
      .ifm_pixel = (uint32_t)from->ifm_c + from->pixel_gap,
      .ofm_pixel = (uint32_t)from->ofm_c + from->pixel_gap,
      .ifm_h = from->ifm_h,
      .ifm_w = from->ifm_w,
      .ifm_c = from->ifm_c,
      .ofm_h = ofm_h,
      .ofm_w = ofm_w,
      .ofm_c = from->ofm_c,
      .pad_top = from->pad[0],
      .pad_left = from->pad[1],
      .pad_bottom = from->pad[2],
      .pad_right = from->pad[3],
      .kernel_h = from->kernel_h,
      .kernel_w = from->kernel_w,
      .flags = HWLIB_TILE_FIRST | HWLIB_TILE_LAST,
  };
  uint32_t row = tile.ifm_w * tile.ifm_pixel + from->row_gap;
  tile.ifm_row = from->pitch != 0 ? from->pitch * tile.ifm_pixel : row;
  if (from->turned != 0) {
    tile.ifm_row = tile.ifm_pixel;
    tile.ifm_pixel *= tile.ifm_h;
    row = tile.ifm_w * tile.ifm_pixel;
  }
  tile.ofm_row = tile.ofm_w * tile.ofm_pixel + from->row_gap;
  tile.ofm = (tile.ifm + (tile.ifm_h - 1) * tile.ifm_row + row + 7) / 4 * 4 + from->offset;
  tile.psum = (tile.ofm + tile.ofm_h * tile.ofm_row + 7) / 4 * 4;
  return tile;
}

static int fits_window(const case_t *from, unsigned kind)
{
  hwlib_tile_t tile = tile_of(from);
  uint32_t values = (uint32_t)from->kernel_h * from->kernel_w * (kind == HWLIB_DEPTHWISE_CONV2D ? 1u : from->ifm_c);
  uint32_t weights = from->ofm_c * ((uint32_t)sizeof(hwlib_params_t) + values) + from->offset + 4;
  return tile.psum + 4 * tile.ofm_h * tile.ofm_w * tile.ofm_c <= KIT_WINDOW &&
         (kind == HWLIB_POOL2D || weights <= KIT_WINDOW);
}

static uint8_t half(uint8_t extent, uint8_t least) { return extent / 2 > least ? (uint8_t)(extent / 2) : least; }

/* Channels first; then rows and columns, of which the kernel needs some. */
static void shrink(case_t *by, unsigned kind)
{
  if (by->ifm_c > 1 || by->ofm_c > 1) {
    uint8_t *larger = by->ifm_c > by->ofm_c ? &by->ifm_c : &by->ofm_c;
    *larger = half(*larger, 1);
    if (kind == HWLIB_DEPTHWISE_CONV2D || kind == HWLIB_POOL2D) {
      by->ifm_c = by->ofm_c = *larger;
    }
  } else if (by->ifm_h > rows_of(by) && by->ifm_h >= by->ifm_w) {
    by->ifm_h = half(by->ifm_h, rows_of(by));
  } else if (by->ifm_w > columns_of(by)) {
    by->ifm_w = half(by->ifm_w, columns_of(by));
  } else {
    by->kernel_h = by->kernel_w = half(smaller(by->kernel_h, by->kernel_w), 1);
    by->ifm_h = rows_of(by);
    by->ifm_w = columns_of(by);
    memset(by->pad, 0, sizeof by->pad);
  }
}

/* The case, reduced to the limits of this kind and to the window. */
static case_t adapted(const case_t *wanted, unsigned kind)
{
  kit_limits_t limits = kit_limits(kind);
  case_t adapted = *wanted;
  adapted.kernel_h = smaller(adapted.kernel_h, limits.kernel_h);
  adapted.kernel_w = smaller(adapted.kernel_w, limits.kernel_w);
  adapted.stride_h = member_of(limits.strides, adapted.stride_h);
  adapted.stride_w = member_of(limits.strides, adapted.stride_w);
  adapted.dilation_h = member_of(limits.dilations, adapted.dilation_h);
  adapted.dilation_w = member_of(limits.dilations, adapted.dilation_w);
  while (rows_of(&adapted) < kit_reach(adapted.kernel_h, adapted.dilation_h)) { /* more than 255 */
    adapted.kernel_h -= 1;
  }
  while (columns_of(&adapted) < kit_reach(adapted.kernel_w, adapted.dilation_w)) {
    adapted.kernel_w -= 1;
  }
  for (unsigned side = 0; side < 4; ++side) {
    uint32_t reach = side % 2 == 0 ? rows_of(&adapted) : columns_of(&adapted);
    adapted.pad[side] = limits.wide_padding ? adapted.pad[side] : smaller(adapted.pad[side], reach - 1);
  }
  uint32_t rows = rows_of(&adapted), columns = columns_of(&adapted);
  uint32_t padded_h = (uint32_t)adapted.ifm_h + adapted.pad[0] + adapted.pad[2];
  uint32_t padded_w = (uint32_t)adapted.ifm_w + adapted.pad[1] + adapted.pad[3];
  adapted.ifm_h = padded_h < rows ? (uint8_t)(adapted.ifm_h + rows - padded_h) : adapted.ifm_h;
  adapted.ifm_w = padded_w < columns ? (uint8_t)(adapted.ifm_w + columns - padded_w) : adapted.ifm_w;
  if (kind == HWLIB_DENSE) {
    adapted.ifm_w = smaller(adapted.ifm_w, HWLIB_ACCELERATOR_DENSE_PIXELS);
    adapted.ifm_h = 1;
  }
  if (kind == HWLIB_DEPTHWISE_CONV2D || kind == HWLIB_POOL2D) {
    adapted.ofm_c = adapted.ifm_c;
  }
  while (!fits_window(&adapted, kind)) {
    shrink(&adapted, kind);
  }
  return adapted;
}

/* ---------------------------------------------------------------- convolutions */

static hwlib_conv2d_t conv2d_of(const case_t *from, unsigned kind, unsigned rounding, unsigned bits)
{
  hwlib_tile_t tile = tile_of(from);
  return (hwlib_conv2d_t){
      .layer = {.kind = (uint8_t)kind, .rounding = (uint8_t)rounding},
      .ifm = {tile.ifm_h, tile.ifm_w, tile.ifm_c},
      .ofm = {tile.ofm_h, tile.ofm_w, tile.ofm_c},
      .kernel_h = from->kernel_h,
      .kernel_w = from->kernel_w,
      .stride_h = from->stride_h,
      .stride_w = from->stride_w,
      .dilation_h = from->dilation_h,
      .dilation_w = from->dilation_w,
      .pad_top = from->pad[0],
      .pad_left = from->pad[1],
      .pad_bottom = from->pad[2],
      .pad_right = from->pad[3],
      .weight_bits = (uint8_t)bits,
      .ifm_zero_point = from->ifm_zero_point,
      .weight_zero_point = from->weight_zero_point,
      .ofm_zero_point = from->ofm_zero_point,
      .act_min = from->act_min,
      .act_max = from->act_max,
  };
}

/* A bias with the folded zero points, and a scale that spreads the outputs over their range; both differ by
 * channel. */
static hwlib_params_t params_of(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile, uint32_t k)
{
  uint32_t values = kit_filter_values(layer, tile), spread = 2u * layer->weight_bits - 2u;
  int32_t bias = (int32_t)(kit_random() % 64) - 32;
  for (uint32_t i = 0; i < values; ++i) {
    bias -= layer->ifm_zero_point * (kit_weight(layer, tile, k, i) - layer->weight_zero_point);
  }
  for (uint32_t rest = values; rest > 1; rest /= 2) { /* sums grow with the square root of the number of values */
    spread += 1;
  }
  int32_t multiplier = (int32_t)((1u << 30) + kit_random() % (1u << 30));
  uint8_t left = (uint8_t)(k % 3);
  return (hwlib_params_t){.bias = bias,
                          .multiplier = KIT_MULTIPLIER(multiplier),
                          .left = left,
                          .right = (uint8_t)(31u + spread / 2 + left)};
}

static void put_params(const hwlib_tile_t *tile, uint32_t k, hwlib_params_t params)
{
  memcpy(kit_weights + tile->params + k * sizeof params, &params, sizeof params);
}

static void fill_filters(const hwlib_conv2d_t *layer, hwlib_tile_t *tile, unsigned offset)
{
  kit_fill(kit_before, KIT_WINDOW);
  kit_fill(kit_weights, KIT_WINDOW);
  tile->params = 4;
  tile->weights = tile->params + tile->ofm_c * (uint32_t)sizeof(hwlib_params_t) + offset;
  for (uint32_t k = 0; k < tile->ofm_c; ++k) {
    put_params(tile, k, params_of(layer, tile, k));
  }
}

static const char *subject_of(const hwlib_conv2d_t *layer)
{
  static const char *const subjects[][2] = {
      [HWLIB_CONV2D] = {"conv2d, upward", "conv2d, tflite"},
      [HWLIB_DEPTHWISE_CONV2D] = {"depthwise_conv2d, upward", "depthwise_conv2d, tflite"},
      [HWLIB_DENSE] = {"dense, upward", "dense, tflite"},
  };
  return subjects[layer->layer.kind][layer->layer.rounding];
}

static void check_job(const char *what, const hwlib_conv2d_t *layer, const hwlib_tile_t *tile)
{
  kit_expect_unchanged();
  kit_expect_conv2d(layer, tile);
  kit_check_job(subject_of(layer), what, &layer->layer, tile);
}

static void check_convolution(const case_t *from, unsigned kind, unsigned rounding, unsigned bits)
{
  hwlib_tile_t tile = tile_of(from);
  hwlib_conv2d_t layer = conv2d_of(from, kind, rounding, bits);
  fill_filters(&layer, &tile, from->offset);
  check_job(from->what, &layer, &tile);
}

static void check_weight_bits(unsigned kind, unsigned rounding, unsigned bits)
{
  static const char *const names[] = {[2] = "weights of 2 bits", [4] = "weights of 4 bits", [8] = "weights of 8 bits"};
  /* An odd number of weights: a channel's last byte is not full. */
  const case_t from = {names[bits], 3, 3, 1, 1, {1, 1, 1, 1}, 4, 4, 3, 5, FULL, .weight_zero_point = 1};
  const case_t narrowed = adapted(&from, kind);
  check_convolution(&narrowed, kind, rounding, bits);
}

enum { AT_ONCE = (KIT_WINDOW - 64) / (sizeof(hwlib_params_t) + 1) < 201 ? 64 : 201 }; /* channels in a window */

/* Sums from `first` on, as many as there are channels: the sum is the bias, for weights equal their zero point, 0. */
static void check_scale(const char *what, unsigned kind, unsigned rounding, int32_t first, uint8_t count,
                        hwlib_scale_t scale)
{
  const case_t wanted = {what, 1, 1, 1, 1, {0}, 1, 1, 1, 1, FULL};
  case_t from = adapted(&wanted, kind);
  from.ifm_c = kind == HWLIB_DEPTHWISE_CONV2D ? count : 1;
  from.ofm_c = count;
  hwlib_tile_t tile = tile_of(&from);
  hwlib_conv2d_t layer = conv2d_of(&from, kind, rounding, 8);
  fill_filters(&layer, &tile, 0);
  for (uint32_t k = 0; k < count; ++k) {
    put_params(&tile, k,
               (hwlib_params_t){.bias = first + (int32_t)k,
                                .multiplier = KIT_MULTIPLIER(scale.multiplier),
                                .left = scale.left,
                                .right = scale.right});
  }
  memset(kit_weights + tile.weights, 0, KIT_WINDOW - tile.weights);
  check_job(what, &layer, &tile);
}

/* Scaling alone, with sums that equal the input: left, right and multiplier at their limits, and halves. */
static void check_scales(unsigned kind, unsigned rounding)
{
  static const struct {
    const char *what;
    hwlib_scale_t scale;
    int8_t from; /* the smallest input */
    uint8_t count;
    int8_t only; /* a rounding, or -1 */
  } scales[] = {
      {"halves, right 31", {1 << 30, 0, 31}, -100, 201, -1},
      {"halves, right 32", {1 << 30, 1, 32}, -100, 201, -1},
      {"quarters, right 33", {1 << 30, 1, 33}, -100, 201, -1},
      {"the largest multiplier", {INT32_MAX, 0, 31}, -100, 201, -1},
      {"a multiplier of 0", {0, 0, 31}, -100, 201, -1},
      {"right 62", {INT32_MAX, 24, 62}, -100, 201, -1},
      {"left 31 and right 62", {INT32_MAX, 31, 62}, -1, 2, -1},
      {"right 1", {1 << 30, 0, 1}, -2, 5, HWLIB_ROUND_UPWARD},
  };
  for (size_t i = 0; i < sizeof scales / sizeof scales[0]; ++i) {
    if (scales[i].only >= 0 && (unsigned)scales[i].only != rounding) {
      continue;
    }
    for (uint32_t first = 0; first < scales[i].count; first += AT_ONCE) {
      uint32_t count = scales[i].count - first < AT_ONCE ? scales[i].count - first : AT_ONCE;
      check_scale(scales[i].what, kind, rounding, scales[i].from + (int32_t)first, (uint8_t)count, scales[i].scale);
    }
  }
}

/* INT32_MAX - 100 plus 127 * 127, minus as much: in between the sum is beyond 32 bits. */
static void check_wrap(unsigned kind, unsigned rounding)
{
  const case_t from = {"a sum that leaves 32 bits and comes back", 1, 1, kit_least_stride(kind), kit_least_stride(kind), {0},
                       1, 1, 3, 1, FULL,
                       .dilation_h = kit_least_dilation(kind), .dilation_w = kit_least_dilation(kind)};
  hwlib_tile_t tile = tile_of(&from);
  hwlib_conv2d_t layer = conv2d_of(&from, kind, rounding, 8);
  fill_filters(&layer, &tile, 0);
  memset(kit_before + tile.ifm, 127, 3);
  kit_weights[tile.weights] = 127;
  kit_weights[tile.weights + 1] = (uint8_t)-127;
  kit_weights[tile.weights + 2] = (uint8_t)-1;
  put_params(&tile, 0, (hwlib_params_t){.bias = INT32_MAX - 100, .multiplier = 1 << 30, .right = 31 + 24});
  check_job(from.what, &layer, &tile);
}

/* Input channels in slices: the first starts from the bias, the middle ones pass sums on, the last scales. */
static void check_slices(unsigned kind, unsigned rounding, unsigned bits)
{
  static const uint8_t flags[] = {HWLIB_TILE_FIRST, 0, HWLIB_TILE_LAST};
  static const uint8_t channels[] = {3, 5, 1}; /* odd numbers: narrow weights of a slice's channels end inside a byte */
  static const char *const names[] = {[2] = "slices of channels, weights of 2 bits: first, middle, last",
                                      [4] = "slices of channels, weights of 4 bits: first, middle, last",
                                      [8] = "slices of channels: first, middle, last"};
  const case_t wanted = {names[bits], 3, 3, 1, 1, {1, 1, 1, 1}, 3, 4, 9, 5, FULL,
                         .ifm_zero_point = 13, .weight_zero_point = 1, .ofm_zero_point = -2};
  case_t from = adapted(&wanted, kind);
  hwlib_tile_t whole = tile_of(&from);
  hwlib_conv2d_t layer = conv2d_of(&from, kind, rounding, bits);
  fill_filters(&layer, &whole, 0);
  kit_begin("hwlib_hal_job_start", subject_of(&layer), from.what);
  for (unsigned place = 0; place < KIT_PLACES; ++place) {
    hwlib_tile_t tile = whole;
    int fine = kit_load_window(place);
    kit_expect_unchanged();
    for (unsigned slice = 0; fine && slice < sizeof flags; ++slice) {
      tile.flags = flags[slice];
      tile.ifm_c = channels[slice];
      kit_expect_conv2d(&layer, &tile);
      fine = kit_run_job(&layer.layer, &tile, place);
      tile.ifm += tile.ifm_c;
      tile.weights += tile.ofm_c * kit_filter_bytes(&layer, &tile);
    }
  }
  kit_end();
}

/* One axis of a tile. */
typedef struct {
  uint32_t start, size; /* of the input that is there */
  uint8_t before, after;
} axis_t;

/* The axis under the part of a kernel that has `skipped` places of the input before it, and reaches over `reach`. */
static axis_t part_of(axis_t whole, uint32_t skipped, uint32_t reach, uint32_t stride, uint32_t outputs)
{
  int64_t first = (int64_t)skipped - whole.before, end = first + (int64_t)(outputs - 1) * stride + reach;
  int64_t start = first > 0 ? first : 0, stop = end < whole.size ? end : whole.size;
  if (start >= stop) { /* padding only */
    return (axis_t){end <= 0 ? 0 : whole.size - 1, 1, (uint8_t)(end - first), 0};
  }
  return (axis_t){(uint32_t)start, (uint32_t)(stop - start), (uint8_t)(start - first), (uint8_t)(end - stop)};
}

static hwlib_tile_t tile_of_part(const case_t *from, const hwlib_tile_t *whole, const uint8_t first[2],
                                 const uint8_t size[2])
{
  hwlib_tile_t tile = *whole;
  axis_t rows = {0, whole->ifm_h, whole->pad_top, 0}, columns = {0, whole->ifm_w, whole->pad_left, 0};
  rows = part_of(rows, (uint32_t)first[0] * from->dilation_h, kit_reach(size[0], from->dilation_h), from->stride_h,
                 whole->ofm_h);
  columns = part_of(columns, (uint32_t)first[1] * from->dilation_w, kit_reach(size[1], from->dilation_w),
                    from->stride_w, whole->ofm_w);
  tile.ifm += rows.start * tile.ifm_row + columns.start * tile.ifm_pixel;
  tile.ifm_h = rows.size;
  tile.ifm_w = columns.size;
  tile.pad_top = rows.before;
  tile.pad_left = columns.before;
  tile.pad_bottom = rows.after;
  tile.pad_right = columns.after;
  tile.kernel_h = size[0];
  tile.kernel_w = size[1];
  return tile;
}

/* A kernel of one row and one column more than `from` has, in four parts: the last row and the last column apart. */
static void check_parts_of(case_t from, unsigned kind, unsigned rounding, unsigned bits)
{
  static const uint8_t flags[] = {HWLIB_TILE_FIRST, 0, 0, HWLIB_TILE_LAST};
  const uint8_t most[2] = {from.kernel_h, from.kernel_w};
  from.kernel_h += 1;
  from.kernel_w += 1;
  from.ifm_h = (uint8_t)(from.ifm_h + from.dilation_h);
  from.ifm_w = (uint8_t)(from.ifm_w + from.dilation_w);
  while (!fits_window(&from, kind) && from.ifm_c + from.ofm_c > 2) {
    shrink(&from, kind);
  }
  if (!fits_window(&from, kind)) { /* strides or dilations that are all too large for it */
    return;
  }
  hwlib_tile_t whole = tile_of(&from);
  hwlib_conv2d_t layer = conv2d_of(&from, kind, rounding, bits);
  fill_filters(&layer, &whole, 0);
  kit_begin("hwlib_hal_job_start", subject_of(&layer), from.what);
  for (unsigned place = 0; place < KIT_PLACES; ++place) {
    uint32_t weights = whole.weights;
    int fine = kit_load_window(place);
    kit_expect_unchanged();
    for (unsigned part = 0; fine && part < sizeof flags; ++part) {
      int below = part / 2 == 1, right = part % 2 == 1;
      const uint8_t first[2] = {below ? most[0] : 0, right ? most[1] : 0};
      const uint8_t size[2] = {below ? 1 : most[0], right ? 1 : most[1]};
      hwlib_tile_t tile = tile_of_part(&from, &whole, first, size);
      tile.flags = flags[part];
      tile.weights = weights;
      kit_expect_conv2d(&layer, &tile);
      fine = kit_run_job(&layer.layer, &tile, place);
      weights += tile.ofm_c * kit_filter_bytes(&layer, &tile);
    }
  }
  kit_end();
}

static void check_parts(unsigned kind, unsigned rounding, unsigned bits)
{
  static const char *const names[] = {[2] = "parts of a kernel, weights of 2 bits: first, middle, last",
                                      [4] = "parts of a kernel, weights of 4 bits: first, middle, last",
                                      [8] = "parts of a kernel: first, middle, last"};
  case_t wanted = {names[bits], 2, 2, 1, 1, {0}, 5, 6, 3, 3, FULL, .ifm_zero_point = -9,
                   .weight_zero_point = 1, .ofm_zero_point = 3};
  memset(wanted.pad, kit_limits(kind).wide_padding ? 1 : 0, sizeof wanted.pad);
  check_parts_of(adapted(&wanted, kind), kind, rounding, bits);
}

/* Each of several jobs has weights of its own, which begin on a byte. */
static void check_jobs_of_a_sum(unsigned kind, unsigned rounding, unsigned bits)
{
  if (kit_limits(kind).kernel_parts) {
    check_parts(kind, rounding, bits);
  }
  if (kind != HWLIB_DEPTHWISE_CONV2D) {
    check_slices(kind, rounding, bits);
  }
}

/* ---------------------------------------------------------------- pooling */

static void check_pooling(const case_t *from, unsigned rounding, unsigned mode, unsigned count_include_pad,
                          hwlib_scale_t scale)
{
  static const char *const subjects[][2][2] = {
      [HWLIB_POOL_AVG] = {{"pool2d, average, upward", "pool2d, average, tflite"},
                          {"pool2d, average with padding, upward", "pool2d, average with padding, tflite"}},
      [HWLIB_POOL_MAX] = {{"pool2d, maximum, upward", "pool2d, maximum, tflite"}, {"", ""}},
      [HWLIB_POOL_SUM] = {{"pool2d, sum, upward", "pool2d, sum, tflite"}, {"", ""}},
  };
  hwlib_tile_t tile = tile_of(from);
  hwlib_conv2d_t window = conv2d_of(from, HWLIB_POOL2D, rounding, 0);
  tile.kernel_h = tile.kernel_w = 0; /* not of a pool2d's tile */
  hwlib_pool2d_t layer = {
      .layer = window.layer,
      .ifm = window.ifm,
      .ofm = window.ofm,
      .kernel_h = window.kernel_h,
      .kernel_w = window.kernel_w,
      .stride_h = window.stride_h,
      .stride_w = window.stride_w,
      .pad_top = window.pad_top,
      .pad_left = window.pad_left,
      .pad_bottom = window.pad_bottom,
      .pad_right = window.pad_right,
      .mode = (uint8_t)mode,
      .count_include_pad = (uint8_t)count_include_pad,
      .ifm_zero_point = window.ifm_zero_point,
      .ofm_zero_point = window.ofm_zero_point,
      .scale = scale,
      .act_min = window.act_min,
      .act_max = window.act_max,
      .offset = -(int32_t)window.kernel_h * window.kernel_w * (window.ifm_zero_point - 3),
  };
  kit_fill(kit_before, KIT_WINDOW);
  kit_expect_unchanged();
  kit_expect_pool2d(&layer, &tile);
  kit_check_job(subjects[mode][count_include_pad][rounding], from->what, &layer.layer, &tile);
}

static void check_all_pooling(const case_t *from, unsigned rounding)
{
  const hwlib_scale_t identity = {1 << 30, 1, 31}, rescaled = {KIT_MULTIPLIER(1717986918), 1, 31};
  check_pooling(from, rounding, HWLIB_POOL_MAX, 0, identity);
  check_pooling(from, rounding, HWLIB_POOL_AVG, 0, rescaled);
  check_pooling(from, rounding, HWLIB_POOL_AVG, 1, rescaled);
  /* A mean of 9 and the like: the least multiplier is 2^29. */
  check_pooling(from, rounding, HWLIB_POOL_SUM, 0, (hwlib_scale_t){KIT_MULTIPLIER((1 << 29) + 12345), 2, 34});
}

/* ---------------------------------------------------------------- all of a kind */

static void check_adapted(const case_t *from, unsigned kind, unsigned rounding, unsigned bits)
{
  if (kind == HWLIB_POOL2D) {
    check_all_pooling(from, rounding);
  } else {
    check_convolution(from, kind, rounding, bits);
  }
}

static void check(const case_t *wanted, unsigned kind, unsigned rounding, unsigned bits)
{
  const case_t from = adapted(wanted, kind);
  check_adapted(&from, kind, rounding, bits);
}

static void check_largest_kernel(unsigned kind, unsigned rounding, unsigned bits)
{
  kit_limits_t limits = kit_limits(kind);
  case_t from = {"the largest kernel", .stride_h = 1, .stride_w = 1, .ifm_c = 1, .ofm_c = 2, FULL};
  from.kernel_h = smaller(limits.kernel_h, LARGEST);
  from.kernel_w = smaller(limits.kernel_w, LARGEST);
  from.ifm_h = from.kernel_h;
  from.ifm_w = (uint8_t)(from.kernel_w + 1);
  check(&from, kind, rounding, bits);
}

static void check_strides(unsigned kind, unsigned rounding, unsigned bits)
{
  kit_limits_t limits = kit_limits(kind);
  uint8_t least = kit_least_stride(kind);
  for (uint8_t stride = 1; stride < 32; ++stride) {
    if (kit_mask_has(limits.strides, stride)) {
      uint8_t size = (uint8_t)(stride + 4); /* the window may not reach the last column or row */
      const case_t both = {"every stride, both ways", 3, 3, stride, stride, {1, 0, 1, 0}, size, size, 3, 2, FULL};
      const case_t down = {"every stride downwards", 3, 3, stride, least, {0}, size, 5, 3, 2, FULL};
      const case_t across = {"every stride across", 3, 3, least, stride, {0}, 5, size, 3, 2, FULL};
      check(&both, kind, rounding, bits);
      check(&down, kind, rounding, bits);
      check(&across, kind, rounding, bits);
    }
  }
}

static void check_dilations(unsigned kind, unsigned rounding, unsigned bits)
{
  uint32_t dilations = kit_limits(kind).dilations;
  uint8_t smallest = kit_least_dilation(kind);
  for (uint8_t dilation = smallest; dilation < 32; ++dilation) {
    if (kit_mask_has(dilations, dilation) && dilations != 1u << 1) {
      uint8_t size = (uint8_t)(2 * dilation + 3);
      const case_t both = {"every dilation, both ways", 3, 2, 1, 2, {1, 1, 0, 0}, size, size, 3, 2, FULL,
                           .ifm_zero_point = 9, .dilation_h = dilation, .dilation_w = dilation};
      const case_t down = {"every dilation downwards", 3, 3, 1, 1, {0}, size, 9, 3, 2, FULL, .dilation_h = dilation,
                           .dilation_w = smallest};
      const case_t across = {"every dilation across", 3, 3, 1, 1, {0}, 9, size, 3, 2, FULL, .dilation_h = smallest,
                             .dilation_w = dilation};
      check(&both, kind, rounding, bits);
      check(&down, kind, rounding, bits);
      check(&across, kind, rounding, bits);
    }
  }
}

/* Windows in padding only: some of a tile, and all of it, the input behind the last one. */
static void check_wide_padding(unsigned kind, unsigned rounding, unsigned bits)
{
  const case_t some = {"padding wider than the kernel", 2, 3, 1, 1, {5, 3, 2, 6}, 2, 1, 3, 2, FULL,
                       .ifm_zero_point = 19, .ofm_zero_point = -5};
  const case_t one = {"", 2, 3, 1, 1, {0}, 1, 1, 3, 2, FULL, .ifm_zero_point = -31};
  check(&some, kind, rounding, bits);
  for (unsigned way = 1; way < 4; ++way) { /* 3 x 2 outputs; rows, columns or both in padding only */
    case_t only = adapted(&one, kind);
    int rows = (way & 1u) != 0, columns = (way & 2u) != 0;
    only.what = rows && columns ? "padding only" : rows ? "rows of padding only" : "columns of padding only";
    only.ifm_h = only.ifm_w = 1;
    only.pad[0] = (uint8_t)(2 * only.stride_h + rows_of(&only) - !rows);
    only.pad[1] = (uint8_t)(only.stride_w + columns_of(&only) - !columns);
    only.unreached_h = (uint8_t)(rows && only.stride_h == 1);
    only.unreached_w = (uint8_t)(columns && only.stride_w == 1);
    check_adapted(&only, kind, rounding, bits);
  }
}

/* Images of rows that lie a few pixels apart, as one row each: all rows of the window begin inside the one above. */
static void check_packed_rows(unsigned kind, unsigned rounding, unsigned bits)
{
  static const case_t packed[] = {
      {"rows that overlap", 3, 3, 1, 1, {0}, 3, 24, 3, 4, FULL, .ifm_zero_point = -4, .pitch = 6},
      {"rows that overlap, of pixels that lie apart", 3, 2, 1, 1, {0}, 3, 17, 2, 3, FULL, .pixel_gap = 3, .offset = 1,
       .pitch = 4},
  };
  for (size_t i = 0; i < sizeof packed / sizeof packed[0]; ++i) {
    case_t from = adapted(&packed[i], kind);
    from.ifm_h = rows_of(&from); /* a single row of outputs */
    if (fits_window(&from, kind) && from.ifm_h > 1 && from.ifm_w > from.pitch) {
      check_adapted(&from, kind, rounding, bits);
    }
  }
}

/* Images with height and width exchanged: each row begins inside the one above, between its pixels. */
static void check_turned(unsigned kind, unsigned rounding, unsigned bits)
{
  static const case_t turned[] = {
      {"rows among the pixels of others", 3, 2, 1, 1, {1, 0, 1, 1}, 4, 7, 3, 4, FULL, .ifm_zero_point = -4,
       .turned = 1},
      {"rows among pixels that lie apart", 2, 3, 2, 1, {0}, 6, 5, 2, 3, FULL, .pixel_gap = 3, .offset = 1,
       .turned = 1},
  };
  for (size_t i = 0; i < sizeof turned / sizeof turned[0]; ++i) {
    case_t from = adapted(&turned[i], kind);
    if (fits_window(&from, kind) && from.ifm_h > 1 && from.ifm_w > 1) {
      check_adapted(&from, kind, rounding, bits);
    }
  }
}

static void check_kind(unsigned kind, unsigned rounding)
{
  unsigned bits = kind == HWLIB_POOL2D ? 0 : kit_widest_weights(kind);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    if (!cases[i].windowed || kind != HWLIB_DENSE) {
      check(&cases[i], kind, rounding, bits);
    }
  }
  if (kind != HWLIB_DENSE) {
    check_largest_kernel(kind, rounding, bits);
    check_strides(kind, rounding, bits);
    check_dilations(kind, rounding, bits);
    if (kit_limits(kind).wide_padding) {
      check_wide_padding(kind, rounding, bits);
    }
    if (HWLIB_ACCELERATOR_PACKED_ROWS) {
      check_packed_rows(kind, rounding, bits);
      check_turned(kind, rounding, bits);
    }
  }
  if (kind == HWLIB_POOL2D) {
    return;
  }
  for (unsigned width = 2; width <= 8; width *= 2) {
    if ((kit_limits(kind).weight_bits >> width & 1u) != 0) {
      check_weight_bits(kind, rounding, width);
      check_jobs_of_a_sum(kind, rounding, width);
    }
  }
  if (bits == 8) {
    check_scales(kind, rounding);
  }
  if (bits == 8 && kind != HWLIB_DEPTHWISE_CONV2D) {
    check_wrap(kind, rounding);
  }
}

void kit_check_windows(void)
{
  static const uint8_t kinds[] = {HWLIB_CONV2D, HWLIB_DEPTHWISE_CONV2D, HWLIB_DENSE, HWLIB_POOL2D};
  for (size_t i = 0; i < sizeof kinds; ++i) {
    for (unsigned rounding = HWLIB_ROUND_UPWARD; rounding <= HWLIB_ROUND_TFLITE; ++rounding) {
      if (kit_has_kind(kinds[i]) && kit_has_rounding(rounding)) {
        check_kind(kinds[i], rounding);
      }
    }
  }
}
