/* Time: what each engine does when, the tokens, races between the engines, and the profile.
 *
 * An operation starts when the host starts it and its engine is free; a wait moves the host to the
 * operation's end. The two clocks of sim_clock.h keep this. Results are there at once; as races are refused,
 * no program can see the difference to hardware. */
#include "sim_internal.h"

#include <string.h>

/* Operations, and events, are numbered from 1 in their order, which is that of their ends. */
typedef struct {
  uint64_t free[SIM_CLOCKS]; /* idle from here on */
  uint32_t forgotten;        /* up to here tokens mean nothing: from before the last init */
  uint32_t ended;            /* up to here the host knows that they have ended */
  uint32_t started;          /* the newest */
} engine_t;

static struct {
  engine_t engines[HWLIB_SIM_ENGINES];
  uint16_t layer;
  uint64_t layer_cycles[HWLIB_SIM_LAYERS];
  hwlib_sim_counters_t counters[HWLIB_SIM_LAYERS];
} sim;

static uint16_t profile_of(uint16_t layer)
{
  return layer < HWLIB_SIM_LAYERS ? layer : HWLIB_SIM_LAYERS - 1;
}

void hwlib_sim_timeline_reset(void)
{
  memset(&sim, 0, sizeof sim);
  hwlib_sim_events_reset();
  sim_clock_reset();
}

void hwlib_sim_mark(uint16_t layer) { sim.layer = profile_of(layer); }

uint64_t hwlib_sim_cycles(void) { return sim_clock.total; }

uint64_t hwlib_sim_now(void) { return sim_clock.host[SIM_CLOCK_ACCELERATOR]; }

void hwlib_sim_host_advance(uint64_t cycles) { sim_clock.host[SIM_CLOCK_END_TO_END] += cycles; }

uint64_t hwlib_sim_host_time(void) { return sim_clock.host[SIM_CLOCK_END_TO_END]; }

uint64_t hwlib_sim_layer_cycles(uint16_t layer) { return sim.layer_cycles[profile_of(layer)]; }

const hwlib_sim_counters_t *hwlib_sim_layer_counters(uint16_t layer) { return &sim.counters[profile_of(layer)]; }

hwlib_sim_counters_t *hwlib_sim_counters(void) { return &sim.counters[sim.layer]; }

uint32_t hwlib_sim_in_flight(void)
{
  uint32_t count = 0;
  for (uint8_t i = 0; i < HWLIB_SIM_ENGINES; ++i) {
    count += sim.engines[i].started - hwlib_sim_over(i, sim.engines[i].ended);
  }
  return count;
}

/* Where an engine holds the operation of this number, or has held it. */
static hwlib_sim_operation_t *operation_of(uint8_t engine, uint32_t number)
{
  return &hwlib_sim_numbers.operations[engine * hwlib_sim_numbers.queue + number % hwlib_sim_numbers.queue];
}

/* ---------------------------------------------------------------- what the host knows to have ended */

/* The host learns that this operation, and with it all before it, has ended. */
static void wait_until(engine_t *engine, uint32_t number, const uint64_t *end)
{
  sim_clock_wait_until(end);
  if (number > engine->ended) {
    engine->ended = number;
  }
}

/* What an engine is at, and may not be when something is done to an area; or NULL. */
static const hwlib_sim_area_t *race(uint8_t engine_number, const hwlib_sim_area_t *area)
{
  const engine_t *engine = &sim.engines[engine_number];
  for (uint32_t number = hwlib_sim_over(engine_number, engine->ended) + 1; number <= engine->started; ++number) {
    const hwlib_sim_work_t *work = &operation_of(engine_number, number)->work;
    for (uint32_t i = 0; i < work->areas; ++i) {
      if (((area->access | work->area[i].access) & HWLIB_SIM_WRITES) != 0 &&
          hwlib_sim_overlap(area, &work->area[i])) {
        return &work->area[i];
      }
    }
  }
  return NULL;
}

static hwlib_status_t check_race(const hwlib_sim_area_t *area, uint8_t engine)
{
  const hwlib_sim_area_t *other = race((uint8_t)(1 - engine), area);
  const char *text = engine == HWLIB_SIM_DMA ? "touches, at #, bytes of a job in flight at #"
                                             : "touches, at #, bytes of a copy in flight at #";
  if (other != NULL) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_RACE, area->name, text, area->address, other->address);
  }
  return HWLIB_OK;
}

/* ---------------------------------------------------------------- beside other accelerators */

/* The areas of main memory that an operation touches, by index; NULL behind the last. A job on a tile has none. */
static const sim_clock_area_t *main_area(const hwlib_sim_work_t *work, uint16_t index)
{
  static sim_clock_area_t area;
  if (work->whole == NULL) {
    return index == 0 && work->main.rows != 0 ? &work->main : NULL;
  }
  if (index == work->whole->operand_count) {
    return NULL;
  }
  const hwlib_operand_t *operand = &work->whole->operands[index];
  area = (sim_clock_area_t){hwlib_operand_address(operand), 1, 0, operand->bytes, operand->writes};
  return &area;
}

