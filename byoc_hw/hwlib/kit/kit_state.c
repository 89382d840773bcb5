/* hwlib_hal_init, hwlib_hal_cycles and hwlib_hal_mark. */
#include "kit_internal.h"

#include <string.h>

#define INIT "hwlib_hal_init"

void kit_check_init(void)
{
  kit_begin(INIT, "", "returns 0, and again");
  if (kit_ok(INIT, hwlib_hal_init())) {
    (void)kit_ok(INIT, hwlib_hal_init());
  }
  kit_end();
}

static void check_quiet_after_copies(void)
{
  const kit_memory_t *memory = &kit_memories[0];
  hwlib_token_t token = 0;
  kit_begin(INIT, "", "with copies in flight: none of them writes afterwards");
  kit_fill(kit_before, KIT_WINDOW);
  int fine = kit_load(memory, 0, kit_before, KIT_WINDOW);
  for (unsigned i = 0; fine && i < 4; ++i) {
    fine = kit_ok("hwlib_hal_copy_1d", hwlib_hal_copy_1d(kit_main(kit_got), kit_local(memory, 0), KIT_WINDOW, &token));
  }
  if (fine && kit_ok(INIT, hwlib_hal_init())) {
    kit_fill(kit_expected, KIT_WINDOW);
    memcpy(kit_got, kit_expected, KIT_WINDOW);
    kit_settle();
    (void)kit_compare(INIT, kit_expected, KIT_WINDOW);
  }
  kit_end();
}

static void check_quiet_after_job(void)
{
  kit_addition_t addition = kit_addition(kit_some_rounding(), KIT_WINDOW / 4);
  hwlib_job_t job = {&addition.layer.layer, &addition.tile};
  hwlib_token_t token = 0;
  kit_begin(INIT, "", "with a job in flight: it does not write afterwards");
  kit_fill(kit_before, KIT_WINDOW);
  if (kit_load(&kit_memories[0], 0, kit_before, KIT_WINDOW) &&
      kit_ok("hwlib_hal_job_start", hwlib_hal_job_start(&job, &token)) && kit_ok(INIT, hwlib_hal_init())) {
    /* Another job follows: what an engine may still hold would come before it. */
    kit_addition_t next = kit_addition(kit_some_rounding(), 1);
    hwlib_job_t other = {&next.layer.layer, &next.tile};
    kit_fill(kit_expected, KIT_WINDOW);
    if (kit_load(&kit_memories[0], 0, kit_expected, KIT_WINDOW) &&
        kit_ok("hwlib_hal_job_start", hwlib_hal_job_start(&other, &token)) &&
        kit_ok("hwlib_hal_job_wait", hwlib_hal_job_wait(token))) {
      kit_expect_add(&next.layer, &next.tile);
      kit_settle();
      if (kit_fetch(&kit_memories[0], 0, kit_got, KIT_WINDOW)) {
        (void)kit_compare(INIT, kit_expected, KIT_WINDOW);
      }
    }
  }
  kit_end();
}

void kit_check_quiet(void) { check_quiet_after_copies(); }

void kit_check_quiet_jobs(void)
{
  if (kit_has_kind(HWLIB_ADD)) {
    check_quiet_after_job();
  }
}

/* ---------------------------------------------------------------- cycles and marks */

static void check_cycles(void)
{
  uint64_t before = hwlib_hal_cycles();
  kit_begin("hwlib_hal_cycles", "", "never goes backwards");
  for (unsigned i = 0; i < 100; ++i) {
    if (i % 10 == 0 && !kit_fetch(&kit_memories[0], 0, kit_got, KIT_WINDOW)) {
      break;
    }
    uint64_t now = hwlib_hal_cycles();
    if (now < before) {
      kit_fail("hwlib_hal_cycles", "reading", i, (int64_t)before, (int64_t)now);
    }
    before = now;
  }
  kit_end();
}

static void check_mark(void)
{
  static const uint16_t layers[] = {0, 1, 1000, UINT16_MAX};
  const kit_memory_t *memory = &kit_memories[0];
  kit_begin("hwlib_hal_mark", "", "any layer, with copies in flight: nothing is disturbed");
  kit_fill(kit_expected, KIT_WINDOW);
  int fine = kit_load(memory, 0, kit_expected, KIT_WINDOW);
  for (unsigned i = 0; fine && i < sizeof layers / sizeof layers[0]; ++i) {
    hwlib_token_t token = 0;
    memset(kit_got, 0, KIT_WINDOW);
    hwlib_hal_mark(layers[i]);
    fine = kit_ok("hwlib_hal_copy_1d", hwlib_hal_copy_1d(kit_main(kit_got), kit_local(memory, 0), KIT_WINDOW, &token));
    hwlib_hal_mark(layers[i]);
    fine = fine && kit_ok("hwlib_hal_copy_wait", hwlib_hal_copy_wait(token)) &&
           kit_compare("hwlib_hal_mark", kit_expected, KIT_WINDOW);
  }
  kit_end();
}

void kit_check_profile(void)
{
  check_cycles();
  check_mark();
}
