/* Events between engines: when they come, and who knows by them what has ended. An engine knows what the host knew when
 * it gave it its work, what it did itself, and what those knew whose signals it has awaited. */
#include "sim_internal.h"

#include <string.h>

#ifdef HWLIB_SIM_EVENTS

#define EVENTS HWLIB_SIM_EVENTS_OF_CHIP

#ifndef HWLIB_SIM_EVENTS_ELSEWHERE
hwlib_sim_events_t EVENTS;
#endif

static uint32_t of_chip(uint8_t engine) { return HWLIB_SIM_FIRST_ENGINE + engine; }

static void join(hwlib_sim_known_t *known, const hwlib_sim_known_t *other)
{
  for (unsigned engine = 0; engine < HWLIB_SIM_CHIP_ENGINES; ++engine) {
    if (other->over[engine] > known->over[engine]) {
      known->over[engine] = other->over[engine];
    }
  }
}

void hwlib_sim_events_reset(void) { memset(&EVENTS, 0, sizeof EVENTS); }

void hwlib_sim_events_init(void) { memset(EVENTS.counts, 0, sizeof EVENTS.counts); }

hwlib_sim_known_t hwlib_sim_begin(uint8_t engine, uint32_t number)
{
  hwlib_sim_known_t *known = &EVENTS.engines[of_chip(engine)];
  join(known, &EVENTS.host);
  known->over[of_chip(engine)] = number;
  return *known;
}

void hwlib_sim_tell_host(const hwlib_sim_known_t *known) { join(&EVENTS.host, known); }

void hwlib_sim_tell_host_all(uint8_t engine) { join(&EVENTS.host, &EVENTS.engines[of_chip(engine)]); }

void hwlib_sim_asks(uint8_t engine) { EVENTS.asker = of_chip(engine) + 1; }

void hwlib_sim_asked(void) { EVENTS.asker = 0; }

uint32_t hwlib_sim_over(uint8_t engine, uint32_t ended)
{
  uint32_t number = EVENTS.host.over[of_chip(engine)];
  if (EVENTS.asker != 0 && EVENTS.engines[EVENTS.asker - 1].over[of_chip(engine)] > number) {
    number = EVENTS.engines[EVENTS.asker - 1].over[of_chip(engine)];
  }
  return number > ended ? number : ended;
}

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
  hwlib_sim_signal_t signal = {.engine = of_chip(engine)};
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
    join(&EVENTS.engines[of_chip(engine)], &found.known);
  }
  (void)hwlib_sim_hold(engine, found.end, &found.known);
  return HWLIB_OK;
}

#endif
