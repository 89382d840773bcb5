/* The report: lines of text for checks and their results. */
#include "kit_internal.h"

enum { LINE = 240 };

static struct {
  const char *function, *subject, *what;
  int failed;
  uint32_t checks, failures;
  uint32_t length;
  char line[LINE];
} report;

static void put(const char *text)
{
  for (; *text != '\0' && report.length < LINE - 1; ++text) {
    report.line[report.length++] = *text;
  }
}

static void put_number(int64_t value)
{
  char digits[21];
  unsigned at = sizeof digits;
  uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  digits[--at] = '\0';
  do {
    digits[--at] = (char)('0' + rest % 10);
    rest /= 10;
  } while (rest != 0);
  put(value < 0 ? "-" : "");
  put(&digits[at]);
}

static void print(void)
{
  report.line[report.length] = '\0';
  report.length = 0;
  hal_kit_print(report.line);
}

static void put_check(const char *outcome, const char *function)
{
  put(outcome);
  put(" ");
  put(function);
  put(": ");
  put(report.subject);
  put(report.subject[0] == '\0' ? "" : ", ");
  put(report.what);
}

void kit_begin(const char *function, const char *subject, const char *what)
{
  report.function = function;
  report.subject = subject;
  report.what = what;
  report.failed = 0;
  report.checks += 1;
  put_check("checking", function);
  print();
}

void kit_end(void)
{
  if (!report.failed) {
    put_check("ok", report.function);
    print();
  }
}

void kit_skip(const char *function, const char *what)
{
  report.subject = "";
  report.what = what;
  put_check("skipped", function);
  print();
}

/* Begins a line for the first failure of a check; returns whether this is the first. */
static int begin_failure(const char *function)
{
  if (report.failed) {
    return 0;
  }
  report.failed = 1;
  report.failures += 1;
  put_check("FAILED", function);
  put(": ");
  return 1;
}

static void end_failure(int64_t expected, int64_t got)
{
  put(": expected ");
  put_number(expected);
  put(" got ");
  put_number(got);
  print();
}

void kit_fail(const char *function, const char *unit, uint64_t index, int64_t expected, int64_t got)
{
  if (begin_failure(function)) {
    put(unit);
    put(" ");
    put_number((int64_t)index);
    end_failure(expected, got);
  }
}

void kit_fail_once(const char *function, const char *what, int64_t expected, int64_t got)
{
  if (begin_failure(function)) {
    put(what);
    end_failure(expected, got);
  }
}

int kit_ok(const char *function, hwlib_status_t status)
{
  if (status != HWLIB_OK) {
    kit_fail_once(function, "status", HWLIB_OK, status);
  }
  return status == HWLIB_OK;
}

void kit_report_reset(void) { report.checks = report.failures = 0; }

uint32_t kit_failures(void) { return report.failures; }

void kit_summary(void)
{
  put_number(report.checks);
  put(" checks, ");
  put_number(report.failures);
  put(" failed");
  print();
}
