/* What the files of this HAL share: local memories, and the array's arithmetic in scalar loops. */
#ifndef CHIP_H
#define CHIP_H

#include "chip_numbers.h"
#include "hwlib_accelerator.h"
#include "hwlib_hal.h"

/* What the model was compiled for (HWLIB_ACCELERATOR_...), the chip (CHIP_...) has, or nothing compiles. */
#if HWLIB_ACCELERATOR_ACTIVATION_MEMORY > CHIP_ACTIVATION_MEMORY || \
    HWLIB_ACCELERATOR_WEIGHT_MEMORY > CHIP_WEIGHT_MEMORY || \
    HWLIB_ACCELERATOR_DMA_ALIGNMENT % CHIP_DMA_ALIGNMENT != 0 || \
    (HWLIB_ACCELERATOR_ROUNDINGS & ~CHIP_ROUNDINGS) != 0 || (HWLIB_ACCELERATOR_KINDS & ~CHIP_KINDS) != 0 || \
    HWLIB_ACCELERATOR_CONV2D_KERNEL_H > CHIP_CONV2D_KERNEL_H || \
    HWLIB_ACCELERATOR_CONV2D_KERNEL_W > CHIP_CONV2D_KERNEL_W || \
    HWLIB_ACCELERATOR_DEPTHWISE_CONV2D_KERNEL_H > CHIP_DEPTHWISE_CONV2D_KERNEL_H || \
    HWLIB_ACCELERATOR_DEPTHWISE_CONV2D_KERNEL_W > CHIP_DEPTHWISE_CONV2D_KERNEL_W || \
    HWLIB_ACCELERATOR_POOL2D_KERNEL_H > CHIP_POOL2D_KERNEL_H || \
    HWLIB_ACCELERATOR_POOL2D_KERNEL_W > CHIP_POOL2D_KERNEL_W || \
    HWLIB_ACCELERATOR_DENSE_PIXELS > CHIP_DENSE_PIXELS || \
    (HWLIB_ACCELERATOR_CONV2D_STRIDES & ~CHIP_CONV2D_STRIDES) != 0 || \
    (HWLIB_ACCELERATOR_DEPTHWISE_CONV2D_STRIDES & ~CHIP_DEPTHWISE_CONV2D_STRIDES) != 0 || \
    (HWLIB_ACCELERATOR_POOL2D_STRIDES & ~CHIP_POOL2D_STRIDES) != 0 || \
    (HWLIB_ACCELERATOR_CONV2D_WEIGHT_BITS & ~CHIP_CONV2D_WEIGHT_BITS) != 0 || \
    (HWLIB_ACCELERATOR_DEPTHWISE_CONV2D_WEIGHT_BITS & ~CHIP_DEPTHWISE_CONV2D_WEIGHT_BITS) != 0 || \
    (HWLIB_ACCELERATOR_DENSE_WEIGHT_BITS & ~CHIP_DENSE_WEIGHT_BITS) != 0
#error "the model was compiled for more than this chip has: compare hwlib_accelerator.h with chip_numbers.h"
#endif

extern int8_t chip_activations[CHIP_ACTIVATION_MEMORY], chip_weights[CHIP_WEIGHT_MEMORY];

void chip_run(const hwlib_job_t *job);
int64_t chip_scale(int rounding, int32_t value, hwlib_scale_t by);
int64_t chip_nearest(int64_t value, unsigned bits);
void chip_softmax(const hwlib_softmax_t *layer, const int8_t *ifm, int8_t *ofm, uint32_t channels);

#endif
