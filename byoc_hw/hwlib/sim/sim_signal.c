/* The HAL's signals and awaits: each takes a place in its engine's queue, and passes on what is known to have ended. */
#include "sim_internal.h"

#ifdef HWLIB_SIM_EVENTS

#define EVENTS HWLIB_SIM_EVENTS_OF_CHIP

static hwlib_status_t check(const char *name, uint8_t engine, uint8_t event)
{
  if (engine >= HWLIB_SIM_ENGINES) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_STEP, name, "there is no engine #", engine);
  }
  if (event >= HWLIB_SIM_EVENTS) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_STEP, name, "event # is beyond the # of the chip", event, HWLIB_SIM_EVENTS);
  }
  return HWLIB_OK;
}

hwlib_status_t hwlib_hal_signal(uint8_t engine, uint8_t event)
{
  hwlib_status_t status = check("signal", engine, event);
  if (status != HWLIB_OK) {
    return status;
  }
  uint32_t count = EVENTS.counts[event];
  const hwlib_sim_signal_t *before = &EVENTS.signals[event][(count - 1) % HWLIB_SIM_SIGNALS];
  hwlib_sim_signal_t signal = {.engine = hwlib_sim_of_chip(engine)};
  signal.number = hwlib_sim_hold(engine, signal.end, &signal.known);
  if (count != 0 && signal.known.over[before->engine] < before->number) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_RACE, "signal", "event # may come before its signal # of another engine", event,
                            count);
  }
  EVENTS.signals[event][count % HWLIB_SIM_SIGNALS] = signal;
  EVENTS.counts[event] = count + 1;
  return HWLIB_OK;
}

hwlib_status_t hwlib_hal_await(uint8_t engine, uint8_t event, uint16_t value)
{
  hwlib_status_t status = check("await", engine, event);
  if (status != HWLIB_OK) {
    return status;
  }
  uint32_t count = EVENTS.counts[event];
  if (value == 0 || value > count) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_STEP, "await", "event # never comes # times: it was signalled # times", event,
                            value, count);
  }
  hwlib_sim_signal_t found = {0};
  if (count - value < HWLIB_SIM_SIGNALS) {
    found = EVENTS.signals[event][(value - 1u) % HWLIB_SIM_SIGNALS];
    hwlib_sim_join(&EVENTS.engines[hwlib_sim_of_chip(engine)], &found.known);
  }
  (void)hwlib_sim_hold(engine, found.end, &found.known);
  return HWLIB_OK;
}

#endif
