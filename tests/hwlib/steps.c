/* The steps of a region over a HAL that only records its calls: which calls they make, and that they touch no
 * activation byte. Every space that the region is given is a page that nobody may read or write. Runs
 * the test that is named on the command line; test_hwlib_steps.py runs them all. */
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

static const struct layers {
  hwlib_conv2d_t conv2d;
  hwlib_add_t add;
} layers = {.conv2d = {.layer = {.id = 7, .kind = HWLIB_CONV2D}}, .add = {.layer = {.id = 8, .kind = HWLIB_ADD}}};

static const hwlib_form_t forms[2340] = {
    [1] = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, HWLIB_TILE_FIRST, 0}},
    [2339] = {{65535, 65535, 65535, 65535, 65535, 65535, 65535, 65535, 65535, 65535, 255, 255, 255, 255, 255, 255,
               HWLIB_TILE_FIRST | HWLIB_TILE_LAST, 0}},
};
static const hwlib_copy_t copies[] = {
    {{HWLIB_SPACE_WEIGHTS, 12}, {HWLIB_SPACE_FLASH, 34}, 70000, 1, 0, 0},
    {{HWLIB_SPACE_ARGUMENT + 1, 8}, {HWLIB_SPACE_ACTIVATIONS, 9}, 10, 2, 11, 70000},
};
static const hwlib_tile_t tiles[] = {{.flags = HWLIB_TILE_FIRST}, {.flags = HWLIB_TILE_LAST}};

static uintptr_t starts[8];
static hwlib_made_tile_t made[16];
static hwlib_region_t region;
static hwlib_plan_t plan = {.layers = &layers, .forms = forms, .copies = copies, .start_copy = hwlib_start_copy,
                            .tiles = tiles, .layer = 5};

static void begin(void)
{
  for (unsigned space = 0; space < 8; ++space) {
    void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    starts[space] = (uintptr_t)page;
  }
  memset(made, 0xff, sizeof made);
}

static int is_call(unsigned number, const char *name, uint32_t value)
{
  return number < count && strcmp(calls[number].name, name) == 0 && calls[number].value == value;
}

/* Runs steps from the begin of a region on. */
#define RUN(...) run((const uint16_t[]){HWLIB_LAYER(struct layers, conv2d), __VA_ARGS__, HWLIB_END})
static hwlib_status_t run(const uint16_t *steps)
{
  plan.steps = steps;
  hwlib_status_t status = hwlib_start(&region, &plan, starts, made);
  CHECK(is_call(0, "init", 0));
  return status;
}

/* After a failure nothing may be in flight: the last call is the one that ends everything. */
static int ended_after(unsigned number) { return count == number + 1 && is_call(number, "init", 0); }

static int is_place(hwlib_place_t place, uint8_t memory, uintptr_t address)
{
  return place.memory == memory && place.address == address;
}

/* ---------------------------------------------------------------- the tests */

static void steps_become_calls_in_order(void)
{
  CHECK(RUN(HWLIB_COPY_WEIGHTS(1, 0, 12, HWLIB_SPACE_FLASH, 34, 56),
            HWLIB_ROWS_OUT(15, 0, 9, HWLIB_SPACE_ARGUMENT + 1, 8, 10, 2, 11, 13),
            HWLIB_COPY_IN(2, 0, 20, HWLIB_SPACE_SCRATCH, 21, 22), HWLIB_JOB_TILE(3, 0, 1), HWLIB_JOB_WAIT(3),
            HWLIB_COPY_WAIT(15)) == HWLIB_OK);
  CHECK(count == 8 && is_call(1, "mark", 7));

  CHECK(is_call(2, "copy_1d", 0) && calls[2].bytes == 56);
  CHECK(is_place(calls[2].target, HWLIB_LOCAL_WEIGHTS, 12) && is_place(calls[2].source, HWLIB_MAIN, starts[0] + 34));

  CHECK(is_call(3, "copy_2d", 0) && calls[3].bytes == 10 && calls[3].rows == 2);
  CHECK(is_place(calls[3].target, HWLIB_MAIN, starts[3] + 8) && is_place(calls[3].source, HWLIB_LOCAL_ACTIVATIONS, 9));
  CHECK(calls[3].target_stride == 11 && calls[3].source_stride == 13);

  CHECK(is_place(calls[4].target, HWLIB_LOCAL_ACTIVATIONS, 20));
  CHECK(is_place(calls[4].source, HWLIB_MAIN, starts[1] + 21) && calls[4].bytes == 22);

  CHECK(is_call(5, "job", 0) && calls[5].layer == &layers.conv2d.layer && calls[5].tile == &tiles[1]);
  CHECK(is_call(6, "job_wait", 105) && is_call(7, "copy_wait", 103));
}

