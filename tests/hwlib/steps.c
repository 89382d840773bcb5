/* The wrappers over a HAL that only records its calls: which calls they make, and that they touch no
 * activation byte. Every space that the region is given is a page that nobody may read or write. Runs
 * the test that is named on the command line; test_wrappers.py runs them all. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "hwlib.h"

#define CHECK(condition) \
  ((condition) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), exit(1)))

/* ---------------------------------------------------------------- a HAL that records */

typedef struct {
  const char *name;
  hwlib_place_t target, source;
  uint32_t target_stride, source_stride, bytes, rows;
  const hwlib_layer_t *layer;
  const hwlib_tile_t *tile;
  uint32_t value; /* token of a wait, layer of a mark */
} call_t;

static call_t calls[32];
static unsigned count, failing = 99; /* the call that fails */

static hwlib_status_t record(call_t call)
{
  CHECK(count < 32);
  calls[count] = call;
  return count++ == failing ? HWLIB_ERROR_HARDWARE : HWLIB_OK;
}

/* The token of a started copy or job is 100 and its number among the calls. */
static hwlib_status_t start(call_t call, hwlib_token_t *token)
{
  *token = 100 + count;
  return record(call);
}

hwlib_status_t hwlib_hal_init(void) { return record((call_t){.name = "init"}); }

hwlib_status_t hwlib_hal_copy_1d(hwlib_place_t target, hwlib_place_t source, uint32_t bytes, hwlib_token_t *token)
{
  return start((call_t){.name = "copy_1d", .target = target, .source = source, .bytes = bytes}, token);
}

hwlib_status_t hwlib_hal_copy_2d(hwlib_place_t target, uint32_t target_stride, hwlib_place_t source,
                                 uint32_t source_stride, uint32_t bytes, uint32_t rows, hwlib_token_t *token)
{
  return start((call_t){"copy_2d", target, source, target_stride, source_stride, bytes, rows, NULL, NULL, 0}, token);
}

hwlib_status_t hwlib_hal_job_start(const hwlib_job_t *job, hwlib_token_t *token)
{
  return start((call_t){.name = "job", .layer = job->layer, .tile = job->tile}, token);
}

hwlib_status_t hwlib_hal_copy_wait(hwlib_token_t token)
{
  return record((call_t){.name = "copy_wait", .value = token});
}

hwlib_status_t hwlib_hal_job_wait(hwlib_token_t token)
{
  return record((call_t){.name = "job_wait", .value = token});
}

uint64_t hwlib_hal_cycles(void) { return 0; }

void hwlib_hal_mark(uint16_t layer) { (void)record((call_t){.name = "mark", .value = layer}); }

static unsigned traces;
static hwlib_job_t traced;
static int trace_waits;              /* the trace waits for the job itself */
static hwlib_status_t trace_returns; /* HWLIB_OK */

hwlib_status_t hwlib_trace_job(const hwlib_job_t *job, hwlib_token_t *token); /* hwlib.h: with HWLIB_TRACE only */
hwlib_status_t hwlib_trace_job(const hwlib_job_t *job, hwlib_token_t *token)
{
  traces += 1;
  traced = *job;
  if (trace_waits) {
    CHECK(hwlib_hal_job_wait(*token) == HWLIB_OK);
    *token = 0;
  }
  return trace_returns;
}

/* ---------------------------------------------------------------- one region */

enum { COPY_IN, COPY_ROWS, JOB, WAIT_JOB, WAIT_COPY, PARTIAL_JOB, BAD_KIND, BAD_SLOT };

static const hwlib_step_t steps[] = {
    [COPY_IN] = {HWLIB_STEP_COPY, 0, 0},        [COPY_ROWS] = {HWLIB_STEP_COPY, 15, 1},
    [JOB] = {HWLIB_STEP_JOB, 1, 1},             [WAIT_JOB] = {HWLIB_STEP_JOB_WAIT, 1, 0},
    [WAIT_COPY] = {HWLIB_STEP_COPY_WAIT, 15, 0}, [PARTIAL_JOB] = {HWLIB_STEP_JOB, 0, 0},
    [BAD_KIND] = {4, 0, 0},                     [BAD_SLOT] = {HWLIB_STEP_COPY, HWLIB_SLOTS, 0},
};
static const hwlib_copy_t copies[] = {
    {{HWLIB_SPACE_WEIGHTS, 12}, {HWLIB_SPACE_FLASH, 34}, 56, 1, 0, 0},
    {{HWLIB_SPACE_ARGUMENT + 1, 8}, {HWLIB_SPACE_ACTIVATIONS, 9}, 10, 2, 11, 13},
};
static const hwlib_tile_t tiles[] = {{.flags = HWLIB_TILE_FIRST}, {.flags = HWLIB_TILE_LAST}};
static const hwlib_plan_t plan = {steps, copies, tiles, 5};

