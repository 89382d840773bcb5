/* Error returns, for a HAL that checks its arguments (HAL_KIT_REFUSALS): whatever the accelerator cannot do returns
 * a status other than 0, at once or from the wait, and the next job runs. */
#include "kit_internal.h"

#include <string.h>

#if HAL_KIT_REFUSALS

#define COPY_1D "hwlib_hal_copy_1d"
#define COPY_2D "hwlib_hal_copy_2d"
#define COPY_WAIT "hwlib_hal_copy_wait"
#define JOB_START "hwlib_hal_job_start"
#define JOB_WAIT "hwlib_hal_job_wait"

static void expect_refusal(const char *function, hwlib_status_t status)
{
  if (status == HWLIB_OK) {
    kit_fail_once(function, "refusals", 1, 0);
  }
  (void)kit_ok("hwlib_hal_init", hwlib_hal_init());
}

/* ---------------------------------------------------------------- copies */

static void check_copy(const char *what, hwlib_place_t target, hwlib_place_t source, uint32_t bytes)
{
  hwlib_token_t token = 0;
  kit_begin(COPY_1D, "refuses", what);
  hwlib_status_t status = hwlib_hal_copy_1d(target, source, bytes, &token);
  expect_refusal(COPY_1D, status == HWLIB_OK ? hwlib_hal_copy_wait(token) : status);
  kit_end();
}

static void check_rows(const char *what, hwlib_place_t target, uint32_t target_stride, uint32_t bytes, uint32_t rows)
{
  hwlib_token_t token = 0;
  kit_begin(COPY_2D, "refuses", what);
  hwlib_status_t status =
      hwlib_hal_copy_2d(target, target_stride, kit_main(kit_before), bytes, bytes, rows, &token);
  expect_refusal(COPY_2D, status == HWLIB_OK ? hwlib_hal_copy_wait(token) : status);
  kit_end();
}

static void check_copies(void)
{
  hwlib_place_t other = kit_main(kit_before), local = kit_local(&kit_memories[0], 0);
  for (unsigned i = 0; i < KIT_MEMORIES; ++i) {
    const kit_memory_t *memory = &kit_memories[i];
    uint32_t last = memory->size - KIT_UNIT;
    check_copy("a copy beyond the end of a local memory", kit_local(memory, last), other, 2 * KIT_UNIT);
    check_copy("a copy from beyond the end of a local memory", other, kit_local(memory, last), 2 * KIT_UNIT);
    check_copy("a copy from far outside", other, kit_local(memory, UINT32_MAX / KIT_UNIT * KIT_UNIT), KIT_UNIT);
    check_rows("rows beyond the end of a local memory", kit_local(memory, last - 8 * KIT_UNIT), 8 * KIT_UNIT,
               KIT_UNIT, 3);
  }
  check_copy("a copy from main memory to main memory", kit_main(kit_got), other, KIT_UNIT);
  check_copy("a copy from local memory to local memory", kit_local(&kit_memories[1], 0), local, KIT_UNIT);
  if (KIT_UNIT > 1) {
    check_copy("an unaligned local address", kit_local(&kit_memories[0], 1), other, KIT_UNIT);
    check_copy("an unaligned length", local, other, KIT_UNIT + 1);
    check_rows("an unaligned stride", local, KIT_UNIT + 1, KIT_UNIT, 2);
  }
}

static void check_questions(const char *function, hwlib_status_t (*question)(hwlib_token_t token, uint8_t *done))
{
  uint8_t done = 0;
  kit_begin(function, "refuses", "a token that was not given");
  expect_refusal(function, question(0, &done));
  kit_end();
}

/* A copy is asked for until it is done, which was checked before. */
static int until_done(hwlib_token_t token)
{
  uint8_t done = 0;
  for (uint32_t i = 0; i < 10000000 && !done; ++i) {
    if (!kit_ok("hwlib_hal_copy_done", hwlib_hal_copy_done(token, &done))) {
      return 0;
    }
  }
  return done;
}

