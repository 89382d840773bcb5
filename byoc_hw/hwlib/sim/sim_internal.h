/* What the files of the simulator share. */
#ifndef HWLIB_SIM_INTERNAL_H
#define HWLIB_SIM_INTERNAL_H

#include "hwlib_sim.h"
#include "hwlib_sim_config.h"

#include <stddef.h>

enum { HWLIB_SIM_READS = 1, HWLIB_SIM_WRITES = 2 };

/* The bytes of a local memory that an operation touches: rows of pixels of bytes. */
typedef struct {
  const char *name; /* for faults */
  uint8_t memory, access;
  uint32_t rows, pixels;
  uint32_t row_stride, pixel_stride;
  uint64_t address, bytes; /* wide, so that a damaged plan is refused for what it says */
} hwlib_sim_area_t;

enum { HWLIB_SIM_AREAS = 5 }; /* a convolution: ifm, weights, params, psum, ofm */

/* What an operation does to the local memories, and for how long. */
typedef struct {
  uint64_t cycles;
  uint32_t areas;
  hwlib_sim_area_t area[HWLIB_SIM_AREAS];
} hwlib_sim_work_t;

enum { HWLIB_SIM_DMA = 0, HWLIB_SIM_ARRAY = 1, HWLIB_SIM_ENGINES = 2 };

/* Exponentials of up to 1 that a Q12 can hold the sum of. */
enum { HWLIB_SIM_SOFTMAX_CHANNELS = 4095 };

/* sim_memory.c */
void hwlib_sim_memory_reset(void);
uint8_t *hwlib_sim_local(uint8_t memory, uint64_t address);
hwlib_status_t hwlib_sim_access(const hwlib_sim_work_t *work);
void hwlib_sim_written(const hwlib_sim_work_t *work);
int hwlib_sim_overlap(const hwlib_sim_area_t *one, const hwlib_sim_area_t *other);

/* sim_limits.c */
hwlib_status_t hwlib_sim_check_job(const hwlib_job_t *job);

/* sim_job.c: of jobs within the limits */
hwlib_status_t hwlib_sim_job_work(const hwlib_job_t *job, hwlib_sim_work_t *work);
uint64_t hwlib_sim_filter_values(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile);
uint64_t hwlib_sim_filter_bytes(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile);

/* sim_array.c */
hwlib_status_t hwlib_sim_check_scales(const hwlib_job_t *job);
void hwlib_sim_compute(const hwlib_job_t *job);
int64_t hwlib_sim_scale(uint8_t rounding, int32_t value, int32_t multiplier, uint8_t left, uint8_t right);
int64_t hwlib_sim_shift_right(int64_t value, unsigned bits);
int64_t hwlib_sim_divide(int64_t value, unsigned bits);

/* sim_softmax.c */
void hwlib_sim_softmax(const hwlib_softmax_t *layer, const int8_t *ifm, int8_t *ofm, uint32_t channels);

/* sim_timeline.c */
hwlib_status_t hwlib_sim_start(uint8_t engine, const hwlib_sim_work_t *work, hwlib_token_t *token);
hwlib_sim_counters_t *hwlib_sim_counters(void);

/* Keeps "name: text" for hwlib_sim_fault, each # of the text replaced by the next of the numbers, and
 * returns the status. */
hwlib_status_t hwlib_sim_refuse(hwlib_status_t status, const char *name, const char *text,
                                const uint64_t *numbers);

#define HWLIB_SIM_REFUSE(status, name, text, ...) \
  hwlib_sim_refuse((status), (name), (text), (const uint64_t[]){__VA_ARGS__})

#endif
