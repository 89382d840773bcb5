/* The files of the plain HAL: local memories and arithmetic in scalar loops. */
#ifndef PLAIN_HAL_H
#define PLAIN_HAL_H

#include "hwlib_hal.h"

/* What a test plants, with -DFAULT=... */
enum {
  NONE,
  INIT_KEEPS_COPIES, /* a copy in flight goes on after an init */
  COPY_WAIT_EARLY,   /* the bytes are there only when the next copy starts */
  COPY_IN_WAIT_EARLY, /* the same for copies to local memory alone */
  COPY_WAIT_HANGS,
  ONE_BYTE_TOO_MANY,
  HALF_THE_MEMORY,  /* the highest bit of a local address is lost */
  NO_SOURCE_STRIDE, /* rows of the source taken as dense */
  TOKEN_OF_ZERO,
  JOB_WAIT_EARLY, /* the job runs only when the next one starts */
  NO_PADDING,     /* padding reads as 0 */
  HALVES_DOWN,
  NO_ACT_MIN,
  PSUM_OVERWRITTEN,
  NIBBLES_SWAPPED,
  NO_WEIGHT_ZERO_POINT,
  FIRST_CHANNEL_FOR_ALL, /* depthwise: the parameters of channel 0 */
  NO_STRIDE_W,
  NO_IFM2_ZERO_POINT, /* of a multiplication */
  POOL_CRASHES,
  CYCLES_BACKWARDS,
};
#ifndef FAULT
#define FAULT NONE
#endif

extern int8_t plain_activations[], plain_weights[];

void plain_run(const hwlib_job_t *job);
int64_t plain_scale(int rounding, int32_t value, hwlib_scale_t by);
int64_t plain_nearest(int64_t value, unsigned bits);
void plain_softmax(const hwlib_softmax_t *layer, const int8_t *ifm, int8_t *ofm, uint32_t channels);

#endif
