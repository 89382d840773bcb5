/* tvmgen_two_hwlib_main_0: 2 layers, 128 bytes of scratch. */

/* branch/add */
static const hwlib_add_t tvmgen_two_hwlib_main_0_add_0 = {
  .layer           = {.id = 3, .kind = HWLIB_ADD, .rounding = HWLIB_ROUND_UPWARD},
  .shape           = {.height = 2, .width = 4, .channels = 8},
  .ifm_scale       = {.multiplier = 1073741824, .left = 1, .right = 31},
  .ifm2_scale      = {.multiplier = 1073741824, .left = 1, .right = 31},
  .sum_scale       = {.multiplier = 1073741824, .left = 1, .right = 31},
  .ifm_zero_point  = 3,
  .ifm2_zero_point = 3,
  .ofm_zero_point  = 3,
  .act_min         = -128,
  .act_max         = 127,
  .subtract        = 0,
};

/* out */
static const hwlib_add_t tvmgen_two_hwlib_main_0_add_1 = {
  .layer           = {.id = 4, .kind = HWLIB_ADD, .rounding = HWLIB_ROUND_UPWARD},
  .shape           = {.height = 2, .width = 4, .channels = 8},
  .ifm_scale       = {.multiplier = 1073741824, .left = 1, .right = 31},
  .ifm2_scale      = {.multiplier = 1073741824, .left = 1, .right = 31},
  .sum_scale       = {.multiplier = 1073741824, .left = 1, .right = 31},
  .ifm_zero_point  = 3,
  .ifm2_zero_point = 3,
  .ofm_zero_point  = 3,
  .act_min         = -128,
  .act_max         = 127,
  .subtract        = 0,
};

/* target, source, bytes, rows, target_stride, source_stride */
static const hwlib_copy_t tvmgen_two_hwlib_main_0_copies[] = {
  { {HWLIB_SPACE_ACTIVATIONS, 0},     {HWLIB_SPACE_ARGUMENT, 0}, 64, 1,  0,  0},
  {     {HWLIB_SPACE_WEIGHTS, 0},        {HWLIB_SPACE_FLASH, 0},  4, 1,  0,  0},
  {{HWLIB_SPACE_ARGUMENT + 1, 0}, {HWLIB_SPACE_ACTIVATIONS, 64}, 32, 2, 32, 32},
};

/* ifm, ifm2, ofm, psum, weights, params, ifm_row, ofm_row, ifm_pixel, ofm_pixel, ifm_h, ifm_w,
 *   ifm_c, ofm_h, ofm_w, ofm_c, pad_top, pad_left, pad_bottom, pad_right, kernel_h, kernel_w,
 *   flags
 */
static const hwlib_tile_t tvmgen_two_hwlib_main_0_tiles[] = {
  {0, 0, 64, 0, 0, 0, 64, 64, 1, 1, 1, 64, 1, 1, 64, 1, 0, 0, 0, 0, 0, 0, HWLIB_TILE_FIRST | HWLIB_TILE_LAST},
};

/* kind, slot, index */
static const hwlib_step_t tvmgen_two_hwlib_main_0_steps[] = {
  /* branch/add */
  {HWLIB_STEP_COPY, 0, 0},
  {HWLIB_STEP_COPY_WAIT, 0, 0},
  {HWLIB_STEP_JOB, 0, 0},
  {HWLIB_STEP_JOB_WAIT, 0, 0},
  /* out */
  {HWLIB_STEP_COPY, 0, 0},
  {HWLIB_STEP_COPY_WAIT, 0, 0},
  {HWLIB_STEP_JOB, 0, 0},
  {HWLIB_STEP_JOB_WAIT, 0, 0},
  {HWLIB_STEP_COPY, 0, 1},
  /* branch/add */
  {HWLIB_STEP_JOB, 0, 0},
  /* out */
  {HWLIB_STEP_COPY, 1, 2},
  /* the end of the region */
  {HWLIB_STEP_COPY_WAIT, 1, 0},
};

static const hwlib_plan_t tvmgen_two_hwlib_main_0_plan = {
  .steps  = tvmgen_two_hwlib_main_0_steps,
  .copies = tvmgen_two_hwlib_main_0_copies,
  .tiles  = tvmgen_two_hwlib_main_0_tiles,
  .layer  = 3,
};

int32_t tvmgen_two_hwlib_main_0(const int8_t *in0, int8_t *out0, uint8_t *scratch)
{
  const hwlib_place_t spaces[] = {
    {HWLIB_LOCAL_ACTIVATIONS, 0},
    {HWLIB_LOCAL_WEIGHTS, 0},
    {HWLIB_MAIN, (uintptr_t)tvmgen_two_hwlib_main_0_flash},
    {HWLIB_MAIN, (uintptr_t)scratch},
    {HWLIB_MAIN, (uintptr_t)in0},
    {HWLIB_MAIN, (uintptr_t)out0},
  };
  hwlib_region_t region;
  hwlib_status_t status = hwlib_begin(&region, &tvmgen_two_hwlib_main_0_plan, spaces);

  /* 3: add branch/add, part 1 of 2
   * add
   * relu
   * in0 [1x2x4x8], in0 [1x2x4x8] -> [1x2x4x8]
   */
  if (status == HWLIB_OK) {
    status = hwlib_add(&region, &tvmgen_two_hwlib_main_0_add_0, (hwlib_steps_t){0, 4});
  }

  /* 4: add out, part 1 of 2
   * layer 3 [1x2x4x8], layer 3 [1x2x4x8] -> [1x2x4x8]
   */
  if (status == HWLIB_OK) {
    status = hwlib_add(&region, &tvmgen_two_hwlib_main_0_add_1, (hwlib_steps_t){4, 5});
  }

  /* 3: add branch/add, part 2 of 2 */
  if (status == HWLIB_OK) {
    status = hwlib_add(&region, &tvmgen_two_hwlib_main_0_add_0, (hwlib_steps_t){9, 1});
  }

  /* 4: add out, part 2 of 2 */
  if (status == HWLIB_OK) {
    status = hwlib_add(&region, &tvmgen_two_hwlib_main_0_add_1, (hwlib_steps_t){10, 1});
  }

  if (status == HWLIB_OK) {
    status = hwlib_wait(&region, (hwlib_steps_t){11, 1});
  }
  return status == HWLIB_OK ? 0 : HWLIB_RESULT(status, region.layer);
}