static void copies_wait_for_a_job_and_jobs_for_a_copy(void)
{
  CHECK(RUN(HWLIB_COPY_IN(1, 0, 0, HWLIB_SPACE_FLASH, 0, 1), HWLIB_JOB_TILE(2, 1, 0),
            HWLIB_COPY_OUT(3, 2, 5, HWLIB_SPACE_ARGUMENT, 6, 7)) == HWLIB_OK);
  CHECK(count == 7 && is_call(2, "copy_1d", 0) && is_call(3, "copy_wait", 102) && is_call(4, "job", 0));
  CHECK(is_call(5, "job_wait", 104) && is_call(6, "copy_1d", 0));
  CHECK(is_place(calls[6].target, HWLIB_MAIN, starts[2] + 6) && is_place(calls[6].source, HWLIB_LOCAL_ACTIVATIONS, 5));
}

static void rows_go_into_both_memories(void)
{
  CHECK(RUN(HWLIB_ROWS_IN(0, 0, 1, HWLIB_SPACE_FLASH, 2, 3, 4, 5, 6),
            HWLIB_ROWS_WEIGHTS(0, 0, 1, HWLIB_SPACE_FLASH, 2, 3, 4, 5, 6)) == HWLIB_OK);
  for (unsigned number = 2; number < 4; ++number) {
    CHECK(is_call(number, "copy_2d", 0) && is_place(calls[number].source, HWLIB_MAIN, starts[0] + 2));
    CHECK(is_place(calls[number].target, number == 2 ? HWLIB_LOCAL_ACTIVATIONS : HWLIB_LOCAL_WEIGHTS, 1));
    CHECK(calls[number].bytes == 3 && calls[number].rows == 4);
    CHECK(calls[number].target_stride == 5 && calls[number].source_stride == 6);
  }
}

static void other_copies_are_rows_of_a_table(void)
{
  CHECK(RUN(HWLIB_JOB_TILE(1, 0, 0), HWLIB_COPY_OTHER(2, 0, 0), HWLIB_COPY_OTHER(15, 1, 1),
            HWLIB_COPY_WAIT(15)) == HWLIB_OK);
  CHECK(count == 7 && is_call(3, "copy_1d", 0) && calls[3].bytes == 70000);
  CHECK(is_place(calls[3].target, HWLIB_LOCAL_WEIGHTS, 12) && is_place(calls[3].source, HWLIB_MAIN, starts[0] + 34));
  CHECK(is_call(4, "job_wait", 102) && is_call(5, "copy_2d", 0) && calls[5].bytes == 10 && calls[5].rows == 2);
  CHECK(is_place(calls[5].target, HWLIB_MAIN, starts[3] + 8) && is_place(calls[5].source, HWLIB_LOCAL_ACTIVATIONS, 9));
  CHECK(calls[5].target_stride == 11 && calls[5].source_stride == 70000 && is_call(6, "copy_wait", 105));
}

static void a_tile_is_made_of_a_form_and_addresses(void)
{
  const hwlib_tile_t expected = {.ifm = 20, .ofm = 21, .weights = 22, .params = 23, .ifm_row = 1, .ofm_row = 2,
                                 .ifm_pixel = 3, .ofm_pixel = 4, .ifm_h = 5, .ifm_w = 6, .ifm_c = 7, .ofm_h = 8,
                                 .ofm_w = 9, .ofm_c = 10, .pad_top = 11, .pad_left = 12, .pad_bottom = 13,
                                 .pad_right = 14, .kernel_h = 15, .kernel_w = 16, .flags = HWLIB_TILE_FIRST};
  CHECK(RUN(HWLIB_JOB_FORM(0, 0, 3, 1, 20, 21, 22, 23)) == HWLIB_OK);
  CHECK(calls[2].tile == &made[3].tile && memcmp(calls[2].tile, &expected, sizeof expected) == 0);
}

static void a_tile_keeps_the_form_of_its_place(void)
{
  CHECK(RUN(HWLIB_JOB_FORM_2(0, 0, 3, 1, 18, 19, 20, 21, 22, 23)) == HWLIB_OK);
  CHECK(made[3].tile.ifm2 == 18 && made[3].tile.psum == 19 && made[3].tile.ifm == 20 && made[3].tile.ofm_c == 10);
  CHECK(count == 3 && RUN(HWLIB_JOB(0, 0, 3, 30, 31, 32, 33)) == HWLIB_OK);
  CHECK(made[3].tile.ifm == 30 && made[3].tile.ofm == 31 && made[3].tile.weights == 32 && made[3].tile.params == 33);
  CHECK(made[3].tile.ifm2 == 18 && made[3].tile.psum == 19 && made[3].tile.ofm_c == 10);
  CHECK(RUN(HWLIB_JOB_2(0, 0, 3, 40, 41, 42, 43, 44, 45)) == HWLIB_OK);
  CHECK(made[3].tile.ifm2 == 40 && made[3].tile.psum == 41 && made[3].tile.ifm == 42 && made[3].tile.params == 45);
  CHECK(RUN(HWLIB_JOB_FORM(0, 0, 3, 1, 1, 1, 1, 1)) == HWLIB_OK);
  CHECK(made[3].tile.ifm2 == 0 && made[3].tile.psum == 0);
}

