/* The HAL of an accelerator with a vendor's library, for a chip: hwlib_library.h names the vendor's functions. It has
 * whole layers and no copies. A layer and its end have one token, whether it is asked for as a job or, by another
 * lane, as an event. */
#include "hwlib_lanes.h"
#include "hwlib_library.h"

static hwlib_token_t last; /* what was started last, 0 when it was waited for */

static hwlib_status_t checked(int32_t status) { return status == 0 ? HWLIB_OK : HWLIB_ERROR_HARDWARE; }

hwlib_status_t hwlib_hal_init(void)
{
  hwlib_token_t running = last;
  last = 0;
  if (running != 0) {
    (void)HWLIB_LIBRARY_WAIT(running); /* a failure was reported where it was waited for, or nobody wants to know */
  }
  return HWLIB_OK;
}

hwlib_status_t hwlib_hal_copy_1d(hwlib_place_t target, hwlib_place_t source, uint32_t bytes, hwlib_token_t *token)
{
  (void)target, (void)source, (void)bytes, (void)token;
  return HWLIB_ERROR_STEP;
}

hwlib_status_t hwlib_hal_copy_2d(hwlib_place_t target, uint32_t target_stride, hwlib_place_t source,
                                 uint32_t source_stride, uint32_t bytes, uint32_t rows, hwlib_token_t *token)
{
  (void)target, (void)target_stride, (void)source, (void)source_stride, (void)bytes, (void)rows, (void)token;
  return HWLIB_ERROR_STEP;
}

hwlib_status_t hwlib_hal_job_start(const hwlib_job_t *job, hwlib_token_t *token)
{
  if (job->tile != 0) {
    return HWLIB_ERROR_STEP;
  }
  hwlib_status_t status = checked(((const hwlib_whole_layer_t *)job->layer)->start(token));
  last = status == HWLIB_OK ? *token : last;
  return status;
}

/* A trace has waited for what it has left no token of. */
hwlib_status_t hwlib_hal_job_wait(hwlib_token_t token)
{
  last = token == last ? 0 : last;
  return token == 0 ? HWLIB_OK : checked(HWLIB_LIBRARY_WAIT(token));
}

hwlib_status_t hwlib_hal_copy_wait(hwlib_token_t token) { return hwlib_hal_job_wait(token); }

uint64_t hwlib_hal_cycles(void) { return 0; }

void hwlib_hal_mark(uint16_t layer) { (void)layer; }

#ifdef HWLIB_LIBRARY_DONE
hwlib_status_t hwlib_hal_job_done(hwlib_token_t token, uint8_t *done)
{
  *done = 1;
  hwlib_status_t status = token == 0 ? HWLIB_OK : checked(HWLIB_LIBRARY_DONE(token, done));
  last = token == last && *done ? 0 : last;
  return status;
}

hwlib_status_t hwlib_hal_copy_done(hwlib_token_t token, uint8_t *done) { return hwlib_hal_job_done(token, done); }
#endif
