/* The lanes of hwlib_lanes.h: the interpreter of their steps, and the way round them. */
#include "hwlib_lanes.h"

#include <stddef.h>

enum { NOT_STARTED = 0, RUNNING = 1, DONE = 2, JOB_RUNNING = 3 };        /* an event */
enum { GOES_ON = 0, WAITS = 1, WAITS_FOR_A_SIGNAL = 2, AT_ITS_END = 3 }; /* a lane */

/* ---------------------------------------------------------------- what has ended */

/* A lane that is alone waits: nobody else has anything to do. */
static hwlib_status_t ask_copy(const hwlib_hal_t *hal, uint8_t alone, hwlib_token_t token, uint8_t *done)
{
  if (alone || hal->copy_done == NULL) {
    *done = 1;
    return hal->copy_wait(token);
  }
  return hal->copy_done(token, done);
}

static hwlib_status_t ask_job(const hwlib_hal_t *hal, uint8_t alone, hwlib_token_t token, uint8_t *done)
{
#ifdef HWLIB_TRACE
  if (token == 0) {
    *done = 1;
    return HWLIB_OK; /* the trace has waited for it */
  }
#endif
  if (alone || hal->job_done == NULL) {
    *done = 1;
    return hal->job_wait(token);
  }
  return hal->job_done(token, done);
}

/* A token is asked for until it is done, and never again: whoever comes next finds that in the event. */
static hwlib_status_t ask_event(const hwlib_hal_t *hal, uint8_t alone, hwlib_event_t *event, uint8_t *done)
{
  hwlib_status_t status = HWLIB_OK;
  *done = event->state == DONE;
  if (event->state == RUNNING) {
    status = ask_copy(hal, alone, event->token, done);
  } else if (event->state == JOB_RUNNING) {
    status = ask_job(hal, alone, event->token, done);
  }
  if (*done) {
    event->state = DONE;
  }
  return status;
}

/* ---------------------------------------------------------------- steps */

static inline hwlib_place_t place(const hwlib_place_t *spaces, const hwlib_address_t *address)
{
  hwlib_place_t found = spaces[address->space];
  found.address += address->offset;
  return found;
}

static hwlib_status_t start_copy(const hwlib_hal_t *hal, const hwlib_place_t *spaces, const hwlib_copy_t *copy,
                                 hwlib_token_t *token)
{
  hwlib_place_t target = place(spaces, &copy->target), source = place(spaces, &copy->source);
  if (copy->rows == 1) {
    return hal->copy_1d(target, source, copy->bytes, token);
  }
  return hal->copy_2d(target, copy->target_stride, source, copy->source_stride, copy->bytes, copy->rows, token);
}

static hwlib_status_t start_job(const hwlib_hal_t *hal, const hwlib_job_t *job, hwlib_token_t *token)
{
  if (job->layer == NULL) {
    return HWLIB_ERROR_STEP;
  }
  hwlib_status_t status = hal->job_start(job, token);
#ifdef HWLIB_TRACE
  if (status == HWLIB_OK && (job->tile == NULL || (job->tile->flags & HWLIB_TILE_LAST) != 0)) {
    status = hwlib_trace_lane_job(hal, job, token);
  }
#endif
  return status;
}

static hwlib_status_t signal_event(const hwlib_chip_plan_t *plan, hwlib_lane_state_t *state, const hwlib_step_t *step)
{
  if (step->index >= plan->event_count || plan->events[step->index].state != NOT_STARTED ||
      state->events[step->slot] != 0) {
    return HWLIB_ERROR_STEP;
  }
  uint8_t running = step->kind == HWLIB_STEP_SIGNAL ? RUNNING : JOB_RUNNING;
  plan->events[step->index] = (hwlib_event_t){running, state->tokens[step->slot]};
  state->events[step->slot] = (uint16_t)(step->index + 1u);
  return HWLIB_OK;
}

static hwlib_status_t await_event(const hwlib_chip_plan_t *plan, const hwlib_lane_state_t *state,
                                  const hwlib_step_t *step, uint8_t *found)
{
  if (step->slot >= plan->lane_count || step->index >= plan->event_count) {
    return HWLIB_ERROR_STEP;
  }
  uint8_t done;
  hwlib_event_t *event = &plan->events[step->index];
  hwlib_status_t status = ask_event(plan->lanes[step->slot].hal, state->alone, event, &done);
  *found = done ? GOES_ON : event->state == NOT_STARTED ? WAITS_FOR_A_SIGNAL : WAITS;
  return status;
}

static hwlib_status_t await_operation(const hwlib_chip_plan_t *plan, const hwlib_hal_t *hal,
                                      const hwlib_lane_state_t *state, const hwlib_step_t *step, uint8_t *found)
{
  uint8_t done = 1;
  uint16_t event = state->events[step->slot];
  hwlib_token_t token = state->tokens[step->slot];
  hwlib_status_t status = event != 0 ? ask_event(hal, state->alone, &plan->events[event - 1], &done)
                          : step->kind == HWLIB_STEP_JOB_WAIT ? ask_job(hal, state->alone, token, &done)
                                                              : ask_copy(hal, state->alone, token, &done);
  *found = done ? GOES_ON : WAITS;
  return status;
}