static hwlib_place_t spaces[6] = {{HWLIB_LOCAL_ACTIVATIONS, 0}, {HWLIB_LOCAL_WEIGHTS, 0}};
static hwlib_region_t region;

static void begin(void)
{
  for (unsigned space = HWLIB_SPACE_FLASH; space < 6; ++space) {
    void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    spaces[space] = (hwlib_place_t){HWLIB_MAIN, (uintptr_t)page};
  }
  CHECK(hwlib_begin(&region, &plan, spaces) == HWLIB_OK);
  CHECK(count == 1 && strcmp(calls[0].name, "init") == 0);
}

static int is_call(unsigned number, const char *name, uint32_t value)
{
  return number < count && strcmp(calls[number].name, name) == 0 && calls[number].value == value;
}

static hwlib_conv2d_t conv2d = {.layer = {.id = 7, .kind = HWLIB_CONV2D}};

static hwlib_status_t run(uint32_t first, uint32_t number)
{
  return hwlib_conv2d(&region, &conv2d, (hwlib_steps_t){first, number});
}

/* After a failure nothing may be in flight: the last call is the one that ends everything. */
static int ended_after(unsigned number) { return count == number + 1 && is_call(number, "init", 0); }

/* ---------------------------------------------------------------- the tests */

static void steps_become_calls_in_order(void)
{
  CHECK(run(COPY_IN, 5) == HWLIB_OK);
  CHECK(count == 7 && is_call(1, "mark", 7));

  CHECK(is_call(2, "copy_1d", 0));
  CHECK(calls[2].target.memory == HWLIB_LOCAL_WEIGHTS && calls[2].target.address == 12);
  CHECK(calls[2].source.memory == HWLIB_MAIN && calls[2].source.address == spaces[HWLIB_SPACE_FLASH].address + 34);
  CHECK(calls[2].bytes == 56);

  CHECK(is_call(3, "copy_2d", 0));
  CHECK(calls[3].target.memory == HWLIB_MAIN && calls[3].target.address == spaces[HWLIB_SPACE_ARGUMENT + 1].address + 8);
  CHECK(calls[3].source.memory == HWLIB_LOCAL_ACTIVATIONS && calls[3].source.address == 9);
  CHECK(calls[3].bytes == 10 && calls[3].rows == 2);
  CHECK(calls[3].target_stride == 11 && calls[3].source_stride == 13);

  CHECK(is_call(4, "job", 0) && calls[4].layer == &conv2d.layer && calls[4].tile == &tiles[1]);
  CHECK(is_call(5, "job_wait", 104) && is_call(6, "copy_wait", 103));
}

static void a_layer_goes_on_in_another_call(void)
{
  const hwlib_add_t add = {.layer = {.id = 8, .kind = HWLIB_ADD}};
  CHECK(run(COPY_ROWS, 2) == HWLIB_OK);
  CHECK(hwlib_add(&region, &add, (hwlib_steps_t){JOB, 1}) == HWLIB_OK);
  CHECK(is_call(4, "mark", 8) && calls[5].layer == &add.layer);
  CHECK(run(WAIT_JOB, 2) == HWLIB_OK);
  CHECK(is_call(6, "mark", 7) && is_call(7, "job_wait", 105) && is_call(8, "copy_wait", 102));
}

static void tokens_outlive_their_layer(void)
{
  CHECK(run(COPY_ROWS, 1) == HWLIB_OK);
  CHECK(hwlib_wait(&region, (hwlib_steps_t){WAIT_COPY, 1}) == HWLIB_OK);
  CHECK(is_call(count - 1, "copy_wait", 102));
}

