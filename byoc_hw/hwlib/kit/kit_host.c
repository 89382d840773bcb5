/* The kit as a program for a machine with stdio. */
#include "hal_kit.h"

#include <stdio.h>

void hal_kit_print(const char *line)
{
  puts(line);
  fflush(stdout);
}

int main(void) { return hal_kit_run() == 0 ? 0 : 1; }
