/* The HAL as it is, over the device in software. */
#include "regs_model.h"

#include "../regs_hal.c"
