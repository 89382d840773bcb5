/* Running one job on a window, and what checks of jobs have in common. */
#include "kit_internal.h"

#include <string.h>

#define COPY_WAIT "hwlib_hal_copy_wait"
#define JOB_START "hwlib_hal_job_start"
#define JOB_WAIT "hwlib_hal_job_wait"

int kit_has_kind(unsigned kind) { return (HAL_KIT_KINDS >> kind & 1u) != 0; }

int kit_has_rounding(unsigned rounding) { return (HAL_KIT_ROUNDINGS >> rounding & 1u) != 0; }

unsigned kit_some_rounding(void)
{
  return kit_has_rounding(HWLIB_ROUND_UPWARD) ? HWLIB_ROUND_UPWARD : HWLIB_ROUND_TFLITE;
}

int kit_strides_have(uint32_t strides, unsigned stride) { return stride < 32 && (strides >> stride & 1u) != 0; }

const char *kit_subject(unsigned kind, unsigned rounding)
{
  static const char *const subjects[][2] = {
      [HWLIB_CONV2D] = {"conv2d, upward", "conv2d, tflite"},
      [HWLIB_DEPTHWISE_CONV2D] = {"depthwise_conv2d, upward", "depthwise_conv2d, tflite"},
      [HWLIB_DENSE] = {"dense, upward", "dense, tflite"},
      [HWLIB_ADD] = {"add, upward", "add, tflite"},
      [HWLIB_POOL2D] = {"pool2d, upward", "pool2d, tflite"},
      [HWLIB_SOFTMAX] = {"softmax, upward", "softmax, tflite"},
  };
  return subjects[kind][rounding];
}

hwlib_tile_t kit_moved(const hwlib_tile_t *tile, unsigned place)
{
  uint32_t activations = kit_base(&kit_memories[0], place), weights = kit_base(&kit_memories[1], place);
  hwlib_tile_t moved = *tile;
  moved.ifm += activations;
  moved.ifm2 += activations;
  moved.ofm += activations;
  moved.psum += activations;
  moved.weights += weights;
  moved.params += weights;
  return moved;
}

int kit_load_window(unsigned place)
{
  memcpy(kit_expected, kit_before, KIT_WINDOW);
  return kit_load(&kit_memories[0], kit_base(&kit_memories[0], place), kit_before, KIT_WINDOW) &&
         kit_load(&kit_memories[1], kit_base(&kit_memories[1], place), kit_weights, KIT_WINDOW);
}

static int start_and_wait(const hwlib_layer_t *layer, const hwlib_tile_t *tile)
{
  hwlib_token_t token = 0;
  hwlib_job_t job = {layer, tile};
  hwlib_status_t status = hwlib_hal_job_start(&job, &token);
  memset(&job, 0, sizeof job); /* it may be gone as soon as the job was started */
  return kit_ok(JOB_START, status) && kit_ok(JOB_WAIT, hwlib_hal_job_wait(token));
}

static int fetched_as_expected(uint32_t address)
{
  return kit_fetch(&kit_memories[0], address, kit_got, KIT_WINDOW) && kit_equal(kit_expected, kit_got, KIT_WINDOW);
}

/* Compares the window at `address`. Where bytes are wrong and become right after a while, a wait is to blame: that
 * for the copy out, for the job, or, if only the job's repetition gives them, that for the copy in. `repeat` is NULL
 * where there is no single job to repeat. */
static int compare(uint32_t address, const hwlib_layer_t *layer, const hwlib_tile_t *repeat)
{
  uint32_t at = 0;
  while (at < KIT_WINDOW && kit_expected[at] == kit_got[at]) {
    ++at;
  }
  if (at == KIT_WINDOW) {
    return 1;
  }
  int8_t got = (int8_t)kit_got[at], expected = (int8_t)kit_expected[at];
  const char *function = COPY_WAIT;
  int late = 1;
  kit_settle();
  if (kit_equal(kit_expected, kit_got, KIT_WINDOW)) {
    function = COPY_WAIT; /* for the copy out */
  } else if (fetched_as_expected(address)) {
    function = JOB_WAIT;
  } else if (repeat == NULL || !start_and_wait(layer, repeat) || !fetched_as_expected(address)) {
    function = JOB_START;
    late = 0;
  }
  kit_fail(function, late ? "too early, byte" : "byte", at, expected, got);
  return 0;
}

int kit_run_job(const hwlib_layer_t *layer, const hwlib_tile_t *tile, unsigned place)
{
  uint32_t address = kit_base(&kit_memories[0], place);
  hwlib_tile_t moved = kit_moved(tile, place);
  int single = tile->flags == (HWLIB_TILE_FIRST | HWLIB_TILE_LAST);
  kit_compute(&(hwlib_job_t){layer, tile}, kit_weights, kit_expected);
  return start_and_wait(layer, &moved) && kit_fetch(&kit_memories[0], address, kit_got, KIT_WINDOW) &&
         compare(address, layer, single ? &moved : NULL);
}

void kit_check_job(const char *subject, const char *what, const hwlib_layer_t *layer, const hwlib_tile_t *tile)
{
  kit_begin(JOB_START, subject, what);
  for (unsigned place = 0; place < KIT_PLACES; ++place) {
    if (!kit_load_window(place) || !kit_run_job(layer, tile, place)) {
      break;
    }
  }
  kit_end();
}

