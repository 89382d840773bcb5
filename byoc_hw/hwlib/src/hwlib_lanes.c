/* The lanes of hwlib_lanes.h: the interpreter of their steps, and the way round them. */
#include "hwlib_lanes.h"

#include <stddef.h>

enum { NOT_STARTED = 0, RUNNING = 1, DONE = 2, JOB_RUNNING = 3 };        /* an event */
enum { GOES_ON = 0, WAITS = 1, WAITS_FOR_A_SIGNAL = 2, AT_ITS_END = 3, GIVES_WAY = 4 }; /* a lane */

/* What a step comes to: GOES_ON or GIVES_WAY, what the lane waits for, or the failure with this bit. */
enum { FAILED = 0x100 };

static inline unsigned after(hwlib_status_t status, unsigned found)
{
  return status == HWLIB_OK ? found : FAILED | (unsigned)status;
}

/* ---------------------------------------------------------------- what has ended */

/* Whether the operation of a lane that waits has ended. A token is asked for until it is done, and never again: whoever
 * comes next finds that in its event. */
static inline unsigned ask(hwlib_lane_state_t *state)
{
  uint8_t done;
  if (state->event != NULL && state->event->state == DONE) {
    return GOES_ON; /* another lane has asked */
  }
  hwlib_status_t status = state->done(state->token, &done);
  if (status != HWLIB_OK) {
    return after(status, WAITS);
  }
  if (!done) {
    return WAITS;
  }
  if (state->event != NULL) {
    state->event->state = DONE;
  }
  return GOES_ON;
}

/* A lane that is alone waits: nobody else has anything to do. */
static inline unsigned ask_for(hwlib_status_t (*wait)(hwlib_token_t token),
                               hwlib_status_t (*done)(hwlib_token_t token, uint8_t *done), hwlib_lane_state_t *state,
                               hwlib_token_t token, hwlib_event_t *event)
{
  if (state->alone || done == NULL) {
    hwlib_status_t status = wait(token);
    if (event != NULL) {
      event->state = DONE;
    }
    return after(status, GOES_ON);
  }
  state->done = done;
  state->token = token;
  state->event = event;
  return ask(state);
}

static inline unsigned ask_copy(const hwlib_hal_t *hal, hwlib_lane_state_t *state, hwlib_token_t token,
                                hwlib_event_t *event)
{
  return ask_for(hal->copy_wait, hal->copy_done, state, token, event);
}

static inline unsigned ask_job(const hwlib_hal_t *hal, hwlib_lane_state_t *state, hwlib_token_t token,
                               hwlib_event_t *event)
{
#ifdef HWLIB_TRACE
  if (token == 0) {
    return GOES_ON; /* the trace has waited for it */
  }
#endif
  return ask_for(hal->job_wait, hal->job_done, state, token, event);
}

static unsigned ask_event(const hwlib_hal_t *hal, hwlib_lane_state_t *state, hwlib_event_t *event)
{
  switch (event->state) {
  case DONE:
    return GOES_ON;
  case RUNNING:
    return ask_copy(hal, state, event->token, event);
  case JOB_RUNNING:
    return ask_job(hal, state, event->token, event);
  default:
    return WAITS_FOR_A_SIGNAL;
  }
}

/* ---------------------------------------------------------------- steps */

static inline hwlib_place_t place(const hwlib_place_t *spaces, const hwlib_address_t *address)
{
  const hwlib_place_t *start = &spaces[address->space];
  return (hwlib_place_t){start->memory, start->address + address->offset};
}

static inline hwlib_status_t start_copy(const hwlib_hal_t *hal, const hwlib_place_t *spaces, const hwlib_copy_t *copy,
                                        hwlib_token_t *token)
{
  hwlib_place_t target = place(spaces, &copy->target), source = place(spaces, &copy->source);
  if (copy->rows == 1) {
    return hal->copy_1d(target, source, copy->bytes, token);
  }
  return hal->copy_2d(target, copy->target_stride, source, copy->source_stride, copy->bytes, copy->rows, token);
}

/* Of a layer as a whole `tile` is NULL. */
static inline hwlib_status_t start_job(const hwlib_hal_t *hal, const hwlib_layer_t *layer, const hwlib_tile_t *tile,
                                       hwlib_token_t *token)
{
  const hwlib_job_t job = {layer, tile};
  if (layer == NULL) {
    return HWLIB_ERROR_STEP;
  }
  hwlib_status_t status = hal->job_start(&job, token);
#ifdef HWLIB_TRACE
  if (status == HWLIB_OK && (tile == NULL || (tile->flags & HWLIB_TILE_LAST) != 0)) {
    status = hwlib_trace_lane_job(hal, &job, token);
  }
#endif
  return status;
}

static inline hwlib_status_t signal_event(const hwlib_chip_plan_t *plan, hwlib_lane_state_t *state,
                                          const hwlib_step_t *step)
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

