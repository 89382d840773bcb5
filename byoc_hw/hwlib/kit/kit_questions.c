/* hwlib_hal_copy_done, hwlib_hal_job_done and hwlib_hal_idle, of a HAL that has them. */
#include "kit_internal.h"

#define COPY_DONE "hwlib_hal_copy_done"
#define JOB_DONE "hwlib_hal_job_done"
#define IDLE "hwlib_hal_idle"

typedef hwlib_status_t (*question_t)(hwlib_token_t token, uint8_t *done);

/* So often an operation is asked for that never ends. More copies than any table of tokens has room for. */
enum { QUESTIONS = 10000000, COPIES = 5000 };

/* Asks once; returns whether there was an answer. */
static int ask(const char *function, question_t question, hwlib_token_t token, uint8_t *done)
{
  *done = 0xa5;
  if (!kit_ok(function, question(token, done))) {
    return 0;
  }
  if (*done > 1) {
    kit_fail_once(function, "*done", 1, *done);
    return 0;
  }
  return 1;
}

/* Asks until the answer is yes. */
static int ask_until_done(const char *function, question_t question, hwlib_token_t token)
{
  uint8_t done = 0;
  for (uint32_t i = 0; i < QUESTIONS; ++i) {
    if (!ask(function, question, token, &done)) {
      return 0;
    }
    if (done) {
      return 1;
    }
  }
  kit_fail_once(function, "never done", 1, 0);
  return 0;
}

/* Whether all bytes of the window have arrived. */
static void check_window(const char *function)
{
  if (!kit_equal(kit_expected, kit_got, KIT_WINDOW)) {
    kit_fail_once(function, "all bytes are there", 1, 0);
  }
}

/* ---------------------------------------------------------------- copies */

static void check_copies(const char *what, const uint8_t *order)
{
  hwlib_token_t tokens[KIT_PIECES];
  kit_begin(COPY_DONE, "", what);
  int fine = kit_start_pieces(tokens);
  for (uint32_t i = 0; fine && i < KIT_PIECES; ++i) {
    uint32_t piece = order[i] * (uint32_t)KIT_PIECE;
    fine = ask_until_done(COPY_DONE, hwlib_hal_copy_done, tokens[order[i]]);
    if (fine && !kit_equal(kit_expected + piece, kit_got + piece, KIT_PIECE)) {
      kit_fail(COPY_DONE, "too early, copy", order[i], 1, 0);
      fine = 0;
    }
  }
  (void)kit_ok("hwlib_hal_init", hwlib_hal_init());
  kit_end();
}

static void check_last_copy(void)
{
  hwlib_token_t tokens[KIT_PIECES];
  kit_begin(COPY_DONE, "", "when a copy is done, those started before it are too");
  if (kit_start_pieces(tokens) && ask_until_done(COPY_DONE, hwlib_hal_copy_done, tokens[KIT_PIECES - 1])) {
    check_window(COPY_DONE);
  }
  (void)kit_ok("hwlib_hal_init", hwlib_hal_init());
  kit_end();
}

static void check_copies_asked_once(void)
{
  hwlib_token_t tokens[KIT_PIECES];
  kit_begin(COPY_DONE, "", "a copy that was not done can be waited for");
  int fine = kit_start_pieces(tokens);
  for (uint32_t i = 0; fine && i < KIT_PIECES; ++i) {
    uint8_t done = 0;
    fine = ask(COPY_DONE, hwlib_hal_copy_done, tokens[i], &done) &&
           (done || kit_ok(COPY_DONE, hwlib_hal_copy_wait(tokens[i])));
  }
  if (fine) {
    check_window(COPY_DONE);
  }
  (void)kit_ok("hwlib_hal_init", hwlib_hal_init());
  kit_end();
}

static void check_many_copies(void)
{
  hwlib_token_t token = 0;
  kit_begin(COPY_DONE, "", "thousands of copies that were done and never waited for");
  int fine = kit_load(&kit_memories[0], 0, kit_before, KIT_WINDOW);
  for (uint32_t i = 0; fine && i < COPIES; ++i) {
    hwlib_status_t status = hwlib_hal_copy_1d(kit_main(kit_got), kit_local(&kit_memories[0], 0), KIT_UNIT, &token);
    fine = kit_ok(COPY_DONE, status) && ask_until_done(COPY_DONE, hwlib_hal_copy_done, token);
  }
  (void)kit_ok("hwlib_hal_init", hwlib_hal_init());
  kit_end();
}