static void check_waits(void)
{
  hwlib_token_t token = 0;
  kit_begin(COPY_WAIT, "refuses", "a token that was not given");
  expect_refusal(COPY_WAIT, hwlib_hal_copy_wait(0));
  kit_end();
  kit_begin(JOB_WAIT, "refuses", "a token that was not given");
  expect_refusal(JOB_WAIT, hwlib_hal_job_wait(0));
  kit_end();

  hwlib_place_t local = kit_local(&kit_memories[0], 0), other = kit_main(kit_before);
  kit_begin(COPY_WAIT, "refuses", "a second wait for the same copy");
  if (kit_ok(COPY_1D, hwlib_hal_copy_1d(local, other, KIT_UNIT, &token)) &&
      kit_ok(COPY_WAIT, hwlib_hal_copy_wait(token))) {
    expect_refusal(COPY_WAIT, hwlib_hal_copy_wait(token));
  }
  kit_end();
  if (hwlib_hal_copy_done != NULL) {
    check_questions("hwlib_hal_copy_done", hwlib_hal_copy_done);
    kit_begin("hwlib_hal_copy_done", "refuses", "a copy that was done, and a wait for it");
    if (kit_ok(COPY_1D, hwlib_hal_copy_1d(local, other, KIT_UNIT, &token)) && until_done(token)) {
      uint8_t done = 0;
      hwlib_status_t status = hwlib_hal_copy_done(token, &done);
      expect_refusal("hwlib_hal_copy_done", status == HWLIB_OK ? status : hwlib_hal_copy_wait(token));
    }
    kit_end();
  }
  if (hwlib_hal_job_done != NULL) {
    check_questions("hwlib_hal_job_done", hwlib_hal_job_done);
  }
  kit_begin("hwlib_hal_init", "", "ends the tokens of before");
  if (kit_ok(COPY_1D, hwlib_hal_copy_1d(local, other, KIT_UNIT, &token)) &&
      kit_ok("hwlib_hal_init", hwlib_hal_init())) {
    expect_refusal("hwlib_hal_init", hwlib_hal_copy_wait(token));
  }
  kit_end();
}

/* ---------------------------------------------------------------- jobs */

/* 1 x 1 over 2 x 2 pixels (dense: over one) of 3 channels to 3, with the widest weights. */
static uint32_t size_of(unsigned kind) { return kind == HWLIB_DENSE ? 1 : 2; }

static uint32_t places_of(unsigned kind) { return (size_of(kind) - 1) / kit_least_stride(kind) + 1; }

static hwlib_conv2d_t small_layer(unsigned kind)
{
  uint32_t size = size_of(kind), places = places_of(kind);
  return (hwlib_conv2d_t){.layer = {.kind = (uint8_t)kind, .rounding = (uint8_t)kit_some_rounding()},
                          .ifm = {size, size, 3},
                          .ofm = {places, places, 3},
                          .kernel_h = 1,
                          .kernel_w = 1,
                          .stride_h = kit_least_stride(kind),
                          .stride_w = kit_least_stride(kind),
                          .dilation_h = kit_least_dilation(kind),
                          .dilation_w = kit_least_dilation(kind),
                          .weight_bits = kit_widest_weights(kind),
                          .act_min = -128,
                          .act_max = 127};
}

static hwlib_tile_t small_tile(unsigned kind)
{
  uint32_t size = size_of(kind), places = places_of(kind);
  return (hwlib_tile_t){.ofm = 64,
                        .psum = 128,
                        .weights = 64,
                        .ifm_row = 3 * size,
                        .ofm_row = 3 * places,
                        .ifm_pixel = 3,
                        .ofm_pixel = 3,
                        .ifm_h = size,
                        .ifm_w = size,
                        .ifm_c = 3,
                        .ofm_h = places,
                        .ofm_w = places,
                        .ofm_c = 3,
                        .kernel_h = 1,
                        .kernel_w = 1,
                        .flags = HWLIB_TILE_FIRST | HWLIB_TILE_LAST};
}

