/* The accelerator in numbers, and the memories and queues that it has. */
#include "sim_internal.h"

#ifndef HWLIB_SIM_ACTIVATIONS
static uint8_t activations[HWLIB_ACCELERATOR_ACTIVATION_MEMORY];
static uint8_t activation_states[HWLIB_ACCELERATOR_ACTIVATION_MEMORY];
#else /* those of a group of accelerators: the simulator of one of them has both */
#define activations HWLIB_SIM_ACTIVATIONS
#define activation_states HWLIB_SIM_ACTIVATION_STATES
extern uint8_t activations[HWLIB_ACCELERATOR_ACTIVATION_MEMORY];
extern uint8_t activation_states[HWLIB_ACCELERATOR_ACTIVATION_MEMORY];
#ifndef HWLIB_SIM_ACTIVATIONS_ELSEWHERE
uint8_t activations[HWLIB_ACCELERATOR_ACTIVATION_MEMORY];
uint8_t activation_states[HWLIB_ACCELERATOR_ACTIVATION_MEMORY];
#endif
#endif
static uint8_t weights[HWLIB_ACCELERATOR_WEIGHT_MEMORY], weight_states[HWLIB_ACCELERATOR_WEIGHT_MEMORY];

/* Values of one filter that local weight memory can hold, at 2 bits each. */
static int8_t unpacked[(size_t)HWLIB_ACCELERATOR_WEIGHT_MEMORY * 4];

static hwlib_sim_operation_t operations[HWLIB_SIM_ENGINES * HWLIB_ACCELERATOR_QUEUE];

const hwlib_sim_numbers_t hwlib_sim_numbers = {
    .kinds = HWLIB_ACCELERATOR_KINDS,
    .roundings = HWLIB_ACCELERATOR_ROUNDINGS,
#ifdef HWLIB_ACCELERATOR_SHIFT_ONLY
    .shift_only = 1,
#endif
    .array_rows = HWLIB_ACCELERATOR_ARRAY_ROWS,
    .array_columns = HWLIB_ACCELERATOR_ARRAY_COLUMNS,
    .depthwise_rows = HWLIB_SIM_DEPTHWISE_ROWS,
    .elementwise_width = HWLIB_SIM_ELEMENTWISE_WIDTH,
    .packed_rows = HWLIB_ACCELERATOR_PACKED_ROWS,
    .job_setup = HWLIB_SIM_JOB_SETUP,
    .job_overhead = HWLIB_SIM_JOB_OVERHEAD,
    .dma_alignment = HWLIB_ACCELERATOR_DMA_ALIGNMENT,
    .dma_setup = HWLIB_SIM_DMA_SETUP,
    .dma_width = HWLIB_SIM_DMA_WIDTH,
    .dma_row_setup = HWLIB_SIM_DMA_ROW_SETUP,
    .conv2d = {.kernel_h = HWLIB_ACCELERATOR_CONV2D_KERNEL_H,
               .kernel_w = HWLIB_ACCELERATOR_CONV2D_KERNEL_W,
               .strides = HWLIB_ACCELERATOR_CONV2D_STRIDES,
               .dilations = HWLIB_ACCELERATOR_CONV2D_DILATIONS,
               .wide_padding = HWLIB_ACCELERATOR_CONV2D_WIDE_PADDING,
               .kernel_parts = HWLIB_ACCELERATOR_CONV2D_KERNEL_PARTS,
               .weight_bits = HWLIB_ACCELERATOR_CONV2D_WEIGHT_BITS},
    .depthwise_conv2d = {.kernel_h = HWLIB_ACCELERATOR_DEPTHWISE_CONV2D_KERNEL_H,
                         .kernel_w = HWLIB_ACCELERATOR_DEPTHWISE_CONV2D_KERNEL_W,
                         .strides = HWLIB_ACCELERATOR_DEPTHWISE_CONV2D_STRIDES,
                         .dilations = HWLIB_ACCELERATOR_DEPTHWISE_CONV2D_DILATIONS,
                         .wide_padding = HWLIB_ACCELERATOR_DEPTHWISE_CONV2D_WIDE_PADDING,
                         .kernel_parts = HWLIB_ACCELERATOR_DEPTHWISE_CONV2D_KERNEL_PARTS,
                         .weight_bits = HWLIB_ACCELERATOR_DEPTHWISE_CONV2D_WEIGHT_BITS},
    .dense = {.kernel_h = 1,
              .kernel_w = 1,
              .strides = 1u << 1,
              .dilations = 1u << 1,
              .weight_bits = HWLIB_ACCELERATOR_DENSE_WEIGHT_BITS},
    .pool2d = {.kernel_h = HWLIB_ACCELERATOR_POOL2D_KERNEL_H,
               .kernel_w = HWLIB_ACCELERATOR_POOL2D_KERNEL_W,
               .strides = HWLIB_ACCELERATOR_POOL2D_STRIDES,
               .dilations = 1u << 1,
               .wide_padding = HWLIB_ACCELERATOR_POOL2D_WIDE_PADDING},
    .dense_pixels = HWLIB_ACCELERATOR_DENSE_PIXELS,
    .add_broadcast = HWLIB_ACCELERATOR_ADD_BROADCAST,
    .mul_broadcast = HWLIB_ACCELERATOR_MUL_BROADCAST,
    .memories = {[HWLIB_LOCAL_ACTIVATIONS] = {activations, activation_states, HWLIB_ACCELERATOR_ACTIVATION_MEMORY},
                 [HWLIB_LOCAL_WEIGHTS] = {weights, weight_states, HWLIB_ACCELERATOR_WEIGHT_MEMORY}},
    .unpacked = unpacked,
    .queue = HWLIB_ACCELERATOR_QUEUE,
    .operations = operations,
};
