/* Runs a region of two accelerators on tensors that the core cannot reach: the addresses that the region is given are
 * FAR behind them, where nothing is mapped. The HALs know where the bytes are. Linked as a program at low addresses. */
#include "hwlib_lanes.h"

#include <stdio.h>
#include <string.h>

#define FAR ((uintptr_t)1 << 46)

int32_t REGION(const int8_t *in0, int8_t *out0, uint8_t *scratch);

static hwlib_place_t reached(hwlib_place_t place)
{
  if (place.memory == HWLIB_MAIN && place.address >= FAR) {
    place.address -= FAR;
  }
  return place;
}

/* The functions of a simulator; the region's copies reach its tensors through them. */
#define HAL(name)                                                                                                      \
  extern const hwlib_hal_t name##_hal;                                                                                 \
  static hwlib_status_t name##_init(void) { return name##_hal.init(); }                                                \
  static hwlib_status_t name##_copy_1d(hwlib_place_t target, hwlib_place_t source, uint32_t bytes,                     \
                                       hwlib_token_t *token)                                                           \
  {                                                                                                                    \
    return name##_hal.copy_1d(reached(target), reached(source), bytes, token);                                         \
  }                                                                                                                    \
  static hwlib_status_t name##_copy_2d(hwlib_place_t target, uint32_t target_stride, hwlib_place_t source,             \
                                       uint32_t source_stride, uint32_t bytes, uint32_t rows, hwlib_token_t *token)    \
  {                                                                                                                    \
    return name##_hal.copy_2d(reached(target), target_stride, reached(source), source_stride, bytes, rows, token);     \
  }                                                                                                                    \
  static hwlib_status_t name##_copy_wait(hwlib_token_t token) { return name##_hal.copy_wait(token); }                  \
  static hwlib_status_t name##_job_start(const hwlib_job_t *job, hwlib_token_t *token)                                 \
  {                                                                                                                    \
    return name##_hal.job_start(job, token);                                                                           \
  }                                                                                                                    \
  static hwlib_status_t name##_job_wait(hwlib_token_t token) { return name##_hal.job_wait(token); }                    \
  static uint64_t name##_cycles(void) { return name##_hal.cycles(); }                                                  \
  static void name##_mark(uint16_t layer) { name##_hal.mark(layer); }                                                  \
  static hwlib_status_t name##_copy_done(hwlib_token_t token, uint8_t *done)                                           \
  {                                                                                                                    \
    return name##_hal.copy_done(token, done);                                                                          \
  }                                                                                                                    \
  static hwlib_status_t name##_job_done(hwlib_token_t token, uint8_t *done) { return name##_hal.job_done(token, done); } \
  static void name##_idle(void) { name##_hal.idle(); }                                                                 \
  const hwlib_hal_t far_##name##_hal = {                                                                               \
    name##_init,     name##_copy_1d, name##_copy_2d, name##_copy_wait, name##_job_start, name##_job_wait, name##_cycles, \
    name##_mark,     name##_copy_done, name##_job_done, name##_idle,   NULL,             NULL,                         \
  };

HAL(npu)
HAL(dsp)

static _Alignas(16) int8_t image[IN_BYTES], result[OUT_BYTES];
static _Alignas(16) uint8_t scratch[SCRATCH_BYTES];

static void *far_from(void *bytes)
{
  return (void *)((uintptr_t)bytes + FAR);
}

int main(int argc, char **argv)
{
  (void)argv;
  if (argc > 1) { /* what would happen to a core that looks */
    return *(volatile int8_t *)far_from(image);
  }
  if (fread(image, 1, sizeof image, stdin) != sizeof image) {
    return 1;
  }
  if (REGION(far_from(image), far_from(result), far_from(scratch)) != 0) {
    return 2;
  }
  return fwrite(result, 1, sizeof result, stdout) == sizeof result ? 0 : 3;
}
