/* Declarations shared by the files of the kit, in order of dependency: a file calls only those before it. */
#ifndef KIT_INTERNAL_H
#define KIT_INTERNAL_H

#include "hal_kit.h"
#include "hal_kit_config.h"
#include "hwlib_hal.h"

#include <stddef.h>

/* A check works in a window of a local memory, and keeps images of it in main memory. */
enum {
  KIT_WINDOW = HAL_KIT_WINDOW,
  KIT_UNIT = HWLIB_ACCELERATOR_DMA_ALIGNMENT, /* addresses, strides and lengths of copies are multiples of it */
};

typedef struct {
  uint8_t memory;
  const char *name;
  uint32_t size; /* whole units only: no copy reaches the rest */
} kit_memory_t;

enum { KIT_MEMORIES = 2 };
extern const kit_memory_t kit_memories[KIT_MEMORIES];

/* Where windows lie: at the start or at the end of their memory. */
enum { KIT_AT_START, KIT_AT_END, KIT_PLACES };
uint32_t kit_base(const kit_memory_t *memory, unsigned place);

/* Images of windows in main memory. */
extern uint8_t kit_before[KIT_WINDOW];   /* contents before the check */
extern uint8_t kit_expected[KIT_WINDOW]; /* expected contents after it */
extern uint8_t kit_got[KIT_WINDOW];      /* actual contents after it */
extern uint8_t kit_weights[KIT_WINDOW];  /* weights and parameters of a job */

/* The other side of copies that are larger than a window. */
extern uint8_t kit_main_memory[HAL_KIT_MAIN];

/* ---------------------------------------------------------------- kit_report.c */

/* A run: reset, the checks, then a summary line; returns the number of failures. */
void kit_report_reset(void);
uint32_t kit_failures(void);
void kit_summary(void);

/* One check: begin, any number of failures (the first is reported), end. `subject` may be "". */
void kit_begin(const char *function, const char *subject, const char *what);
void kit_end(void);
void kit_skip(const char *function, const char *what);

/* Reports "FAILED function: what: unit index: expected .. got ..". */
void kit_fail(const char *function, const char *unit, uint64_t index, int64_t expected, int64_t got);
/* The same without an index. */
void kit_fail_once(const char *function, const char *what, int64_t expected, int64_t got);

/* Whether the status is HWLIB_OK; reports the function if it is not. */
int kit_ok(const char *function, hwlib_status_t status);

/* ---------------------------------------------------------------- kit_memory.c */

uint32_t kit_random(void); /* the same sequence in every run */
void kit_fill(uint8_t *bytes, uint32_t count);
int kit_equal(const uint8_t *one, const uint8_t *other, uint32_t count);

hwlib_place_t kit_local(const kit_memory_t *memory, uint32_t address);
hwlib_place_t kit_main(const void *pointer);

/* A copy and its wait; returns whether both returned HWLIB_OK. */
int kit_load(const kit_memory_t *memory, uint32_t address, const uint8_t *bytes, uint32_t count);
int kit_fetch(const kit_memory_t *memory, uint32_t address, uint8_t *bytes, uint32_t count);

/* Compares kit_got, which a completed copy has written, with the expected bytes. Reports a failure of the
 * function, or of hwlib_hal_copy_wait if the right bytes arrive later. */
int kit_compare(const char *function, const uint8_t *expected, uint32_t count);

/* Gives the engines time to end operations whose waits have returned too early. */
void kit_settle(void);

/* ---------------------------------------------------------------- kit_contents.c */

/* Checks of places and extents reach further than any image. For them, both local memories hold a pattern, from
 * which every expected byte is computed; kit_expected and kit_got then show one part of local activations after the
 * other. Checks in a window have the images instead. Expected results are computed with the functions below, which
 * know where the bytes are. */

/* Different for bytes whose addresses differ, as far as a byte can be. Memory: of a place. */
uint8_t kit_pattern(unsigned memory, uint32_t address);

/* Fills both memories with the pattern. From here on, local weights hold the parameters of a convolution where its
 * tile says, the pattern elsewhere. NULL: no convolution. Loads only what differs. */
int kit_use_pattern(void);
int kit_use_parameters(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile);
void kit_use_images(void);

uint32_t kit_filter_values(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile);
uint32_t kit_filter_bytes(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile);
uint8_t kit_activation(uint32_t address);
uint8_t kit_weight_byte(uint32_t address);
int kit_load_contents(const kit_memory_t *memory, uint64_t address, uint64_t end); /* widened to whole units */

/* From here on kit_expected shows these bytes of local activations: what they hold before a job. */
void kit_show(uint32_t base, uint32_t bytes);

