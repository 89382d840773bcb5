/* The device behind the registers of regs.h, in software: the simulator, whose HAL has other names here (sim_names.h).
 *
 * Time is that of the core: its instructions, where they are counted for the simulator (HWLIB_COUNT and HWLIB_SIM), a
 * cycle more for each read, and its sleep. */
#include "sim_names.h"

#include "hwlib_sim.h"
#include "hwlib_sim_config.h"
#include "regs_model.h"
#include "../regs.h"

enum { WORDS = 0x100 / 4, ENGINES = 2, BUS_CYCLES = 1 };

static uint32_t words[WORDS];
static uint32_t given[ENGINES], status[ENGINES];
static uint32_t seen[ENGINES]; /* DONE, as last read */

#ifdef HWLIB_COUNT
uint16_t hwlib_count(uint16_t layer);

/* The device's work is not the core's. */
static uint16_t pause(void) { return hwlib_count(UINT16_MAX); }
static void go_on(uint16_t counted) { (void)hwlib_count(counted); }
#else
static uint16_t pause(void) { return 0; }
static void go_on(uint16_t counted) { (void)counted; }
#endif

static uint32_t *word(uint32_t offset) { return &words[offset / 4]; }

static uintptr_t address_at(uint32_t offset)
{
  return (uintptr_t)((uint64_t)*word(offset + 4) << 32 | *word(offset));
}

static hwlib_status_t copy(uint32_t start)
{
  hwlib_token_t token;
  hwlib_place_t target = {start & REGS_MEMORY, address_at(REGS_DMA + REGS_TARGET)};
  hwlib_place_t source = {start >> REGS_SOURCE_MEMORY & REGS_MEMORY, address_at(REGS_DMA + REGS_SOURCE)};
  uint32_t bytes = *word(REGS_DMA + REGS_BYTES);
  if ((start & REGS_STRIDED) == 0) {
    return hwlib_hal_copy_1d(target, source, bytes, &token);
  }
  return hwlib_hal_copy_2d(target, *word(REGS_DMA + REGS_TARGET_STRIDE), source, *word(REGS_DMA + REGS_SOURCE_STRIDE),
                           bytes, *word(REGS_DMA + REGS_ROWS), &token);
}

static hwlib_status_t run_job(void)
{
  hwlib_token_t token;
  const hwlib_job_t job = {(const hwlib_layer_t *)address_at(REGS_ARRAY + REGS_LAYER),
                           (const hwlib_tile_t *)address_at(REGS_ARRAY + REGS_TILE)};
  return hwlib_hal_job_start(&job, &token);
}

static hwlib_status_t event(uint8_t engine, uint32_t value)
{
#ifdef HWLIB_SIM_EVENTS
  uint8_t number = (uint8_t)value;
  return value >> 16 == 0 ? hwlib_hal_signal(engine, number) : hwlib_hal_await(engine, number, (uint16_t)(value >> 16));
#else
  (void)engine, (void)value;
  return HWLIB_ERROR_STEP; /* no such register */
#endif
}

static uint32_t done(uint8_t engine) { return status[engine] != HWLIB_OK ? given[engine] : hwlib_sim_ended(engine); }

/* A doorbell of an engine: what comes into a full queue, or after a failure, is lost. */
static void ring(uint8_t engine, uint32_t doorbell, uint32_t value)
{
  if (status[engine] == HWLIB_OK && given[engine] - done(engine) >= HWLIB_ACCELERATOR_QUEUE) {
    status[engine] = HWLIB_ERROR_HARDWARE;
  }
  ++given[engine];
  if (status[engine] == HWLIB_OK) {
    hwlib_status_t found = doorbell == REGS_EVENT           ? event(engine, value)
                           : engine == HWLIB_ENGINE_DMA ? copy(value)
                                                            : run_job();
    status[engine] = (uint32_t)found;
  }
}

/* Until the engine's interrupt is pending: not at all where its count changed since the core looked. */
void regs_model_sleep(uint8_t engine)
{
  uint16_t counted = pause();
  if (done(engine) == seen[engine]) {
    hwlib_sim_sleep(engine);
  }
  go_on(counted);
}

static void reset(void)
{
  (void)hwlib_hal_init();
  given[HWLIB_ENGINE_DMA] = given[HWLIB_ENGINE_ARRAY] = 0;
  status[HWLIB_ENGINE_DMA] = status[HWLIB_ENGINE_ARRAY] = HWLIB_OK;
}

static uint32_t read_word(uint32_t offset)
{
  switch (offset) {
  case REGS_CONTROL:
    return 0; /* a reset is done at once */
  case REGS_CYCLES:
    return (uint32_t)hwlib_sim_host_time();
  case REGS_CYCLES + 4:
    return (uint32_t)(hwlib_sim_host_time() >> 32);
  case REGS_DMA + REGS_DONE:
    return seen[HWLIB_ENGINE_DMA] = done(HWLIB_ENGINE_DMA);
  case REGS_ARRAY + REGS_DONE:
    return seen[HWLIB_ENGINE_ARRAY] = done(HWLIB_ENGINE_ARRAY);
  case REGS_DMA + REGS_STATUS:
    return status[HWLIB_ENGINE_DMA];
  case REGS_ARRAY + REGS_STATUS:
    return status[HWLIB_ENGINE_ARRAY];
  default:
    return *word(offset);
  }
}

uint32_t regs_model_read(uint32_t offset)
{
  uint16_t counted = pause();
  hwlib_sim_host_advance(BUS_CYCLES);
  uint32_t value = read_word(offset);
  go_on(counted);
  return value;
}

void regs_model_write(uint32_t offset, uint32_t value)
{
  uint16_t counted = pause();
  uint32_t in_block = offset % REGS_DMA;
  if (offset == REGS_CONTROL) {
    reset();
  } else if (offset >= REGS_DMA && (in_block == REGS_START || in_block == REGS_EVENT)) {
    ring(offset < REGS_ARRAY ? HWLIB_ENGINE_DMA : HWLIB_ENGINE_ARRAY, in_block, value);
  } else {
    *word(offset) = value;
  }
  go_on(counted);
}