/* Carries out a step, unless the lane has to wait there: *found is GOES_ON or what it waits for. */
static inline hwlib_status_t run_step(const hwlib_chip_plan_t *plan, const hwlib_hal_t *hal, hwlib_lane_state_t *state,
                                      const hwlib_step_t *step, uint8_t *found)
{
  const hwlib_part_t *part = state->part;
  uint8_t slot = step->slot;
  if (step->kind == HWLIB_STEP_AWAIT) {
    return await_event(plan, state, step, found);
  }
  if (slot >= HWLIB_SLOTS) {
    return HWLIB_ERROR_STEP;
  }
  hwlib_job_t job;
  switch (step->kind) {
  case HWLIB_STEP_COPY:
    state->events[slot] = 0;
    return start_copy(hal, plan->spaces + part->spaces, &part->plan->copies[step->index], &state->tokens[slot]);
  case HWLIB_STEP_JOB:
  case HWLIB_STEP_LAYER:
    state->events[slot] = 0;
    job.layer = state->running;
    job.tile = step->kind == HWLIB_STEP_JOB ? &part->plan->tiles[step->index] : NULL;
    return start_job(hal, &job, &state->tokens[slot]);
  case HWLIB_STEP_COPY_WAIT:
  case HWLIB_STEP_JOB_WAIT:
    return await_operation(plan, hal, state, step, found);
  case HWLIB_STEP_SIGNAL:
  case HWLIB_STEP_SIGNAL_JOB:
    return signal_event(plan, state, step);
  default:
    return HWLIB_ERROR_STEP;
  }
}

/* ---------------------------------------------------------------- a lane */

/* The host core works for the lane's layer from here on. */
static inline void count(const hwlib_lane_state_t *state)
{
#ifdef HWLIB_COUNT
  (void)hwlib_count(state->layer);
#else
  (void)state;
#endif
}

static void begin_call(const hwlib_lane_t *lane, hwlib_lane_state_t *state)
{
  const hwlib_call_t *call = &state->part->calls[state->call];
  state->running = call->layer;
  state->step = state->part->plan->steps + call->steps.first;
  state->end = state->step + call->steps.count;
  if (call->layer != NULL) {
    state->layer = call->layer->id;
    count(state);
    lane->hal->mark(state->layer);
  }
}

static void begin_part(const hwlib_lane_t *lane, hwlib_lane_state_t *state)
{
  state->call = 0;
  state->layer = state->part->plan->layer;
  for (unsigned slot = 0; slot < HWLIB_SLOTS; ++slot) {
    state->tokens[slot] = 0;
    state->events[slot] = 0;
  }
  begin_call(lane, state);
}

/* From the end of a call to the next that has steps; 0 at the end of the lane. */
static int next_call(const hwlib_lane_t *lane, hwlib_lane_state_t *state)
{
  while (state->step == state->end) {
    if (++state->call < state->part->call_count) {
      begin_call(lane, state);
    } else if (++state->part < lane->parts + lane->part_count) {
      begin_part(lane, state);
    } else {
      return 0;
    }
  }
  return 1;
}

/* Carries out steps up to one where the lane has to wait, or a single one; returns whether there were any. */
static int run_lane(const hwlib_chip_plan_t *plan, const hwlib_lane_t *lane, hwlib_lane_state_t *state, uint8_t single,
                    hwlib_status_t *status)
{
  uint8_t found = GOES_ON;
  int moved = 0;
  if (state->found == AT_ITS_END) {
    return 0;
  }
  count(state);
  do {
    if (state->step == state->end && !next_call(lane, state)) {
      state->found = AT_ITS_END;
      return moved;
    }
    *status = run_step(plan, lane->hal, state, state->step, &found);
    if (*status != HWLIB_OK || found != GOES_ON) {
      state->found = found;
      return moved;
    }
    moved = 1;
    ++state->step;
  } while (!single);
  return moved;
}

/* ---------------------------------------------------------------- the region */

/* All HALs; the status of the first that fails, and its lane. */
static hwlib_status_t init_all(const hwlib_chip_plan_t *plan, uint16_t *failed)
{
  hwlib_status_t first = HWLIB_OK;
  for (uint16_t lane = 0; lane < plan->lane_count; ++lane) {
    hwlib_status_t status = plan->lanes[lane].hal->init();
    if (first == HWLIB_OK && status != HWLIB_OK) {
      first = status;
      *failed = lane;
    }
  }
  return first;
}

static void end(hwlib_lanes_t *lanes, hwlib_status_t status, uint16_t lane)
{
  lanes->ended = 1;
  lanes->result = status == HWLIB_OK ? 0 : HWLIB_RESULT(status, lanes->plan->states[lane].layer);
}

