/* HWlib: one wrapper for each layer kind, called by generated code, over the HAL of hwlib_hal.h.
 *
 * A region is a chain of layers that runs on the accelerator. The compiler planned it: a list of
 * steps (start a copy, start a job, wait for one), which the wrappers carry out in order. A wrapper
 * runs the range of steps that it is given: the jobs among them are its layer's, a copy may already
 * serve another one. A layer may be called several times, a few tiles at a time, between calls of
 * other layers. Its last jobs and copies may still run when its wrapper returns: the steps wait where
 * the plan needs it, and hwlib_wait for what is left. HWlib moves no activation byte itself: every byte
 * moves by a copy or a job.
 *
 * A wrapper, or hwlib_wait, that fails has called hwlib_hal_init before it returns: nothing of the region is
 * in flight then, and nothing is written any more. The region is over; the next hwlib_begin may follow.
 */
#ifndef HWLIB_H
#define HWLIB_H

#include "hwlib_hal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The spaces of a region's addresses. Arguments of the region follow HWLIB_SPACE_ARGUMENT in their
 * order, inputs first. */
enum {
  HWLIB_SPACE_ACTIVATIONS = 0, /* local memories: offsets from their start */
  HWLIB_SPACE_WEIGHTS = 1,
  HWLIB_SPACE_FLASH = 2,   /* packed weights and parameters */
  HWLIB_SPACE_SCRATCH = 3, /* the region's part of the arena */
  HWLIB_SPACE_ARGUMENT = 4,
};

typedef struct {
  uint16_t space;
  uint32_t offset;
} hwlib_address_t;

typedef struct {
  hwlib_address_t target, source;
  uint32_t bytes, rows;                  /* rows of bytes; rows == 1 is a plain copy */
  uint32_t target_stride, source_stride; /* bytes from row to row */
} hwlib_copy_t;

enum {
  HWLIB_STEP_COPY = 0,      /* start copies[index], keep its token in slot */
  HWLIB_STEP_JOB = 1,       /* start a job on tiles[index], keep its token in slot */
  HWLIB_STEP_COPY_WAIT = 2, /* wait for the copy whose token is in slot */
  HWLIB_STEP_JOB_WAIT = 3,  /* wait for the job whose token is in slot */
};

enum { HWLIB_SLOTS = 16 };

typedef struct {
  uint8_t kind, slot;
  uint16_t index;
} hwlib_step_t;

typedef struct {
  const hwlib_step_t *steps;
  const hwlib_copy_t *copies;
  const hwlib_tile_t *tiles;
  uint16_t layer; /* the first one of the region */
} hwlib_plan_t;

/* A running region. */
typedef struct {
  const hwlib_plan_t *plan;
  const hwlib_place_t *spaces; /* where each space starts */
  uint16_t layer;              /* the layer that runs, or that failed */
  hwlib_token_t tokens[HWLIB_SLOTS];
} hwlib_region_t;

/* A range of the plan's steps. */
typedef struct {
  uint32_t first, count;
} hwlib_steps_t;

hwlib_status_t hwlib_begin(hwlib_region_t *region, const hwlib_plan_t *plan, const hwlib_place_t *spaces);

hwlib_status_t hwlib_conv2d(hwlib_region_t *region, const hwlib_conv2d_t *layer, hwlib_steps_t steps);
hwlib_status_t hwlib_depthwise_conv2d(hwlib_region_t *region, const hwlib_conv2d_t *layer,
                                      hwlib_steps_t steps);
hwlib_status_t hwlib_dense(hwlib_region_t *region, const hwlib_conv2d_t *layer, hwlib_steps_t steps);
hwlib_status_t hwlib_add(hwlib_region_t *region, const hwlib_add_t *layer, hwlib_steps_t steps);
hwlib_status_t hwlib_mul(hwlib_region_t *region, const hwlib_mul_t *layer, hwlib_steps_t steps);
hwlib_status_t hwlib_matmul(hwlib_region_t *region, const hwlib_matmul_t *layer, hwlib_steps_t steps);
hwlib_status_t hwlib_pool2d(hwlib_region_t *region, const hwlib_pool2d_t *layer, hwlib_steps_t steps);
hwlib_status_t hwlib_softmax(hwlib_region_t *region, const hwlib_softmax_t *layer, hwlib_steps_t steps);
hwlib_status_t hwlib_lookup(hwlib_region_t *region, const hwlib_lookup_t *layer, hwlib_steps_t steps);
/* Copies only. A reshape has steps only where its output must lie elsewhere (a region's output). */
hwlib_status_t hwlib_reshape(hwlib_region_t *region, const hwlib_layer_t *layer, hwlib_steps_t steps);
hwlib_status_t hwlib_transpose(hwlib_region_t *region, const hwlib_layer_t *layer, hwlib_steps_t steps);
hwlib_status_t hwlib_concat(hwlib_region_t *region, const hwlib_layer_t *layer, hwlib_steps_t steps);
hwlib_status_t hwlib_slice(hwlib_region_t *region, const hwlib_layer_t *layer, hwlib_steps_t steps);
hwlib_status_t hwlib_pad(hwlib_region_t *region, const hwlib_layer_t *layer, hwlib_steps_t steps);
hwlib_status_t hwlib_resize(hwlib_region_t *region, const hwlib_layer_t *layer, hwlib_steps_t steps);

/* Runs the last steps (waits, as a rule) and ends the region. */
hwlib_status_t hwlib_wait(hwlib_region_t *region, hwlib_steps_t steps);

/* What a region and <mod_name>_run return: 0, or the status with the layer that failed. */
#define HWLIB_RESULT(status, layer) ((int32_t)(((uint32_t)(layer) << 8) | (uint32_t)(status)))
#define HWLIB_RESULT_STATUS(result) ((int32_t)((uint32_t)(result)&0xffu))
#define HWLIB_RESULT_LAYER(result) ((uint16_t)((uint32_t)(result) >> 8))

/* A debug build with -DHWLIB_TRACE calls this after the start of each job that writes outputs, and the program
 * provides it. It may wait for the job, and then leaves 0 in *token: the plan's own wait is left out. It may
 * copy the output to main memory. A status other than HWLIB_OK is a failure of the layer. In the tile, ofm_*
 * and its strides say where the output lies, for every kind of layer. */
#ifdef HWLIB_TRACE
hwlib_status_t hwlib_trace_job(const hwlib_job_t *job, hwlib_token_t *token);
#endif

/* A build with -DHWLIB_COUNT calls this where a layer begins, and the program provides it: what the
 * host core executes from here on belongs to that layer. Returns the layer that it belonged to. */
#ifdef HWLIB_COUNT
uint16_t hwlib_count(uint16_t layer);
#endif

#ifdef __cplusplus
}
#endif

#endif