static void load_small_job(void)
{
  const hwlib_params_t params = {.multiplier = 1 << 30, .left = 1, .right = 31};
  kit_fill(kit_before, KIT_WINDOW);
  memset(kit_weights, 1, KIT_WINDOW);
  for (unsigned k = 0; k < 3; ++k) {
    memcpy(kit_weights + k * sizeof params, &params, sizeof params);
  }
  (void)kit_load_window(KIT_AT_START);
}

static void check_refused_job(unsigned kind, const char *what, const hwlib_layer_t *layer, const hwlib_tile_t *tile)
{
  hwlib_token_t token = 0;
  hwlib_job_t job = {layer, tile};
  kit_begin(JOB_START, kind == HWLIB_DENSE ? "dense refuses" : kind == HWLIB_CONV2D ? "conv2d refuses" : "refuses",
            what);
  hwlib_status_t status = hwlib_hal_job_start(&job, &token);
  expect_refusal(JOB_START, status == HWLIB_OK ? hwlib_hal_job_wait(token) : status);
  kit_end();
}

/* The small job with one thing changed. */
#define CHECK_REFUSED(kind, what, change)                        \
  do {                                                           \
    hwlib_conv2d_t layer = small_layer(kind);                    \
    hwlib_tile_t tile = small_tile(kind);                        \
    change;                                                      \
    check_refused_job((kind), (what), &layer.layer, &tile);      \
  } while (0)

static unsigned least_absent(unsigned mask)
{
  unsigned member = 1;
  while (kit_mask_has(mask, member)) {
    ++member;
  }
  return member;
}

static void check_conv2d(void)
{
  enum { ACTIVATIONS = HWLIB_ACCELERATOR_ACTIVATION_MEMORY, WEIGHTS = HWLIB_ACCELERATOR_WEIGHT_MEMORY };
  const unsigned kind = HWLIB_CONV2D;
  CHECK_REFUSED(kind, "an unknown layer kind", layer.layer.kind = 31);
  CHECK_REFUSED(kind, "an unknown rounding", layer.layer.rounding = 31);
#if HWLIB_ACCELERATOR_CONV2D_KERNEL_W < 255
  CHECK_REFUSED(kind, "a kernel that is too large",
                (layer.kernel_w = tile.kernel_w = HWLIB_ACCELERATOR_CONV2D_KERNEL_W + 1,
                 tile.ifm_w = HWLIB_ACCELERATOR_CONV2D_KERNEL_W * layer.dilation_w + 2));
#endif
  CHECK_REFUSED(kind, "a kernel of 0", layer.kernel_h = tile.kernel_h = 0);
#if HWLIB_ACCELERATOR_CONV2D_KERNEL_H > 1
  CHECK_REFUSED(kind, "a part larger than the kernel", (tile.kernel_h = 2, tile.ofm_h = 1));
#endif
#if !HWLIB_ACCELERATOR_CONV2D_KERNEL_PARTS
  CHECK_REFUSED(kind, "a part of a kernel", layer.kernel_h = 2);
#endif
  CHECK_REFUSED(kind, "a stride that it lacks", layer.stride_h = (uint8_t)least_absent(HWLIB_ACCELERATOR_CONV2D_STRIDES));
  CHECK_REFUSED(kind, "a dilation that it lacks", layer.dilation_h = (uint8_t)least_absent(HWLIB_ACCELERATOR_CONV2D_DILATIONS));
  CHECK_REFUSED(kind, "weights of 3 bits", layer.weight_bits = 3);
#if !HWLIB_ACCELERATOR_CONV2D_WIDE_PADDING
  CHECK_REFUSED(kind, "padding as large as the kernel", (layer.pad_top = tile.pad_top = 1, tile.ofm_h = 3));
#endif
#if !HWLIB_ACCELERATOR_PACKED_ROWS
  CHECK_REFUSED(kind, "rows that overlap", tile.ifm_row = 3);
#endif
  CHECK_REFUSED(kind, "more outputs than its window has places", tile.ofm_h = 3);
  CHECK_REFUSED(kind, "no channels", tile.ifm_c = 0);
  CHECK_REFUSED(kind, "act_min above act_max", (layer.act_min = 1, layer.act_max = 0));
  CHECK_REFUSED(kind, "an input beyond local activations", tile.ifm = ACTIVATIONS - 2);
  CHECK_REFUSED(kind, "an output beyond local activations", tile.ofm = ACTIVATIONS - 2);
  CHECK_REFUSED(kind, "rows beyond local activations", tile.ifm_row = ACTIVATIONS);
  CHECK_REFUSED(kind, "sums beyond local activations",
                (tile.flags = HWLIB_TILE_FIRST, tile.psum = ACTIVATIONS / 4 * 4 - 8));
  CHECK_REFUSED(kind, "weights beyond local weights", tile.weights = WEIGHTS - 2);
  CHECK_REFUSED(kind, "parameters beyond local weights", tile.params = WEIGHTS / 4 * 4 - 32);
  CHECK_REFUSED(kind, "sums that are not aligned", (tile.flags = HWLIB_TILE_FIRST, tile.psum = 130));
  CHECK_REFUSED(kind, "parameters that are not aligned", tile.params = 2);
}

