/* All checks, ordered so that each relies only on functions that were checked before. */
#include "kit_internal.h"

/* Later checks use the functions of the earlier ones: after a failure their results would mean nothing. */
static int sound(const char *what)
{
  if (kit_failures() != 0) {
    kit_skip("hwlib_hal_*", what);
  }
  return kit_failures() == 0;
}

static void run_checks(void)
{
  kit_check_init();
  kit_check_idle();
  kit_check_copy_wait();
  if (!sound("all other checks, which need waits for copies to work")) {
    return;
  }
  kit_check_quiet();
  kit_check_copies();
  kit_check_copy_extents();
  kit_check_profile();
  if (!sound("jobs, whose checks need copies to work")) {
    return;
  }
  kit_check_windows();
  kit_check_elementwise();
  kit_check_softmax();
  kit_check_matmul();
  kit_check_lookup();
  kit_check_whole();
  kit_check_places();
  kit_check_extents();
  kit_check_kinds();
  kit_check_quiet_jobs();
  kit_check_job_wait();
  kit_check_questions();
  kit_check_events();
  kit_check_refusals();
}

uint32_t hal_kit_run(void)
{
  kit_report_reset();
  run_checks();
  kit_summary();
  return kit_failures();
}
