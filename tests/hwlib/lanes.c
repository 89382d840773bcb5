/* The lanes over two HALs, a and b, that only record their calls: which calls they make, in which order, and that no
 * byte of main memory is touched. Runs the test that is named on the command line; test_lanes.py runs them all.
 *
 * A call is written as the HAL's letter and what it does: ai init, am7 mark, ac1 and aj1 the start of a copy or job
 * with token 1, ad1- and ae1+ whether the copy or job is done, aw1 and ax1 a wait that blocks, az idle, as0:2 a signal
 * of event 2 by engine 0, at1:2=3 an await of its value 3 by engine 1. An operation
 * is done when the core was idle as often as `lasts` says. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hwlib_lanes.h"

#define CHECK(condition) \
  ((condition) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), exit(1)))

static char calls[1024];
static unsigned now, started, ends[64], lasts[64];
static const char *failing = "", *traced = ""; /* the call that fails; the HAL whose jobs the trace waits for */

static hwlib_status_t record(const char *format, ...)
{
  char call[16];
  va_list values;
  va_start(values, format);
  vsnprintf(call, sizeof call, format, values);
  va_end(values);
  CHECK(strlen(calls) + strlen(call) + 2 < sizeof calls);
  strcat(strcat(calls, calls[0] == '\0' ? "" : " "), call);
  return strcmp(call, failing) == 0 ? HWLIB_ERROR_HARDWARE : HWLIB_OK;
}

static hwlib_status_t start(char hal, char what, hwlib_token_t *token)
{
  *token = ++started;
  CHECK(started < 64);
  ends[started] = now + lasts[started];
  return record("%c%c%u", hal, what, (unsigned)*token);
}

static hwlib_status_t ask(char hal, char what, hwlib_token_t token, uint8_t *done)
{
  *done = token < 64 && ends[token] <= now;
  return record("%c%c%u%c", hal, what, (unsigned)token, *done ? '+' : '-');
}