/* An expected result; nothing happens where it lies outside what kit_expected shows. */
void kit_put(uint32_t address, uint8_t byte);

/* Of `count` pieces of `bytes` bytes, `stride` apart, those of which kit_expected shows a byte. */
typedef struct {
  uint32_t first, end;
} kit_range_t;
kit_range_t kit_shown(uint64_t address, uint32_t stride, uint64_t bytes, uint32_t count);

/* Fetches local activations from address to end, and some bytes more on both sides, and compares them with the
 * contents after the job. Loads the pattern again. */
int kit_compare_part(const hwlib_layer_t *layer, const hwlib_tile_t *tile, uint64_t address, uint64_t end);

/* ---------------------------------------------------------------- kit_job.c */

int kit_has_kind(unsigned kind);
int kit_has_rounding(unsigned rounding);
unsigned kit_some_rounding(void); /* a supported one, for checks that are not about rounding */
int kit_mask_has(uint32_t mask, unsigned member);

/* A check of jobs fills kit_before and kit_weights. kit_expected starts as a copy of kit_before; kit_expect_conv2d
 * and so on add the results of each job. A tile's addresses are offsets into the images. */
void kit_expect_unchanged(void);

/* Load kit_before and kit_weights to local memory; then run any number of jobs on them, and compare the window with
 * kit_expected after each. */
int kit_load_window(unsigned place);
int kit_run_job(const hwlib_layer_t *layer, const hwlib_tile_t *tile, unsigned place);

/* Compares the window at `address`. If wrong bytes become right after a while, a wait has returned too early: that
 * of the copy out or of the job, or, if only repeating the job gives the right bytes, that of the copy in. `repeat`
 * is NULL where there is no single job to repeat. */
int kit_compare_window(uint32_t address, const hwlib_layer_t *layer, const hwlib_tile_t *repeat);

/* A check that runs one job at both ends of the memories. Expects filled images. */
void kit_check_job(const char *subject, const char *what, const hwlib_layer_t *layer, const hwlib_tile_t *tile);

/* What has been checked: a kind in a rounding. Every pair that the accelerator has must be. */
void kit_note_kind(unsigned kind, unsigned rounding);
void kit_check_kinds(void);

/* ---------------------------------------------------------------- kit_scale.c */

/* A multiplier that the accelerator has: of one with shifts alone a power of two. */
#ifdef HWLIB_ACCELERATOR_SHIFT_ONLY
#define KIT_MULTIPLIER(value) ((value) == 0 ? 0 : 1 << 30)
#else
#define KIT_MULTIPLIER(value) (value)
#endif

int64_t kit_shift(int64_t value, unsigned bits);
int64_t kit_nearest(int64_t value, unsigned bits);
int32_t kit_wrap32(uint32_t value);
int64_t kit_scale(unsigned rounding, int64_t value, hwlib_scale_t by);
uint8_t kit_clamp(int64_t value, int8_t low, int8_t high);

/* ---------------------------------------------------------------- kit_expected.c */

void kit_expect_conv2d(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile); /* and depthwise and dense */
void kit_expect_pool2d(const hwlib_pool2d_t *layer, const hwlib_tile_t *tile);
void kit_expect_add(const hwlib_add_t *layer, const hwlib_tile_t *tile);         /* kit_elementwise.c */
void kit_expect_mul(const hwlib_mul_t *layer, const hwlib_tile_t *tile);         /* kit_elementwise.c */
void kit_expect_matmul(const hwlib_matmul_t *layer, const hwlib_tile_t *tile);   /* kit_matmul.c */
void kit_expect_softmax(const hwlib_softmax_t *layer, const hwlib_tile_t *tile); /* kit_softmax.c */
void kit_expect_lookup(const hwlib_lookup_t *layer, const hwlib_tile_t *tile);   /* kit_lookup.c */

/* The weight of an output channel, its index in [fy][fx][c]. */
int32_t kit_weight(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile, uint32_t k, uint32_t index);

/* ---------------------------------------------------------------- kit_windows.c */

/* The limits of a kind with a window; sets are masks. */
typedef struct {
  uint32_t kernel_h, kernel_w, strides, dilations, weight_bits, wide_padding, kernel_parts;
} kit_limits_t;
kit_limits_t kit_limits(unsigned kind);
uint8_t kit_least_stride(unsigned kind);
uint8_t kit_least_dilation(unsigned kind);
/* Rows or columns from the first to the last of a window. */
uint32_t kit_reach(uint32_t kernel, uint32_t dilation);
uint8_t kit_widest_weights(unsigned kind);

