/* A region as generated code has it, on the simulator: a maximum over rows and an addition, with the
 * second input of the addition copied in while the first layer computes. test_wrappers.py knows what
 * it must print. */
#include <stdio.h>

#include "hwlib.h"
#include "hwlib_sim.h"

enum { ELEMENTS = 64, IFM = 0, POOLED = 1024, OTHER = 2048, SUM = 3072 };

static const hwlib_pool2d_t pool2d = {
    .layer = {.id = 0, .kind = HWLIB_POOL2D, .rounding = HWLIB_ROUND_UPWARD},
    .ifm = {2, 1, ELEMENTS},
    .ofm = {1, 1, ELEMENTS},
    .kernel_h = 2,
    .kernel_w = 1,
    .stride_h = 1,
    .dilation_h = 1,
    .dilation_w = 1,
    .stride_w = 1,
    .mode = HWLIB_POOL_MAX,
    .act_min = -128,
    .act_max = 127,
};
static const hwlib_add_t add = {
    .layer = {.id = 1, .kind = HWLIB_ADD, .rounding = HWLIB_ROUND_UPWARD},
    .shape = {1, 1, ELEMENTS},
    .ifm_scale = {1 << 30, 1, 31},
    .ifm2_scale = {1 << 30, 1, 31},
    .act_min = -128,
    .act_max = 127,
};

static const hwlib_copy_t copies[] = {
    {{HWLIB_SPACE_ACTIVATIONS, IFM}, {HWLIB_SPACE_ARGUMENT, 0}, ELEMENTS, 2, ELEMENTS, ELEMENTS},
    {{HWLIB_SPACE_ACTIVATIONS, OTHER}, {HWLIB_SPACE_FLASH, 0}, ELEMENTS, 1, 0, 0},
    {{HWLIB_SPACE_ARGUMENT + 1, 0}, {HWLIB_SPACE_ACTIVATIONS, SUM}, ELEMENTS, 1, 0, 0},
};
static const hwlib_tile_t tiles[] = {
    {.ifm = IFM, .ofm = POOLED, .ifm_row = ELEMENTS, .ifm_pixel = ELEMENTS, .ofm_row = ELEMENTS,
     .ofm_pixel = ELEMENTS, .ifm_h = 2, .ifm_w = 1, .ifm_c = ELEMENTS, .ofm_h = 1, .ofm_w = 1, .ofm_c = ELEMENTS,
     .flags = HWLIB_TILE_FIRST | HWLIB_TILE_LAST},
    {.ifm = POOLED, .ifm2 = OTHER, .ofm = SUM, .ifm_h = 1, .ifm_w = ELEMENTS, .ifm_c = 1,
     .flags = HWLIB_TILE_FIRST | HWLIB_TILE_LAST},
};
static const hwlib_step_t steps[] = {
    {HWLIB_STEP_COPY, 0, 0}, {HWLIB_STEP_COPY_WAIT, 0, 0}, {HWLIB_STEP_JOB, 1, 0}, {HWLIB_STEP_COPY, 2, 1},
    {HWLIB_STEP_COPY_WAIT, 2, 0}, {HWLIB_STEP_JOB, 3, 1}, {HWLIB_STEP_JOB_WAIT, 3, 0}, {HWLIB_STEP_COPY, 0, 2},
    {HWLIB_STEP_COPY_WAIT, 0, 0},
};
static const hwlib_plan_t plan = {steps, copies, tiles, 0};

static hwlib_status_t run_region(const int8_t *ifm, const int8_t *other, int8_t *ofm)
{
  const hwlib_place_t spaces[] = {
      {HWLIB_LOCAL_ACTIVATIONS, 0}, {HWLIB_LOCAL_WEIGHTS, 0},     {HWLIB_MAIN, (uintptr_t)other},
      {HWLIB_MAIN, 0},              {HWLIB_MAIN, (uintptr_t)ifm}, {HWLIB_MAIN, (uintptr_t)ofm},
  };
  hwlib_region_t region;
  hwlib_status_t status = hwlib_begin(&region, &plan, spaces);
  if (status == HWLIB_OK) {
    status = hwlib_pool2d(&region, &pool2d, (hwlib_steps_t){0, 4});
  }
  if (status == HWLIB_OK) {
    status = hwlib_add(&region, &add, (hwlib_steps_t){4, 4});
  }
  if (status == HWLIB_OK) {
    status = hwlib_wait(&region, (hwlib_steps_t){8, 1});
  }
  return status;
}

int main(void)
{
  static int8_t ifm[2 * ELEMENTS], other[ELEMENTS], ofm[ELEMENTS];
  for (int i = 0; i < ELEMENTS; ++i) {
    ifm[i] = (int8_t)i;
    ifm[ELEMENTS + i] = (int8_t)(ELEMENTS - i);
    other[i] = (int8_t)-i;
  }
  hwlib_status_t status = run_region(ifm, other, ofm);
  printf("status %d fault %s\n", (int)status, hwlib_sim_fault());
  printf("cycles %u + %u = %u\n", (unsigned)hwlib_sim_layer_cycles(0), (unsigned)hwlib_sim_layer_cycles(1),
         (unsigned)hwlib_sim_cycles());
  printf("ofm");
  for (int i = 0; i < ELEMENTS; ++i) {
    printf(" %d", ofm[i]);
  }
  printf("\n");
  return 0;
}
