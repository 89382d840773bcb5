/* The reference HAL: hwlib_hal.h in software, for tests, profiles and hosts without the silicon.
 *
 * Bit-exact; refuses what the accelerator of hwlib_accelerator.h cannot do, and says why; keeps a
 * timeline of the host, the DMA engine and the array. Freestanding but for memcpy and memset, in
 * static memory. One thread. On a chip of several accelerators it is compiled for each, with other names, and
 * all of them share the clocks of sim_clock.h.
 */
#ifndef HWLIB_SIM_H
#define HWLIB_SIM_H

#include "hwlib_hal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Layers with a profile of their own; those beyond share the last one. */
#ifndef HWLIB_SIM_LAYERS
#define HWLIB_SIM_LAYERS 1024
#endif

typedef struct {
  uint64_t array_cycles, dma_cycles; /* how long each engine worked */
  uint64_t dma_bytes;
  uint32_t jobs, copies;
} hwlib_sim_counters_t;

/* A new inference: profile and fault cleared, local memories as if nothing had ever written them. On a chip,
 * nothing is started before all simulators are reset. */
void hwlib_sim_reset(void);

/* Cycles until the last engine, on a chip of any accelerator, ends all that was started since the reset. */
uint64_t hwlib_sim_cycles(void);

/* A second clock, for an end-to-end estimate: between its HAL calls the host takes the cycles that are
 * given to hwlib_sim_host_advance, and it waits for the engines. */
void hwlib_sim_host_advance(uint64_t cycles);
uint64_t hwlib_sim_host_time(void);

/* For the model of a device whose registers the host reads: how many operations of an engine have ended since the init, on
 * the second clock; the host then knows it. With events, signals and awaits are operations. */
uint32_t hwlib_sim_ended(uint8_t engine);

/* And the host sleeps until one more operation of the engine ends, if there is one. */
void hwlib_sim_sleep(uint8_t engine);

/* A layer's share of hwlib_sim_cycles. Whenever a job, or a copy to main memory, ends later than all of them
 * before it, the difference goes to the layer that hwlib_hal_mark named, so the shares add up to the end of
 * the last. A copy to local memory counts when the job that it is for has ended: it may come long before. */
uint64_t hwlib_sim_layer_cycles(uint16_t layer);

const hwlib_sim_counters_t *hwlib_sim_layer_counters(uint16_t layer);

/* The bytes of local activations from an address on. A job's results are there as soon as it was started. */
const uint8_t *hwlib_sim_look(uint32_t address);

/* Operations that nobody waited for. Not 0 after a region: its results may not be there yet. */
uint32_t hwlib_sim_in_flight(void);

/* What was last refused since the reset and why, or "": static text, "copy: 16 bytes at 262140 reach
 * beyond the 262144 bytes of local activations". */
const char *hwlib_sim_fault(void);

#ifdef __cplusplus
}
#endif

#endif
