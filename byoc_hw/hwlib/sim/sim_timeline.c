/* Time: what each engine does when, the tokens, races between the engines, and the profile.
 *
 * An operation starts when the host starts it and its engine is free; a wait moves the host to the
 * operation's end. Two clocks keep this: on the first the host takes no time of its own, on the second
 * it takes what hwlib_sim_host_advance says. Results are there at once, which nobody can tell from
 * hardware as long as races are refused. */
#include "sim_internal.h"

#include <string.h>

enum { CLOCK_ACCELERATOR, CLOCK_END_TO_END, CLOCKS };

typedef struct {
  uint64_t end[CLOCKS];
  int waited; /* for by name */
  hwlib_sim_work_t work;
} operation_t;

/* Operations are numbered from 1 in their order, which is that of their ends. */
typedef struct {
  uint64_t free[CLOCKS]; /* from when on */
  uint32_t forgotten;    /* up to here tokens mean nothing: from before the last init */
  uint32_t ended;        /* up to here the host knows that they have ended */
  uint32_t started;      /* the newest */
  operation_t queue[HWLIB_SIM_QUEUE];
} engine_t;

static struct {
  uint64_t host[CLOCKS]; /* now */
  uint64_t total;        /* the latest end of any operation, on the accelerator's clock */
  uint64_t done;         /* the latest end of a job or of a copy to main memory */
  engine_t engines[HWLIB_SIM_ENGINES];
  uint16_t layer;
  uint64_t layer_cycles[HWLIB_SIM_LAYERS];
  hwlib_sim_counters_t counters[HWLIB_SIM_LAYERS];
  size_t fault_length;
  char fault[200];
} sim;

static uint16_t profile_of(uint16_t layer)
{
  return layer < HWLIB_SIM_LAYERS ? layer : HWLIB_SIM_LAYERS - 1;
}

void hwlib_sim_reset(void)
{
  memset(&sim, 0, sizeof sim);
  hwlib_sim_memory_reset();
}

uint64_t hwlib_sim_cycles(void) { return sim.total; }

void hwlib_sim_host_advance(uint64_t cycles) { sim.host[CLOCK_END_TO_END] += cycles; }

uint64_t hwlib_sim_host_time(void) { return sim.host[CLOCK_END_TO_END]; }

uint64_t hwlib_sim_layer_cycles(uint16_t layer) { return sim.layer_cycles[profile_of(layer)]; }

const hwlib_sim_counters_t *hwlib_sim_layer_counters(uint16_t layer) { return &sim.counters[profile_of(layer)]; }

hwlib_sim_counters_t *hwlib_sim_counters(void) { return &sim.counters[sim.layer]; }

const char *hwlib_sim_fault(void) { return sim.fault; }

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
    const hwlib_sim_work_t *work = &other->queue[number % HWLIB_SIM_QUEUE].work;
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
  operation_t *operation = &engine->queue[number % HWLIB_SIM_QUEUE];
  if (number > HWLIB_SIM_QUEUE) {
    wait_until(engine, number - HWLIB_SIM_QUEUE, operation->end);
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

static hwlib_status_t wait_for(uint8_t engine_number, hwlib_token_t token)
{
  engine_t *engine = &sim.engines[engine_number];
  uint32_t number = token / HWLIB_SIM_ENGINES;
  const char *name = engine_number == HWLIB_SIM_DMA ? "copy" : "job";
  if (token % HWLIB_SIM_ENGINES != engine_number || number <= engine->forgotten || number > engine->started) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_TOKEN, name, "token # was not given since the last init", token);
  }
  if (engine->started - number >= HWLIB_SIM_QUEUE) {
    return HWLIB_OK; /* it left the queue, so it has ended */
  }
  operation_t *operation = &engine->queue[number % HWLIB_SIM_QUEUE];
  if (operation->waited) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_TOKEN, name, "token # was waited for before", token);
  }
  operation->waited = 1;
  wait_until(engine, number, operation->end);
  return HWLIB_OK;
}

/* ---------------------------------------------------------------- the HAL */

hwlib_status_t hwlib_hal_init(void)
{
  for (unsigned i = 0; i < HWLIB_SIM_ENGINES; ++i) {
    engine_t *engine = &sim.engines[i];
    wait_until(engine, engine->started, engine->free);
    engine->forgotten = engine->started;
  }
  return HWLIB_OK;
}

hwlib_status_t hwlib_hal_copy_wait(hwlib_token_t token) { return wait_for(HWLIB_SIM_DMA, token); }

hwlib_status_t hwlib_hal_job_wait(hwlib_token_t token) { return wait_for(HWLIB_SIM_ARRAY, token); }

hwlib_status_t hwlib_hal_job_start(const hwlib_job_t *job, hwlib_token_t *token)
{
  hwlib_sim_work_t work = {0};
  hwlib_status_t status = hwlib_sim_check_job(job);
  if (status == HWLIB_OK) {
    status = hwlib_sim_job_work(job, &work);
  }
  if (status == HWLIB_OK) {
    status = hwlib_sim_access(&work);
  }
  if (status == HWLIB_OK) {
    status = hwlib_sim_check_scales(job);
  }
  if (status == HWLIB_OK) {
    status = hwlib_sim_start(HWLIB_SIM_ARRAY, &work, token);
  }
  if (status != HWLIB_OK) {
    return status;
  }
  hwlib_sim_counters_t *counters = hwlib_sim_counters();
  counters->jobs += 1;
  counters->array_cycles += work.cycles;
  hwlib_sim_compute(job);
  return HWLIB_OK;
}

uint64_t hwlib_hal_cycles(void) { return sim.host[CLOCK_ACCELERATOR]; }

void hwlib_hal_mark(uint16_t layer) { sim.layer = profile_of(layer); }

/* ---------------------------------------------------------------- faults */

static void append(char character)
{
  if (sim.fault_length < sizeof sim.fault - 1) {
    sim.fault[sim.fault_length++] = character;
    sim.fault[sim.fault_length] = '\0';
  }
}

static void append_number(uint64_t number)
{
  char digits[20]; /* of 2^64 - 1 */
  unsigned count = 0;
  do {
    digits[count++] = (char)('0' + number % 10);
    number /= 10;
  } while (number != 0);
  while (count > 0) {
    append(digits[--count]);
  }
}

hwlib_status_t hwlib_sim_refuse(hwlib_status_t status, const char *name, const char *text,
                                const uint64_t *numbers)
{
  sim.fault_length = 0;
  while (*name != '\0') {
    append(*name++);
  }
  append(':');
  append(' ');
  for (; *text != '\0'; ++text) {
    if (*text == '#') {
      append_number(*numbers++);
    } else {
      append(*text);
    }
  }
  return status;
}
