/* A second HAL, as simple as can be: every copy and job is done when its start returns. It trusts its
 * caller, and so checks nothing. */
#include "plain_hal.h"

#include <stdlib.h>
#include <string.h>

enum { ACTIVATIONS = 256 * 1024, WEIGHTS = 64 * 1024 }; /* of REFERENCE */

int8_t plain_activations[ACTIVATIONS], plain_weights[WEIGHTS];

typedef struct {
  int8_t *target;
  const int8_t *source;
  uint32_t target_stride, source_stride, bytes, rows;
} copy_t;

static hwlib_token_t tokens;
static uint64_t cycles;

/* Planted faults only: what was started and is not done. */
static copy_t late_copy;
static hwlib_job_t late_job;

static void run_copy(const copy_t *copy)
{
  for (uint32_t row = 0; row < copy->rows; ++row) {
    memcpy(copy->target + (size_t)row * copy->target_stride, copy->source + (size_t)row * copy->source_stride,
           copy->bytes + (FAULT == ONE_BYTE_TOO_MANY && copy->rows > 1));
  }
}

static void end_copy(void)
{
  run_copy(&late_copy);
  late_copy.rows = 0;
}

static void end_job(void)
{
  if (late_job.layer != NULL) {
    plain_run(&late_job);
  }
  late_job.layer = NULL;
}

static hwlib_status_t started(hwlib_token_t *token)
{
  tokens += 1;
  *token = FAULT == TOKEN_OF_ZERO ? 0 : tokens;
  return HWLIB_OK;
}

static int8_t *bytes_at(hwlib_place_t place)
{
  switch (place.memory) {
  case HWLIB_LOCAL_ACTIVATIONS:
    return plain_activations + place.address % (FAULT == HALF_THE_MEMORY ? ACTIVATIONS / 2 : ACTIVATIONS);
  case HWLIB_LOCAL_WEIGHTS:
    return plain_weights + place.address;
  default:
    return (int8_t *)place.address;
  }
}

hwlib_status_t hwlib_hal_init(void)
{
  if (FAULT != INIT_KEEPS_COPIES) {
    end_copy();
  }
  end_job();
  return HWLIB_OK;
}

hwlib_status_t hwlib_hal_copy_2d(hwlib_place_t target, uint32_t target_stride, hwlib_place_t source,
                                 uint32_t source_stride, uint32_t bytes, uint32_t rows, hwlib_token_t *token)
{
  copy_t copy = {bytes_at(target), bytes_at(source), target_stride, source_stride, bytes, rows};
  if (FAULT == NO_SOURCE_STRIDE) {
    copy.source_stride = bytes;
  }
  end_copy();
  if (FAULT == COPY_WAIT_EARLY || FAULT == INIT_KEEPS_COPIES ||
      (FAULT == COPY_IN_WAIT_EARLY && source.memory == HWLIB_MAIN)) {
    late_copy = copy;
  } else {
    run_copy(&copy);
  }
  return started(token);
}

hwlib_status_t hwlib_hal_copy_1d(hwlib_place_t target, hwlib_place_t source, uint32_t bytes, hwlib_token_t *token)
{
  return hwlib_hal_copy_2d(target, 0, source, 0, bytes, 1, token);
}

hwlib_status_t hwlib_hal_copy_wait(hwlib_token_t token)
{
  (void)token;
  while (FAULT == COPY_WAIT_HANGS) {
  }
  if (FAULT != COPY_WAIT_EARLY && FAULT != COPY_IN_WAIT_EARLY) {
    end_copy();
  }
  return HWLIB_OK;
}

hwlib_status_t hwlib_hal_job_start(const hwlib_job_t *job, hwlib_token_t *token)
{
  if (FAULT == POOL_CRASHES && job->layer->kind == HWLIB_POOL2D) {
    abort();
  }
  end_job();
  late_job = *job;
  if (FAULT != JOB_WAIT_EARLY) {
    end_job();
  }
  return started(token);
}

hwlib_status_t hwlib_hal_job_wait(hwlib_token_t token)
{
  (void)token;
  return HWLIB_OK;
}

uint64_t hwlib_hal_cycles(void) { return FAULT == CYCLES_BACKWARDS ? --cycles : ++cycles; }

void hwlib_hal_mark(uint16_t layer) { (void)layer; }