/* ---------------------------------------------------------------- kit_elementwise.c */

/* Additions of `count` values: the simplest job, for the checks of waits. */
typedef struct {
  hwlib_add_t layer;
  hwlib_tile_t tile;
} kit_addition_t;
kit_addition_t kit_addition(unsigned rounding, uint32_t count);

/* ---------------------------------------------------------------- kit_lookup.c */

/* One table, of which all entries differ, over `count` values. */
typedef struct {
  hwlib_lookup_t layer;
  hwlib_tile_t tile;
} kit_lookup_t;
kit_lookup_t kit_lookup(unsigned rounding, uint32_t count);

/* ---------------------------------------------------------------- kit_samples.c */

/* A layer of any kind, and a tile. */
typedef struct {
  const char *subject; /* its kind, for reports */
  union {
    hwlib_layer_t layer; /* what each of the others starts with */
    hwlib_conv2d_t conv2d;
    hwlib_pool2d_t pool2d;
    hwlib_add_t add;
    hwlib_mul_t mul;
    hwlib_softmax_t softmax;
    hwlib_matmul_t matmul;
    hwlib_lookup_t lookup;
  };
  hwlib_tile_t tile;
} kit_sample_t;

int kit_has_sample(unsigned kind, unsigned rounding);
/* As many vectors of a dense job, or the most that the accelerator takes. */
uint32_t kit_vectors(uint32_t wanted);
/* 2 x 2 pixels of 3 channels, or as much of that as the kind has, without gaps between rows and pixels. */
kit_sample_t kit_sample(unsigned kind, unsigned rounding);
/* To be called after a change of the tile: the layer's extents are the tile's. */
void kit_adapt_sample(kit_sample_t *sample);

/* Bytes from the first to the last of an operand; 0 where the job has none. */
typedef enum { KIT_IFM, KIT_IFM2, KIT_OFM, KIT_PSUM, KIT_WEIGHTS, KIT_PARAMS, KIT_OPERANDS } kit_operand_t;
uint64_t kit_span(const kit_sample_t *sample, kit_operand_t operand);
uint32_t *kit_address(kit_sample_t *sample, kit_operand_t operand);
const kit_memory_t *kit_memory_of(kit_operand_t operand);

/* Operands one after another from the start of the memories; returns whether they fit. */
int kit_lay_out(kit_sample_t *sample);

/* Runs it on the pattern, and compares its result; returns whether it is right. */
int kit_run_sample(const kit_sample_t *sample);

/* ---------------------------------------------------------------- several at a time, for waits and questions */

/* kit_copies.c: loads a window from kit_expected, and starts a copy of each piece of it to kit_got. */
enum { KIT_PIECES = 8, KIT_PIECE = KIT_WINDOW / KIT_PIECES };
int kit_start_pieces(hwlib_token_t *tokens);

/* kit_job_wait.c: starts additions of the window's first half, each with its output in a part of the second half;
 * kit_expected is the window after them. */
enum { KIT_JOBS = 4 };
typedef struct {
  kit_addition_t addition[KIT_JOBS];
  hwlib_token_t tokens[KIT_JOBS];
} kit_jobs_t;
int kit_start_jobs(kit_jobs_t *jobs);

/* The optional functions: NULL where the HAL lacks one. */
hwlib_status_t hwlib_hal_copy_done(hwlib_token_t token, uint8_t *done) __attribute__((weak));
hwlib_status_t hwlib_hal_job_done(hwlib_token_t token, uint8_t *done) __attribute__((weak));
void hwlib_hal_idle(void) __attribute__((weak));
hwlib_status_t hwlib_hal_signal(uint8_t engine, uint8_t event) __attribute__((weak));
hwlib_status_t hwlib_hal_await(uint8_t engine, uint8_t event, uint16_t value) __attribute__((weak));

/* ---------------------------------------------------------------- checks by function, run by kit_run.c */

void kit_check_init(void);
void kit_check_quiet(void);
void kit_check_quiet_jobs(void); /* after those of jobs */
void kit_check_copies(void);
void kit_check_copy_wait(void);
void kit_check_windows(void);
void kit_check_elementwise(void);
void kit_check_softmax(void);
void kit_check_matmul(void);
void kit_check_lookup(void);
void kit_check_whole(void); /* layers without tiles */
void kit_check_places(void);
void kit_check_extents(void);
void kit_check_copy_extents(void);
void kit_check_job_wait(void);
void kit_check_idle(void); /* beside nothing */
void kit_check_questions(void);
void kit_check_events(void); /* of a chip that has them */
void kit_check_profile(void);
void kit_check_refusals(void);

#endif