/* ---------------------------------------------------------------- jobs */

static void check_jobs(const char *what, const uint8_t *order, unsigned count)
{
  kit_jobs_t jobs;
  kit_begin(JOB_DONE, "", what);
  int fine = kit_start_jobs(&jobs);
  for (unsigned i = 0; fine && i < count; ++i) {
    fine = ask_until_done(JOB_DONE, hwlib_hal_job_done, jobs.tokens[order[i]]);
  }
  if (fine && kit_fetch(&kit_memories[0], 0, kit_got, KIT_WINDOW)) {
    check_window(JOB_DONE);
  }
  (void)kit_ok("hwlib_hal_init", hwlib_hal_init());
  kit_end();
}

static void check_jobs_asked_once(void)
{
  kit_jobs_t jobs;
  kit_begin(JOB_DONE, "", "a job that was not done can be waited for");
  int fine = kit_start_jobs(&jobs);
  for (unsigned i = 0; fine && i < KIT_JOBS; ++i) {
    uint8_t done = 0;
    fine = ask(JOB_DONE, hwlib_hal_job_done, jobs.tokens[i], &done) &&
           (done || kit_ok(JOB_DONE, hwlib_hal_job_wait(jobs.tokens[i])));
  }
  if (fine && kit_fetch(&kit_memories[0], 0, kit_got, KIT_WINDOW)) {
    check_window(JOB_DONE);
  }
  (void)kit_ok("hwlib_hal_init", hwlib_hal_init());
  kit_end();
}

/* ---------------------------------------------------------------- idle */

void kit_check_idle(void)
{
  if (hwlib_hal_idle != NULL) {
    kit_begin(IDLE, "", "returns where nothing was asked for");
    hwlib_hal_idle();
    kit_end();
  }
}

static void check_idle(void)
{
  hwlib_token_t tokens[KIT_PIECES];
  uint8_t done = 0;
  if (hwlib_hal_copy_done == NULL || kit_failures() != 0) {
    kit_skip(IDLE, "while copies are in flight, which needs hwlib_hal_copy_done to work");
    return;
  }
  kit_begin(IDLE, "", "returns while copies are in flight that were asked for, and does not disturb them");
  int fine = kit_start_pieces(tokens);
  for (uint32_t i = 0; fine && !done && i < QUESTIONS; ++i) {
    fine = ask(IDLE, hwlib_hal_copy_done, tokens[KIT_PIECES - 1], &done);
    hwlib_hal_idle();
    hwlib_hal_idle(); /* nothing was asked for in between */
  }
  if (fine) {
    check_window(IDLE);
  }
  (void)kit_ok("hwlib_hal_init", hwlib_hal_init());
  kit_end();
}

void kit_check_questions(void)
{
  static const uint8_t forward[KIT_PIECES] = {0, 1, 2, 3, 4, 5, 6, 7}, mixed[KIT_PIECES] = {3, 0, 7, 1, 5, 4, 2, 6};
  static const uint8_t backward[KIT_JOBS] = {3, 2, 1, 0};
  if (hwlib_hal_copy_done == NULL) {
    kit_skip(COPY_DONE, "this HAL does not have it");
  } else {
    check_copies("in the order of the starts", forward);
    check_copies("in any order", mixed);
    check_last_copy();
    check_copies_asked_once();
    check_many_copies();
  }
  if (hwlib_hal_job_done == NULL) {
    kit_skip(JOB_DONE, "this HAL does not have it");
  } else if (!kit_has_kind(HWLIB_ADD)) {
    kit_skip(JOB_DONE, "these checks need jobs of the kind add");
  } else {
    check_jobs("in the order of the starts", forward, KIT_JOBS);
    check_jobs("in the opposite order", backward, KIT_JOBS);
    check_jobs("when a job is done, those started before it are too", backward, 1);
    check_jobs_asked_once();
  }
  if (hwlib_hal_idle == NULL) {
    kit_skip(IDLE, "this HAL does not have it");
  } else {
    check_idle();
  }
}