static void fail(hwlib_lanes_t *lanes, hwlib_status_t status, uint16_t lane)
{
  uint16_t ignored; /* the first failure is the one that is reported */
  (void)init_all(lanes->plan, &ignored);
  end(lanes, status, lane);
}

void hwlib_lanes_start(hwlib_lanes_t *lanes, const hwlib_chip_plan_t *plan)
{
  *lanes = (hwlib_lanes_t){.plan = plan, .single = plan->single};
  for (uint16_t event = 0; event < plan->event_count; ++event) {
    plan->events[event].state = NOT_STARTED;
  }
  for (uint16_t lane = 0; lane < plan->lane_count; ++lane) {
    const hwlib_hal_t *hal = plan->lanes[lane].hal;
    lanes->single |= hal->copy_done == NULL || hal->job_done == NULL;
    plan->states[lane].layer = plan->lanes[lane].parts->plan->layer; /* if init fails */
  }
  uint16_t failed = 0;
  hwlib_status_t status = init_all(plan, &failed);
  if (status != HWLIB_OK) {
    end(lanes, status, failed);
    return;
  }
  for (uint16_t lane = 0; lane < plan->lane_count; ++lane) {
    plan->states[lane].part = plan->lanes[lane].parts;
    plan->states[lane].found = GOES_ON;
    plan->states[lane].alone = 0;
    begin_part(&plan->lanes[lane], &plan->states[lane]);
  }
}

/* Where no lane can go on: the region has ended, or an operation is waited for, or no lane will ever go on. */
static void look_round(hwlib_lanes_t *lanes)
{
  const hwlib_chip_plan_t *plan = lanes->plan;
  uint16_t stuck = plan->lane_count;
  for (uint16_t lane = plan->lane_count; lane-- > 0;) {
    uint8_t found = plan->states[lane].found;
    if (found == WAITS) {
      return;
    }
    stuck = found == AT_ITS_END ? stuck : lane;
  }
  if (stuck < plan->lane_count) {
    fail(lanes, HWLIB_ERROR_STEP, stuck);
  } else {
    end(lanes, HWLIB_OK, 0);
  }
}

uint8_t hwlib_lanes_poll(hwlib_lanes_t *lanes)
{
  const hwlib_chip_plan_t *plan = lanes->plan;
  uint16_t lane = lanes->first, still = 0; /* so many lanes in a row cannot go on */
  lanes->waited = 0;
  while (!lanes->ended && still < plan->lane_count) {
    hwlib_status_t status = HWLIB_OK;
    int moved = run_lane(plan, &plan->lanes[lane], &plan->states[lane], lanes->single, &status);
    if (status != HWLIB_OK) {
      fail(lanes, status, lane);
    }
    still = moved ? 1 : (uint16_t)(still + 1u);
    lane = lane + 1u < plan->lane_count ? (uint16_t)(lane + 1u) : 0;
    if (moved && lanes->single) {
      lanes->first = lane; /* the others have their turn */
      lanes->waited = 1;
      return lanes->ended;
    }
  }
  if (!lanes->ended) {
    look_round(lanes);
  }
  return lanes->ended;
}

void hwlib_lanes_stop(hwlib_lanes_t *lanes)
{
  if (!lanes->ended) {
    fail(lanes, HWLIB_OK, 0);
  }
}

/* Each time of another lane that has not ended: a HAL may only know of its own accelerator. */
static void idle(hwlib_lanes_t *lanes)
{
  const hwlib_chip_plan_t *plan = lanes->plan;
  for (uint16_t tried = 0; tried < plan->lane_count; ++tried) {
    lanes->idle_lane = lanes->idle_lane + 1u < plan->lane_count ? (uint16_t)(lanes->idle_lane + 1u) : 0;
    const hwlib_lane_t *lane = &plan->lanes[lanes->idle_lane];
    if (lane->hal->idle != NULL && plan->states[lanes->idle_lane].found != AT_ITS_END) {
      lane->hal->idle();
      return;
    }
  }
}

/* Whether only one lane has not ended: it may wait. */
static int let_the_last_wait(const hwlib_chip_plan_t *plan)
{
  hwlib_lane_state_t *last = NULL;
  for (uint16_t lane = 0; lane < plan->lane_count; ++lane) {
    if (plan->states[lane].found != AT_ITS_END) {
      if (last != NULL) {
        return 0;
      }
      last = &plan->states[lane];
    }
  }
  if (last != NULL) {
    last->alone = 1;
  }
  return last != NULL;
}

int32_t hwlib_lanes_wait(hwlib_lanes_t *lanes)
{
  (void)let_the_last_wait(lanes->plan);
  lanes->single = 0;
  while (!hwlib_lanes_poll(lanes)) {
    if (!let_the_last_wait(lanes->plan)) {
      idle(lanes);
    }
  }
  return lanes->result;
}
