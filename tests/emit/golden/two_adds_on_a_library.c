/* tvmgen_two_twin_main_0: 2 layers, 64 bytes of scratch. */

/* Where the operands of layers that run as a whole lie: its values are below. */
static hwlib_place_t tvmgen_two_twin_main_0_spaces[13];

/* ---- tvmgen_two_twin_main_0_npu, on npu: 1 layers */

/* first */
static const hwlib_add_t tvmgen_two_twin_main_0_npu_add_0 = {
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

/* target, source, bytes, rows, target_stride, source_stride */
static const hwlib_copy_t tvmgen_two_twin_main_0_npu_copies[] = {
  { {HWLIB_SPACE_ACTIVATIONS, 0},     {HWLIB_SPACE_ARGUMENT, 0}, 64, 1, 0, 0},
  {{HWLIB_SPACE_ARGUMENT + 1, 0}, {HWLIB_SPACE_ACTIVATIONS, 64}, 64, 1, 0, 0},
};

/* ifm, ifm2, ofm, psum, weights, params, ifm_row, ofm_row, ifm_pixel, ofm_pixel, ifm_h, ifm_w,
 *   ifm_c, ofm_h, ofm_w, ofm_c, pad_top, pad_left, pad_bottom, pad_right, kernel_h, kernel_w,
 *   flags
 */
static const hwlib_tile_t tvmgen_two_twin_main_0_npu_tiles[] = {
  {0, 0, 64, 0, 0, 0, 64, 64, 1, 1, 1, 64, 1, 1, 64, 1, 0, 0, 0, 0, 0, 0, HWLIB_TILE_FIRST | HWLIB_TILE_LAST},
};

/* kind, slot, index */
static const hwlib_step_t tvmgen_two_twin_main_0_npu_steps[] = {
  /* first */
  {HWLIB_STEP_COPY, 1, 0},
  {HWLIB_STEP_COPY_WAIT, 1, 0},
  {HWLIB_STEP_JOB, 1, 0},
  {HWLIB_STEP_JOB_WAIT, 1, 0},
  {HWLIB_STEP_COPY, 1, 1},
  /* the end of the region */
  {HWLIB_STEP_SIGNAL, 1, 0},
  {HWLIB_STEP_COPY_WAIT, 1, 0},
};

static const hwlib_part_plan_t tvmgen_two_twin_main_0_npu_plan = {
  .steps  = tvmgen_two_twin_main_0_npu_steps,
  .copies = tvmgen_two_twin_main_0_npu_copies,
  .tiles  = tvmgen_two_twin_main_0_npu_tiles,
  .layer  = 3,
};

/* layer, steps: the first one, their number */
static const hwlib_call_t tvmgen_two_twin_main_0_npu_calls[] = {
  /* 3: add first
   * add
   * in0 [1x2x4x8], in0 [1x2x4x8] -> [1x2x4x8]
   */
  {&tvmgen_two_twin_main_0_npu_add_0.layer, {0, 5}},
  /* the end */
  {0, {5, 2}},
};

/* ---- tvmgen_two_twin_main_0_vec, on vec: 1 layers */

/* second */
static int32_t tvmgen_two_twin_main_0_vec_add_0_start(hwlib_token_t *token)
{
  return vendor_add_start(
      64,
      ((const int8_t *)tvmgen_two_twin_main_0_spaces[10].address),
      ((const int8_t *)tvmgen_two_twin_main_0_spaces[11].address),
      ((int8_t *)tvmgen_two_twin_main_0_spaces[12].address),
      tvmgen_two_twin_main_0_vec_0_table,
      token);
}

/* space, offset, bytes, writes */
static const hwlib_operand_t tvmgen_two_twin_main_0_vec_add_0_operands[] = {
  {&tvmgen_two_twin_main_0_spaces[12], 0, 64, 1},
  {&tvmgen_two_twin_main_0_spaces[10], 0, 64, 0},
  {&tvmgen_two_twin_main_0_spaces[11], 0, 64, 0},
};

static const hwlib_whole_layer_t tvmgen_two_twin_main_0_vec_add_0 = {
  .layer         = {.id = 4, .kind = HWLIB_ADD, .rounding = HWLIB_ROUND_UPWARD},
  .start         = tvmgen_two_twin_main_0_vec_add_0_start,
  .operands      = tvmgen_two_twin_main_0_vec_add_0_operands,
  .operand_count = 3,
  .cycles        = 66u,
};

/* kind, slot, index */
static const hwlib_step_t tvmgen_two_twin_main_0_vec_steps[] = {
  /* second */
  {HWLIB_STEP_AWAIT, 0, 0},
  {HWLIB_STEP_LAYER, 1, 0},
  {HWLIB_STEP_JOB_WAIT, 1, 0},
};

static const hwlib_part_plan_t tvmgen_two_twin_main_0_vec_plan = {
  .steps  = tvmgen_two_twin_main_0_vec_steps,
  .copies = 0,
  .tiles  = 0,
  .layer  = 4,
};

/* layer, steps: the first one, their number */
static const hwlib_call_t tvmgen_two_twin_main_0_vec_calls[] = {
  /* 4: add second
   * add
   * layer 3 [1x2x4x8], in1 [1x2x4x8] -> [1x2x4x8]
   */
  {&tvmgen_two_twin_main_0_vec_add_0.layer, {0, 3}},
  /* the end */
  {0, {3, 0}},
};

/* plan, calls, their number, first of the spaces */
static const hwlib_part_t tvmgen_two_twin_main_0_npu_parts[] = {
  {&tvmgen_two_twin_main_0_npu_plan, tvmgen_two_twin_main_0_npu_calls, 2, 0},
};

/* plan, calls, their number, first of the spaces */
static const hwlib_part_t tvmgen_two_twin_main_0_vec_parts[] = {
  {&tvmgen_two_twin_main_0_vec_plan, tvmgen_two_twin_main_0_vec_calls, 2, 6},
};

/* HAL, parts, their number */
static const hwlib_lane_t tvmgen_two_twin_main_0_lanes[] = {
  {&npu_hal, tvmgen_two_twin_main_0_npu_parts, 1},
  {&vec_hal, tvmgen_two_twin_main_0_vec_parts, 1},
};

/* Where the spaces of each part start. Those that the caller says are filled in at the start. */
static hwlib_place_t tvmgen_two_twin_main_0_spaces[] = {
  /* tvmgen_two_twin_main_0_npu */
  {HWLIB_LOCAL_ACTIVATIONS, 0},
  {HWLIB_LOCAL_WEIGHTS, 0},
  {HWLIB_MAIN, 0},
  {HWLIB_MAIN, 0},
  {HWLIB_MAIN, 0},
  {HWLIB_MAIN, 0},
  /* tvmgen_two_twin_main_0_vec */
  {HWLIB_LOCAL_ACTIVATIONS, 0},
  {HWLIB_LOCAL_WEIGHTS, 0},
  {HWLIB_MAIN, 0},
  {HWLIB_MAIN, 0},
  {HWLIB_MAIN, 0},
  {HWLIB_MAIN, 0},
  {HWLIB_MAIN, 0},
};

/* While the region runs. */
static hwlib_lane_state_t tvmgen_two_twin_main_0_states[2];
static hwlib_event_t tvmgen_two_twin_main_0_events[1];

static const hwlib_chip_plan_t tvmgen_two_twin_main_0_plan = {
  .lanes       = tvmgen_two_twin_main_0_lanes,
  .spaces      = tvmgen_two_twin_main_0_spaces,
  .states      = tvmgen_two_twin_main_0_states,
  .events      = tvmgen_two_twin_main_0_events,
  .lane_count  = 2,
  .event_count = 1,
};

int32_t tvmgen_two_twin_main_0(const int8_t *in0, const int8_t *in1, int8_t *out0, uint8_t *scratch)
{
  tvmgen_two_twin_main_0_spaces[4].address = (uintptr_t)in0;
  tvmgen_two_twin_main_0_spaces[5].address = (uintptr_t)scratch;
  tvmgen_two_twin_main_0_spaces[10].address = (uintptr_t)scratch;
  tvmgen_two_twin_main_0_spaces[11].address = (uintptr_t)in1;
  tvmgen_two_twin_main_0_spaces[12].address = (uintptr_t)out0;
  hwlib_lanes_t lanes;
  hwlib_lanes_start(&lanes, &tvmgen_two_twin_main_0_plan);
  return hwlib_lanes_wait(&lanes);
}