/* What an engine has in flight on these bytes of main memory. */
static const sim_clock_area_t *in_flight_on(uint8_t engine_number, const sim_clock_area_t *area)
{
  const engine_t *engine = &sim.engines[engine_number];
  for (uint32_t number = hwlib_sim_over(engine_number, engine->ended) + 1; number <= engine->started; ++number) {
    const hwlib_sim_work_t *work = &operation_of(engine_number, number)->work;
    const sim_clock_area_t *main;
    for (uint16_t i = 0; (main = main_area(work, i)) != NULL; ++i) {
      if (sim_clock_clash(area, main)) {
        return main;
      }
    }
  }
  return NULL;
}

static const sim_clock_area_t *conflict(const sim_clock_area_t *area)
{
  const sim_clock_area_t *found = in_flight_on(HWLIB_SIM_DMA, area);
  return found != NULL ? found : in_flight_on(HWLIB_SIM_ARRAY, area);
}

static const hwlib_sim_area_t *local_conflict(const hwlib_sim_area_t *area)
{
  const hwlib_sim_area_t *found = race(HWLIB_SIM_DMA, area);
  return found != NULL ? found : race(HWLIB_SIM_ARRAY, area);
}

static sim_clock_user_t user = {.conflict = conflict, .local_conflict = local_conflict};

/* Main memory, which this accelerator's other engine and other accelerators use as well. */
static hwlib_status_t check_main(uint8_t engine, const sim_clock_area_t *area)
{
  const char *name = engine == HWLIB_SIM_DMA ? "copy" : "whole layer";
  const sim_clock_area_t *other = sim_clock_conflict(&user, area);
  if (other != NULL) {
    const char *text = "touches, at # of main memory, bytes of another accelerator's copy or whole layer in flight at #";
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_RACE, name, text, area->address, other->address);
  }
  other = in_flight_on((uint8_t)(1 - engine), area);
  if (other != NULL) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_RACE, name,
                            engine == HWLIB_SIM_DMA
                                ? "touches, at # of main memory, bytes of a whole layer in flight at #"
                                : "touches, at # of main memory, bytes of a copy in flight at #",
                            area->address, other->address);
  }
  return HWLIB_OK;
}

/* Local activations, which other accelerators may share. */
static hwlib_status_t check_shared(const hwlib_sim_area_t *area)
{
  const hwlib_sim_area_t *other =
      area->memory == HWLIB_LOCAL_ACTIVATIONS ? sim_clock_local_conflict(&user, area) : NULL;
  if (other != NULL) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_RACE, area->name,
                            "touches, at # of a shared memory, bytes of another accelerator's work in flight at #",
                            area->address, other->address);
  }
  return HWLIB_OK;
}

/* ---------------------------------------------------------------- starts and waits */

static hwlib_status_t check_races(uint8_t engine, const hwlib_sim_work_t *work)
{
  hwlib_status_t status = HWLIB_OK;
  const sim_clock_area_t *main;
  user.activations = hwlib_sim_look(0);
  sim_clock_join(&user);
  hwlib_sim_asks(engine);
  for (uint16_t i = 0; status == HWLIB_OK && (main = main_area(work, i)) != NULL; ++i) {
    const sim_clock_area_t area = *main;
    status = check_main(engine, &area);
  }
  for (uint32_t i = 0; i < work->areas && status == HWLIB_OK; ++i) {
    status = check_race(&work->area[i], engine);
    if (status == HWLIB_OK) {
      status = check_shared(&work->area[i]);
    }
  }
  hwlib_sim_asked();
  return status;
}

/* The next place in the queue of an engine, for what takes so long; the host waits for the oldest where it is full. */
static uint32_t take_place(uint8_t engine_number, const hwlib_sim_work_t *work, const uint64_t *ready)
{
  engine_t *engine = &sim.engines[engine_number];
  uint32_t number = ++engine->started;
  hwlib_sim_operation_t *operation = operation_of(engine_number, number);
  if (number > hwlib_sim_numbers.queue) {
    wait_until(engine, number - hwlib_sim_numbers.queue, operation->end);
    hwlib_sim_tell_host(&operation->known);
  }

  *operation = (hwlib_sim_operation_t){.work = *work, .known = hwlib_sim_begin(engine_number, number)};
  for (unsigned clock = 0; clock < SIM_CLOCKS; ++clock) {
    uint64_t start = engine->free[clock] > sim_clock.host[clock] ? engine->free[clock] : sim_clock.host[clock];
    engine->free[clock] = (start > ready[clock] ? start : ready[clock]) + work->cycles;
    operation->end[clock] = engine->free[clock];
  }
  return number;
}

