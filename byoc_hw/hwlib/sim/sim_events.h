/* Events between engines, and what engines know of each other by them: shared by the simulators of a chip. The first of
 * those that reach the events has it. */
#ifndef SIM_EVENTS_H
#define SIM_EVENTS_H

#include "hwlib_hal.h"
#include "hwlib_sim_config.h"
#include "sim_clock.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef HWLIB_SIM_EVENTS

/* Of each engine of the chip, the number of the last place of its queue that is known to be over. */
typedef struct {
  uint32_t over[HWLIB_SIM_CHIP_ENGINES];
} hwlib_sim_known_t;

typedef struct {
  uint64_t end[SIM_CLOCKS];
  hwlib_sim_known_t known;
  uint32_t engine, number; /* whose signal it was */
} hwlib_sim_signal_t;

typedef struct {
  hwlib_sim_known_t host;
  hwlib_sim_known_t engines[HWLIB_SIM_CHIP_ENGINES]; /* when they have done all that they were given */
  uint32_t asker;                                    /* the engine, from 1, whose operation is checked for races */
  uint32_t counts[HWLIB_SIM_EVENTS];
  hwlib_sim_signal_t signals[HWLIB_SIM_EVENTS][HWLIB_SIM_SIGNALS]; /* of those before, the host knows that they came */
} hwlib_sim_events_t;

extern hwlib_sim_events_t HWLIB_SIM_EVENTS_OF_CHIP;

uint32_t hwlib_sim_of_chip(uint8_t engine); /* the number of an engine among those of the chip */
void hwlib_sim_join(hwlib_sim_known_t *known, const hwlib_sim_known_t *other); /* knows what the other one knows, too */

void hwlib_sim_events_reset(void);
void hwlib_sim_events_init(void); /* all counters at 0 */

/* What this accelerator's engine knows to be over, itself included, when it has done this. */
hwlib_sim_known_t hwlib_sim_begin(uint8_t engine, uint32_t number);

/* The host knows what is known here. */
void hwlib_sim_tell_host(const hwlib_sim_known_t *known);
void hwlib_sim_tell_host_all(uint8_t engine);

/* Whose operation is checked for races from here on: an engine's of this accelerator; or anybody's else. */
void hwlib_sim_asks(uint8_t engine);
void hwlib_sim_asked(void);

/* The engine goes on at these times, or later, behind all that it was given: they become those when it does. Returns the
 * number of the place in its queue, and what it knows then. sim_timeline.c has it. */
uint32_t hwlib_sim_hold(uint8_t engine, uint64_t *end, hwlib_sim_known_t *known);

/* The last place of this accelerator's engine that the asker knows to be over; the host knows `ended`. */
uint32_t hwlib_sim_over(uint8_t engine, uint32_t ended);

#else

typedef struct {
  uint8_t nothing;
} hwlib_sim_known_t;

static inline void hwlib_sim_events_reset(void) {}
static inline void hwlib_sim_events_init(void) {}

static inline hwlib_sim_known_t hwlib_sim_begin(uint8_t engine, uint32_t number)
{
  (void)engine, (void)number;
  return (hwlib_sim_known_t){0};
}

static inline void hwlib_sim_tell_host(const hwlib_sim_known_t *known) { (void)known; }
static inline void hwlib_sim_tell_host_all(uint8_t engine) { (void)engine; }
static inline void hwlib_sim_asks(uint8_t engine) { (void)engine; }
static inline void hwlib_sim_asked(void) {}

static inline uint32_t hwlib_sim_over(uint8_t engine, uint32_t ended)
{
  (void)engine;
  return ended;
}

#endif

#ifdef __cplusplus
}
#endif

#endif
