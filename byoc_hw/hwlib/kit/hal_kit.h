/* The HAL test kit: checks every function of hwlib_hal.h against what that header says.
 *
 * Portable C11 over the HAL alone: no malloc, no stdio, static memory. On a chip, compile it with your
 * HAL and hal_kit_config.h (`python -m byoc_hw hal-test --write DIR`), provide hal_kit_print and call
 * hal_kit_run; kit_host.c does this for a machine with stdio.
 */
#ifndef HAL_KIT_H
#define HAL_KIT_H

#include <stdint.h>

/* Prints one line, without a line end in it. Called before each check too, so that the last line of a HAL that
 * hangs says where: make it visible at once. */
void hal_kit_print(const char *line);

/* Runs all checks; how many failed. */
uint32_t hal_kit_run(void);

#endif