static void tiles_in_other_places_stay_as_they_are(void)
{
  CHECK(RUN(HWLIB_JOB_FORM(0, 0, 0, 1, 1, 2, 3, 4), HWLIB_JOB_FORM(0, 0, 1, 2339, 5, 6, 7, 8),
            HWLIB_JOB_FORM(0, 0, 2, 0, 9, 9, 9, 9)) == HWLIB_OK);
  CHECK(calls[2].tile == &made[0].tile && made[0].tile.ifm == 1 && made[0].tile.ofm_c == 10);
  CHECK(calls[3].tile == &made[1].tile && made[1].tile.ifm == 5 && made[1].tile.ofm_c == 65535);
}

static void fields_hold_their_greatest_values(void)
{
  plan.local_unit = 2;
  plan.main_unit = 7;
  CHECK(RUN(HWLIB_COPY_IN(15, 0, 65535, HWLIB_SPACE_FLASH + 7, 65535, 65535),
            HWLIB_ROWS_OUT(15, 15, 65535, HWLIB_SPACE_FLASH + 7, 65535, 65535, 65535, 65535, 65535),
            HWLIB_JOB_FORM_2(15, 15, 15, 2339, 65535, 65534, 65533, 65532, 65531, 65530)) == HWLIB_OK);
  CHECK(is_place(calls[2].target, HWLIB_LOCAL_ACTIVATIONS, 262140) && calls[2].bytes == 65535);
  CHECK(is_place(calls[2].source, HWLIB_MAIN, starts[7] + ((uintptr_t)65535 << 7)));
  CHECK(is_call(3, "job_wait", 102));
  CHECK(is_place(calls[4].target, HWLIB_MAIN, starts[7] + ((uintptr_t)65535 << 7)));
  CHECK(is_place(calls[4].source, HWLIB_LOCAL_ACTIVATIONS, 262140));
  CHECK(calls[4].bytes == 65535 && calls[4].rows == 65535);
  CHECK(calls[4].target_stride == 65535 && calls[4].source_stride == 65535);
  CHECK(is_call(5, "copy_wait", 104) && calls[6].tile == &made[15].tile);
  const hwlib_tile_t *tile = calls[6].tile;
  CHECK(tile->ifm2 == 262140 && tile->psum == 262136 && tile->ifm == 262132 && tile->ofm == 262128);
  CHECK(tile->weights == 65531 && tile->params == 65530);
  CHECK(tile->ifm_row == 65535 && tile->ofm_c == 65535 && tile->pad_top == 255 && tile->kernel_w == 255);
  CHECK(tile->flags == (HWLIB_TILE_FIRST | HWLIB_TILE_LAST));
}

static void another_layer_begins(void)
{
  CHECK(RUN(HWLIB_JOB_TILE(0, 0, 0), HWLIB_LAYER(struct layers, add), HWLIB_JOB_TILE(0, 0, 0),
            HWLIB_LAYER(struct layers, conv2d), HWLIB_JOB_TILE(0, 0, 0)) == HWLIB_OK);
  CHECK(calls[2].layer == &layers.conv2d.layer && is_call(3, "mark", 8) && calls[4].layer == &layers.add.layer);
  CHECK(is_call(5, "mark", 7) && calls[6].layer == &layers.conv2d.layer);
}

static void a_region_goes_on_behind_an_end(void)
{
  CHECK(RUN(HWLIB_COPY_IN(1, 0, 0, HWLIB_SPACE_FLASH, 0, 1), HWLIB_END, HWLIB_COPY_WAIT(1)) == HWLIB_OK);
  CHECK(count == 3);
  CHECK(hwlib_wait(&region) == HWLIB_OK);
  CHECK(count == 4 && is_call(3, "copy_wait", 102));
}

static void a_failure_ends_the_region_and_names_the_layer(void)
{
  failing = 3;
  CHECK(RUN(HWLIB_COPY_IN(0, 0, 0, HWLIB_SPACE_FLASH, 0, 1), HWLIB_COPY_IN(0, 0, 0, HWLIB_SPACE_FLASH, 0, 1),
            HWLIB_JOB_TILE(0, 0, 1)) == HWLIB_ERROR_HARDWARE);
  CHECK(ended_after(4) && region.layer == 7 && traces == 0);
  const int32_t result = HWLIB_RESULT(HWLIB_ERROR_HARDWARE, region.layer);
  CHECK(HWLIB_RESULT_STATUS(result) == HWLIB_ERROR_HARDWARE && HWLIB_RESULT_LAYER(result) == 7);
}

