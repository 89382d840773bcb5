/* tvmgen_two_hwlib_main_0: 2 layers, 128 bytes of scratch. */

static const struct tvmgen_two_hwlib_main_0_layers {
  hwlib_add_t add_0;
  hwlib_add_t add_1;
} tvmgen_two_hwlib_main_0_layers = {
  /* branch/add */
  .add_0 = {
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
  },
  /* out */
  .add_1 = {
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
  },
};

/* ifm_row, ofm_row, ifm_pixel, ofm_pixel, ifm_h, ifm_w, ifm_c, ofm_h, ofm_w, ofm_c, pad_top,
 *   pad_left, pad_bottom, pad_right, kernel_h, kernel_w, flags
 */
static const hwlib_form_t tvmgen_two_hwlib_main_0_forms[] = {
  {{64, 64, 1, 1, 1, 64, 1, 1, 64, 1, 0, 0, 0, 0, 0, 0, HWLIB_TILE_FIRST | HWLIB_TILE_LAST, 0}},
};

/* COPY_IN(slot, after, at, space, offset, bytes)
 * COPY_WEIGHTS(slot, after, at, space, offset, bytes)
 * ROWS_OUT(slot, after, at, space, offset, bytes, rows, target_stride, source_stride)
 * JOB(slot, after, place, ifm, ofm, weights, params)
 * JOB_FORM(slot, after, place, form, ifm, ofm, weights, params)
 */
static const uint16_t tvmgen_two_hwlib_main_0_steps[] = {
  /* 3: add branch/add, part 1 of 2
   * add
   * relu
   * in0 [1x2x4x8], in0 [1x2x4x8] -> [1x2x4x8]
   */
  HWLIB_LAYER(struct tvmgen_two_hwlib_main_0_layers, add_0),
  HWLIB_COPY_IN(0, 0, 0, HWLIB_SPACE_ARGUMENT, 0, 64),
  HWLIB_COPY_WAIT(0),
  HWLIB_JOB_FORM(0, 0, 0, 0, 0, 64, 0, 0),
  HWLIB_JOB_WAIT(0),

  /* 4: add out, part 1 of 2
   * layer 3 [1x2x4x8], layer 3 [1x2x4x8] -> [1x2x4x8]
   */
  HWLIB_LAYER(struct tvmgen_two_hwlib_main_0_layers, add_1),
  HWLIB_COPY_IN(0, 0, 0, HWLIB_SPACE_ARGUMENT, 0, 64),
  HWLIB_COPY_WAIT(0),
  HWLIB_JOB(0, 0, 0, 0, 64, 0, 0),
  HWLIB_JOB_WAIT(0),
  HWLIB_COPY_WEIGHTS(0, 0, 0, HWLIB_SPACE_FLASH, 0, 4),

  /* 3: add branch/add, part 2 of 2 */
  HWLIB_LAYER(struct tvmgen_two_hwlib_main_0_layers, add_0),
  HWLIB_JOB(0, 0, 0, 0, 64, 0, 0),

  /* 4: add out, part 2 of 2 */
  HWLIB_LAYER(struct tvmgen_two_hwlib_main_0_layers, add_1),
  HWLIB_ROWS_OUT(1, 0, 64, HWLIB_SPACE_ARGUMENT + 1, 0, 32, 2, 32, 32),
  HWLIB_COPY_WAIT(1),
  HWLIB_END,
};

static const hwlib_plan_t tvmgen_two_hwlib_main_0_plan = {
  .layers     = &tvmgen_two_hwlib_main_0_layers,
  .forms      = tvmgen_two_hwlib_main_0_forms,
  .copies     = 0,
  .tiles      = 0,
  .steps      = tvmgen_two_hwlib_main_0_steps,
  .layer      = 3,
  .local_unit = 0,
  .main_unit  = 0,
};

int32_t tvmgen_two_hwlib_main_0(const int8_t *in0, int8_t *out0, uint8_t *scratch)
{
  const uintptr_t starts[] = {
    (uintptr_t)tvmgen_two_hwlib_main_0_flash,
    (uintptr_t)scratch,
    (uintptr_t)in0,
    (uintptr_t)out0,
  };
  hwlib_made_tile_t tiles[1];
  hwlib_region_t region;
  hwlib_status_t status = hwlib_start(&region, &tvmgen_two_hwlib_main_0_plan, starts, tiles);
  return status == HWLIB_OK ? 0 : HWLIB_RESULT(status, region.layer);
}
