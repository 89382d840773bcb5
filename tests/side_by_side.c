/* Inferences of several models in one program: `first` and `second` in steps, `third` without, `host` in steps without an
 * accelerator. With APART, first and second have accelerators of their own. Prints each output of each model. */
#include "first.h"
#include "host.h"
#include "second.h"
#include "third.h"

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition) \
  ((condition) ? (void)0 : (fprintf(stderr, "%s, line %d\n", #condition, __LINE__), exit(1)))

static uint8_t input[BYTES] __attribute__((aligned(64)));

#define MODEL(name) \
  static uint8_t name##_bytes[BYTES] __attribute__((aligned(64))); \
  static struct name##_inputs name##_in; \
  static struct name##_outputs name##_out; \
  static void print_##name(void) \
  { \
    printf(#name " "); \
    for (size_t i = 0; i < sizeof name##_bytes; ++i) { \
      printf("%02x", name##_bytes[i]); \
      name##_bytes[i] = 0; \
    } \
    printf("\n"); \
  } \
  static void run_##name(void) \
  { \
    CHECK(name##_run(&name##_in, &name##_out) == 0); \
    print_##name(); \
  }
MODEL(first)
MODEL(second)
MODEL(third)
MODEL(host)

static void refused(void)
{
#ifdef APART
  bool first_done = false, second_done = false;
  CHECK(second_start(&second_in, &second_out) == 0);
  while (!first_done || !second_done) {
    CHECK(first_done || first_poll(&first_done) == 0);
    CHECK(second_done || second_poll(&second_done) == 0);
  }
  print_second();
#else
  CHECK(second_start(&second_in, &second_out) == SECOND_ERROR_BUSY);
  CHECK(second_run(&second_in, &second_out) == SECOND_ERROR_BUSY);
  CHECK(second_wait() == SECOND_ERROR_NOT_STARTED);
  CHECK(third_run(&third_in, &third_out) == THIRD_ERROR_BUSY);
  CHECK(first_wait() == 0);
#endif
  print_first();
}

int main(void)
{
#define FILL(name) (*(const void **)&name##_in = input, *(void **)&name##_out = name##_bytes)
  FILL(first);
  FILL(second);
  FILL(third);
  FILL(host);
  for (size_t i = 0; i < sizeof input; ++i) {
    input[i] = (uint8_t)(i * 37);
  }
  CHECK(first_start(&first_in, &first_out) == 0);
  CHECK(first_start(&first_in, &first_out) == FIRST_ERROR_RUNNING);
  CHECK(host_start(&host_in, &host_out) == 0);
  CHECK(host_wait() == 0);
  print_host();
  run_host();
  refused();
  run_second();
  run_third();
  CHECK(first_start(&first_in, &first_out) == 0);
  first_stop();
  run_second();
  CHECK(first_wait() == FIRST_ERROR_NOT_STARTED);
  first_stop();
  run_first();
  run_third();
  return 0;
}
