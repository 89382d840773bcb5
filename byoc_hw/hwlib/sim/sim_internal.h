/* What the files of the simulator share, from the lowest to the highest: a file calls only those before it. */
#ifndef HWLIB_SIM_INTERNAL_H
#define HWLIB_SIM_INTERNAL_H

#include "hwlib_sim.h"
#include "hwlib_sim_config.h"
#include "sim_clock.h"
#include "sim_events.h"

#include <stddef.h>

/* Sized by the accelerator's numbers, the simulator always has the memories. What it may lack is arithmetic: the
 * kinds and roundings of hwlib_hal.h that it knows, as masks (an enumerator is 0 in #if). */
#if (HWLIB_ACCELERATOR_KINDS & ~0x3879fu) != 0 || (HWLIB_ACCELERATOR_ROUNDINGS & ~0x3u) != 0
#error "the simulator lacks a layer kind or a rounding of the accelerator that the model was built for"
#endif

/* The kinds without tiles, as a mask too. */
#define HWLIB_SIM_WHOLE_KINDS 0x38000u

enum { HWLIB_SIM_READS = 1, HWLIB_SIM_WRITES = 2 };

/* The bytes of a local memory that an operation touches: rows of pixels of bytes. */
typedef struct hwlib_sim_area {
  const char *name; /* for faults */
  uint8_t memory, access;
  uint32_t rows, pixels;
  uint32_t row_stride, pixel_stride;
  uint64_t address, bytes; /* wide, so that a damaged plan is refused for what it says */
  uint32_t padding;        /* the last bytes of those, which nothing need have written */
} hwlib_sim_area_t;

enum { HWLIB_SIM_AREAS = 5 }; /* a convolution: ifm, weights, params, psum, ofm */

/* What an operation does to the local memories and to main memory, and for how long. */
typedef struct {
  uint64_t cycles;
  sim_clock_area_t main;            /* of a copy */
  const hwlib_whole_layer_t *whole; /* or the operands of a whole layer; else NULL */
  uint32_t areas;
  hwlib_sim_area_t area[HWLIB_SIM_AREAS];
} hwlib_sim_work_t;

enum { HWLIB_SIM_DMA = 0, HWLIB_SIM_ARRAY = 1, HWLIB_SIM_ENGINES = 2 };

/* An operation in the queue of an engine. */
typedef struct {
  uint64_t end[SIM_CLOCKS];
  int waited; /* for with its own token */
  hwlib_sim_work_t work;
  hwlib_sim_known_t known; /* at its end */
} hwlib_sim_operation_t;

static inline uint64_t hwlib_sim_divide_up(uint64_t dividend, uint64_t divisor)
{
  return (dividend + divisor - 1) / divisor;
}

/* ---------------------------------------------------------------- sim_numbers.c */

/* Of a kind of layer with a kernel. Sets are masks. */
typedef struct {
  uint32_t kernel_h, kernel_w, strides, dilations;
  uint32_t wide_padding, kernel_parts, weight_bits;
} hwlib_sim_limits_t;

typedef struct {
  uint8_t *bytes, *states; /* what is known of each byte */
  uint32_t size;
} hwlib_sim_memory_t;

enum { HWLIB_SIM_MEMORIES = 2 };

/* What hwlib_accelerator.h and hwlib_sim_config.h say, and what these numbers make large or small: only this file is
 * another one for another accelerator. */
typedef struct {
  uint32_t kinds, roundings, shift_only;
  uint32_t array_rows, array_columns, depthwise_rows, elementwise_width, packed_rows;
  uint32_t job_setup, job_overhead;
  uint32_t dma_alignment, dma_setup, dma_width, dma_row_setup;
  hwlib_sim_limits_t conv2d, depthwise_conv2d, dense, pool2d;
  uint32_t dense_pixels;
  uint32_t add_broadcast, mul_broadcast;
  hwlib_sim_memory_t memories[HWLIB_SIM_MEMORIES];
  int8_t *unpacked; /* the weights of an output channel */
  uint32_t queue;
  hwlib_sim_operation_t *operations; /* those of an engine behind those of another one */
} hwlib_sim_numbers_t;

extern const hwlib_sim_numbers_t hwlib_sim_numbers;

/* ---------------------------------------------------------------- sim_fault.c */

/* Keeps "name: text" for hwlib_sim_fault, each # of the text replaced by the next of the numbers, and
 * returns the status. */
hwlib_status_t hwlib_sim_refuse(hwlib_status_t status, const char *name, const char *text,
                                const uint64_t *numbers);
void hwlib_sim_fault_reset(void);

#define HWLIB_SIM_REFUSE(status, name, text, ...) \
  hwlib_sim_refuse((status), (name), (text), (const uint64_t[]){__VA_ARGS__})

/* ---------------------------------------------------------------- sim_memory.c */

void hwlib_sim_memory_reset(void);
uint8_t *hwlib_sim_local(uint8_t memory, uint64_t address);
hwlib_status_t hwlib_sim_access(const hwlib_sim_work_t *work);
void hwlib_sim_written(const hwlib_sim_work_t *work);
int hwlib_sim_overlap(const hwlib_sim_area_t *one, const hwlib_sim_area_t *other);

/* One more area of the work: a run of bytes. */
void hwlib_sim_add_run(hwlib_sim_work_t *work, const char *name, uint8_t memory, unsigned access, uint32_t address,
                       uint64_t bytes);

