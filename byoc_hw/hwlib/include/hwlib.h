/* HWlib: runs the regions of generated code, over the HAL of hwlib_hal.h.
 *
 * A region is a chain of layers that runs on the accelerator. The compiler planned it: a list of
 * steps (a layer begins, start a copy, start a job, wait for one), which HWlib carries out in order. The jobs behind
 * the begin of a layer are the layer's, a copy may already serve another one. A layer may begin several times, a few
 * tiles at a time, between others. Its last jobs and copies may still run when the next layer begins: the steps wait
 * where the plan needs it. HWlib moves no activation byte itself: every byte moves by a copy or a job.
 *
 * A region may end with copies of constants in flight that are for the next one, which begins with hwlib_go_on.
 *
 * A region that fails has called hwlib_hal_init before it returns: nothing of it is in flight then, and nothing is
 * written any more. It is over; the next hwlib_start may follow.
 */
#ifndef HWLIB_H
#define HWLIB_H

#include <stddef.h>

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

/* ---------------------------------------------------------------- steps
 *
 * Steps are numbers of 16 bits. A plan is written with the macros from HWLIB_LAYER to HWLIB_JOB_TILE below, which have
 * the numbers of one step each; a value that does not fit its field is an error of the compiler. The first number of a
 * step, from its lowest bit:
 *
 *   layer  0:2  at:14                                 the layer begins whose descriptor is 4 * (at - 1) bytes
 *                                                     from the start of `layers`; 0 is the end
 *   wait   1:2  slot:4 0:6 job:4                      wait for the copy, or unless `job` is 0 the job, of the slot
 *   copy   2:2  slot:4 way:2 rows:1 space:3 after:4   way: into activations, into weights, out of activations, other
 *   job    3:2  slot:4 tile:2 place:4 after:4         tile: addresses, a form and addresses, a row, two inputs
 *
 * A copy first waits for the job whose token is in slot `after`, a job for the copy; 0 is for none. Their own token is
 * kept in `slot`, and nobody waits so for what is in slot 0.
 *
 * Behind a copy are the offset in its local memory, the offset in main memory and the bytes, or bytes of a row; with
 * `rows` also the rows, the stride of the target and of the source. `space` counts from HWLIB_SPACE_FLASH. A copy that
 * does not fit these fields is in a row of `copies`: its index is behind the step (`way` 3, and `rows` is set).
 *
 * The tile of a job is made in the region's tiles[place], where it stays until the job was waited for. Behind the step
 * are ifm, ofm, weights and params; the rest is as the last tile in this place had it. With two inputs ifm2 and psum
 * are before them. With a form all of the tile is made anew: first is the offset of the form in `forms` in bytes, and 1
 * more if ifm2 and psum follow; else these are 0.
 * Or the tile is a row of `tiles`, and its index is behind the step.
 *
 * Offsets in local memory are counted in units of 2^local_unit bytes, weights and params of a job in bytes; offsets in
 * main memory in units of 2^main_unit bytes. */

enum { HWLIB_SLOTS = 16 };

#define HWLIB_FIT(value, bits) \
  ((uint32_t)(value) + 0u * (uint32_t)sizeof(char[(uint32_t)(value) >> (bits) == 0 ? 1 : -1]))
#define HWLIB_STARTED(kind, slot, after) ((kind) | HWLIB_FIT(slot, 4) << 2 | HWLIB_FIT(after, 4) << 12)
#define HWLIB_COPIED(slot, after, way, rows, at, space, offset, bytes) \
  (HWLIB_STARTED(2u, slot, after) | (way) << 6 | (rows) << 8 | HWLIB_FIT((space)-HWLIB_SPACE_FLASH, 3) << 9), \
      HWLIB_FIT(at, 16), HWLIB_FIT(offset, 16), HWLIB_FIT(bytes, 16)
#define HWLIB_STARTED_JOB(slot, after, tile, place) \
  (HWLIB_STARTED(3u, slot, after) | (tile) << 6 | HWLIB_FIT(place, 4) << 8)
#define HWLIB_ADDRESSES(ifm, ofm, weights, params) \
  HWLIB_FIT(ifm, 16), HWLIB_FIT(ofm, 16), HWLIB_FIT(weights, 16), HWLIB_FIT(params, 16)

#define HWLIB_LAYER(layers, layer) HWLIB_FIT(offsetof(layers, layer) + 4, 16)
#define HWLIB_END 0u
#define HWLIB_COPY_WAIT(slot) (1u | HWLIB_FIT(slot, 4) << 2)
#define HWLIB_JOB_WAIT(slot) (1u | HWLIB_FIT(slot, 4) << 2 | 1u << 12)

/* `at` is the offset in local activations or weights, `space` and `offset` are the place in main memory. */
#define HWLIB_COPY_IN(slot, after, at, space, offset, bytes) \
  HWLIB_COPIED(slot, after, 0u, 0u, at, space, offset, bytes)
#define HWLIB_COPY_WEIGHTS(slot, after, at, space, offset, bytes) \
  HWLIB_COPIED(slot, after, 1u, 0u, at, space, offset, bytes)
#define HWLIB_COPY_OUT(slot, after, at, space, offset, bytes) \
  HWLIB_COPIED(slot, after, 2u, 0u, at, space, offset, bytes)
