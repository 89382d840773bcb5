/* Runs a model again and again, and lets its calls fail: the first one, the second one, and so on. The calls are
 * those of the HAL that return a status, and the host's functions. With -DPOLLS=N the model is started, polled N times,
 * and then waited for; with -DASKED the HAL can be asked, and says no each second time.
 *
 * The linker puts this between HWlib and the simulator (--wrap). Copies and jobs happen as late as a HAL may let
 * them happen: when they are waited for, or when an init ends them; those that nobody ended happen after
 * <mod_name>_run has returned, and then not one byte may change. A failed wait waits for nothing.
 *
 *   failures INPUTS OUTPUTS STRIDE      one inference; every STRIDE-th call fails in turn
 *
 * Writes the outputs of a run without a failure, and for each failing call a line to stdout. */
#include "default.h"
#include "hwlib_sim.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) \
  ((condition) ? (void)0 : (fprintf(stderr, "call %u: %s, line %d\n", failing, #condition, __LINE__), exit(1)))

/* ---------------------------------------------------------------- which call fails */

enum { HOST_STATUS = 77, LATER = HWLIB_ERROR_RACE };

static unsigned calls, failing; /* from 1; 0: none fails */
static bool for_good;           /* all calls after it fail as well, with another status */
static bool gives_up;           /* an init drops what is in flight, or else ends it */

/* The layer of each call, from a run without a failure. The init of a region belongs to its first layer. */
enum { MOST_CALLS = 1 << 16 };
static uint16_t layers[MOST_CALLS];
static uint16_t marked;
static unsigned begun; /* the call that began the region */

static int32_t status_of(int32_t failure)
{
  CHECK(++calls < MOST_CALLS);
  if (failing == 0) {
    layers[calls] = marked;
  }
  return calls == failing ? failure : failing != 0 && for_good && calls > failing ? LATER : 0;
}

int32_t host_status(void);
int32_t host_status(void) { return status_of(HOST_STATUS); }

/* ---------------------------------------------------------------- engines that take their time */

typedef struct {
  hwlib_place_t target, source;
  uint32_t target_stride, source_stride, bytes, rows;
  hwlib_job_t job; /* of the array */
} operation_t;

enum { DMA, ARRAY, QUEUE = 64 };
static struct {
  operation_t queue[QUEUE];
  uint32_t ended, started; /* operations, numbered from 1 */
} engines[2];

hwlib_status_t __real_hwlib_hal_copy_2d(hwlib_place_t target, uint32_t target_stride, hwlib_place_t source,
                                        uint32_t source_stride, uint32_t bytes, uint32_t rows, hwlib_token_t *token);
hwlib_status_t __real_hwlib_hal_copy_wait(hwlib_token_t token);
hwlib_status_t __real_hwlib_hal_job_start(const hwlib_job_t *job, hwlib_token_t *token);
hwlib_status_t __real_hwlib_hal_job_wait(hwlib_token_t token);

/* Ends the operations of an engine up to one of them. */
static void end(int engine, uint32_t last)
{
  while (engines[engine].ended < last) {
    const operation_t *next = &engines[engine].queue[++engines[engine].ended % QUEUE];
    hwlib_token_t token;
    if (engine == ARRAY) {
      CHECK(__real_hwlib_hal_job_start(&next->job, &token) == HWLIB_OK);
      CHECK(__real_hwlib_hal_job_wait(token) == HWLIB_OK);
    } else {
      CHECK(__real_hwlib_hal_copy_2d(next->target, next->target_stride, next->source, next->source_stride,
                                     next->bytes, next->rows, &token) == HWLIB_OK);
      CHECK(__real_hwlib_hal_copy_wait(token) == HWLIB_OK);
    }
  }
}

static hwlib_status_t start(int engine, operation_t operation, hwlib_token_t *token)
{
  hwlib_status_t status = status_of(HWLIB_ERROR_HARDWARE);
  if (status == HWLIB_OK) {
    *token = ++engines[engine].started;
    if (*token > QUEUE) {
      end(engine, *token - QUEUE);
    }
    engines[engine].queue[*token % QUEUE] = operation;
  }
  return status;
}

static hwlib_status_t wait_for(int engine, hwlib_token_t token)
{
  hwlib_status_t status = status_of(HWLIB_ERROR_HARDWARE);
  if (status == HWLIB_OK) {
    CHECK(token != 0 && token <= engines[engine].started);
    end(engine, token);
  }
  return status;
}

#ifdef ASKED
static unsigned questions;

static hwlib_status_t ask(int engine, hwlib_token_t token, uint8_t *done)
{
  *done = ++questions % 2 == 0;
  if (*done) {
    return wait_for(engine, token);
  }
  return status_of(HWLIB_ERROR_HARDWARE);
}

hwlib_status_t __wrap_hwlib_hal_copy_done(hwlib_token_t token, uint8_t *done);
hwlib_status_t __wrap_hwlib_hal_copy_done(hwlib_token_t token, uint8_t *done) { return ask(DMA, token, done); }

hwlib_status_t __wrap_hwlib_hal_job_done(hwlib_token_t token, uint8_t *done);
hwlib_status_t __wrap_hwlib_hal_job_done(hwlib_token_t token, uint8_t *done) { return ask(ARRAY, token, done); }
#endif

static unsigned in_flight(void)
{
  return engines[DMA].started - engines[DMA].ended + engines[ARRAY].started - engines[ARRAY].ended;
}

static void end_all(void)
{
  end(DMA, engines[DMA].started);
  end(ARRAY, engines[ARRAY].started);
}

hwlib_status_t __wrap_hwlib_hal_init(void);
hwlib_status_t __wrap_hwlib_hal_init(void)
{
  if (!gives_up) {
    end_all();
  }
  memset(engines, 0, sizeof engines);
  hwlib_status_t status = status_of(HWLIB_ERROR_HARDWARE);
  begun = calls;
  return status;
}

hwlib_status_t __wrap_hwlib_hal_copy_2d(hwlib_place_t target, uint32_t target_stride, hwlib_place_t source,
                                        uint32_t source_stride, uint32_t bytes, uint32_t rows, hwlib_token_t *token);
hwlib_status_t __wrap_hwlib_hal_copy_2d(hwlib_place_t target, uint32_t target_stride, hwlib_place_t source,
                                        uint32_t source_stride, uint32_t bytes, uint32_t rows, hwlib_token_t *token)
{
  return start(DMA, (operation_t){target, source, target_stride, source_stride, bytes, rows, {NULL, NULL}}, token);
}

hwlib_status_t __wrap_hwlib_hal_copy_1d(hwlib_place_t target, hwlib_place_t source, uint32_t bytes,
                                        hwlib_token_t *token);
hwlib_status_t __wrap_hwlib_hal_copy_1d(hwlib_place_t target, hwlib_place_t source, uint32_t bytes,
                                        hwlib_token_t *token)
{
  return __wrap_hwlib_hal_copy_2d(target, 0, source, 0, bytes, 1, token);
}

hwlib_status_t __wrap_hwlib_hal_job_start(const hwlib_job_t *job, hwlib_token_t *token);
hwlib_status_t __wrap_hwlib_hal_job_start(const hwlib_job_t *job, hwlib_token_t *token)
{
  return start(ARRAY, (operation_t){.job = *job}, token);
}

hwlib_status_t __wrap_hwlib_hal_copy_wait(hwlib_token_t token);
hwlib_status_t __wrap_hwlib_hal_copy_wait(hwlib_token_t token) { return wait_for(DMA, token); }

hwlib_status_t __wrap_hwlib_hal_job_wait(hwlib_token_t token);
hwlib_status_t __wrap_hwlib_hal_job_wait(hwlib_token_t token) { return wait_for(ARRAY, token); }

void __wrap_hwlib_hal_mark(uint16_t layer);
void __wrap_hwlib_hal_mark(uint16_t layer)
{
  if (failing == 0) {
    layers[begun] = begun == calls ? layer : layers[begun];
    marked = layer;
  }
}

/* ---------------------------------------------------------------- the caller's memory */

/* The test gives the bytes of each input and output, and where they start: one after another, aligned. */
static const uint32_t input_starts[] = {INPUT_STARTS}, output_starts[] = {OUTPUT_STARTS};
enum { INPUTS = sizeof input_starts / sizeof input_starts[0], OUTPUTS = sizeof output_starts / sizeof output_starts[0] };

extern uint8_t default_arena[DEFAULT_ARENA_SIZE]; /* the model's own: the test has made it global */
static uint8_t inputs[INPUT_BYTES] __attribute__((aligned(64))), outputs[OUTPUT_BYTES] __attribute__((aligned(64)));

static struct {
  uint8_t arena[DEFAULT_ARENA_SIZE], inputs[INPUT_BYTES], outputs[OUTPUT_BYTES];
} before;

static void remember(void)
{
  memcpy(before.arena, default_arena, sizeof default_arena);
  memcpy(before.inputs, inputs, sizeof inputs);
  memcpy(before.outputs, outputs, sizeof outputs);
}

static bool unchanged(void)
{
  return memcmp(before.arena, default_arena, sizeof default_arena) == 0 &&
         memcmp(before.inputs, inputs, sizeof inputs) == 0 && memcmp(before.outputs, outputs, sizeof outputs) == 0;
}

static int32_t carry_out(const struct default_inputs *model_inputs, const struct default_outputs *model_outputs)
{
#ifdef POLLS
  bool done = false;
  int32_t result = default_start(model_inputs, model_outputs);
  CHECK(result == 0);
  for (unsigned poll = 0; poll < POLLS && !done; ++poll) {
    result = default_poll(&done);
    CHECK(done || result == 0);
  }
  return done ? result : default_wait();
#else
  return default_run(model_inputs, model_outputs);
#endif
}

static int32_t run(unsigned fails)
{
  const void *in[INPUTS];
  void *out[OUTPUTS];
  for (unsigned i = 0; i < INPUTS; ++i) {
    in[i] = inputs + input_starts[i];
  }
  for (unsigned i = 0; i < OUTPUTS; ++i) {
    out[i] = outputs + output_starts[i];
  }
  struct default_inputs model_inputs;
  struct default_outputs model_outputs;
  memcpy(&model_inputs, in, sizeof model_inputs);
  memcpy(&model_outputs, out, sizeof model_outputs);
  memset(outputs, 0x55, sizeof outputs);
  memset(default_arena, 0xaa, sizeof default_arena);
  hwlib_sim_reset();
  calls = 0;
  failing = fails;
#ifdef ASKED
  questions = 0;
#endif
  return carry_out(&model_inputs, &model_outputs);
}

/* ---------------------------------------------------------------- all of it */

static uint8_t expected[OUTPUT_BYTES];

static void fail_at(unsigned call)
{
  int32_t result = run(call);
  int32_t status = DEFAULT_RESULT_STATUS(result);
  CHECK(status == HWLIB_ERROR_HARDWARE || status == HOST_STATUS); /* the first failure's */
  CHECK(in_flight() == 0);
  remember();
  end_all();
  CHECK(unchanged());
  printf("%u %d %u %u\n", call, status, DEFAULT_RESULT_LAYER(result), layers[call]);
  CHECK(run(0) == 0);
  CHECK(memcmp(outputs, expected, sizeof outputs) == 0);
}

int main(int argc, char **argv)
{
  FILE *file = argc == 4 ? fopen(argv[1], "rb") : NULL;
  CHECK(file != NULL && fread(inputs, 1, sizeof inputs, file) == sizeof inputs);
  CHECK(run(0) == 0 && in_flight() == 0);
  memcpy(expected, outputs, sizeof expected);
  unsigned count = calls, stride = (unsigned)atoi(argv[3]);
  CHECK(fclose(file) == 0 && (file = fopen(argv[2], "wb")) != NULL);
  CHECK(fwrite(outputs, 1, sizeof outputs, file) == sizeof outputs && fclose(file) == 0);
  for (unsigned mode = 0; mode < 4; ++mode) {
    gives_up = (mode & 1) != 0;
    for_good = (mode & 2) != 0;
    for (unsigned call = 1; call <= count; call += stride) {
      fail_at(call);
    }
  }
  return 0;
}
