/* A HAL over memory-mapped registers (regs.h): starts write operands and a doorbell, waits poll a count. It trusts its
 * caller, and so checks nothing. */
#include "regs.h"

typedef struct {
  uint32_t started; /* operations since the init: the number of the last one is its token */
  uint32_t done;    /* of these, as last read */
} engine_t;

static engine_t engines[2]; /* HWLIB_ENGINE_DMA, HWLIB_ENGINE_ARRAY */

static uint32_t block_of(uint8_t engine) { return engine == HWLIB_ENGINE_DMA ? REGS_DMA : REGS_ARRAY; }

/* Counts wrap, so differences are compared: a queue is shorter than half of them. */
static int reached(uint8_t engine, hwlib_token_t token)
{
  engine_t *state = &engines[engine];
  if ((int32_t)(state->done - token) < 0) {
    state->done = REGS_READ(block_of(engine) + REGS_DONE);
  }
  return (int32_t)(state->done - token) >= 0;
}

/* What an engine wrote is there from here on, also through caches that are invalidated here. */
static hwlib_status_t ended(uint8_t engine)
{
  REGS_FENCE();
  return (hwlib_status_t)REGS_READ(block_of(engine) + REGS_STATUS);
}

static hwlib_status_t wait_for(uint8_t engine, hwlib_token_t token)
{
  while (!reached(engine, token)) {
    REGS_SLEEP(engine);
  }
  return ended(engine);
}

static hwlib_status_t ask_for(uint8_t engine, hwlib_token_t token, uint8_t *done)
{
  *done = (uint8_t)reached(engine, token);
  return *done ? ended(engine) : HWLIB_OK;
}

static void wait_for_room(uint8_t engine)
{
  while (!reached(engine, engines[engine].started + 1 - CHIP_QUEUE)) {
    REGS_SLEEP(engine);
  }
}

/* Queues an operation. Caches are cleaned here, so that the engine finds what the core wrote. */
static hwlib_token_t ring(uint8_t engine, uint32_t doorbell, uint32_t value)
{
  wait_for_room(engine);
  REGS_FENCE();
  REGS_WRITE(block_of(engine) + doorbell, value);
  return ++engines[engine].started;
}

static void write_address(uint32_t offset, uintptr_t address)
{
  REGS_WRITE(offset, (uint32_t)address);
#if UINTPTR_MAX > UINT32_MAX
  REGS_WRITE(offset + 4, (uint32_t)(address >> 32));
#endif
}

hwlib_status_t hwlib_hal_init(void)
{
  REGS_WRITE(REGS_CONTROL, 1);
  while (REGS_READ(REGS_CONTROL) != 0) {
  }
  engines[HWLIB_ENGINE_DMA] = engines[HWLIB_ENGINE_ARRAY] = (engine_t){0, 0};
  return HWLIB_OK;
}

/* Operands without those of rows; what is written to START. */
static uint32_t write_copy(hwlib_place_t target, hwlib_place_t source, uint32_t bytes)
{
  write_address(REGS_DMA + REGS_TARGET, target.address);
  write_address(REGS_DMA + REGS_SOURCE, source.address);
  REGS_WRITE(REGS_DMA + REGS_BYTES, bytes);
  return target.memory | (uint32_t)source.memory << REGS_SOURCE_MEMORY;
}

hwlib_status_t hwlib_hal_copy_1d(hwlib_place_t target, hwlib_place_t source, uint32_t bytes, hwlib_token_t *token)
{
  *token = ring(HWLIB_ENGINE_DMA, REGS_START, write_copy(target, source, bytes));
  return HWLIB_OK;
}

hwlib_status_t hwlib_hal_copy_2d(hwlib_place_t target, uint32_t target_stride, hwlib_place_t source,
                                 uint32_t source_stride, uint32_t bytes, uint32_t rows, hwlib_token_t *token)
{
  REGS_WRITE(REGS_DMA + REGS_ROWS, rows);
  REGS_WRITE(REGS_DMA + REGS_TARGET_STRIDE, target_stride);
  REGS_WRITE(REGS_DMA + REGS_SOURCE_STRIDE, source_stride);
  *token = ring(HWLIB_ENGINE_DMA, REGS_START, write_copy(target, source, bytes) | REGS_STRIDED);
  return HWLIB_OK;
}

hwlib_status_t hwlib_hal_copy_wait(hwlib_token_t token) { return wait_for(HWLIB_ENGINE_DMA, token); }

hwlib_status_t hwlib_hal_job_start(const hwlib_job_t *job, hwlib_token_t *token)
{
  write_address(REGS_ARRAY + REGS_LAYER, (uintptr_t)job->layer);
  write_address(REGS_ARRAY + REGS_TILE, (uintptr_t)job->tile);
  *token = ring(HWLIB_ENGINE_ARRAY, REGS_START, 1);
  return HWLIB_OK;
}

hwlib_status_t hwlib_hal_job_wait(hwlib_token_t token) { return wait_for(HWLIB_ENGINE_ARRAY, token); }

hwlib_status_t hwlib_hal_copy_done(hwlib_token_t token, uint8_t *done)
{
  return ask_for(HWLIB_ENGINE_DMA, token, done);
}

hwlib_status_t hwlib_hal_job_done(hwlib_token_t token, uint8_t *done)
{
  return ask_for(HWLIB_ENGINE_ARRAY, token, done);
}

hwlib_status_t hwlib_hal_signal(uint8_t engine, uint8_t event)
{
  (void)ring(engine, REGS_EVENT, event);
  return HWLIB_OK;
}

hwlib_status_t hwlib_hal_await(uint8_t engine, uint8_t event, uint16_t value)
{
  (void)ring(engine, REGS_EVENT, event | (uint32_t)value << 16);
  return HWLIB_OK;
}

uint64_t hwlib_hal_cycles(void)
{
  uint32_t high, low, again = REGS_READ(REGS_CYCLES + 4);
  do {
    high = again;
    low = REGS_READ(REGS_CYCLES);
    again = REGS_READ(REGS_CYCLES + 4);
  } while (high != again);
  return (uint64_t)high << 32 | low;
}

void hwlib_hal_mark(uint16_t layer) { (void)layer; }
