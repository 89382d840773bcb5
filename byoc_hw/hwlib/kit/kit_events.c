/* hwlib_hal_signal and hwlib_hal_await, of a HAL for a chip with events: the engines order each other, and the kit waits
 * for the last copy alone. The other accelerators of the chip have no part in it. */
#include "kit_internal.h"

#include <string.h>

#if HAL_KIT_EVENTS > 0

#define SIGNAL "hwlib_hal_signal"
#define AWAIT "hwlib_hal_await"

/* More than 8 bits of a counter. */
enum { ELEMENTS = KIT_WINDOW / 16, SLOTS = 8, MANY = 300 };

static hwlib_status_t copy(hwlib_place_t target, hwlib_place_t source, hwlib_token_t *token)
{
  return hwlib_hal_copy_1d(target, source, ELEMENTS, token);
}

/* One addition after the other, each of a new input: the DMA loads it when the result before is out, the array adds
 * when it is there, and the DMA stores the result when it is done. Results go to main memory in turn. Whether all
 * calls return HWLIB_OK; *last is the copy that comes last. */
static int start_rounds(const char *function, unsigned rounds, uint8_t loaded, uint8_t added, hwlib_token_t *last)
{
  kit_addition_t addition = kit_addition(kit_some_rounding(), ELEMENTS);
  const kit_memory_t *memory = &kit_memories[0];
  static kit_addition_t kept; /* until the jobs have ended */
  addition.tile.ifm2 = ELEMENTS;
  addition.tile.ofm = 2 * ELEMENTS;
  kept = addition;
  hwlib_job_t job = {&kept.layer.layer, &kept.tile};
  int shared = loaded == added; /* one counter for both: it counts twice a round */
  for (unsigned round = 0; round < rounds; ++round) {
    const uint8_t *input = kit_before + (round % SLOTS + 2) * ELEMENTS;
    uint8_t *output = kit_got + round % SLOTS * ELEMENTS;
    uint16_t first = (uint16_t)(shared ? 2 * round + 1 : round + 1), second = (uint16_t)(first + shared);
    hwlib_token_t token = 0;
    if (!kit_ok(function, copy(kit_local(memory, 0), kit_main(input), &token)) ||
        !kit_ok(SIGNAL, hwlib_hal_signal(HWLIB_ENGINE_DMA, loaded)) ||
        !kit_ok(AWAIT, hwlib_hal_await(HWLIB_ENGINE_ARRAY, loaded, first)) ||
        !kit_ok("hwlib_hal_job_start", hwlib_hal_job_start(&job, &token)) ||
        !kit_ok(SIGNAL, hwlib_hal_signal(HWLIB_ENGINE_ARRAY, added)) ||
        !kit_ok(AWAIT, hwlib_hal_await(HWLIB_ENGINE_DMA, added, second)) ||
        !kit_ok(function, copy(kit_main(output), kit_local(memory, 2 * ELEMENTS), last))) {
      return 0;
    }
    memcpy(kit_expected, input, ELEMENTS);
    kit_expect_add(&addition.layer, &addition.tile);
    memcpy(kit_weights + round % SLOTS * ELEMENTS, kit_expected + 2 * ELEMENTS, ELEMENTS);
  }
  return 1;
}

/* The contents of local memory and of the results before the rounds. */
static int prepare(void)
{
  kit_fill(kit_before, KIT_WINDOW);
  kit_expect_unchanged();
  memset(kit_got, 0, KIT_WINDOW);
  memset(kit_weights, 0, KIT_WINDOW);
  return kit_load_window(KIT_AT_START);
}

static void check_results(const char *function, hwlib_token_t last)
{
  if (kit_ok("hwlib_hal_copy_wait", hwlib_hal_copy_wait(last)) && !kit_equal(kit_weights, kit_got, SLOTS * ELEMENTS)) {
    kit_fail_once(function, "each engine has awaited the other", 1, 0);
  }
}

static void check_rounds(const char *function, const char *what, unsigned rounds, uint8_t loaded, uint8_t added)
{
  hwlib_token_t last = 0;
  kit_begin(function, "", what);
  if (prepare() && start_rounds("hwlib_hal_copy_1d", rounds, loaded, added, &last)) {
    check_results(function, last);
  }
  (void)kit_ok("hwlib_hal_init", hwlib_hal_init());
  kit_end();
}

