/* The HAL of an accelerator with a vendor's library, simulated: the vendor's functions compute, and a call takes the
 * cycles that its cost says, on the clock that all accelerators of a chip share. Results are there at once; what
 * touches bytes of main memory that another accelerator uses is refused, as in sim_timeline.c. */
#include "hwlib_lanes.h"
#include "hwlib_library.h"
#include "sim_internal.h"

#include <string.h>

typedef struct {
  uint64_t end[SIM_CLOCKS];
  int waited; /* for with its own token */
  const hwlib_whole_layer_t *layer;
} call_t;

/* Calls are numbered from 1 in their order, which is that of their ends; a token is the number. */
static struct {
  uint64_t free[SIM_CLOCKS]; /* idle from here on */
  uint32_t forgotten;        /* up to here tokens mean nothing: from before the last init */
  uint32_t ended;            /* up to here the host knows that they have ended */
  uint32_t started;          /* the newest */
  call_t queue[HWLIB_ACCELERATOR_QUEUE];
  uint16_t layer;
  uint64_t layer_cycles[HWLIB_SIM_LAYERS];
  hwlib_sim_counters_t counters[HWLIB_SIM_LAYERS];
} sim;

static uint16_t profile_of(uint16_t layer)
{
  return layer < HWLIB_SIM_LAYERS ? layer : HWLIB_SIM_LAYERS - 1;
}

static void wait_until(uint32_t number, const uint64_t *end)
{
  sim_clock_wait_until(end);
  if (number > sim.ended) {
    sim.ended = number;
  }
}

/* ---------------------------------------------------------------- hwlib_sim.h */

void hwlib_sim_reset(void)
{
  memset(&sim, 0, sizeof sim);
  hwlib_sim_fault_reset();
  sim_clock_reset();
}

uint64_t hwlib_sim_cycles(void) { return sim_clock.total; }

void hwlib_sim_host_advance(uint64_t cycles) { sim_clock.host[SIM_CLOCK_END_TO_END] += cycles; }

uint64_t hwlib_sim_host_time(void) { return sim_clock.host[SIM_CLOCK_END_TO_END]; }

uint64_t hwlib_sim_layer_cycles(uint16_t layer) { return sim.layer_cycles[profile_of(layer)]; }

const hwlib_sim_counters_t *hwlib_sim_layer_counters(uint16_t layer) { return &sim.counters[profile_of(layer)]; }

/* There is no local memory to look at. */
const uint8_t *hwlib_sim_look(uint32_t address)
{
  (void)address;
  return NULL;
}

uint32_t hwlib_sim_in_flight(void) { return sim.started - sim.ended; }

/* ---------------------------------------------------------------- main memory */

static sim_clock_area_t area_of(const hwlib_operand_t *operand)
{
  return (sim_clock_area_t){hwlib_operand_address(operand), 1, 0, operand->bytes, operand->writes};
}

static const sim_clock_area_t *conflict(const sim_clock_area_t *area)
{
  static sim_clock_area_t found;
  for (uint32_t number = sim.ended + 1; number <= sim.started; ++number) {
    const hwlib_whole_layer_t *layer = sim.queue[number % HWLIB_ACCELERATOR_QUEUE].layer;
    for (uint16_t i = 0; i < layer->operand_count; ++i) {
      found = area_of(&layer->operands[i]);
      if (sim_clock_clash(area, &found)) {
        return &found;
      }
    }
  }
  return NULL;
}

static sim_clock_user_t user = {.conflict = conflict};

static hwlib_status_t check_main(const hwlib_whole_layer_t *layer)
{
  sim_clock_join(&user);
  for (uint16_t i = 0; i < layer->operand_count; ++i) {
    const sim_clock_area_t area = area_of(&layer->operands[i]);
    const sim_clock_area_t *other = sim_clock_conflict(&user, &area);
    if (other != NULL) {
      return HWLIB_SIM_REFUSE(HWLIB_ERROR_RACE, "call",
                              "touches, at # of main memory, bytes of another accelerator's copy or call in flight at #",
                              area.address, other->address);
    }
  }
  return HWLIB_OK;
}

/* ---------------------------------------------------------------- hwlib_hal.h */

hwlib_status_t hwlib_hal_init(void)
{
  wait_until(sim.started, sim.free);
  sim.forgotten = sim.started;
  return HWLIB_OK;
}

hwlib_status_t hwlib_hal_copy_2d(hwlib_place_t target, uint32_t target_stride, hwlib_place_t source,
                                 uint32_t source_stride, uint32_t bytes, uint32_t rows, hwlib_token_t *token)
{
  (void)target, (void)target_stride, (void)source, (void)source_stride, (void)bytes, (void)rows, (void)token;
  return HWLIB_SIM_REFUSE(HWLIB_ERROR_STEP, "copy", "a library has none", 0);
}