/* Each kind of step, with the number of its call that fails. */
static void a_failure_of_any_call_starts_nothing_more(void)
{
  const uint16_t steps[] = {HWLIB_LAYER(struct layers, conv2d),
                            HWLIB_COPY_IN(1, 0, 0, HWLIB_SPACE_FLASH, 0, 1),
                            HWLIB_JOB_TILE(2, 1, 1),
                            HWLIB_COPY_OUT(3, 2, 0, HWLIB_SPACE_FLASH, 0, 1),
                            HWLIB_COPY_OTHER(4, 0, 0),
                            HWLIB_COPY_WAIT(3),
                            HWLIB_JOB_WAIT(2),
                            HWLIB_END};
  for (failing = 2; failing < 10; ++failing) {
    count = 0;
    CHECK(run(steps) == HWLIB_ERROR_HARDWARE);
    CHECK(ended_after(failing + 1));
  }
  count = 0;
  CHECK(run(steps) == HWLIB_OK && count == 10);
}

static void a_failure_behind_an_end_ends_the_region_too(void)
{
  CHECK(RUN(HWLIB_COPY_IN(1, 0, 0, HWLIB_SPACE_FLASH, 0, 1), HWLIB_END, HWLIB_COPY_WAIT(1)) == HWLIB_OK);
  failing = count;
  CHECK(hwlib_wait(&region) == HWLIB_ERROR_HARDWARE);
  CHECK(ended_after(4) && region.layer == 7);
}

static void a_failed_init_fails_the_region(void)
{
  failing = count;
  CHECK(RUN(HWLIB_COPY_WAIT(1)) == HWLIB_ERROR_HARDWARE);
  CHECK(count == 1 && region.layer == 5);
}

#ifdef HWLIB_TRACE
static void traces_jobs_that_write_outputs(void)
{
  CHECK(RUN(HWLIB_JOB_TILE(0, 0, 0), HWLIB_JOB_FORM(0, 0, 0, 1, 0, 0, 0, 0)) == HWLIB_OK);
  CHECK(traces == 0);
  CHECK(RUN(HWLIB_JOB_TILE(0, 0, 1)) == HWLIB_OK);
  CHECK(traces == 1 && traced.layer == &layers.conv2d.layer && traced.tile == &tiles[1]);
  CHECK(RUN(HWLIB_JOB_FORM(0, 0, 0, 2339, 0, 0, 0, 0)) == HWLIB_OK);
  CHECK(traces == 2 && traced.tile == &made[0].tile);
}

static void traces_wait_in_place_of_the_plan(void)
{
  trace_waits = 1;
  CHECK(RUN(HWLIB_JOB_TILE(1, 0, 1), HWLIB_JOB_WAIT(1), HWLIB_COPY_OUT(0, 1, 0, HWLIB_SPACE_FLASH, 0, 1)) == HWLIB_OK);
  CHECK(count == 5 && is_call(2, "job", 0) && is_call(3, "job_wait", 102) && is_call(4, "copy_1d", 0));
}

static void traces_that_fail_end_the_layer(void)
{
  trace_returns = HWLIB_ERROR_HARDWARE;
  CHECK(RUN(HWLIB_JOB_TILE(1, 0, 1), HWLIB_JOB_WAIT(1)) == HWLIB_ERROR_HARDWARE);
  CHECK(is_call(2, "job", 0) && ended_after(3) && region.layer == 7);
}

static void traces_no_job_that_was_refused(void)
{
  failing = 2;
  CHECK(RUN(HWLIB_JOB_TILE(1, 0, 1)) == HWLIB_ERROR_HARDWARE);
  CHECK(traces == 0);
}
#endif

#define TEST(name) {#name, name}
static const struct {
  const char *name;
  void (*run)(void);
} tests[] = {
    TEST(steps_become_calls_in_order),
    TEST(copies_wait_for_a_job_and_jobs_for_a_copy),
    TEST(rows_go_into_both_memories),
    TEST(other_copies_are_rows_of_a_table),
    TEST(a_tile_is_made_of_a_form_and_addresses),
    TEST(a_tile_keeps_the_form_of_its_place),
    TEST(tiles_in_other_places_stay_as_they_are),
    TEST(fields_hold_their_greatest_values),
    TEST(another_layer_begins),
    TEST(a_region_goes_on_behind_an_end),
    TEST(a_failure_ends_the_region_and_names_the_layer),
    TEST(a_failure_of_any_call_starts_nothing_more),
    TEST(a_failure_behind_an_end_ends_the_region_too),
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
