/* In place of the registers of a chip: functions that behave as they do. */
#ifndef REGS_MODEL_H
#define REGS_MODEL_H

#include <stdint.h>

uint32_t regs_model_read(uint32_t offset);
void regs_model_write(uint32_t offset, uint32_t value);

#define REGS_READ(offset) regs_model_read(offset)
#define REGS_WRITE(offset, value) regs_model_write(offset, value)

/* The core sleeps until an operation ends; or it polls, and each poll takes the time of its instructions. */
#ifndef REGS_MODEL_POLLS
void regs_model_sleep(uint8_t engine);
#define REGS_SLEEP(engine) regs_model_sleep(engine)
#endif

#endif
