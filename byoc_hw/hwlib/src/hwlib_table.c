/* The table of one HAL, compiled once for each accelerator of a chip, with the names of hwlib_names.h. A function that
 * the HAL does not have is NULL in it; one that reaches events has both of theirs, also from a library of objects, where
 * a weak name is not looked for. */
#include "hwlib_lanes.h"

#ifdef HWLIB_HAS_EVENTS
#define OF_EVENTS
#else
#define OF_EVENTS __attribute__((weak))
#endif

extern const hwlib_hal_t hwlib_hal;

hwlib_status_t hwlib_hal_copy_done(hwlib_token_t token, uint8_t *done) __attribute__((weak));
hwlib_status_t hwlib_hal_job_done(hwlib_token_t token, uint8_t *done) __attribute__((weak));
void hwlib_hal_idle(void) __attribute__((weak));
hwlib_status_t hwlib_hal_signal(uint8_t engine, uint8_t event) OF_EVENTS;
hwlib_status_t hwlib_hal_await(uint8_t engine, uint8_t event, uint16_t value) OF_EVENTS;

const hwlib_hal_t hwlib_hal = {
    .init = hwlib_hal_init,
    .copy_1d = hwlib_hal_copy_1d,
    .copy_2d = hwlib_hal_copy_2d,
    .copy_wait = hwlib_hal_copy_wait,
    .job_start = hwlib_hal_job_start,
    .job_wait = hwlib_hal_job_wait,
    .cycles = hwlib_hal_cycles,
    .mark = hwlib_hal_mark,
    .copy_done = hwlib_hal_copy_done,
    .job_done = hwlib_hal_job_done,
    .idle = hwlib_hal_idle,
    .signal = hwlib_hal_signal,
    .await = hwlib_hal_await,
};
