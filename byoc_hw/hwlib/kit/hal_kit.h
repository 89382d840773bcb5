/* The HAL test kit: checks every function of hwlib_hal.h against what that header says.
 *
 * Portable C11 over the HAL alone: no malloc, no stdio, static memory. On a chip, compile it with your
 * HAL and hal_kit_config.h (`python -m byoc_hw hal-test --write DIR`), provide hal_kit_print and call
 * hal_kit_run; kit_host.c does this for a machine with stdio.
 */
#ifndef HAL_KIT_H
#define HAL_KIT_H

#include <stdint.h>

/* Prints one line; the text has no line end. Also called before each check, so that the last line shows where a
 * HAL hangs: flush the output. */
void hal_kit_print(const char *line);

/* Runs all checks; returns the number of failures. */
uint32_t hal_kit_run(void);

#endif
