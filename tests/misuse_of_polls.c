/* Calls start, poll, wait and run of a model where they fit and where they do not. Prints the outputs of one inference
 * four times: run, polled, begun and waited for, and polled with calls between that do not fit. */
#include "default.h"

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition) \
  ((condition) ? (void)0 : (fprintf(stderr, "%s, line %d\n", #condition, __LINE__), exit(1)))

static uint8_t input[INPUT_BYTES] __attribute__((aligned(64))), output[OUTPUT_BYTES] __attribute__((aligned(64)));
static struct default_inputs inputs;
static struct default_outputs outputs;

static void print_and_clear(void)
{
  for (size_t i = 0; i < sizeof output; ++i) {
    printf("%02x", output[i]);
    output[i] = 0x55;
  }
  printf("\n");
}

static void check_nothing_runs(void)
{
  bool done = false;
  CHECK(default_poll(&done) == DEFAULT_ERROR_NOT_STARTED && done);
  CHECK(default_wait() == DEFAULT_ERROR_NOT_STARTED);
}

static unsigned poll_to_the_end(bool disturbed)
{
  unsigned polls = 0;
  bool done = false;
  struct default_inputs no_inputs = {0};
  struct default_outputs no_outputs = {0};
  CHECK(default_start(&inputs, &outputs) == 0);
  while (!done) {
    if (disturbed) {
      CHECK(default_start(&no_inputs, &no_outputs) == DEFAULT_ERROR_RUNNING);
      CHECK(default_run(&no_inputs, &no_outputs) == DEFAULT_ERROR_RUNNING);
    }
    CHECK(default_poll(&done) == 0);
    ++polls;
  }
  return polls;
}

int main(void)
{
  *(const void **)&inputs = input;
  *(void **)&outputs = output;
  for (size_t i = 0; i < sizeof input; ++i) {
    input[i] = (uint8_t)(i * 37);
  }
  check_nothing_runs();
  CHECK(default_run(&inputs, &outputs) == 0);
  print_and_clear();
  check_nothing_runs();
  CHECK(poll_to_the_end(false) > LEAST_POLLS); /* time passes for one who only asks */
  print_and_clear();
  check_nothing_runs();
  CHECK(default_start(&inputs, &outputs) == 0);
  CHECK(default_wait() == 0);
  print_and_clear();
  check_nothing_runs();
  (void)poll_to_the_end(true);
  print_and_clear();
  check_nothing_runs();
  return 0;
}
