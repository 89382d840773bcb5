/* What the files of this HAL share: local memories, and the array's arithmetic in scalar loops. */
#ifndef SOFTWARE_H
#define SOFTWARE_H

#include "chip.h"

extern int8_t chip_activations[CHIP_ACTIVATION_MEMORY], chip_weights[CHIP_WEIGHT_MEMORY];

void chip_run(const hwlib_job_t *job);
int64_t chip_scale(int rounding, int32_t value, hwlib_scale_t by);
int64_t chip_nearest(int64_t value, unsigned bits);
void chip_softmax(const hwlib_softmax_t *layer, const int8_t *ifm, int8_t *ofm, uint32_t channels);

#endif
