/* The table of one HAL, compiled once for each accelerator of a chip, with the names of hwlib_names.h. A function that
 * the HAL does not have is NULL in it. */
#include "hwlib_lanes.h"

extern const hwlib_hal_t hwlib_hal;

hwlib_status_t hwlib_hal_copy_done(hwlib_token_t token, uint8_t *done) __attribute__((weak));
hwlib_status_t hwlib_hal_job_done(hwlib_token_t token, uint8_t *done) __attribute__((weak));
void hwlib_hal_idle(void) __attribute__((weak));
hwlib_status_t hwlib_hal_signal(uint8_t engine, uint8_t event) __attribute__((weak));
hwlib_status_t hwlib_hal_await(uint8_t engine, uint8_t event, uint16_t value) __attribute__((weak));

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
