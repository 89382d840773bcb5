/* Counts what the functions of the HAL over registers execute on the core; the registers are memory here. */
#include "regs.h"

#include <stdio.h>

enum { TIMES = 200, ROOM = 0x7fff0000 };

static volatile uint32_t *const words = (volatile uint32_t *)(uintptr_t)CHIP_REGISTERS;

static uint32_t retired(void)
{
  uint32_t count;
  __asm__ volatile("csrr %0, minstret" : "=r"(count));
  return count;
}

static hwlib_place_t target = {HWLIB_LOCAL_ACTIVATIONS, 16}, source = {HWLIB_MAIN, 0x1234};
static hwlib_job_t job;
static hwlib_token_t token;
static uint8_t done;
volatile hwlib_status_t status;

static void set_done(uint32_t count)
{
  words[(REGS_DMA + REGS_DONE) / 4] = count;
  words[(REGS_ARRAY + REGS_DONE) / 4] = count;
}

/* Functions of the same parameters that do nothing, in two instructions: a call costs as much besides. */
#define EMPTY __attribute__((noipa)) hwlib_status_t
EMPTY no_copy(hwlib_place_t to, hwlib_place_t from, uint32_t bytes, hwlib_token_t *found);
EMPTY no_rows(hwlib_place_t to, uint32_t to_stride, hwlib_place_t from, uint32_t from_stride, uint32_t bytes,
              uint32_t rows, hwlib_token_t *found);
EMPTY no_job(const hwlib_job_t *next, hwlib_token_t *found);
EMPTY no_wait(hwlib_token_t last);
EMPTY no_done(hwlib_token_t last, uint8_t *found);
EMPTY no_event(uint8_t engine, uint8_t event, uint16_t value);

EMPTY no_copy(hwlib_place_t to, hwlib_place_t from, uint32_t bytes, hwlib_token_t *found)
{
  (void)to, (void)from, (void)bytes, (void)found;
  return HWLIB_OK;
}

EMPTY no_rows(hwlib_place_t to, uint32_t to_stride, hwlib_place_t from, uint32_t from_stride, uint32_t bytes,
              uint32_t rows, hwlib_token_t *found)
{
  (void)to, (void)to_stride, (void)from, (void)from_stride, (void)bytes, (void)rows, (void)found;
  return HWLIB_OK;
}

EMPTY no_job(const hwlib_job_t *next, hwlib_token_t *found)
{
  (void)next, (void)found;
  return HWLIB_OK;
}

EMPTY no_wait(hwlib_token_t last)
{
  (void)last;
  return HWLIB_OK;
}

EMPTY no_done(hwlib_token_t last, uint8_t *found)
{
  (void)last, (void)found;
  return HWLIB_OK;
}

EMPTY no_event(uint8_t engine, uint8_t event, uint16_t value)
{
  (void)engine, (void)event, (void)value;
  return HWLIB_OK;
}

#define COUNT(name, before, function, empty, ...)                                             \
  do {                                                                                        \
    uint32_t sum = 0;                                                                         \
    for (uint32_t i = 1; i <= TIMES; ++i) {                                                   \
      before;                                                                                 \
      uint32_t first = retired();                                                             \
      status = function(__VA_ARGS__);                                                         \
      uint32_t second = retired();                                                            \
      status = empty(__VA_ARGS__);                                                            \
      sum += second - first - (retired() - second) + 2;                                       \
    }                                                                                         \
    printf("%s %lu\n", name, (unsigned long)((sum + TIMES / 2) / TIMES));                     \
  } while (0)

#define AGAIN (token = 0)

int main(void)
{
  static hwlib_conv2d_t layer;
  static hwlib_tile_t tile;
  job = (hwlib_job_t){&layer.layer, &tile};
  set_done(ROOM); /* there is room for all starts */
  COUNT("copy", AGAIN, hwlib_hal_copy_1d, no_copy, target, source, 64, &token);
  COUNT("rows", AGAIN, hwlib_hal_copy_2d, no_rows, target, 64, source, 32, 16, 4, &token);
  COUNT("job", AGAIN, hwlib_hal_job_start, no_job, &job, &token);
  COUNT("event", AGAIN, hwlib_hal_await, no_event, HWLIB_ENGINE_DMA, 1, 5);
  COUNT("wait", set_done(ROOM + i), hwlib_hal_copy_wait, no_wait, ROOM + i);
  COUNT("done", set_done(ROOM + TIMES + i), hwlib_hal_copy_done, no_done, ROOM + TIMES + i, &done);
  COUNT("not done", AGAIN, hwlib_hal_copy_done, no_done, ROOM + 3 * TIMES + i, &done);
  return 0;
}