/* ---------------------------------------------------------------- hwlib_hal_job_wait */

enum { JOBS = 4, ELEMENTS = KIT_WINDOW / 16, MORE_THAN_A_QUEUE = 100 };

typedef struct {
  kit_addition_t addition[JOBS];
  hwlib_token_t tokens[JOBS];
} jobs_t;

/* Starts additions of the window's first half, each with a part of the second half for its output. */
static int start_jobs(jobs_t *jobs)
{
  kit_fill(kit_before, KIT_WINDOW);
  if (!kit_load_window(KIT_AT_START)) {
    return 0;
  }
  for (uint32_t i = 0; i < JOBS; ++i) {
    kit_addition_t *addition = &jobs->addition[i];
    *addition = kit_addition(kit_some_rounding(), ELEMENTS);
    addition->tile.ifm = 2 * i * ELEMENTS;
    addition->tile.ifm2 = (2 * i + 1) * ELEMENTS;
    addition->tile.ofm = (2 * JOBS + i) * ELEMENTS;
    hwlib_job_t job = {&addition->layer.layer, &addition->tile};
    kit_compute(&job, kit_weights, kit_expected);
    jobs->tokens[i] = 0;
    if (!kit_ok(JOB_START, hwlib_hal_job_start(&job, &jobs->tokens[i]))) {
      return 0;
    }
  }
  return 1;
}

static void check_tokens(void)
{
  jobs_t jobs;
  kit_begin(JOB_START, "", "tokens are not 0, and differ while their jobs are in flight");
  if (start_jobs(&jobs)) {
    for (unsigned i = 0; i < JOBS; ++i) {
      if (jobs.tokens[i] == 0) {
        kit_fail(JOB_START, "token of job", i, 1, 0);
      }
      for (unsigned j = 0; j < i; ++j) {
        if (jobs.tokens[i] == jobs.tokens[j]) {
          kit_fail(JOB_START, "tokens that equal that of job", j, 0, 1);
        }
      }
    }
    for (unsigned i = 0; i < JOBS; ++i) {
      (void)kit_ok(JOB_WAIT, hwlib_hal_job_wait(jobs.tokens[i]));
    }
  }
  kit_end();
}

static void check_order(const char *what, const uint8_t *order, unsigned count)
{
  jobs_t jobs;
  kit_begin(JOB_WAIT, "", what);
  int fine = start_jobs(&jobs);
  for (unsigned i = 0; fine && i < count; ++i) {
    fine = kit_ok(JOB_WAIT, hwlib_hal_job_wait(jobs.tokens[order[i]]));
  }
  if (fine && kit_fetch(&kit_memories[0], 0, kit_got, KIT_WINDOW)) {
    (void)compare(0, NULL, NULL);
  }
  (void)kit_ok("hwlib_hal_init", hwlib_hal_init());
  kit_end();
}

static void check_many(void)
{
  jobs_t jobs;
  kit_begin(JOB_START, "", "more jobs than any queue holds, only the last waited for");
  int fine = start_jobs(&jobs);
  for (unsigned i = 0; fine && i < MORE_THAN_A_QUEUE; ++i) {
    hwlib_job_t job = {&jobs.addition[0].layer.layer, &jobs.addition[0].tile};
    fine = kit_ok(JOB_START, hwlib_hal_job_start(&job, &jobs.tokens[0]));
  }
  if (fine && kit_ok(JOB_WAIT, hwlib_hal_job_wait(jobs.tokens[0])) &&
      kit_fetch(&kit_memories[0], 0, kit_got, KIT_WINDOW)) {
    (void)compare(0, NULL, NULL);
  }
  (void)kit_ok("hwlib_hal_init", hwlib_hal_init());
  kit_end();
}

/* The DMA does its copies in order, so that a copy out of what came in proves nothing: a job that reads the last
 * bytes to come does. */
static void check_inward_for_a_job(void)
{
  kit_addition_t addition = kit_addition(kit_some_rounding(), 16);
  addition.tile.ifm = KIT_WINDOW - 32;
  addition.tile.ifm2 = KIT_WINDOW - 16;
  kit_begin(COPY_WAIT, "", "after the wait, a job finds the bytes in local memory");
  kit_fill(kit_before, KIT_WINDOW);
  int fine = kit_load_window(KIT_AT_START);
  kit_fill(kit_before, KIT_WINDOW);
  memcpy(kit_expected, kit_before, KIT_WINDOW);
  if (fine && kit_load(&kit_memories[0], 0, kit_before, KIT_WINDOW)) {
    (void)kit_run_job(&addition.layer.layer, &addition.tile, KIT_AT_START);
  }
  kit_end();
}

void kit_check_job_wait(void)
{
  static const uint8_t forward[JOBS] = {0, 1, 2, 3}, backward[JOBS] = {3, 2, 1, 0}, mixed[JOBS] = {2, 0, 3, 1};
  if (!kit_has_kind(HWLIB_ADD)) {
    kit_skip(JOB_WAIT, "these checks need jobs of the kind add");
    return;
  }
  check_inward_for_a_job();
  check_tokens();
  check_order("in the order of the starts", forward, JOBS);
  check_order("in the opposite order", backward, JOBS);
  check_order("in any order", mixed, JOBS);
  check_order("when a job has ended, those started before it have too", backward, 1);
  check_many();
}
