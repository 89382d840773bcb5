/* What the interpreter of steps calls when one fails. */
#ifndef HWLIB_STEPS_H
#define HWLIB_STEPS_H

#include "hwlib.h"

/* Ends what is in flight, which may write to the caller's memory, and returns the status. In a file of its
 * own: inlined into the steps, it costs them a register. */
hwlib_status_t hwlib_failed(hwlib_status_t status);

#endif
