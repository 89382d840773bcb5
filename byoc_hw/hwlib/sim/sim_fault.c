/* What was last refused, as text. */
#include "sim_internal.h"

static size_t length;
static char fault[200];

const char *hwlib_sim_fault(void) { return fault; }

void hwlib_sim_fault_reset(void)
{
  length = 0;
  fault[0] = '\0';
}

static void append(char character)
{
  if (length < sizeof fault - 1) {
    fault[length++] = character;
    fault[length] = '\0';
  }
}

static void append_number(uint64_t number)
{
  char digits[20]; /* of 2^64 - 1 */
  unsigned count = 0;
  do {
    digits[count++] = (char)('0' + number % 10);
    number /= 10;
  } while (number != 0);
  while (count > 0) {
    append(digits[--count]);
  }
}

hwlib_status_t hwlib_sim_refuse(hwlib_status_t status, const char *name, const char *text,
                                const uint64_t *numbers)
{
  length = 0;
  while (*name != '\0') {
    append(*name++);
  }
  append(':');
  append(' ');
  for (; *text != '\0'; ++text) {
    if (*text == '#') {
      append_number(*numbers++);
    } else {
      append(*text);
    }
  }
  return status;
}