static void an_empty_slot_holds_no_token(void)
{
  memset(region.tokens, 0xff, sizeof region.tokens);
  CHECK(hwlib_begin(&region, &plan, spaces) == HWLIB_OK);
  CHECK(run(WAIT_COPY, 1) == HWLIB_OK);
  CHECK(is_call(count - 1, "copy_wait", 0));
}

static void every_wrapper_runs_its_steps(void)
{
  const hwlib_steps_t all = {COPY_IN, 5};
  const hwlib_conv2d_t depthwise = {.layer = {.kind = HWLIB_DEPTHWISE_CONV2D}};
  const hwlib_conv2d_t dense = {.layer = {.kind = HWLIB_DENSE}};
  const hwlib_add_t add = {.layer = {.kind = HWLIB_ADD}};
  const hwlib_mul_t mul = {.layer = {.kind = HWLIB_MUL}};
  const hwlib_pool2d_t pool2d = {.layer = {.kind = HWLIB_POOL2D}};
  const hwlib_layer_t reshape = {.kind = HWLIB_RESHAPE}, transpose = {.kind = HWLIB_TRANSPOSE};
  const hwlib_softmax_t softmax = {.layer = {.kind = HWLIB_SOFTMAX}};
  const hwlib_lookup_t lookup = {.layer = {.kind = HWLIB_LOOKUP}};
#define RUNS(call) (count = 0, CHECK((call) == HWLIB_OK), CHECK(count == 6))
  RUNS(hwlib_conv2d(&region, &conv2d, all));
  RUNS(hwlib_depthwise_conv2d(&region, &depthwise, all));
  RUNS(hwlib_dense(&region, &dense, all));
  RUNS(hwlib_add(&region, &add, all));
  RUNS(hwlib_mul(&region, &mul, all));
  RUNS(hwlib_pool2d(&region, &pool2d, all));
  RUNS(hwlib_softmax(&region, &softmax, all));
  RUNS(hwlib_lookup(&region, &lookup, all));
  RUNS(hwlib_reshape(&region, &reshape, all));
  RUNS(hwlib_transpose(&region, &transpose, all));
}

static void refuses_descriptor_of_another_kind(void)
{
  const hwlib_steps_t none = {0, 0};
  const hwlib_add_t add = {.layer = {.kind = HWLIB_POOL2D}};
  const hwlib_mul_t mul = {.layer = {.kind = HWLIB_ADD}};
  const hwlib_pool2d_t pool2d = {.layer = {.kind = HWLIB_ADD}};
  const hwlib_layer_t reshape = {.kind = HWLIB_TRANSPOSE}, transpose = {.kind = HWLIB_RESHAPE};
  const hwlib_softmax_t softmax = {.layer = {.kind = HWLIB_POOL2D}};
  const hwlib_lookup_t lookup = {.layer = {.kind = HWLIB_MUL}};
  CHECK(hwlib_softmax(&region, &softmax, none) == HWLIB_ERROR_STEP);
  CHECK(hwlib_lookup(&region, &lookup, none) == HWLIB_ERROR_STEP);
  CHECK(hwlib_depthwise_conv2d(&region, &conv2d, none) == HWLIB_ERROR_STEP);
  CHECK(hwlib_dense(&region, &conv2d, none) == HWLIB_ERROR_STEP);
  CHECK(hwlib_add(&region, &add, none) == HWLIB_ERROR_STEP);
  CHECK(hwlib_mul(&region, &mul, none) == HWLIB_ERROR_STEP);
  CHECK(hwlib_pool2d(&region, &pool2d, none) == HWLIB_ERROR_STEP);
  CHECK(hwlib_reshape(&region, &reshape, none) == HWLIB_ERROR_STEP);
  CHECK(hwlib_transpose(&region, &transpose, none) == HWLIB_ERROR_STEP);
  conv2d.layer.kind = HWLIB_DENSE;
  count = 0;
  CHECK(run(COPY_IN, 5) == HWLIB_ERROR_STEP);
  CHECK(region.layer == 7 && is_call(0, "mark", 7) && ended_after(1));
}

static void refuses_unknown_step(void)
{
  CHECK(run(BAD_KIND, 1) == HWLIB_ERROR_STEP);
  CHECK(ended_after(2));
}

static void refuses_slot_beyond_the_last(void)
{
  CHECK(run(BAD_SLOT, 1) == HWLIB_ERROR_STEP);
  CHECK(ended_after(2));
}

