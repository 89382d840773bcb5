/* Events between engines: when they come, and who knows by them what has ended. An engine knows what the host knew when
 * it gave it its work, what it did itself, and what those knew whose signals it has awaited. */
#include "sim_internal.h"

#include <string.h>

#ifdef HWLIB_SIM_EVENTS

#define EVENTS HWLIB_SIM_EVENTS_OF_CHIP

#ifndef HWLIB_SIM_EVENTS_ELSEWHERE
hwlib_sim_events_t EVENTS;
#endif

uint32_t hwlib_sim_of_chip(uint8_t engine) { return HWLIB_SIM_FIRST_ENGINE + engine; }

void hwlib_sim_join(hwlib_sim_known_t *known, const hwlib_sim_known_t *other)
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
  hwlib_sim_known_t *known = &EVENTS.engines[hwlib_sim_of_chip(engine)];
  hwlib_sim_join(known, &EVENTS.host);
  known->over[hwlib_sim_of_chip(engine)] = number;
  return *known;
}

void hwlib_sim_tell_host(const hwlib_sim_known_t *known) { hwlib_sim_join(&EVENTS.host, known); }

void hwlib_sim_tell_host_all(uint8_t engine) { hwlib_sim_join(&EVENTS.host, &EVENTS.engines[hwlib_sim_of_chip(engine)]); }

void hwlib_sim_asks(uint8_t engine) { EVENTS.asker = hwlib_sim_of_chip(engine) + 1; }

void hwlib_sim_asked(void) { EVENTS.asker = 0; }

uint32_t hwlib_sim_over(uint8_t engine, uint32_t ended)
{
  uint32_t number = EVENTS.host.over[hwlib_sim_of_chip(engine)];
  if (EVENTS.asker != 0 && EVENTS.engines[EVENTS.asker - 1].over[hwlib_sim_of_chip(engine)] > number) {
    number = EVENTS.engines[EVENTS.asker - 1].over[hwlib_sim_of_chip(engine)];
  }
  return number > ended ? number : ended;
}

#endif