/* Behind an init that ended events: with counters that go on from where they were, nobody waits. */
static void check_init(void)
{
  hwlib_token_t last = 0;
  kit_begin("hwlib_hal_init", "", "with events in flight: all of them are 0 again");
  if (prepare() && start_rounds("hwlib_hal_copy_1d", SLOTS, 0, HAL_KIT_EVENTS - 1, &last) &&
      kit_ok("hwlib_hal_init", hwlib_hal_init()) && prepare() &&
      start_rounds("hwlib_hal_copy_1d", SLOTS, 0, HAL_KIT_EVENTS - 1, &last)) {
    check_results("hwlib_hal_init", last);
  }
  (void)kit_ok("hwlib_hal_init", hwlib_hal_init());
  kit_end();
}

/* A value that came long ago, again, and by both engines. */
static void check_again(void)
{
  hwlib_token_t last = 0;
  kit_begin(AWAIT, "", "an event that has come before, and more often");
  int fine = prepare() && start_rounds("hwlib_hal_copy_1d", 3, 0, HAL_KIT_EVENTS - 1, &last);
  for (uint16_t value = 3; fine && value > 0; --value) {
    fine = kit_ok(AWAIT, hwlib_hal_await(HWLIB_ENGINE_DMA, 0, value)) &&
           kit_ok(AWAIT, hwlib_hal_await(HWLIB_ENGINE_ARRAY, HAL_KIT_EVENTS - 1, value));
  }
  if (fine && kit_ok("hwlib_hal_copy_1d", copy(kit_main(kit_got), kit_local(&kit_memories[0], 2 * ELEMENTS), &last))) {
    memcpy(kit_weights, kit_expected + 2 * ELEMENTS, ELEMENTS);
    check_results(AWAIT, last);
  }
  (void)kit_ok("hwlib_hal_init", hwlib_hal_init());
  kit_end();
}

#if HAL_KIT_REFUSALS
static void check_refusal(const char *function, const char *what, hwlib_status_t status)
{
  kit_begin(function, "refuses", what);
  if (status == HWLIB_OK) {
    kit_fail_once(function, "refusals", 1, 0);
  }
  (void)kit_ok("hwlib_hal_init", hwlib_hal_init());
  kit_end();
}

static void check_refusals(void)
{
  check_refusal(SIGNAL, "an event beyond the last", hwlib_hal_signal(HWLIB_ENGINE_DMA, HAL_KIT_EVENTS));
  check_refusal(SIGNAL, "an engine beyond the last", hwlib_hal_signal(HWLIB_ENGINE_ARRAY + 1, 0));
  check_refusal(AWAIT, "an event beyond the last", hwlib_hal_await(HWLIB_ENGINE_DMA, HAL_KIT_EVENTS, 1));
  check_refusal(AWAIT, "an engine beyond the last", hwlib_hal_await(HWLIB_ENGINE_ARRAY + 1, 0, 1));
  check_refusal(AWAIT, "a value that was not signalled", hwlib_hal_await(HWLIB_ENGINE_DMA, 0, 1));
}
#else
static void check_refusals(void) {}
#endif

void kit_check_events(void)
{
  if (hwlib_hal_signal == NULL || hwlib_hal_await == NULL) {
    kit_begin(hwlib_hal_signal == NULL ? SIGNAL : AWAIT, "", "is there, as the chip has events");
    kit_fail_once(hwlib_hal_signal == NULL ? SIGNAL : AWAIT, "functions", 1, 0);
    kit_end();
    return;
  }
  if (!kit_has_kind(HWLIB_ADD)) {
    kit_skip(SIGNAL, "these checks need jobs of the kind add");
    return;
  }
  for (unsigned event = 0; event < HAL_KIT_EVENTS; ++event) {
    check_rounds(SIGNAL, "each engine awaits the other, by every event", SLOTS, (uint8_t)event,
                 (uint8_t)((event + 1) % HAL_KIT_EVENTS));
  }
  check_rounds(SIGNAL, "one event of two engines that take turns", SLOTS, 0, 0);
  if (kit_failures() != 0) {
    kit_skip(AWAIT, "more of events, which needs signals to work");
    return;
  }
  check_rounds(AWAIT, "more values than 8 bits count, and more events than any queue holds",
               MANY + HWLIB_ACCELERATOR_QUEUE, 0, HAL_KIT_EVENTS - 1);
  check_again();
  check_init();
  check_refusals();
}

#else
void kit_check_events(void) {}
#endif
