/* A region as generated code has it, on the simulator: a maximum over rows and an addition, with the
 * second input of the addition copied in while the first layer computes. test_hwlib_steps.py knows what
 * it must print. */
#include <stdio.h>

#include "hwlib.h"
#include "hwlib_sim.h"

enum { ELEMENTS = 64, IFM = 0, POOLED = 1024, OTHER = 2048, SUM = 3072 };

static const struct layers {
  hwlib_pool2d_t pool2d;
  hwlib_add_t add;
} layers = {
  .pool2d = {
      .layer = {.id = 0, .kind = HWLIB_POOL2D, .rounding = HWLIB_ROUND_UPWARD},
      .ifm = {2, 1, ELEMENTS},
      .ofm = {1, 1, ELEMENTS},
      .kernel_h = 2,
      .kernel_w = 1,
      .stride_h = 1,
      .stride_w = 1,
      .mode = HWLIB_POOL_MAX,
      .act_min = -128,
      .act_max = 127,
},
  .add = {
      .layer = {.id = 1, .kind = HWLIB_ADD, .rounding = HWLIB_ROUND_UPWARD},
      .shape = {1, 1, ELEMENTS},
      .ifm_scale = {1 << 30, 1, 31},
      .ifm2_scale = {1 << 30, 1, 31},
      .act_min = -128,
      .act_max = 127,
},
};

static const hwlib_tile_t tiles[] = {
    {.ifm = IFM, .ofm = POOLED, .ifm_row = ELEMENTS, .ifm_pixel = ELEMENTS, .ofm_row = ELEMENTS,
     .ofm_pixel = ELEMENTS, .ifm_h = 2, .ifm_w = 1, .ifm_c = ELEMENTS, .ofm_h = 1, .ofm_w = 1, .ofm_c = ELEMENTS,
     .flags = HWLIB_TILE_FIRST | HWLIB_TILE_LAST},
};
static const hwlib_form_t forms[] = {
    {{0, 0, 0, 0, 1, ELEMENTS, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, HWLIB_TILE_FIRST | HWLIB_TILE_LAST, 0}},
};
static const uint16_t steps[] = {
    HWLIB_LAYER(struct layers, pool2d),
    HWLIB_ROWS_IN(1, 0, IFM, HWLIB_SPACE_ARGUMENT, 0, ELEMENTS, 2, ELEMENTS, ELEMENTS),
    HWLIB_JOB_TILE(1, 1, 0),
    HWLIB_COPY_IN(2, 0, OTHER, HWLIB_SPACE_FLASH, 0, ELEMENTS),
    HWLIB_LAYER(struct layers, add),
    HWLIB_JOB_FORM_2(3, 2, 0, 0, OTHER, 0, POOLED, SUM, 0, 0), /* after the copy of the constant */
    HWLIB_COPY_OUT(1, 3, SUM, HWLIB_SPACE_ARGUMENT + 1, 0, ELEMENTS),
    HWLIB_COPY_WAIT(1),
    HWLIB_END,
};
static const hwlib_plan_t plan = {.layers = &layers, .steps = steps, .forms = forms, .tiles = tiles};

static hwlib_status_t run_region(const int8_t *ifm, const int8_t *other, int8_t *ofm)
{
  const uintptr_t starts[] = {(uintptr_t)other, 0, (uintptr_t)ifm, (uintptr_t)ofm};
  hwlib_made_tile_t made[1];
  hwlib_region_t region;
  return hwlib_start(&region, &plan, starts, made);
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
