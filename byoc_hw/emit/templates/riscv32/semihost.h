/* Semihosting: the debugger or emulator, asked for files and for the end of the program. */
#ifndef APP_SEMIHOST_H
#define APP_SEMIHOST_H

#include <stdint.h>

enum {
  SEMIHOST_OPEN = 0x01,
  SEMIHOST_CLOSE = 0x02,
  SEMIHOST_WRITE = 0x05,
  SEMIHOST_READ = 0x06,
  SEMIHOST_COMMAND_LINE = 0x15,
  SEMIHOST_EXIT = 0x20,
};

static inline intptr_t semihost(uintptr_t operation, const uintptr_t *arguments)
{
  register uintptr_t a0 __asm__("a0") = operation;
  register const uintptr_t *a1 __asm__("a1") = arguments;
  /* The three instructions mean semihosting together, uncompressed and on one page. */
  __asm__ volatile(".balign 16\n\t.option push\n\t.option norvc\n\t"
                   "slli zero, zero, 0x1f\n\tebreak\n\tsrai zero, zero, 7\n\t.option pop"
                   : "+r"(a0)
                   : "r"(a1)
                   : "memory");
  return (intptr_t)a0;
}

static inline void semihost_exit(int status)
{
  const uintptr_t arguments[] = {0x20026 /* ended by itself */, (uintptr_t)status};
  for (;;) {
    (void)semihost(SEMIHOST_EXIT, arguments);
  }
}

#endif