static inline unsigned await_event(const hwlib_chip_plan_t *plan, hwlib_lane_state_t *state, const hwlib_step_t *step)
{
  if (step->slot >= plan->lane_count || step->index >= plan->event_count) {
    return after(HWLIB_ERROR_STEP, GOES_ON);
  }
  return ask_event(plan->lanes[step->slot].hal, state, &plan->events[step->index]);
}

/* ---------------------------------------------------------------- events of the hardware */

static inline uint8_t engine_of(const hwlib_step_t *step, unsigned first)
{
  return step->kind == first ? HWLIB_ENGINE_DMA : HWLIB_ENGINE_ARRAY;
}

static inline hwlib_status_t signal_counter(const hwlib_chip_plan_t *plan, const hwlib_hal_t *hal,
                                            const hwlib_step_t *step)
{
  if (step->index >= plan->counter_count || hal->signal == NULL) {
    return HWLIB_ERROR_STEP;
  }
  hwlib_status_t status = hal->signal(engine_of(step, HWLIB_STEP_COPY_SIGNAL), (uint8_t)step->index);
  ++plan->counters[step->index];
  return status;
}

/* The core waits for other lanes until all signals are in queues: no engine ever waits for the core. */
static inline unsigned await_counter(const hwlib_chip_plan_t *plan, const hwlib_hal_t *hal, const hwlib_step_t *step)
{
  if (step->slot >= plan->counter_count || hal->await == NULL) {
    return after(HWLIB_ERROR_STEP, GOES_ON);
  }
  if (plan->counters[step->slot] < step->index) {
    return WAITS_FOR_A_SIGNAL;
  }
  return after(hal->await(engine_of(step, HWLIB_STEP_COPY_AWAIT), step->slot, step->index), GOES_ON);
}

/* ---------------------------------------------------------------- one step */

