/* A HAL to start from, as simple as can be: static arrays for local memories, memcpy for the DMA, scalar loops for
 * the array. Every copy and job is done when its start returns. It trusts its caller, and so checks nothing. Replace
 * one part after the other by what your chip has, and keep `python -m byoc_hw hal-test` passing. */
#include "software.h"

#include <string.h>

int8_t chip_activations[CHIP_ACTIVATION_MEMORY], chip_weights[CHIP_WEIGHT_MEMORY];

static hwlib_token_t tokens;
static uint64_t cycles;

static int8_t *bytes_at(hwlib_place_t place)
{
  switch (place.memory) {
  case HWLIB_LOCAL_ACTIVATIONS:
    return chip_activations + place.address;
  case HWLIB_LOCAL_WEIGHTS:
    return chip_weights + place.address;
  default:
    return (int8_t *)place.address;
  }
}

static hwlib_status_t started(hwlib_token_t *token)
{
  tokens = tokens == UINT32_MAX ? 1 : tokens + 1; /* never 0 */
  *token = tokens;
  return HWLIB_OK;
}

hwlib_status_t hwlib_hal_init(void) { return HWLIB_OK; }

hwlib_status_t hwlib_hal_copy_2d(hwlib_place_t target, uint32_t target_stride, hwlib_place_t source,
                                 uint32_t source_stride, uint32_t bytes, uint32_t rows, hwlib_token_t *token)
{
  for (uint32_t row = 0; row < rows; ++row) {
    memcpy(bytes_at(target) + (size_t)row * target_stride, bytes_at(source) + (size_t)row * source_stride, bytes);
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
  return HWLIB_OK;
}

/* Where the accelerator has none, no model asks for one. */
static hwlib_status_t run_whole(const hwlib_whole_layer_t *layer)
{
#if (CHIP_KINDS & CHIP_WHOLE_KINDS) != 0
  return hwlib_whole_layer(layer);
#else
  (void)layer;
  return HWLIB_ERROR_LIMIT;
#endif
}

hwlib_status_t hwlib_hal_job_start(const hwlib_job_t *job, hwlib_token_t *token)
{
  hwlib_status_t status = HWLIB_OK;
  if (job->tile == NULL) {
    status = run_whole((const hwlib_whole_layer_t *)job->layer);
  } else {
    chip_run(job);
  }
  return status == HWLIB_OK ? started(token) : status;
}

hwlib_status_t hwlib_hal_job_wait(hwlib_token_t token)
{
  (void)token;
  return HWLIB_OK;
}

/* What an engine was given before is done: an event has come when it is signalled, and nobody waits. */
hwlib_status_t hwlib_hal_signal(uint8_t engine, uint8_t event)
{
  (void)engine, (void)event;
  return HWLIB_OK;
}

hwlib_status_t hwlib_hal_await(uint8_t engine, uint8_t event, uint16_t value)
{
  (void)engine, (void)event, (void)value;
  return HWLIB_OK;
}

uint64_t hwlib_hal_cycles(void) { return ++cycles; }

void hwlib_hal_mark(uint16_t layer) { (void)layer; }