#define HWLIB_ROWS_IN(slot, after, at, space, offset, bytes, rows, target_stride, source_stride) \
  HWLIB_COPIED(slot, after, 0u, 1u, at, space, offset, bytes), \
      HWLIB_FIT(rows, 16), HWLIB_FIT(target_stride, 16), HWLIB_FIT(source_stride, 16)
#define HWLIB_ROWS_WEIGHTS(slot, after, at, space, offset, bytes, rows, target_stride, source_stride) \
  HWLIB_COPIED(slot, after, 1u, 1u, at, space, offset, bytes), \
      HWLIB_FIT(rows, 16), HWLIB_FIT(target_stride, 16), HWLIB_FIT(source_stride, 16)
#define HWLIB_ROWS_OUT(slot, after, at, space, offset, bytes, rows, target_stride, source_stride) \
  HWLIB_COPIED(slot, after, 2u, 1u, at, space, offset, bytes), \
      HWLIB_FIT(rows, 16), HWLIB_FIT(target_stride, 16), HWLIB_FIT(source_stride, 16)
#define HWLIB_COPY_OTHER(slot, after, index) (HWLIB_STARTED(2u, slot, after) | 7u << 6), HWLIB_FIT(index, 16)

#define HWLIB_JOB(slot, after, place, ifm, ofm, weights, params) \
  HWLIB_STARTED_JOB(slot, after, 0u, place), HWLIB_ADDRESSES(ifm, ofm, weights, params)
#define HWLIB_JOB_FORM(slot, after, place, form, ifm, ofm, weights, params) \
  HWLIB_STARTED_JOB(slot, after, 1u, place), HWLIB_FIT((form)*28u, 16), HWLIB_ADDRESSES(ifm, ofm, weights, params)
#define HWLIB_JOB_FORM_2(slot, after, place, form, ifm2, psum, ifm, ofm, weights, params) \
  HWLIB_STARTED_JOB(slot, after, 1u, place), HWLIB_FIT((form)*28u, 16) | 1u, \
      HWLIB_FIT(ifm2, 16), HWLIB_FIT(psum, 16), HWLIB_ADDRESSES(ifm, ofm, weights, params)
#define HWLIB_JOB_TILE(slot, after, index) HWLIB_STARTED_JOB(slot, after, 2u, 0), HWLIB_FIT(index, 16)
#define HWLIB_JOB_2(slot, after, place, ifm2, psum, ifm, ofm, weights, params) \
  HWLIB_STARTED_JOB(slot, after, 3u, place), HWLIB_FIT(ifm2, 16), HWLIB_FIT(psum, 16), \
      HWLIB_ADDRESSES(ifm, ofm, weights, params)

/* What tiles have in common that differ in their addresses alone: the other fields of hwlib_tile_t. */
typedef union {
  struct {
    uint16_t ifm_row, ofm_row, ifm_pixel, ofm_pixel;
    uint16_t ifm_h, ifm_w, ifm_c, ofm_h, ofm_w, ofm_c;
    uint8_t pad_top, pad_left, pad_bottom, pad_right;
    uint8_t kernel_h, kernel_w, flags, unused;
  } fields;
  uint32_t words[7];
} hwlib_form_t;

/* A tile that is made while the region runs. */
typedef union {
  hwlib_tile_t tile;
  uint32_t words[18];
} hwlib_made_tile_t;

typedef struct {
  const void *layers; /* a struct of their descriptors */
  const uint16_t *steps;
  const hwlib_form_t *forms;
  const hwlib_copy_t *copies;
  hwlib_status_t (*start_copy)(const hwlib_copy_t *copy, const uintptr_t *starts, hwlib_token_t *token);
  const hwlib_tile_t *tiles;
  uint16_t layer; /* the first one of the region */
  uint8_t local_unit, main_unit;
} hwlib_plan_t;

/* A running region. */
typedef struct {
  hwlib_token_t tokens[HWLIB_SLOTS];
  const hwlib_plan_t *plan;
  const uint16_t *next;     /* the steps from here on are left */
  const uintptr_t *starts;  /* of each space from HWLIB_SPACE_FLASH on */
  hwlib_made_tile_t *tiles; /* as many places as the steps name */
  uint16_t layer;           /* the layer that runs, or that failed */
} hwlib_region_t;

/* Begins a region, and runs its steps up to the first HWLIB_END. */
hwlib_status_t hwlib_start(hwlib_region_t *region, const hwlib_plan_t *plan, const uintptr_t *starts,
                           hwlib_made_tile_t *tiles);

/* As hwlib_start, for a region that the one before it has started copies for: their tokens are in `region`, which is
 * that of the region before. It must have been the last one there, and have ended at `end`, behind its last step: else
 * STEP. */
hwlib_status_t hwlib_go_on(hwlib_region_t *region, const hwlib_plan_t *plan, const uintptr_t *starts,
                           hwlib_made_tile_t *tiles, const uint16_t *end);

/* What `start_copy` of a plan with `copies` is. */
hwlib_status_t hwlib_start_copy(const hwlib_copy_t *copy, const uintptr_t *starts, hwlib_token_t *token);

/* Runs the steps up to the next HWLIB_END, of a region that returned before its end. */
hwlib_status_t hwlib_wait(hwlib_region_t *region);

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
