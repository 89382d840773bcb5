/* The begin of a region, and the interpreter of its steps. */
#include "hwlib_steps.h"

#include <stddef.h>

_Static_assert(sizeof(hwlib_tile_t) == 72 && offsetof(hwlib_tile_t, pad_top) == 64, "hwlib_form_t ends as a tile does");

enum { OUT = 2 << 6, OTHER = 3 << 6, ROWS = 1 << 8 };
enum { WAIT = 1, COPY = 2, JOB = 3 }; /* kinds of steps; 0 is a layer or the end */

/* So many bits are offsets in local and in main memory shifted. */
typedef struct {
  uint8_t local, main;
} units_t;

/* ---------------------------------------------------------------- copies */

static inline hwlib_place_t place(const uintptr_t *starts, const hwlib_address_t *address)
{
  if (address->space < HWLIB_SPACE_FLASH) {
    return (hwlib_place_t){(uint8_t)address->space, address->offset};
  }
  return (hwlib_place_t){HWLIB_MAIN, starts[address->space - HWLIB_SPACE_FLASH] + address->offset};
}

/* A copy that the numbers of a step do not hold. */
static hwlib_status_t start_other_copy(const hwlib_region_t *region, unsigned index, hwlib_token_t *token)
{
  const hwlib_copy_t *copy = &region->plan->copies[index];
  hwlib_place_t target = place(region->starts, &copy->target);
  hwlib_place_t source = place(region->starts, &copy->source);
  if (copy->rows == 1) {
    return hwlib_hal_copy_1d(target, source, copy->bytes, token);
  }
  return hwlib_hal_copy_2d(target, copy->target_stride, source, copy->source_stride, copy->bytes,
                           copy->rows, token);
}

/* Starts a copy, of whose numbers the first is `step`; *next is set behind it. */
static inline hwlib_status_t start_copy(hwlib_region_t *region, const units_t *units, unsigned step, const uint16_t **next,
                                        hwlib_token_t *token)
{
  const uint16_t *at = *next;
  if ((step & ROWS) != 0 && (step & OTHER) == OTHER) {
    *next = at + 1;
    return start_other_copy(region, at[0], token);
  }
  hwlib_place_t *target = &region->places[step >> 6 & 1], *source = &region->places[HWLIB_MAIN];
  target->address = (uintptr_t)at[0] << units->local;
  source->address = region->starts[step >> 9 & 7] + ((uintptr_t)at[1] << units->main);
  if ((step & OUT) != 0) {
    hwlib_place_t *local = target;
    target = source;
    source = local;
  }
  if ((step & ROWS) == 0) {
    *next = at + 3;
    return hwlib_hal_copy_1d(*target, *source, at[2], token);
  }
  *next = at + 6;
  return hwlib_hal_copy_2d(*target, at[4], *source, at[5], at[2], at[3], token);
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

/* The tile of a job, of whose numbers the first is `step`; *next is set behind it. */
static inline const hwlib_tile_t *tile_of(const hwlib_region_t *region, unsigned unit, unsigned step,
                                          const uint16_t **next)
{
  const uint16_t *at = *next;
  hwlib_made_tile_t *made = &region->tiles[step >> 8 & 15];
  if ((step & OTHER) != 0) {
    if ((step & OTHER) == OUT) {
      *next = at + 1;
      return &region->plan->tiles[at[0]];
    }
    if ((step & OTHER) != OTHER) {
      put_form(made, &region->plan->forms[*at++]);
    }
    made->tile.ifm2 = (uint32_t)at[0] << unit;
    made->tile.psum = (uint32_t)at[1] << unit;
    at += 2;
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
  const units_t units = {region->plan->local_unit, region->plan->main_unit};
  hwlib_job_t job = {NULL, NULL};
  hwlib_status_t status;

  for (;;) {
    const unsigned step = *next++, after = step >> 12;
    if ((step & 3) == COPY) {
      if (after != 0 && (status = wait_for_job(region->tokens[after])) != HWLIB_OK) {
        break;
      }
      status = start_copy(region, &units, step, &next, slot_of(region, step));
    } else if ((step & 3) == JOB) {
      if (after != 0 && (status = hwlib_hal_copy_wait(region->tokens[after])) != HWLIB_OK) {
        break;
      }
      job.tile = tile_of(region, units.local, step, &next);
      status = start_job(&job, slot_of(region, step));
    } else if ((step & 3) == WAIT) {
      hwlib_token_t token = *slot_of(region, step);
      status = after == 0 ? hwlib_hal_copy_wait(token) : wait_for_job(token);
    } else if (step != HWLIB_END) {
      job.layer = region->plan->layers[step >> 2];
      begin_layer(region, job.layer);
      continue;
    } else {
      region->next = next;
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
  for (unsigned slot = 0; slot < HWLIB_SLOTS; ++slot) {
    region->tokens[slot] = 0;
  }
  for (uint8_t memory = 0; memory <= HWLIB_MAIN; ++memory) {
    region->places[memory].memory = memory;
  }
  hwlib_status_t status = hwlib_hal_init();
  return status == HWLIB_OK ? hwlib_wait(region) : status;
}