#ifdef HWLIB_SIM_EVENTS
uint32_t hwlib_sim_hold(uint8_t engine_number, uint64_t *end, hwlib_sim_known_t *known)
{
  static const hwlib_sim_work_t nothing;
  uint32_t number = take_place(engine_number, &nothing, end);
  const hwlib_sim_operation_t *operation = operation_of(engine_number, number);
  memcpy(end, operation->end, sizeof operation->end);
  *known = operation->known;
  return number;
}
#endif

hwlib_status_t hwlib_sim_start(uint8_t engine_number, const hwlib_sim_work_t *work, hwlib_token_t *token)
{
  hwlib_status_t status = check_races(engine_number, work);
  if (status != HWLIB_OK) {
    return status;
  }
  static const uint64_t at_once[SIM_CLOCKS];
  uint32_t number = take_place(engine_number, work, at_once);
  uint64_t end = sim.engines[engine_number].free[SIM_CLOCK_ACCELERATOR];
  if (end > sim_clock.total) {
    sim_clock.total = end;
  }
  int inward = engine_number == HWLIB_SIM_DMA && (work->area[0].access & HWLIB_SIM_WRITES) != 0;
  if (!inward && end > sim_clock.done) {
    sim.layer_cycles[sim.layer] += end - sim_clock.done;
    sim_clock.done = end;
  }
  hwlib_sim_written(work);
  *token = number * HWLIB_SIM_ENGINES + engine_number;
  return HWLIB_OK;
}

/* The operation of a token that was not waited for; NULL if it has left the queue, so has ended. */
static hwlib_status_t find(uint8_t engine_number, hwlib_token_t token, hwlib_sim_operation_t **operation)
{
  engine_t *engine = &sim.engines[engine_number];
  uint32_t number = token / HWLIB_SIM_ENGINES;
  const char *name = engine_number == HWLIB_SIM_DMA ? "copy" : "job";
  *operation = NULL;
  if (token % HWLIB_SIM_ENGINES != engine_number || number <= engine->forgotten || number > engine->started) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_TOKEN, name, "token # was not given since the last init", token);
  }
  if (engine->started - number >= hwlib_sim_numbers.queue) {
    return HWLIB_OK;
  }
  *operation = operation_of(engine_number, number);
  if ((*operation)->waited) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_TOKEN, name, "token # was waited for before", token);
  }
  return HWLIB_OK;
}

hwlib_status_t hwlib_sim_wait(uint8_t engine_number, hwlib_token_t token)
{
  hwlib_sim_operation_t *operation;
  hwlib_status_t status = find(engine_number, token, &operation);
  if (status == HWLIB_OK && operation != NULL) {
    operation->waited = 1;
    wait_until(&sim.engines[engine_number], token / HWLIB_SIM_ENGINES, operation->end);
    hwlib_sim_tell_host(&operation->known);
  }
  return status;
}

hwlib_status_t hwlib_sim_done(uint8_t engine_number, hwlib_token_t token, uint8_t *done)
{
  hwlib_sim_operation_t *operation;
  hwlib_status_t status = find(engine_number, token, &operation);
  if (status != HWLIB_OK) {
    return status;
  }
  *done = operation == NULL || operation->end[SIM_CLOCK_ACCELERATOR] <= hwlib_sim_now();
  if (*done) {
    return hwlib_sim_wait(engine_number, token);
  }
  sim_clock_ask(operation->end[SIM_CLOCK_ACCELERATOR]);
  return HWLIB_OK;
}

/* The first operation that the host does not know to have ended; or NULL. */
static const hwlib_sim_operation_t *next_end(uint8_t engine_number)
{
  const engine_t *engine = &sim.engines[engine_number];
  return engine->ended == engine->started ? NULL : operation_of(engine_number, engine->ended + 1);
}

uint32_t hwlib_sim_ended(uint8_t engine_number)
{
  engine_t *engine = &sim.engines[engine_number];
  const hwlib_sim_operation_t *next;
  while ((next = next_end(engine_number)) != NULL &&
         next->end[SIM_CLOCK_END_TO_END] <= sim_clock.host[SIM_CLOCK_END_TO_END]) {
    wait_until(engine, engine->ended + 1, next->end);
    hwlib_sim_tell_host(&next->known);
  }
  return engine->ended - engine->forgotten;
}

void hwlib_sim_sleep(uint8_t engine_number)
{
  const hwlib_sim_operation_t *next = next_end(engine_number);
  if (next != NULL && next->end[SIM_CLOCK_END_TO_END] > sim_clock.host[SIM_CLOCK_END_TO_END]) {
    sim_clock.host[SIM_CLOCK_END_TO_END] = next->end[SIM_CLOCK_END_TO_END];
  }
}

void hwlib_sim_idle(void)
{
  for (uint8_t i = 0; i < HWLIB_SIM_ENGINES; ++i) {
    engine_t *engine = &sim.engines[i];
    wait_until(engine, engine->started, engine->free);
    hwlib_sim_tell_host_all(i);
    engine->forgotten = engine->started;
  }
  hwlib_sim_events_init();
}