static void check_others(void)
{
  if (kit_has_kind(HWLIB_DENSE)) {
    CHECK_REFUSED(HWLIB_DENSE, "an output of several rows", (tile.ifm_h = 2, tile.ofm_h = 2));
  }
  if (kit_has_kind(HWLIB_DEPTHWISE_CONV2D)) {
#if !HWLIB_ACCELERATOR_DEPTHWISE_CONV2D_KERNEL_PARTS
    CHECK_REFUSED(HWLIB_DEPTHWISE_CONV2D, "sums of a depthwise convolution", tile.flags = HWLIB_TILE_FIRST);
#endif
    CHECK_REFUSED(HWLIB_DEPTHWISE_CONV2D, "a depthwise convolution to fewer channels", tile.ofm_c = 2);
  }
  if (kit_has_kind(HWLIB_ADD)) {
    kit_addition_t addition = kit_addition(kit_some_rounding(), 16);
    addition.layer.ifm_scale.right = 63;
    check_refused_job(HWLIB_ADD, "an addition shifted right by 63", &addition.layer.layer, &addition.tile);
    addition.layer.ifm_scale.right = 31;
    addition.tile.ifm2 = HWLIB_ACCELERATOR_ACTIVATION_MEMORY - 15;
    check_refused_job(HWLIB_ADD, "an addition's input beyond local activations", &addition.layer.layer,
                      &addition.tile);
  }
}

static void check_works_afterwards(void)
{
  hwlib_conv2d_t layer = small_layer(HWLIB_CONV2D);
  hwlib_tile_t tile = small_tile(HWLIB_CONV2D);
  kit_begin(JOB_START, "", "after all that was refused, a job runs");
  kit_expect_unchanged();
  kit_expect_conv2d(&layer, &tile);
  if (kit_load_window(KIT_AT_START)) {
    (void)kit_run_job(&layer.layer, &tile, KIT_AT_START);
  }
  kit_end();
}

void kit_check_refusals(void)
{
  check_copies();
  check_waits();
  load_small_job();
  check_others();
  if (kit_has_kind(HWLIB_CONV2D)) {
    check_conv2d();
    check_works_afterwards();
  }
}

#else

void kit_check_refusals(void) { kit_skip("hwlib_hal_*", "error returns: this HAL does not say that it checks"); }

#endif
