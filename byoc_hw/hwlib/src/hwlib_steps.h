/* What the wrappers call. In a file of its own, so that no compiler makes a copy of it for each wrapper. */
#ifndef HWLIB_STEPS_H
#define HWLIB_STEPS_H

#include "hwlib.h"

/* Runs the steps of a layer that begins or goes on; HWLIB_ERROR_STEP where its descriptor is of another kind. */
hwlib_status_t hwlib_run_layer(hwlib_region_t *region, const hwlib_layer_t *layer, hwlib_steps_t steps,
                               hwlib_kind_t kind);

/* Runs the steps of a layer of the right kind, or with NULL those after the last: there are no jobs among them. */
hwlib_status_t hwlib_run_steps(hwlib_region_t *region, const hwlib_layer_t *layer, hwlib_steps_t steps);

/* Ends what is in flight, which may write to the caller's memory, and returns the status. In a file of its
 * own, too: inlined into the steps, it costs them a register. */
hwlib_status_t hwlib_failed(hwlib_status_t status);

#endif
