/* hwlib_hal_job_wait, tested with additions. */
#include "kit_internal.h"

#define COPY_WAIT "hwlib_hal_copy_wait"
#define JOB_START "hwlib_hal_job_start"
#define JOB_WAIT "hwlib_hal_job_wait"

enum { ELEMENTS = KIT_WINDOW / 16, MORE_THAN_A_QUEUE = 2 * HWLIB_ACCELERATOR_QUEUE + 5 };

int kit_start_jobs(kit_jobs_t *jobs)
{
  kit_fill(kit_before, KIT_WINDOW);
  kit_expect_unchanged();
  if (!kit_load_window(KIT_AT_START)) {
    return 0;
  }
  for (uint32_t i = 0; i < KIT_JOBS; ++i) {
    kit_addition_t *addition = &jobs->addition[i];
    *addition = kit_addition(kit_some_rounding(), ELEMENTS);
    addition->tile.ifm = 2 * i * ELEMENTS;
    addition->tile.ifm2 = (2 * i + 1) * ELEMENTS;
    addition->tile.ofm = (2 * KIT_JOBS + i) * ELEMENTS;
    hwlib_job_t job = {&addition->layer.layer, &addition->tile};
    kit_expect_add(&addition->layer, &addition->tile);
    jobs->tokens[i] = 0;
    if (!kit_ok(JOB_START, hwlib_hal_job_start(&job, &jobs->tokens[i]))) {
      return 0;
    }
  }
  return 1;
}

static void check_tokens(void)
{
  kit_jobs_t jobs;
  kit_begin(JOB_START, "", "tokens are not 0, and differ while their jobs are in flight");
  if (kit_start_jobs(&jobs)) {
    for (unsigned i = 0; i < KIT_JOBS; ++i) {
      if (jobs.tokens[i] == 0) {
        kit_fail(JOB_START, "token of job", i, 1, 0);
      }
      for (unsigned j = 0; j < i; ++j) {
        if (jobs.tokens[i] == jobs.tokens[j]) {
          kit_fail(JOB_START, "tokens that equal that of job", j, 0, 1);
        }
      }
    }
    for (unsigned i = 0; i < KIT_JOBS; ++i) {
      (void)kit_ok(JOB_WAIT, hwlib_hal_job_wait(jobs.tokens[i]));
    }
  }
  kit_end();
}

static void check_order(const char *what, const uint8_t *order, unsigned count)
{
  kit_jobs_t jobs;
  kit_begin(JOB_WAIT, "", what);
  int fine = kit_start_jobs(&jobs);
  for (unsigned i = 0; fine && i < count; ++i) {
    fine = kit_ok(JOB_WAIT, hwlib_hal_job_wait(jobs.tokens[order[i]]));
  }
  if (fine && kit_fetch(&kit_memories[0], 0, kit_got, KIT_WINDOW)) {
    (void)kit_compare_window(0, NULL, NULL);
  }
  (void)kit_ok("hwlib_hal_init", hwlib_hal_init());
  kit_end();
}

static void check_many(void)
{
  kit_jobs_t jobs;
  kit_begin(JOB_START, "", "more jobs than any queue holds, only the last waited for");
  int fine = kit_start_jobs(&jobs);
  for (unsigned i = 0; fine && i < MORE_THAN_A_QUEUE; ++i) {
    hwlib_job_t job = {&jobs.addition[0].layer.layer, &jobs.addition[0].tile};
    fine = kit_ok(JOB_START, hwlib_hal_job_start(&job, &jobs.tokens[0]));
  }
  if (fine && kit_ok(JOB_WAIT, hwlib_hal_job_wait(jobs.tokens[0])) &&
      kit_fetch(&kit_memories[0], 0, kit_got, KIT_WINDOW)) {
    (void)kit_compare_window(0, NULL, NULL);
  }
  (void)kit_ok("hwlib_hal_init", hwlib_hal_init());
  kit_end();
}

/* The DMA runs copies in order, so copying the data out again cannot show that a wait returned early. A job that
 * reads the last bytes can. */
static void check_inward_for_a_job(void)
{
  kit_addition_t addition = kit_addition(kit_some_rounding(), 16);
  addition.tile.ifm = KIT_WINDOW - 32;
  addition.tile.ifm2 = KIT_WINDOW - 16;
  kit_begin(COPY_WAIT, "", "after the wait, a job finds the bytes in local memory");
  kit_fill(kit_before, KIT_WINDOW);
  int fine = kit_load_window(KIT_AT_START);
  kit_fill(kit_before, KIT_WINDOW);
  kit_expect_unchanged();
  kit_expect_add(&addition.layer, &addition.tile);
  if (fine && kit_load(&kit_memories[0], 0, kit_before, KIT_WINDOW)) {
    (void)kit_run_job(&addition.layer.layer, &addition.tile, KIT_AT_START);
  }
  kit_end();
}

void kit_check_job_wait(void)
{
  static const uint8_t forward[KIT_JOBS] = {0, 1, 2, 3}, backward[KIT_JOBS] = {3, 2, 1, 0}, mixed[KIT_JOBS] = {2, 0, 3, 1};
  if (!kit_has_kind(HWLIB_ADD)) {
    kit_skip(JOB_WAIT, "these checks need jobs of the kind add");
    return;
  }
  check_inward_for_a_job();
  check_tokens();
  check_order("in the order of the starts", forward, KIT_JOBS);
  check_order("in the opposite order", backward, KIT_JOBS);
  check_order("in any order", mixed, KIT_JOBS);
  check_order("when a job has ended, those started before it have too", backward, 1);
  check_many();
}
