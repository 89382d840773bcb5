/* Time: what each engine does when, the tokens, races between the engines, and the profile.
 *
 * An operation starts when the host starts it and its engine is free; a wait moves the host to the
 * operation's end. Two clocks keep this: on the first the host takes no time of its own, on the second
 * it takes what hwlib_sim_host_advance says. Results are there at once; as races are refused,
 * no program can see the difference to hardware. */
#include "sim_internal.h"

#include <string.h>

enum { CLOCK_ACCELERATOR, CLOCK_END_TO_END, CLOCKS };

typedef struct {
  uint64_t end[CLOCKS];
  int waited; /* for with its own token */
  hwlib_sim_work_t work;
} operation_t;

/* Operations are numbered from 1 in their order, which is that of their ends. */
typedef struct {
  uint64_t free[CLOCKS]; /* idle from here on */
  uint32_t forgotten;    /* up to here tokens mean nothing: from before the last init */
  uint32_t ended;        /* up to here the host knows that they have ended */
  uint32_t started;      /* the newest */
  operation_t queue[HWLIB_ACCELERATOR_QUEUE];
} engine_t;

static struct {
  uint64_t host[CLOCKS]; /* now */
  uint64_t total;        /* the latest end of any operation, on the accelerator's clock */
  uint64_t done;         /* the latest end of a job or of a copy to main memory */
  engine_t engines[HWLIB_SIM_ENGINES];
  uint16_t layer;
  uint64_t layer_cycles[HWLIB_SIM_LAYERS];
  hwlib_sim_counters_t counters[HWLIB_SIM_LAYERS];
} sim;

static uint16_t profile_of(uint16_t layer)
{
  return layer < HWLIB_SIM_LAYERS ? layer : HWLIB_SIM_LAYERS - 1;
}

void hwlib_sim_timeline_reset(void) { memset(&sim, 0, sizeof sim); }

void hwlib_sim_mark(uint16_t layer) { sim.layer = profile_of(layer); }

uint64_t hwlib_sim_cycles(void) { return sim.total; }

uint64_t hwlib_sim_now(void) { return sim.host[CLOCK_ACCELERATOR]; }

void hwlib_sim_host_advance(uint64_t cycles) { sim.host[CLOCK_END_TO_END] += cycles; }

uint64_t hwlib_sim_host_time(void) { return sim.host[CLOCK_END_TO_END]; }

uint64_t hwlib_sim_layer_cycles(uint16_t layer) { return sim.layer_cycles[profile_of(layer)]; }

const hwlib_sim_counters_t *hwlib_sim_layer_counters(uint16_t layer) { return &sim.counters[profile_of(layer)]; }

hwlib_sim_counters_t *hwlib_sim_counters(void) { return &sim.counters[sim.layer]; }

uint32_t hwlib_sim_in_flight(void)
{
  uint32_t count = 0;
  for (unsigned i = 0; i < HWLIB_SIM_ENGINES; ++i) {
    count += sim.engines[i].started - sim.engines[i].ended;
  }
  return count;
}

/* ---------------------------------------------------------------- starts and waits */

/* The host learns that this operation, and with it all before it, has ended. */
static void wait_until(engine_t *engine, uint32_t number, const uint64_t *end)
{
  for (unsigned clock = 0; clock < CLOCKS; ++clock) {
    if (end[clock] > sim.host[clock]) {
      sim.host[clock] = end[clock];
    }
  }
  if (number > engine->ended) {
    engine->ended = number;
  }
}

static hwlib_status_t check_race(const hwlib_sim_area_t *area, uint8_t engine)
{
  const engine_t *other = &sim.engines[1 - engine];
  const char *text = engine == HWLIB_SIM_DMA ? "touches, at #, bytes of a job in flight at #"
                                             : "touches, at #, bytes of a copy in flight at #";
  for (uint32_t number = other->ended + 1; number <= other->started; ++number) {
    const hwlib_sim_work_t *work = &other->queue[number % HWLIB_ACCELERATOR_QUEUE].work;
    for (uint32_t i = 0; i < work->areas; ++i) {
      if (((area->access | work->area[i].access) & HWLIB_SIM_WRITES) != 0 &&
          hwlib_sim_overlap(area, &work->area[i])) {
        return HWLIB_SIM_REFUSE(HWLIB_ERROR_RACE, area->name, text, area->address, work->area[i].address);
      }
    }
  }
  return HWLIB_OK;
}

hwlib_status_t hwlib_sim_start(uint8_t engine_number, const hwlib_sim_work_t *work, hwlib_token_t *token)
{
  for (uint32_t i = 0; i < work->areas; ++i) {
    hwlib_status_t status = check_race(&work->area[i], engine_number);
    if (status != HWLIB_OK) {
      return status;
    }
  }
  engine_t *engine = &sim.engines[engine_number];
  uint32_t number = ++engine->started;
  operation_t *operation = &engine->queue[number % HWLIB_ACCELERATOR_QUEUE];
  if (number > HWLIB_ACCELERATOR_QUEUE) {
    wait_until(engine, number - HWLIB_ACCELERATOR_QUEUE, operation->end);
  }

  *operation = (operation_t){.work = *work};
  for (unsigned clock = 0; clock < CLOCKS; ++clock) {
    uint64_t start = engine->free[clock] > sim.host[clock] ? engine->free[clock] : sim.host[clock];
    engine->free[clock] = start + work->cycles;
    operation->end[clock] = engine->free[clock];
  }
  uint64_t end = engine->free[CLOCK_ACCELERATOR];
  if (end > sim.total) {
    sim.total = end;
  }
  int inward = engine_number == HWLIB_SIM_DMA && (work->area[0].access & HWLIB_SIM_WRITES) != 0;
  if (!inward && end > sim.done) {
    sim.layer_cycles[sim.layer] += end - sim.done;
    sim.done = end;
  }
  hwlib_sim_written(work);
  *token = number * HWLIB_SIM_ENGINES + engine_number;
  return HWLIB_OK;
}

hwlib_status_t hwlib_sim_wait(uint8_t engine_number, hwlib_token_t token)
{
  engine_t *engine = &sim.engines[engine_number];
  uint32_t number = token / HWLIB_SIM_ENGINES;
  const char *name = engine_number == HWLIB_SIM_DMA ? "copy" : "job";
  if (token % HWLIB_SIM_ENGINES != engine_number || number <= engine->forgotten || number > engine->started) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_TOKEN, name, "token # was not given since the last init", token);
  }
  if (engine->started - number >= HWLIB_ACCELERATOR_QUEUE) {
    return HWLIB_OK; /* it left the queue, so it has ended */
  }
  operation_t *operation = &engine->queue[number % HWLIB_ACCELERATOR_QUEUE];
  if (operation->waited) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_TOKEN, name, "token # was waited for before", token);
  }
  operation->waited = 1;
  wait_until(engine, number, operation->end);
  return HWLIB_OK;
}

void hwlib_sim_idle(void)
{
  for (unsigned i = 0; i < HWLIB_SIM_ENGINES; ++i) {
    engine_t *engine = &sim.engines[i];
    wait_until(engine, engine->started, engine->free);
    engine->forgotten = engine->started;
  }
}
