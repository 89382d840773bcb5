/* The wrappers of hwlib.h. Each one checks its descriptor's kind and hands its range of steps to one
 * interpreter, so that code size does not grow with layers or with kinds. */
#include "hwlib.h"

#include <stddef.h>

/* A local space is the memory of the same number: resolve() relies on it. */
_Static_assert((int)HWLIB_SPACE_ACTIVATIONS == (int)HWLIB_LOCAL_ACTIVATIONS, "space of activations");
_Static_assert((int)HWLIB_SPACE_WEIGHTS == (int)HWLIB_LOCAL_WEIGHTS, "space of weights");

static hwlib_place_t resolve(const uintptr_t *spaces, hwlib_address_t address)
{
  if (address.space <= HWLIB_SPACE_WEIGHTS) {
    return (hwlib_place_t){address.space, address.offset};
  }
  return (hwlib_place_t){HWLIB_MAIN, spaces[address.space] + address.offset};
}

static hwlib_status_t start_copy(const uintptr_t *spaces, const hwlib_copy_t *copy, hwlib_token_t *token)
{
  hwlib_place_t target = resolve(spaces, copy->target);
  hwlib_place_t source = resolve(spaces, copy->source);
  if (copy->rows == 1) {
    return hwlib_hal_copy_1d(target, source, copy->bytes, token);
  }
  return hwlib_hal_copy_2d(target, copy->target_stride, source, copy->source_stride, copy->bytes,
                           copy->rows, token);
}

/* Runs the steps. Jobs belong to `layer`; in the tail of a region it is NULL and there are none. */
static hwlib_status_t run_steps(hwlib_region_t *region, const hwlib_layer_t *layer, hwlib_steps_t steps)
{
  const hwlib_plan_t *plan = region->plan;
  const hwlib_step_t *step = plan->steps + steps.first;
  const hwlib_step_t *end = step + steps.count;

  for (; step != end; ++step) {
    if (step->slot >= HWLIB_SLOTS) {
      return HWLIB_ERROR_STEP;
    }
    hwlib_token_t *token = &region->tokens[step->slot];
    hwlib_status_t status = HWLIB_ERROR_STEP;
    switch (step->kind) {
    case HWLIB_STEP_COPY:
      status = start_copy(region->spaces, &plan->copies[step->index], token);
      break;
    case HWLIB_STEP_JOB:
      if (layer != NULL) {
        hwlib_job_t job = {layer, &plan->tiles[step->index]};
        status = hwlib_hal_job_start(&job, token);
      }
      break;
    case HWLIB_STEP_COPY_WAIT:
      status = hwlib_hal_copy_wait(*token);
      break;
    case HWLIB_STEP_JOB_WAIT:
      status = hwlib_hal_job_wait(*token);
      break;
    default:
      break;
    }
    if (status != HWLIB_OK) {
      return status;
    }
  }
  return HWLIB_OK;
}

static hwlib_status_t run_layer(hwlib_region_t *region, const hwlib_layer_t *layer, hwlib_kind_t kind,
                                hwlib_steps_t steps, hwlib_tensor_t ofm)
{
  region->layer = layer->id;
#ifdef HWLIB_COUNT
  (void)hwlib_count(layer->id);
#endif
  hwlib_hal_mark(layer->id);
  if (layer->kind != kind) {
    return HWLIB_ERROR_STEP;
  }
  hwlib_status_t status = run_steps(region, layer, steps);
#ifdef HWLIB_TRACE
  if (status == HWLIB_OK && ofm.space >= HWLIB_SPACE_SCRATCH) {
    hwlib_trace(layer->id, (const void *)(region->spaces[ofm.space] + ofm.offset), ofm.bytes);
  }
#else
  (void)ofm;
#endif
  return status;
}

hwlib_status_t hwlib_begin(hwlib_region_t *region, const hwlib_plan_t *plan, const uintptr_t *spaces)
{
  region->plan = plan;
  region->spaces = spaces;
  region->layer = 0;
  for (unsigned slot = 0; slot < HWLIB_SLOTS; ++slot) {
    region->tokens[slot] = 0;
  }
  return hwlib_hal_init();
}

/* The inputs of a wrapper tell the reader of generated code what flows where; the steps hold every
 * address that is needed to run. */

hwlib_status_t hwlib_conv2d(hwlib_region_t *region, const hwlib_conv2d_t *layer, hwlib_steps_t steps,
                            hwlib_tensor_t ifm, hwlib_tensor_t ofm)
{
  (void)ifm;
  return run_layer(region, &layer->layer, HWLIB_CONV2D, steps, ofm);
}

hwlib_status_t hwlib_depthwise_conv2d(hwlib_region_t *region, const hwlib_conv2d_t *layer,
                                      hwlib_steps_t steps, hwlib_tensor_t ifm, hwlib_tensor_t ofm)
{
  (void)ifm;
  return run_layer(region, &layer->layer, HWLIB_DEPTHWISE_CONV2D, steps, ofm);
}

hwlib_status_t hwlib_dense(hwlib_region_t *region, const hwlib_conv2d_t *layer, hwlib_steps_t steps,
                           hwlib_tensor_t ifm, hwlib_tensor_t ofm)
{
  (void)ifm;
  return run_layer(region, &layer->layer, HWLIB_DENSE, steps, ofm);
}

hwlib_status_t hwlib_add(hwlib_region_t *region, const hwlib_add_t *layer, hwlib_steps_t steps,
                         hwlib_tensor_t ifm, hwlib_tensor_t ifm2, hwlib_tensor_t ofm)
{
  (void)ifm;
  (void)ifm2;
  return run_layer(region, &layer->layer, HWLIB_ADD, steps, ofm);
}

hwlib_status_t hwlib_pool2d(hwlib_region_t *region, const hwlib_pool2d_t *layer, hwlib_steps_t steps,
                            hwlib_tensor_t ifm, hwlib_tensor_t ofm)
{
  (void)ifm;
  return run_layer(region, &layer->layer, HWLIB_POOL2D, steps, ofm);
}

hwlib_status_t hwlib_softmax(hwlib_region_t *region, const hwlib_softmax_t *layer, hwlib_steps_t steps,
                             hwlib_tensor_t ifm, hwlib_tensor_t ofm)
{
  (void)ifm;
  return run_layer(region, &layer->layer, HWLIB_SOFTMAX, steps, ofm);
}

hwlib_status_t hwlib_reshape(hwlib_region_t *region, const hwlib_layer_t *layer, hwlib_steps_t steps,
                             hwlib_tensor_t ifm, hwlib_tensor_t ofm)
{
  (void)ifm;
  return run_layer(region, layer, HWLIB_RESHAPE, steps, ofm);
}

hwlib_status_t hwlib_transpose(hwlib_region_t *region, const hwlib_layer_t *layer, hwlib_steps_t steps,
                               hwlib_tensor_t ifm, hwlib_tensor_t ofm)
{
  (void)ifm;
  return run_layer(region, layer, HWLIB_TRANSPOSE, steps, ofm);
}

hwlib_status_t hwlib_wait(hwlib_region_t *region, hwlib_steps_t steps)
{
  return run_steps(region, NULL, steps);
}