hwlib_status_t hwlib_hal_copy_1d(hwlib_place_t target, hwlib_place_t source, uint32_t bytes, hwlib_token_t *token)
{
  return hwlib_hal_copy_2d(target, 0, source, 0, bytes, 1, token);
}

/* The vendor's engine has done its work when this returns. */
static hwlib_status_t compute(const hwlib_whole_layer_t *layer)
{
  hwlib_token_t token;
  int32_t status = layer->start(&token);
  if (status == 0) {
    status = HWLIB_LIBRARY_WAIT(token);
  }
  if (status != 0) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_HARDWARE, "call", "the library returned #", (uint32_t)status);
  }
  return HWLIB_OK;
}

static void begin(const hwlib_whole_layer_t *layer)
{
  uint32_t number = ++sim.started;
  call_t *call = &sim.queue[number % HWLIB_ACCELERATOR_QUEUE];
  if (number > HWLIB_ACCELERATOR_QUEUE) {
    wait_until(number - HWLIB_ACCELERATOR_QUEUE, call->end);
  }
  *call = (call_t){.layer = layer};
  for (unsigned clock = 0; clock < SIM_CLOCKS; ++clock) {
    uint64_t start = sim.free[clock] > sim_clock.host[clock] ? sim.free[clock] : sim_clock.host[clock];
    call->end[clock] = sim.free[clock] = start + layer->cycles;
  }
  uint64_t end = sim.free[SIM_CLOCK_ACCELERATOR];
  if (end > sim_clock.total) {
    sim_clock.total = end;
  }
  if (end > sim_clock.done) {
    sim.layer_cycles[sim.layer] += end - sim_clock.done;
    sim_clock.done = end;
  }
  sim.counters[sim.layer].jobs += 1;
  sim.counters[sim.layer].array_cycles += layer->cycles;
}

hwlib_status_t hwlib_hal_job_start(const hwlib_job_t *job, hwlib_token_t *token)
{
  if (job->tile != NULL) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_STEP, "job", "a library has whole layers, without tiles", 0);
  }
  const hwlib_whole_layer_t *layer = (const hwlib_whole_layer_t *)job->layer;
  hwlib_status_t status = check_main(layer);
  if (status == HWLIB_OK) {
    status = compute(layer);
  }
  if (status == HWLIB_OK) {
    begin(layer);
    *token = sim.started;
  }
  return status;
}

/* The call of a token that was not waited for; NULL if it has left the queue, so has ended. */
static hwlib_status_t find(hwlib_token_t token, call_t **call)
{
  *call = NULL;
  if (token <= sim.forgotten || token > sim.started) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_TOKEN, "call", "token # was not given since the last init", token);
  }
  if (sim.started - token >= HWLIB_ACCELERATOR_QUEUE) {
    return HWLIB_OK;
  }
  *call = &sim.queue[token % HWLIB_ACCELERATOR_QUEUE];
  if ((*call)->waited) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_TOKEN, "call", "token # was waited for before", token);
  }
  return HWLIB_OK;
}

hwlib_status_t hwlib_hal_job_wait(hwlib_token_t token)
{
  call_t *call;
  hwlib_status_t status = find(token, &call);
  if (status == HWLIB_OK && call != NULL) {
    call->waited = 1;
    wait_until(token, call->end);
  }
  return status;
}

hwlib_status_t hwlib_hal_job_done(hwlib_token_t token, uint8_t *done)
{
  call_t *call;
  hwlib_status_t status = find(token, &call);
  if (status != HWLIB_OK) {
    return status;
  }
  *done = call == NULL || call->end[SIM_CLOCK_ACCELERATOR] <= sim_clock.host[SIM_CLOCK_ACCELERATOR];
  if (*done) {
    return hwlib_hal_job_wait(token);
  }
  sim_clock_ask(call->end[SIM_CLOCK_ACCELERATOR]);
  return HWLIB_OK;
}

/* A call is one operation, whether its lane waits for it or another one. */
hwlib_status_t hwlib_hal_copy_wait(hwlib_token_t token) { return hwlib_hal_job_wait(token); }

hwlib_status_t hwlib_hal_copy_done(hwlib_token_t token, uint8_t *done) { return hwlib_hal_job_done(token, done); }

uint64_t hwlib_hal_cycles(void) { return sim_clock.host[SIM_CLOCK_ACCELERATOR]; }

void hwlib_hal_mark(uint16_t layer) { sim.layer = profile_of(layer); }

void hwlib_hal_idle(void) { sim_clock_idle(); }