/* clang-format off */
#define HAL(x, letter) \
  static hwlib_status_t x##_init(void) { return record("%ci", letter); } \
  static hwlib_status_t x##_copy_1d(hwlib_place_t target, hwlib_place_t source, uint32_t bytes, hwlib_token_t *token) \
  { CHECK(target.address + source.address == bytes); return start(letter, 'c', token); } \
  static hwlib_status_t x##_copy_2d(hwlib_place_t target, uint32_t target_stride, hwlib_place_t source, \
                                    uint32_t source_stride, uint32_t bytes, uint32_t rows, hwlib_token_t *token) \
  { CHECK(target.address + source.address == bytes && target_stride == 11 && source_stride == 13 && rows == 2); \
    return start(letter, 'r', token); } \
  static hwlib_status_t x##_copy_wait(hwlib_token_t token) { return record("%cw%u", letter, (unsigned)token); } \
  static hwlib_status_t x##_job_start(const hwlib_job_t *job, hwlib_token_t *token) \
  { CHECK(job->tile == NULL || job->tile->flags == HWLIB_TILE_LAST); \
    return start(letter, job->tile == NULL ? 'l' : 'j', token); } \
  static hwlib_status_t x##_job_wait(hwlib_token_t token) { return record("%cx%u", letter, (unsigned)token); } \
  static uint64_t x##_cycles(void) { return 0; } \
  static void x##_mark(uint16_t layer) { (void)record("%cm%u", letter, (unsigned)layer); } \
  static hwlib_status_t x##_copy_done(hwlib_token_t token, uint8_t *done) { return ask(letter, 'd', token, done); } \
  static hwlib_status_t x##_job_done(hwlib_token_t token, uint8_t *done) { return ask(letter, 'e', token, done); } \
  static void x##_idle(void) { ++now; (void)record("%cz", letter); } \
  static hwlib_status_t x##_signal(uint8_t engine, uint8_t event) \
  { return record("%cs%u:%u", letter, (unsigned)engine, (unsigned)event); } \
  static hwlib_status_t x##_await(uint8_t engine, uint8_t event, uint16_t value) \
  { return record("%ct%u:%u=%u", letter, (unsigned)engine, (unsigned)event, (unsigned)value); } \
  static hwlib_hal_t x = {x##_init, x##_copy_1d, x##_copy_2d, x##_copy_wait, x##_job_start, x##_job_wait, x##_cycles, \
                          x##_mark, x##_copy_done, x##_job_done, x##_idle, x##_signal, x##_await};
HAL(a, 'a')
HAL(b, 'b')
/* clang-format on */

hwlib_status_t hwlib_trace_lane_job(const hwlib_hal_t *hal, const hwlib_job_t *job, hwlib_token_t *token);
hwlib_status_t hwlib_trace_lane_job(const hwlib_hal_t *hal, const hwlib_job_t *job, hwlib_token_t *token)
{
  if (strcmp(traced, hal == &a ? "a" : "b") == 0) {
    (void)record("t%u", (unsigned)job->layer->id);
    CHECK(hal->job_wait(*token) == HWLIB_OK);
    *token = 0;
  }
  return HWLIB_OK;
}

/* ---------------------------------------------------------------- one region */

#define COPY(slot) {HWLIB_STEP_COPY, slot, 0}
#define ROWS(slot) {HWLIB_STEP_COPY, slot, 1}
#define JOB(slot) {HWLIB_STEP_JOB, slot, 0}
#define LAYER(slot) {HWLIB_STEP_LAYER, slot, 0}
#define COPY_WAIT(slot) {HWLIB_STEP_COPY_WAIT, slot, 0}
#define JOB_WAIT(slot) {HWLIB_STEP_JOB_WAIT, slot, 0}
#define SIGNAL(event, slot) {HWLIB_STEP_SIGNAL, slot, event}
#define SIGNAL_JOB(event, slot) {HWLIB_STEP_SIGNAL_JOB, slot, event}
#define AWAIT(event, lane) {HWLIB_STEP_AWAIT, lane, event}
#define DMA_SIGNALS(event) {HWLIB_STEP_COPY_SIGNAL, 0, event}
#define ARRAY_SIGNALS(event) {HWLIB_STEP_JOB_SIGNAL, 0, event}
#define DMA_AWAITS(event, value) {HWLIB_STEP_COPY_AWAIT, event, value}
#define ARRAY_AWAITS(event, value) {HWLIB_STEP_JOB_AWAIT, event, value}
#define TURN {HWLIB_STEP_TURN, 0, 0}

static const hwlib_layer_t layer_1 = {.id = 1}, layer_2 = {.id = 2}, layer_3 = {.id = 3};
static const hwlib_copy_t copies[] = {
    {{HWLIB_SPACE_WEIGHTS, 12}, {HWLIB_SPACE_FLASH, 34}, 12 + 34 + 1000, 1, 0, 0},
    {{HWLIB_SPACE_ARGUMENT, 8}, {HWLIB_SPACE_ACTIVATIONS, 9}, 8 + 9 + 3000, 2, 11, 13},
};
static const hwlib_tile_t tiles[] = {{.flags = HWLIB_TILE_LAST}};
static const hwlib_place_t spaces[] = {
    {HWLIB_MAIN, 99}, /* of nobody */
    {HWLIB_LOCAL_ACTIVATIONS, 0}, {HWLIB_LOCAL_WEIGHTS, 0}, {HWLIB_MAIN, 1000}, {HWLIB_MAIN, 2000}, {HWLIB_MAIN, 3000},
};

enum { EVENTS = 2, COUNTERS = 2 };
static uint16_t counters[COUNTERS];
static hwlib_lane_state_t states[2];
static hwlib_event_t events[EVENTS];
static hwlib_lanes_t lanes;

/* A lane with one part: a call of a layer, and a tail. */
#define LANE(x, number, count, ...)                                                                      \
  static const hwlib_step_t x##_steps[] = {__VA_ARGS__};                                                 \
  static const hwlib_part_plan_t x##_plan = {x##_steps, copies, tiles, number};                               \
  static const hwlib_call_t x##_calls[] = {                                                              \
      {&layer_##number, {0, count}}, {NULL, {count, sizeof x##_steps / sizeof x##_steps[0] - (count)}}}; \
  static const hwlib_part_t x##_part = {&x##_plan, x##_calls, 2, 1};                                     \
  const hwlib_lane_t x##_lane = {&x, &x##_part, 1}

static int32_t run(const hwlib_lane_t *all, uint16_t count)
{
  const hwlib_chip_plan_t plan = {all, spaces, states, events, count, EVENTS, 0, COUNTERS, counters};
  memset(states, 0xff, sizeof states);
  memset(events, 0xff, sizeof events);
  memset(counters, 0xff, sizeof counters);
  hwlib_lanes_start(&lanes, &plan);
  return hwlib_lanes_wait(&lanes);
}

#define RUN(result, expected, ...)                                                                       \
  do {                                                                                                   \
    const hwlib_lane_t all[] = {__VA_ARGS__};                                                            \
    int32_t got = run(all, sizeof all / sizeof all[0]);                                                  \
    if (got != (result) || strcmp(calls, expected) != 0) {                                               \
      fprintf(stderr, "%s:%d: result %d, calls\n%s\nnot\n%s\n", __FILE__, __LINE__, got, calls, expected); \
      exit(1);                                                                                           \
    }                                                                                                    \
  } while (0)

#define STEP_OF(layer) HWLIB_RESULT(HWLIB_ERROR_STEP, layer)
#define HARDWARE_OF(layer) HWLIB_RESULT(HWLIB_ERROR_HARDWARE, layer)

/* ---------------------------------------------------------------- the tests */

static void steps_become_calls_of_the_lanes_hal(void)
{
  LANE(a, 1, 4, COPY(15), ROWS(1), JOB(2), JOB_WAIT(2), COPY_WAIT(15), COPY_WAIT(1));
  RUN(0, "ai am1 ac1 ar2 aj3 ax3 aw1 aw2", a_lane);
}

static void the_core_goes_on_with_the_next_lane(void)
{
  lasts[1] = 2;
  lasts[2] = 1;
  LANE(a, 1, 3, COPY(1), COPY_WAIT(1), COPY(0));
  LANE(b, 2, 3, JOB(1), JOB_WAIT(1), JOB(0));
  RUN(0, "ai bi am1 bm2 ac1 ad1- bj2 be2- ad1- bz ad1- be2+ bj3 ad1- aw1 ac4", a_lane, b_lane);
}

static void all_wait_for_one_event(void)
{
  lasts[1] = 1;
  LANE(a, 1, 3, COPY(0), SIGNAL(1, 0), AWAIT(1, 0));
  LANE(b, 2, 2, AWAIT(1, 0), COPY(1));
  RUN(0, "ai bi am1 bm2 ac1 ad1- ad1- bz ad1+ bc2", a_lane, b_lane);
}

static void a_token_is_not_asked_for_again(void)
{
  LANE(a, 1, 4, COPY(1), SIGNAL(0, 1), COPY_WAIT(1), COPY(1), COPY_WAIT(1));
  LANE(b, 2, 3, AWAIT(0, 0), AWAIT(0, 0), JOB(0));
  RUN(0, "ai bi am1 bm2 ac1 ad1+ ac2 ad2+ bj3", a_lane, b_lane);
}

static void an_event_may_come_from_a_lane_behind(void)
{
  LANE(a, 1, 2, AWAIT(0, 1), COPY(0));
  LANE(b, 2, 2, JOB(0), COPY(0), SIGNAL(0, 0));
  RUN(0, "ai bi am1 bm2 bj1 bc2 bd2+ ac3", a_lane, b_lane);
}

static void a_hal_without_questions_is_waited_for(void)
{
  a.copy_done = NULL;
  a.job_done = NULL;
  LANE(a, 1, 5, COPY(1), SIGNAL(0, 1), COPY_WAIT(1), JOB(2), JOB_WAIT(2));
  LANE(b, 2, 2, AWAIT(0, 0), COPY(0));
  RUN(0, "ai bi am1 bm2 ac1 aw1 aj2 ax2 bc3", a_lane, b_lane);
}

static void a_poll_makes_a_single_step_where_a_hal_cannot_be_asked(void)
{
  a.copy_done = NULL;
  a.job_done = NULL;
  LANE(a, 1, 4, COPY(1), COPY_WAIT(1), JOB(2), JOB_WAIT(2));
  LANE(b, 2, 2, JOB(1), JOB(1));
  const hwlib_lane_t all[] = {a_lane, b_lane};
  const hwlib_chip_plan_t plan = {all, spaces, states, events, 2, EVENTS, 0, COUNTERS, counters};
  static const char *const polls[] = {" ac1", " bj2", " aw1", " bj3", " aj4", " ax4", ""};
  hwlib_lanes_start(&lanes, &plan);
  for (unsigned poll = 0; poll < sizeof polls / sizeof polls[0]; ++poll) {
    size_t before = strlen(calls);
    CHECK(hwlib_lanes_poll(&lanes) == (poll == 6) && lanes.waited == (poll < 6));
    CHECK(strcmp(calls + before, polls[poll]) == 0);
  }
}

static void a_poll_makes_a_single_step_where_the_plan_says_so(void)
{
  LANE(a, 1, 2, COPY(1), JOB(1));
  const hwlib_chip_plan_t plan = {&a_lane, spaces, states, events, 1, EVENTS, 1, COUNTERS, counters};
  hwlib_lanes_start(&lanes, &plan);
  CHECK(hwlib_lanes_poll(&lanes) == 0 && strcmp(calls, "ai am1 ac1") == 0);
  CHECK(hwlib_lanes_poll(&lanes) == 0 && strcmp(calls, "ai am1 ac1 aj2") == 0);
  CHECK(hwlib_lanes_poll(&lanes) == 1 && lanes.result == 0);
}

static void a_stop_ends_all_accelerators(void)
{
  lasts[1] = 1;
  LANE(a, 1, 2, COPY(1), COPY_WAIT(1));
  LANE(b, 2, 1, JOB(1));
  const hwlib_lane_t all[] = {a_lane, b_lane};
  const hwlib_chip_plan_t plan = {all, spaces, states, events, 2, EVENTS, 0, COUNTERS, counters};
  hwlib_lanes_start(&lanes, &plan);
  CHECK(hwlib_lanes_poll(&lanes) == 0);
  hwlib_lanes_stop(&lanes);
  hwlib_lanes_stop(&lanes); /* nothing is left to end */
  CHECK(hwlib_lanes_poll(&lanes) == 1 && lanes.result == 0);
  CHECK(strcmp(calls, "ai bi am1 bm2 ac1 ad1- bj2 ad1- ai bi") == 0);
}

static void a_hal_that_is_never_idle_is_asked_again(void)
{
  lasts[1] = 1;
  lasts[2] = 3;
  a.idle = NULL;
  LANE(a, 1, 2, COPY(1), COPY_WAIT(1));
  LANE(b, 2, 2, COPY(1), COPY_WAIT(1));
  RUN(0, "ai bi am1 bm2 ac1 ad1- bc2 bd2- ad1- bz ad1+ bd2- bw2", a_lane, b_lane);
}

static void parts_of_a_lane_follow_each_other(void)
{
  lasts[1] = 1;
  LANE(a, 1, 1, COPY(1), COPY_WAIT(1));
  static const hwlib_step_t steps[] = {COPY(3), COPY_WAIT(3)};
  static const hwlib_part_plan_t plan = {steps, copies, tiles, 3};
  static const hwlib_call_t second[] = {{&layer_2, {0, 0}}, {&layer_3, {0, 1}}, {NULL, {1, 1}}};
  const hwlib_part_t parts[] = {a_part, {&plan, second, 3, 1}};
  const hwlib_lane_t lane = {&a, parts, 2};
  (void)a_lane;
  RUN(0, "ai am1 ac1 aw1 am2 am3 ac2 aw2", lane);
}

static void a_poll_does_what_can_be_done(void)
{
  lasts[1] = 1;
  LANE(a, 1, 2, COPY(1), COPY_WAIT(1));
  const hwlib_chip_plan_t plan = {&a_lane, spaces, states, events, 1, EVENTS, 0, COUNTERS, counters};
  hwlib_lanes_start(&lanes, &plan);
  CHECK(hwlib_lanes_poll(&lanes) == 0 && hwlib_lanes_poll(&lanes) == 0);
  ++now;
  CHECK(hwlib_lanes_poll(&lanes) == 1 && hwlib_lanes_poll(&lanes) == 1);
  CHECK(hwlib_lanes_wait(&lanes) == 0);
  CHECK(strcmp(calls, "ai am1 ac1 ad1- ad1- ad1+") == 0);
}

static void a_failure_ends_all_accelerators(void)
{
  failing = "bj2";
  LANE(a, 1, 1, COPY(1), COPY_WAIT(1));
  LANE(b, 2, 1, JOB(0));
  lasts[1] = 1;
  RUN(HARDWARE_OF(2), "ai bi am1 bm2 ac1 ad1- bj2 ai bi", a_lane, b_lane);
  CHECK(hwlib_lanes_poll(&lanes) == 1);
}

static void a_failure_of_an_awaited_copy_is_one(void)
{
  failing = "ad1+";
  LANE(a, 1, 2, COPY(1), SIGNAL(0, 1));
  LANE(b, 2, 1, AWAIT(0, 0));
  RUN(HARDWARE_OF(2), "ai bi am1 bm2 ac1 ad1+ ai bi", a_lane, b_lane);
}

static void a_failed_init_fails_the_region(void)
{
  failing = "ai";
  LANE(a, 1, 1, COPY(1));
  LANE(b, 2, 1, COPY(1));
  RUN(HARDWARE_OF(1), "ai bi", a_lane, b_lane);
}

static void refuses_to_await_what_never_comes(void)
{
  lasts[1] = 1;
  LANE(a, 1, 2, COPY(1), COPY_WAIT(1));
  LANE(b, 2, 1, AWAIT(1, 0));
  RUN(STEP_OF(2), "ai bi am1 bm2 ac1 ad1- bz ad1+ ai bi", a_lane, b_lane);
}

static void refuses_an_event_twice(void)
{
  LANE(a, 1, 4, COPY(1), SIGNAL(0, 1), COPY(2), SIGNAL(0, 2));
  RUN(STEP_OF(1), "ai am1 ac1 ac2 ai", a_lane);
}

static void refuses_a_copy_as_two_events(void)
{
  LANE(a, 1, 3, COPY(1), SIGNAL(0, 1), SIGNAL(1, 1));
  RUN(STEP_OF(1), "ai am1 ac1 ai", a_lane);
}

static void refuses_events_and_lanes_beyond_the_last(void)
{
  LANE(a, 1, 2, COPY(1), SIGNAL(EVENTS, 1));
  RUN(STEP_OF(1), "ai am1 ac1 ai", a_lane);
  calls[0] = '\0';
  LANE(b, 2, 1, AWAIT(0, 1));
  RUN(STEP_OF(2), "bi bm2 bi", b_lane);
}

static void refuses_slots_and_kinds_beyond_the_last(void)
{
  LANE(a, 1, 1, COPY(HWLIB_SLOTS));
  RUN(STEP_OF(1), "ai am1 ai", a_lane);
  calls[0] = '\0';
  LANE(b, 2, 1, {HWLIB_STEP_TURN + 1, 0, 0});
  RUN(STEP_OF(2), "bi bm2 bi", b_lane);
}

static void refuses_a_job_of_no_layer(void)
{
  LANE(a, 1, 0, JOB(1));
  RUN(STEP_OF(1), "ai am1 ai", a_lane);
  calls[0] = '\0';
  LANE(b, 2, 0, LAYER(1));
  RUN(STEP_OF(2), "bi bm2 bi", b_lane);
}

/* A whole layer is asked for as a job is, by its own lane and by others, and only once. */
static void a_whole_layer_may_be_an_event(void)
{
  lasts[1] = 1;
  LANE(a, 1, 3, LAYER(1), SIGNAL_JOB(0, 1), JOB_WAIT(1));
  LANE(b, 2, 2, AWAIT(0, 0), COPY(1));
  RUN(0, "ai bi am1 bm2 al1 ae1- ae1- bz ae1+ bc2", a_lane, b_lane);
}

/* Others ask for it as for a job, and its own lane does not ask again. */
static void a_job_may_be_an_event(void)
{
  lasts[1] = 1;
  LANE(a, 1, 3, JOB(1), SIGNAL_JOB(0, 1), JOB_WAIT(1));
  LANE(b, 2, 2, AWAIT(0, 0), COPY(1));
  RUN(0, "ai bi am1 bm2 aj1 ae1- ae1- bz ae1+ bc2", a_lane, b_lane);
}

static void a_job_of_a_hal_without_questions_is_waited_for(void)
{
  a.job_done = NULL;
  LANE(a, 1, 2, JOB(1), SIGNAL_JOB(0, 1), JOB_WAIT(1));
  LANE(b, 2, 2, AWAIT(0, 0), JOB(1));
  RUN(0, "ai bi am1 bm2 aj1 ax1 bj2", a_lane, b_lane);
}

/* ---------------------------------------------------------------- events of the hardware */

static void engines_await_each_other_and_the_core_goes_on(void)
{
  lasts[1] = 1;
  LANE(a, 1, 5, COPY(1), DMA_SIGNALS(1), ARRAY_AWAITS(1, 1), JOB(0), COPY_WAIT(1));
  RUN(0, "ai am1 ac1 as0:1 at1:1=1 aj2 aw1", a_lane);
}

static void engines_of_two_lanes_await_each_other(void)
{
  LANE(a, 1, 4, JOB(1), ARRAY_SIGNALS(0), DMA_AWAITS(1, 1), COPY(2));
  LANE(b, 2, 4, DMA_AWAITS(0, 1), COPY(1), DMA_SIGNALS(1), DMA_SIGNALS(1));
  RUN(0, "ai bi am1 bm2 aj1 as1:0 bt0:0=1 bc2 bs0:1 bs0:1 at0:1=1 ac3", a_lane, b_lane);
}

static void an_await_is_given_behind_its_signals(void)
{
  LANE(a, 1, 2, DMA_AWAITS(0, 2), COPY(1));
  LANE(b, 2, 5, COPY(1), DMA_SIGNALS(0), JOB(2), ARRAY_SIGNALS(0), COPY(3));
  RUN(0, "ai bi am1 bm2 bc1 bs0:0 bj2 bs1:0 bc3 at0:0=2 ac4", a_lane, b_lane);
}

static void a_lane_gives_way(void)
{
  LANE(a, 1, 3, COPY(1), TURN, COPY(2));
  LANE(b, 2, 4, JOB(1), TURN, TURN, JOB(2));
  RUN(0, "ai bi am1 bm2 ac1 bj2 ac3 bj4", a_lane, b_lane);
}

static void a_turn_of_the_last_lane_is_none(void)
{
  LANE(a, 1, 4, TURN, COPY(1), TURN, COPY(2));
  RUN(0, "ai am1 ac1 ac2", a_lane);
}

static void counters_begin_with_0(void)
{
  LANE(a, 1, 3, COPY(1), DMA_SIGNALS(0), ARRAY_AWAITS(0, 1));
  RUN(0, "ai am1 ac1 as0:0 at1:0=1", a_lane);
  CHECK(counters[0] == 1 && counters[1] == 0);
  calls[0] = '\0';
  RUN(0, "ai am1 ac2 as0:0 at1:0=1", a_lane);
}

static void a_poll_gives_all_that_has_no_wait(void)
{
  lasts[2] = 1;
  LANE(a, 1, 4, COPY(1), DMA_SIGNALS(0), TURN, JOB(1));
  LANE(b, 2, 4, DMA_AWAITS(0, 1), COPY(1), COPY_WAIT(1), COPY(1));
  const hwlib_lane_t all[] = {a_lane, b_lane};
  const hwlib_chip_plan_t plan = {all, spaces, states, events, 2, EVENTS, 0, COUNTERS, counters};
  hwlib_lanes_start(&lanes, &plan);
  CHECK(hwlib_lanes_poll(&lanes) == 0);
  CHECK(strcmp(calls, "ai bi am1 bm2 ac1 as0:0 bt0:0=1 bc2 bd2- aj3 bd2-") == 0);
  ++now;
  CHECK(hwlib_lanes_poll(&lanes) == 1);
}

static void a_failure_of_a_signal_or_an_await_is_one(void)
{
  failing = "as0:0";
  LANE(a, 1, 2, COPY(1), DMA_SIGNALS(0));
  RUN(HARDWARE_OF(1), "ai am1 ac1 as0:0 ai", a_lane);
  calls[0] = '\0';
  failing = "bt0:0=1";
  LANE(b, 2, 3, COPY(1), DMA_SIGNALS(0), DMA_AWAITS(0, 1));
  RUN(HARDWARE_OF(2), "bi bm2 bc2 bs0:0 bt0:0=1 bi", b_lane);
}

/* The HAL has the last word: it may say what is awaited. */
static void refuses_to_await_what_is_not_signalled(void)
{
  lasts[1] = 1;
  LANE(a, 1, 3, COPY(1), DMA_SIGNALS(0), COPY_WAIT(1));
  LANE(b, 2, 1, DMA_AWAITS(0, 2));
  RUN(STEP_OF(2), "ai bi am1 bm2 ac1 as0:0 ad1- bz ad1+ bt0:0=2 ai bi", a_lane, b_lane);
}

static void refuses_events_that_the_plan_or_the_hal_has_not(void)
{
  LANE(a, 1, 1, DMA_SIGNALS(COUNTERS));
  RUN(STEP_OF(1), "ai am1 ai", a_lane);
  calls[0] = '\0';
  LANE(b, 2, 1, DMA_AWAITS(COUNTERS, 0));
  RUN(STEP_OF(2), "bi bm2 bi", b_lane);
}

static void refuses_events_of_a_hal_without(void)
{
  a.signal = NULL;
  b.await = NULL;
  LANE(a, 1, 1, DMA_SIGNALS(0));
  RUN(STEP_OF(1), "ai am1 ai", a_lane);
  calls[0] = '\0';
  LANE(b, 2, 2, DMA_SIGNALS(0), DMA_AWAITS(0, 1));
  RUN(STEP_OF(2), "bi bm2 bs0:0 bi", b_lane);
}

#ifdef HWLIB_TRACE
static void traces_have_waited_for_an_event(void)
{
  traced = "a";
  LANE(a, 1, 2, JOB(1), SIGNAL_JOB(0, 1));
  LANE(b, 2, 2, AWAIT(0, 0), COPY(1));
  RUN(0, "ai bi am1 bm2 aj1 t1 ax1 bc2", a_lane, b_lane);
}

static void traces_wait_in_place_of_the_plan(void)
{
  traced = "b";
  LANE(a, 1, 2, JOB(1), JOB_WAIT(1));
  LANE(b, 2, 2, JOB(1), JOB_WAIT(1));
  RUN(0, "ai bi am1 bm2 aj1 ae1+ bj2 t2 bx2", a_lane, b_lane);
}

static void traces_of_whole_layers_wait_too(void)
{
  traced = "a";
  LANE(a, 1, 3, LAYER(1), SIGNAL_JOB(0, 1), JOB_WAIT(1));
  RUN(0, "ai am1 al1 t1 ax1", a_lane);
}
#endif

#define TEST(name) {#name, name}
static const struct {
  const char *name;
  void (*run)(void);
} tests[] = {
    TEST(steps_become_calls_of_the_lanes_hal),
    TEST(the_core_goes_on_with_the_next_lane),
    TEST(all_wait_for_one_event),
    TEST(a_token_is_not_asked_for_again),
    TEST(an_event_may_come_from_a_lane_behind),
    TEST(a_hal_without_questions_is_waited_for),
    TEST(a_poll_makes_a_single_step_where_a_hal_cannot_be_asked),
    TEST(a_poll_makes_a_single_step_where_the_plan_says_so),
    TEST(a_stop_ends_all_accelerators),
    TEST(a_hal_that_is_never_idle_is_asked_again),
    TEST(parts_of_a_lane_follow_each_other),
    TEST(a_poll_does_what_can_be_done),
    TEST(a_failure_ends_all_accelerators),
    TEST(a_failure_of_an_awaited_copy_is_one),
    TEST(a_failed_init_fails_the_region),
    TEST(refuses_to_await_what_never_comes),
    TEST(refuses_an_event_twice),
    TEST(refuses_a_copy_as_two_events),
    TEST(refuses_events_and_lanes_beyond_the_last),
    TEST(refuses_slots_and_kinds_beyond_the_last),
    TEST(refuses_a_job_of_no_layer),
    TEST(a_whole_layer_may_be_an_event),
    TEST(a_job_may_be_an_event),
    TEST(a_job_of_a_hal_without_questions_is_waited_for),
    TEST(engines_await_each_other_and_the_core_goes_on),
    TEST(engines_of_two_lanes_await_each_other),
    TEST(an_await_is_given_behind_its_signals),
    TEST(a_lane_gives_way),
    TEST(a_turn_of_the_last_lane_is_none),
    TEST(counters_begin_with_0),
    TEST(a_poll_gives_all_that_has_no_wait),
    TEST(a_failure_of_a_signal_or_an_await_is_one),
    TEST(refuses_to_await_what_is_not_signalled),
    TEST(refuses_events_that_the_plan_or_the_hal_has_not),
    TEST(refuses_events_of_a_hal_without),
#ifdef HWLIB_TRACE
    TEST(traces_wait_in_place_of_the_plan),
    TEST(traces_of_whole_layers_wait_too),
    TEST(traces_have_waited_for_an_event),
#endif
};

int main(int argc, char **argv)
{
  for (unsigned i = 0; i < sizeof tests / sizeof tests[0]; ++i) {
    if (argc == 2 && strcmp(argv[1], tests[i].name) == 0) {
      tests[i].run();
      return 0;
    }
  }
  fprintf(stderr, "no such test\n");
  return 2;
}