static void refuses_job_in_the_tail_of_a_region(void)
{
  CHECK(hwlib_wait(&region, (hwlib_steps_t){JOB, 1}) == HWLIB_ERROR_STEP);
  CHECK(ended_after(1));
}

static void a_failure_ends_the_layer_and_names_it(void)
{
  failing = 3;
  CHECK(run(COPY_IN, 5) == HWLIB_ERROR_HARDWARE);
  CHECK(ended_after(4) && region.layer == 7 && traces == 0);
  const int32_t result = HWLIB_RESULT(HWLIB_ERROR_HARDWARE, region.layer);
  CHECK(HWLIB_RESULT_STATUS(result) == HWLIB_ERROR_HARDWARE && HWLIB_RESULT_LAYER(result) == 7);
}

static void a_failure_at_the_end_of_the_region_ends_it_too(void)
{
  CHECK(run(COPY_ROWS, 1) == HWLIB_OK);
  failing = count;
  CHECK(hwlib_wait(&region, (hwlib_steps_t){WAIT_COPY, 1}) == HWLIB_ERROR_HARDWARE);
  CHECK(ended_after(4) && region.layer == 7);
}

/* The init after it fails with another status. */
static void the_first_failure_is_reported(void)
{
  failing = count + 3;
  conv2d.layer.id = 9;
  CHECK(run(WAIT_COPY, 3) == HWLIB_ERROR_STEP); /* its third step is none */
  CHECK(ended_after(failing) && region.layer == 9);
}

static void a_failed_init_fails_the_region(void)
{
  failing = count;
  CHECK(hwlib_begin(&region, &plan, spaces) == HWLIB_ERROR_HARDWARE);
  CHECK(region.layer == 5);
}

#ifdef HWLIB_TRACE
static void traces_jobs_that_write_outputs(void)
{
  CHECK(run(PARTIAL_JOB, 1) == HWLIB_OK);
  CHECK(traces == 0);
  CHECK(run(COPY_IN, 5) == HWLIB_OK);
  CHECK(traces == 1 && traced.layer == &conv2d.layer && traced.tile == &tiles[1]);
}

static void traces_wait_in_place_of_the_plan(void)
{
  trace_waits = 1;
  CHECK(run(JOB, 2) == HWLIB_OK); /* and WAIT_JOB */
  CHECK(count == 4 && is_call(2, "job", 0) && is_call(3, "job_wait", 102));
}

static void traces_that_fail_end_the_layer(void)
{
  trace_returns = HWLIB_ERROR_HARDWARE;
  CHECK(run(JOB, 2) == HWLIB_ERROR_HARDWARE);
  CHECK(is_call(2, "job", 0) && ended_after(3) && region.layer == 7);
}

static void traces_no_job_that_was_refused(void)
{
  failing = count + 1;
  CHECK(run(JOB, 1) == HWLIB_ERROR_HARDWARE);
  CHECK(traces == 0);
}
#endif

#define TEST(name) {#name, name}
static const struct {
  const char *name;
  void (*run)(void);
} tests[] = {
    TEST(steps_become_calls_in_order),
    TEST(a_layer_goes_on_in_another_call),
    TEST(tokens_outlive_their_layer),
    TEST(an_empty_slot_holds_no_token),
    TEST(every_wrapper_runs_its_steps),
    TEST(refuses_descriptor_of_another_kind),
    TEST(refuses_unknown_step),
    TEST(refuses_slot_beyond_the_last),
    TEST(refuses_job_in_the_tail_of_a_region),
    TEST(a_failure_ends_the_layer_and_names_it),
    TEST(a_failure_at_the_end_of_the_region_ends_it_too),
    TEST(the_first_failure_is_reported),
    TEST(a_failed_init_fails_the_region),
#ifdef HWLIB_TRACE
    TEST(traces_jobs_that_write_outputs),
    TEST(traces_wait_in_place_of_the_plan),
    TEST(traces_that_fail_end_the_layer),
    TEST(traces_no_job_that_was_refused),
#endif
};

int main(int argc, char **argv)
{
  for (unsigned i = 0; i < sizeof tests / sizeof tests[0]; ++i) {
    if (argc == 2 && strcmp(argv[1], tests[i].name) == 0) {
      begin();
      tests[i].run();
      return 0;
    }
  }
  fprintf(stderr, "no such test\n");
  return 2;
}
