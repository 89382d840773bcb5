/* What the core does on a trap: says which, where and in what layer, and ends the program with 4. */
#include "../count.h"
#include "../io.h"
#include "semihost.h"

enum { TRAPPED = 4 };

/* In the words that the runner looks for. */
static void say(const char *what, uint32_t value)
{
  char text[] = " 0x00000000";
  for (unsigned digit = 0; digit < 8; ++digit) {
    text[sizeof text - 2 - digit] = "0123456789abcdef"[(value >> (4 * digit)) & 15];
  }
  io_message(what);
  io_message(text);
}

/* A stack of its own: the trap may be that the program's has run over. */
static uint8_t trap_stack[1024] __attribute__((aligned(16), used));

__attribute__((noreturn, used)) static void report_trap(void)
{
  uint32_t cause, pc, value;
  __asm__ volatile("csrr %0, mcause\n\tcsrr %1, mepc\n\tcsrr %2, mtval" : "=r"(cause), "=r"(pc), "=r"(value));
  say("trap: mcause", cause);
  say(" mepc", pc);
  say(" mtval", value);
#ifdef HWLIB_COUNT
  say(" layer", count_layer);
#endif
  io_message("\n");
  semihost_exit(TRAPPED);
  __builtin_unreachable();
}

__attribute__((naked, aligned(4))) static void on_trap(void)
{
  __asm__ volatile("la sp, trap_stack + 1024\n\tj report_trap");
}

__attribute__((constructor)) static void install_trap(void)
{
  __asm__ volatile("csrw mtvec, %0" ::"r"(on_trap));
}