/* Carries out a step, unless the lane has to wait there. */
static inline unsigned run_step(const hwlib_chip_plan_t *plan, const hwlib_hal_t *hal, hwlib_lane_state_t *state,
                                const hwlib_step_t *step)
{
  unsigned slot = step->slot, event, fits = slot < HWLIB_SLOTS; /* of those with a slot */
  hwlib_token_t *token = &state->tokens[slot];
  hwlib_status_t status = HWLIB_ERROR_STEP;
  switch (step->kind) {
  case HWLIB_STEP_COPY:
    if (fits) {
      state->events[slot] = 0;
      status = start_copy(hal, state->spaces, &state->part->plan->copies[step->index], token);
    }
    break;
  case HWLIB_STEP_JOB:
    if (fits) {
      state->events[slot] = 0;
      status = start_job(hal, state->running, &state->part->plan->tiles[step->index], token);
    }
    break;
  case HWLIB_STEP_COPY_WAIT:
    if (fits) {
      event = state->events[slot];
      return event == 0 ? ask_copy(hal, state, *token, NULL) : ask_event(hal, state, &plan->events[event - 1]);
    }
    break;
  case HWLIB_STEP_JOB_WAIT:
    if (fits) {
      event = state->events[slot];
      return event == 0 ? ask_job(hal, state, *token, NULL) : ask_event(hal, state, &plan->events[event - 1]);
    }
    break;
  case HWLIB_STEP_SIGNAL:
  case HWLIB_STEP_SIGNAL_JOB:
    if (fits) {
      status = signal_event(plan, state, step);
    }
    break;
  case HWLIB_STEP_AWAIT:
    return await_event(plan, state, step);
  case HWLIB_STEP_LAYER:
    if (fits) {
      state->events[slot] = 0;
      status = start_job(hal, state->running, NULL, token);
    }
    break;
  case HWLIB_STEP_COPY_SIGNAL:
  case HWLIB_STEP_JOB_SIGNAL:
    status = signal_counter(plan, hal, step);
    break;
  case HWLIB_STEP_COPY_AWAIT:
  case HWLIB_STEP_JOB_AWAIT:
    return await_counter(plan, hal, step);
  case HWLIB_STEP_TURN:
    return GIVES_WAY;
  default:
    break;
  }
  return after(status, GOES_ON);
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

static void begin_part(const hwlib_chip_plan_t *plan, const hwlib_lane_t *lane, hwlib_lane_state_t *state)
{
  state->call = 0;
  state->layer = state->part->plan->layer;
  state->spaces = plan->spaces + state->part->spaces;
  begin_call(lane, state);
}

/* From the end of a call to the next that has steps; 0 at the end of the lane. */
static int next_call(const hwlib_chip_plan_t *plan, const hwlib_lane_t *lane, hwlib_lane_state_t *state)
{
  while (state->step == state->end) {
    if (++state->call < state->part->call_count) {
      begin_call(lane, state);
    } else if (++state->part < lane->parts + lane->part_count) {
      begin_part(plan, lane, state);
    } else {
      return 0;
    }
  }
  return 1;
}

/* Carries out steps up to one where the lane has to wait, to the end of its turn, or a single one: what the last of
 * them comes to. */
static unsigned run_lane(const hwlib_chip_plan_t *plan, const hwlib_lane_t *lane, hwlib_lane_state_t *state,
                         uint8_t single)
{
  const hwlib_hal_t *hal = lane->hal;
  const hwlib_step_t *step = state->step, *stop = state->end;
  unsigned found = GOES_ON;
  do {
    if (step == stop) {
      state->step = step;
      if (!next_call(plan, lane, state)) {
        return AT_ITS_END;
      }
      step = state->step;
      stop = state->end;
    }
    found = run_step(plan, hal, state, step);
    if (found != GOES_ON) {
      break;
    }
    ++step;
  } while (!single);
  if (found == GIVES_WAY) {
    ++step;
    found = GOES_ON;
  }
  state->step = step;
  return found;
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
  *lanes = (hwlib_lanes_t){.plan = plan, .single = plan->single, .left = plan->lane_count};
  for (uint16_t event = 0; event < plan->event_count; ++event) {
    plan->events[event].state = NOT_STARTED;
  }
  for (uint16_t counter = 0; counter < plan->counter_count; ++counter) {
    plan->counters[counter] = 0;
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
    begin_part(plan, &plan->lanes[lane], &plan->states[lane]);
  }
}

/* Why a lane waits for ever: a HAL may say more of an await that is not signalled. */
static hwlib_status_t stuck(const hwlib_chip_plan_t *plan, uint16_t lane)
{
  const hwlib_step_t *step = plan->states[lane].step;
  if (step->kind == HWLIB_STEP_COPY_AWAIT || step->kind == HWLIB_STEP_JOB_AWAIT) {
    (void)plan->lanes[lane].hal->await(engine_of(step, HWLIB_STEP_COPY_AWAIT), step->slot, step->index);
  }
  return HWLIB_ERROR_STEP;
}

/* Where no lane can go on: unless one of them waits for an operation, the first is never signalled what it awaits. */
static void fail_if_stuck(hwlib_lanes_t *lanes)
{
  const hwlib_chip_plan_t *plan = lanes->plan;
  uint16_t first = 0;
  for (uint16_t lane = plan->lane_count; lane-- > 0;) {
    if (plan->states[lane].found == WAITS) {
      return;
    }
    first = plan->states[lane].found == AT_ITS_END ? first : lane;
  }
  fail(lanes, stuck(plan, first), first);
}

/* A lane that has not ended goes on: what the last of its steps comes to. */
static inline unsigned go_on(const hwlib_chip_plan_t *plan, uint16_t lane, uint8_t single)
{
  hwlib_lane_state_t *state = &plan->states[lane];
  count(state);
  if (state->found == WAITS) {
    unsigned found = ask(state);
    if (found != GOES_ON) {
      return found;
    }
    ++state->step;
    if (single) {
      return GOES_ON;
    }
  }
  return run_lane(plan, &plan->lanes[lane], state, single);
}

uint8_t hwlib_lanes_poll(hwlib_lanes_t *lanes)
{
  const hwlib_chip_plan_t *plan = lanes->plan;
  uint16_t lane = lanes->first, still = 0; /* so many lanes in a row cannot go on */
  lanes->waited = 0;
  while (!lanes->ended && still < plan->lane_count) {
    hwlib_lane_state_t *state = &plan->states[lane];
    const hwlib_step_t *before = state->step;
    ++still;
    if (state->found != AT_ITS_END) {
      unsigned found = go_on(plan, lane, lanes->single);
      state->found = (uint8_t)found;
      if ((found & FAILED) != 0) {
        fail(lanes, (hwlib_status_t)(found & ~(unsigned)FAILED), lane);
      } else if (found == AT_ITS_END && --lanes->left == 0) {
        end(lanes, HWLIB_OK, 0);
      }
    }
    lane = lane + 1u < plan->lane_count ? (uint16_t)(lane + 1u) : 0;
    if (state->step != before) {
      still = state->found == GOES_ON ? 0 : 1; /* its turn was over */
      if (lanes->single) {
        lanes->first = lane; /* the others have their turn */
        lanes->waited = 1;
        return lanes->ended;
      }
    }
  }
  if (!lanes->ended) {
    fail_if_stuck(lanes);
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

/* The only lane that has not ended may wait. */
static void let_the_last_wait(const hwlib_chip_plan_t *plan)
{
  for (uint16_t lane = 0; lane < plan->lane_count; ++lane) {
    hwlib_lane_state_t *state = &plan->states[lane];
    if (state->found != AT_ITS_END) {
      state->alone = 1;
      state->found = GOES_ON;
    }
  }
}

int32_t hwlib_lanes_wait(hwlib_lanes_t *lanes)
{
  lanes->single = 0;
  while (!lanes->ended) {
    if (lanes->left == 1) {
      let_the_last_wait(lanes->plan);
    }
    if (!hwlib_lanes_poll(lanes) && lanes->left > 1) {
      idle(lanes);
    }
  }
  return lanes->result;
}
