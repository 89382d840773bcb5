/* The registers of an accelerator: a block of 32-bit words at CHIP_REGISTERS, as most chips have it.
 *
 * Each engine has a queue. Its operands are registers, which the doorbell START queues as they are; DONE counts what the
 * engine has done, in the order in which it was queued. So a token is a number to compare with DONE, and no interrupt is
 * needed. Addresses take two words, low and high; a core of 32 bits writes the low one, and the high one stays 0.
 *
 * Change this file for a chip whose registers lie elsewhere or mean other things, and regs_hal.c for what it does in
 * another order; model/ is such a device in software, for both. */
#ifndef REGS_H
#define REGS_H

#include "chip.h"

/* Of the whole accelerator. */
enum {
  REGS_CONTROL = 0x00, /* write 1: end or give up what is queued, all counts and events 0; reads 1 until that is so */
  REGS_CYCLES = 0x08,  /* cycles so far, low and high */
  REGS_DMA = 0x40,     /* the block of each engine */
  REGS_ARRAY = 0x80,
};

/* Of each engine, from the start of its block on. */
enum {
  REGS_DONE = 0x00,   /* operations done since the reset, signals and awaits among them, modulo 2^32 */
  REGS_STATUS = 0x04, /* 0, or why the engine has failed: it then drops what is queued, and counts it as done */
  REGS_START = 0x08,  /* write: queue an operation with the operands below */
  REGS_EVENT = 0x0c,  /* write, on a chip with events: queue a signal of event 0..65535; + value << 16: an await */
};

/* The operands of a copy. They keep what was written last. */
enum {
  REGS_TARGET = 0x10, /* an offset in local memory, or an address of main memory */
  REGS_SOURCE = 0x18,
  REGS_BYTES = 0x20,         /* of a row */
  REGS_ROWS = 0x24,          /* these three are read with REGS_STRIDED */
  REGS_TARGET_STRIDE = 0x28, /* bytes from one row to the next */
  REGS_SOURCE_STRIDE = 0x2c,
};

/* What is written to START of the DMA: the memory of the target, that of the source above it, as hwlib_place_t has
 * them; and whether the copy has rows. */
enum { REGS_SOURCE_MEMORY = 2, REGS_MEMORY = 3, REGS_STRIDED = 16 };

/* The operands of a job: addresses of its descriptors in main memory, which the array reads until the job is done. */
enum {
  REGS_LAYER = 0x10, /* hwlib_conv2d_t ... of hwlib_hal.h, or hwlib_whole_layer_t */
  REGS_TILE = 0x18,  /* hwlib_tile_t; 0 for a whole layer */
};

/* ---------------------------------------------------------------- how the core reaches them */

#ifndef REGS_READ
#define REGS_READ(offset) (*(volatile const uint32_t *)((uintptr_t)CHIP_REGISTERS + (offset)))
#define REGS_WRITE(offset, value) (*(volatile uint32_t *)((uintptr_t)CHIP_REGISTERS + (offset)) = (value))
#endif

/* Between memory and registers: what the core wrote is there for the engines, and what they wrote for the core. A chip
 * whose caches the engines do not see also cleans and invalidates them: regs_hal.c says where. */
#ifndef REGS_FENCE
#if defined __riscv
#define REGS_FENCE() __asm__ volatile("fence" : : : "memory")
#elif defined __arm__ || defined __aarch64__
#define REGS_FENCE() __asm__ volatile("dsb sy" : : : "memory")
#else
#define REGS_FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#endif
#endif

/* Nothing to do until an engine's DONE changes. The core polls; on a chip whose engines have an interrupt, pending while
 * DONE is not what was last read, it may sleep until that: on RISC-V by wfi, with interrupts disabled. */
#ifndef REGS_SLEEP
#define REGS_SLEEP(engine) ((void)(engine))
#endif

#endif
