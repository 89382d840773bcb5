/* The begin of a region, and the interpreter of its steps. */
#include "hwlib_steps.h"

#include <stddef.h>

_Static_assert(sizeof(hwlib_tile_t) == 72 && offsetof(hwlib_tile_t, pad_top) == 64, "hwlib_form_t ends as a tile does");
_Static_assert(sizeof(hwlib_form_t) == 28, "HWLIB_JOB_FORM counts so");

enum { OUT = 2 << 6, ROW = 2 << 6, OTHER = 3 << 6, ROWS = 1 << 8 };
enum { WAIT = 1, COPY = 2, JOB = 3 }; /* kinds of steps; 0 is a layer or the end */

/* So many bits are offsets in local and in main memory shifted. */
typedef struct {
  uint8_t local, main;
} units_t;

/* ---------------------------------------------------------------- copies */

/* A copy of rows, or one in a row of the plan's copies. */
static inline hwlib_status_t start_rows(const hwlib_plan_t *plan, const uintptr_t *starts, hwlib_place_t local,
                                        hwlib_place_t distant, unsigned step, const uint16_t **next,
                                        hwlib_token_t *token)
{
  const uint16_t *at = *next;
  if ((step & OTHER) == OTHER) {
    *next = at + 2;
    return plan->start_copy(&plan->copies[at[1]], starts, token);
  }
  *next = at + 7;
  const hwlib_place_t *target = &local, *source = &distant;
  if ((step & OUT) != 0) {
    target = &distant;
    source = &local;
  }
  return hwlib_hal_copy_2d(*target, at[5], *source, at[6], at[3], at[4], token);
}

/* Starts the copy at *next, which is set behind it. */
static inline hwlib_status_t start_copy(const hwlib_plan_t *plan, const uintptr_t *starts, const units_t *units,
                                        unsigned step, const uint16_t **next, hwlib_token_t *token)
{
  const uint16_t *at = *next;
  hwlib_place_t local = {step >> 6 & 1, (uintptr_t)at[1] << units->local};
  hwlib_place_t distant = {HWLIB_MAIN, starts[step >> 9 & 7] + ((uintptr_t)at[2] << units->main)};
  if ((step & ROWS) != 0) {
    return start_rows(plan, starts, local, distant, step, next, token);
  }
  *next = at + 4;
  if ((step & OUT) != 0) {
    return hwlib_hal_copy_1d(distant, local, at[3], token);
  }
  return hwlib_hal_copy_1d(local, distant, at[3], token);
}

/* ---------------------------------------------------------------- jobs */

/* All of a tile but its addresses. */
static inline void put_form(hwlib_made_tile_t *made, const hwlib_form_t *form)
{
  made->tile.ifm_row = form->fields.ifm_row;
  made->tile.ofm_row = form->fields.ofm_row;
  made->tile.ifm_pixel = form->fields.ifm_pixel;
  made->tile.ofm_pixel = form->fields.ofm_pixel;
  made->tile.ifm_h = form->fields.ifm_h;
  made->tile.ifm_w = form->fields.ifm_w;
  made->tile.ifm_c = form->fields.ifm_c;
  made->tile.ofm_h = form->fields.ofm_h;
  made->tile.ofm_w = form->fields.ofm_w;
  made->tile.ofm_c = form->fields.ofm_c;
  made->words[16] = form->words[5];
  made->words[17] = form->words[6];
}

/* The tile of the job at *next, which is set behind it. */
static inline const hwlib_tile_t *tile_of(const hwlib_region_t *region, unsigned unit, unsigned step,
                                          const uint16_t **next)
{
  const uint16_t *at = *next + 1;
  if ((step & OTHER) == ROW) {
    *next = at + 1;
    return &region->plan->tiles[at[0]];
  }
  hwlib_made_tile_t *made = &region->tiles[step >> 8 & 15];
  if ((step & OTHER) != 0) {
    unsigned two = 1;
    if ((step & ROW) == 0) {
      unsigned form = *at++;
      two = form & 1;
      put_form(made, (const void *)((const uint8_t *)region->plan->forms + (form & ~1u)));
    }
    made->tile.ifm2 = made->tile.psum = 0;
    if (two != 0) {
      made->tile.ifm2 = (uint32_t)at[0] << unit;
      made->tile.psum = (uint32_t)at[1] << unit;
      at += 2;
    }
  }
  made->tile.ifm = (uint32_t)at[0] << unit;
  made->tile.ofm = (uint32_t)at[1] << unit;
  made->tile.weights = at[2];
  made->tile.params = at[3];
  *next = at + 4;
  return &made->tile;
}

static inline hwlib_status_t start_job(const hwlib_job_t *job, hwlib_token_t *token)
{
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

/* ---------------------------------------------------------------- steps */

static inline void begin_layer(hwlib_region_t *region, const hwlib_layer_t *layer)
{
  region->layer = layer->id;
#ifdef HWLIB_COUNT
  (void)hwlib_count(layer->id);
#endif
  hwlib_hal_mark(layer->id);
}

static inline hwlib_token_t *slot_of(hwlib_region_t *region, unsigned step)
{
  return &region->tokens[step >> 2 & 15];
}

hwlib_status_t hwlib_wait(hwlib_region_t *region)
{
  const uint16_t *next = region->next;
  const hwlib_plan_t *plan = region->plan;
  const units_t units = {plan->local_unit, plan->main_unit};
  hwlib_job_t job;
  hwlib_status_t status;

  for (;;) {
    const unsigned step = *next, after = step >> 12;
    if ((step & 3) == COPY) {
      if (after != 0 && (status = wait_for_job(region->tokens[after])) != HWLIB_OK) {
        break;
      }
      status = start_copy(plan, region->starts, &units, step, &next, slot_of(region, step));
    } else if ((step & 3) == JOB) {
      if (after != 0 && (status = hwlib_hal_copy_wait(region->tokens[after])) != HWLIB_OK) {
        break;
      }
      job.tile = tile_of(region, units.local, step, &next);
      status = start_job(&job, slot_of(region, step));
    } else if ((step & 3) == WAIT) {
      hwlib_token_t token = *slot_of(region, step);
      ++next;
      status = after == 0 ? hwlib_hal_copy_wait(token) : wait_for_job(token);
    } else if (step != HWLIB_END) {
      job.layer = (const void *)((const uint8_t *)plan->layers + step - 4);
      ++next;
      begin_layer(region, job.layer);
      continue;
    } else {
      region->next = next + 1;
      return HWLIB_OK;
    }
    if (status != HWLIB_OK) {
      break;
    }
  }
  return hwlib_failed(status);
}

hwlib_status_t hwlib_start(hwlib_region_t *region, const hwlib_plan_t *plan, const uintptr_t *starts,
                           hwlib_made_tile_t *tiles)
{
  region->plan = plan;
  region->next = plan->steps;
  region->starts = starts;
  region->tiles = tiles;
  region->layer = plan->layer; /* if init fails */
  hwlib_status_t status = hwlib_hal_init();
  return status == HWLIB_OK ? hwlib_wait(region) : status;
}