static inline int8_t *hwlib_sim_activations(uint64_t address)
{
  return (int8_t *)hwlib_sim_local(HWLIB_LOCAL_ACTIVATIONS, address);
}

/* ---------------------------------------------------------------- sim_timeline.c */

void hwlib_sim_timeline_reset(void);
hwlib_status_t hwlib_sim_start(uint8_t engine, const hwlib_sim_work_t *work, hwlib_token_t *token);
hwlib_status_t hwlib_sim_wait(uint8_t engine, hwlib_token_t token);
hwlib_status_t hwlib_sim_done(uint8_t engine, hwlib_token_t token, uint8_t *done); /* if done, that was the wait */
void hwlib_sim_idle(void); /* the engines end all that was started, and its tokens mean nothing */
void hwlib_sim_mark(uint16_t layer);
uint64_t hwlib_sim_now(void); /* on the clock on which the host takes no time */
hwlib_sim_counters_t *hwlib_sim_counters(void);

/* ---------------------------------------------------------------- sim_scale.c */

int32_t hwlib_sim_signed32(uint32_t value);
int64_t hwlib_sim_shift_right(int64_t value, unsigned bits);
int64_t hwlib_sim_divide(int64_t value, unsigned bits);
int64_t hwlib_sim_scale(uint8_t rounding, int32_t value, hwlib_scale_t by);
int8_t hwlib_sim_finish(int64_t value, int8_t zero_point, int8_t act_min, int8_t act_max);
hwlib_status_t hwlib_sim_check_scale(const char *name, uint8_t rounding, hwlib_scale_t scale);
hwlib_status_t hwlib_sim_check_scale_from(const char *name, uint8_t rounding, hwlib_scale_t scale,
                                          int32_t least_multiplier);
hwlib_status_t hwlib_sim_check_clamp(int8_t act_min, int8_t act_max);

/* ---------------------------------------------------------------- sim_window.c */

typedef struct {
  uint32_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
} hwlib_sim_window_t;

hwlib_status_t hwlib_sim_check_window(hwlib_sim_window_t window, const hwlib_sim_limits_t *limits);
hwlib_status_t hwlib_sim_check_tile(const hwlib_tile_t *tile, hwlib_sim_window_t window, uint32_t wide_padding);
hwlib_status_t hwlib_sim_check_same_channels(const hwlib_tile_t *tile);
void hwlib_sim_add_ifm(hwlib_sim_work_t *work, const hwlib_tile_t *tile);
void hwlib_sim_add_ofm(hwlib_sim_work_t *work, const hwlib_tile_t *tile);

static inline const int8_t *hwlib_sim_ifm_at(const hwlib_tile_t *tile, uint32_t row, uint32_t column)
{
  return hwlib_sim_activations(tile->ifm + (uint64_t)row * tile->ifm_row + (uint64_t)column * tile->ifm_pixel);
}

static inline int8_t *hwlib_sim_ofm_at(const hwlib_tile_t *tile, uint32_t row, uint32_t column)
{
  return hwlib_sim_activations(tile->ofm + (uint64_t)row * tile->ofm_row + (uint64_t)column * tile->ofm_pixel);
}

/* ---------------------------------------------------------------- a file for each family of layer kinds */

/* What the array knows of a family. Each function is called when those before it have returned HWLIB_OK. */
typedef struct {
  hwlib_status_t (*check)(const hwlib_job_t *job);                         /* limits, and a geometry that adds up */
  hwlib_status_t (*work)(const hwlib_job_t *job, hwlib_sim_work_t *work);  /* cycles and areas */
  hwlib_status_t (*check_scales)(const hwlib_job_t *job);                  /* may read the job's bytes */
  void (*compute)(const hwlib_job_t *job);
} hwlib_sim_family_t;

extern const hwlib_sim_family_t hwlib_sim_conv2d; /* and depthwise_conv2d and dense */
extern const hwlib_sim_family_t hwlib_sim_pool2d;
extern const hwlib_sim_family_t hwlib_sim_softmax;
extern const hwlib_sim_family_t hwlib_sim_matmul;
extern const hwlib_sim_family_t hwlib_sim_elementwise;
extern const hwlib_sim_family_t hwlib_sim_lookup;

/* ---------------------------------------------------------------- sim_job.c */

hwlib_status_t hwlib_sim_check_job(const hwlib_job_t *job);
hwlib_status_t hwlib_sim_job_work(const hwlib_job_t *job, hwlib_sim_work_t *work);
hwlib_status_t hwlib_sim_check_scales(const hwlib_job_t *job);
void hwlib_sim_compute(const hwlib_job_t *job);
hwlib_status_t hwlib_sim_check_whole(const hwlib_whole_layer_t *layer);

/* ---------------------------------------------------------------- sim_copy.c */

typedef struct {
  hwlib_place_t target, source;
  uint32_t target_stride, source_stride;
  uint32_t bytes, rows;
} hwlib_sim_copy_t;

hwlib_status_t hwlib_sim_check_copy(const hwlib_sim_copy_t *copy);
hwlib_sim_work_t hwlib_sim_copy_work(const hwlib_sim_copy_t *copy);
void hwlib_sim_move(const hwlib_sim_copy_t *copy);

#endif
