/* The begin of a region and of its layers, and the interpreter of their steps. */
#include "hwlib_steps.h"

#include <stddef.h>

static inline hwlib_place_t place(const hwlib_place_t *spaces, const hwlib_address_t *address)
{
  hwlib_place_t found = spaces[address->space];
  found.address += address->offset;
  return found;
}

static inline hwlib_status_t start_copy(const hwlib_place_t *spaces, const hwlib_copy_t *copy,
                                        hwlib_token_t *token)
{
  hwlib_place_t target = place(spaces, &copy->target);
  hwlib_place_t source = place(spaces, &copy->source);
  if (copy->rows == 1) {
    return hwlib_hal_copy_1d(target, source, copy->bytes, token);
  }
  return hwlib_hal_copy_2d(target, copy->target_stride, source, copy->source_stride, copy->bytes,
                           copy->rows, token);
}

static inline hwlib_status_t start_job(const hwlib_job_t *job, hwlib_token_t *token)
{
  if (job->layer == NULL) {
    return HWLIB_ERROR_STEP;
  }
  hwlib_status_t status = hwlib_hal_job_start(job, token);
#ifdef HWLIB_TRACE
  if (status == HWLIB_OK && (job->tile->flags & HWLIB_TILE_LAST) != 0) {
    status = hwlib_trace_job(job, token);
  }
#endif
  return status;
}

static inline hwlib_status_t wait_for_job(hwlib_token_t token)
{
#ifdef HWLIB_TRACE
  if (token == 0) {
    return HWLIB_OK; /* the trace has waited for it */
  }
#endif
  return hwlib_hal_job_wait(token);
}

static inline void begin_layer(hwlib_region_t *region, const hwlib_layer_t *layer)
{
  region->layer = layer->id;
#ifdef HWLIB_COUNT
  (void)hwlib_count(layer->id);
#endif
  hwlib_hal_mark(layer->id);
}

hwlib_status_t hwlib_run_layer(hwlib_region_t *region, const hwlib_layer_t *layer, hwlib_steps_t steps,
                               hwlib_kind_t kind)
{
  if (layer->kind != kind) {
    begin_layer(region, layer); /* which the region then names as the one that failed */
    return hwlib_failed(HWLIB_ERROR_STEP);
  }
  return hwlib_run_steps(region, layer, steps);
}

hwlib_status_t hwlib_run_steps(hwlib_region_t *region, const hwlib_layer_t *layer, hwlib_steps_t steps)
{
  if (layer != NULL) {
    begin_layer(region, layer);
  }

  const hwlib_plan_t *plan = region->plan;
  const hwlib_step_t *step = plan->steps + steps.first;
  const hwlib_step_t *end = step + steps.count;
  hwlib_job_t job = {layer, NULL};
  hwlib_status_t status = HWLIB_OK;

  for (; step != end; ++step) {
    if (step->slot >= HWLIB_SLOTS) {
      return hwlib_failed(HWLIB_ERROR_STEP);
    }
    hwlib_token_t *token = &region->tokens[step->slot];
    switch (step->kind) {
    case HWLIB_STEP_COPY:
      status = start_copy(region->spaces, &plan->copies[step->index], token);
      break;
    case HWLIB_STEP_JOB:
      job.tile = &plan->tiles[step->index];
      status = start_job(&job, token);
      break;
    case HWLIB_STEP_COPY_WAIT:
      status = hwlib_hal_copy_wait(*token);
      break;
    case HWLIB_STEP_JOB_WAIT:
      status = wait_for_job(*token);
      break;
    default:
      return hwlib_failed(HWLIB_ERROR_STEP);
    }
    if (status != HWLIB_OK) {
      return hwlib_failed(status);
    }
  }
  return HWLIB_OK;
}

hwlib_status_t hwlib_begin(hwlib_region_t *region, const hwlib_plan_t *plan, const hwlib_place_t *spaces)
{
  region->plan = plan;
  region->spaces = spaces;
  region->layer = plan->layer; /* if init fails */
  for (unsigned slot = 0; slot < HWLIB_SLOTS; ++slot) {
    region->tokens[slot] = 0;
  }
  return hwlib_hal_init();
}
