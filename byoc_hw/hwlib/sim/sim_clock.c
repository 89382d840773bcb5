/* The clocks of the host, and main memory as the accelerators of a chip share it. */
#include "sim_clock.h"

#include <stddef.h>

sim_clock_t sim_clock;

static sim_clock_user_t *users;

void sim_clock_reset(void) { sim_clock = (sim_clock_t){0}; }

void sim_clock_join(sim_clock_user_t *user)
{
  if (!user->known) {
    user->known = 1;
    user->next = users;
    users = user;
  }
}

void sim_clock_wait_until(const uint64_t *end)
{
  for (unsigned clock = 0; clock < SIM_CLOCKS; ++clock) {
    if (end[clock] > sim_clock.host[clock]) {
      sim_clock.host[clock] = end[clock];
    }
  }
  sim_clock.asks = 0;
}

void sim_clock_ask(uint64_t end)
{
  if (sim_clock.asked == 0 || end < sim_clock.asked) {
    sim_clock.asked = end;
  }
  if (++sim_clock.asks == SIM_CLOCK_PATIENCE) {
    sim_clock_idle();
  }
}

/* The second clock goes on when the host finds what has ended. */
void sim_clock_idle(void)
{
  if (sim_clock.asked > sim_clock.host[SIM_CLOCK_ACCELERATOR]) {
    sim_clock.host[SIM_CLOCK_ACCELERATOR] = sim_clock.asked;
  }
  sim_clock.asked = 0;
  sim_clock.asks = 0;
}

const sim_clock_area_t *sim_clock_conflict(const sim_clock_user_t *user, const sim_clock_area_t *area)
{
  for (const sim_clock_user_t *other = users; other != NULL; other = other->next) {
    const sim_clock_area_t *found = other == user ? NULL : other->conflict(area);
    if (found != NULL) {
      return found;
    }
  }
  return NULL;
}

const struct hwlib_sim_area *sim_clock_local_conflict(const sim_clock_user_t *user, const struct hwlib_sim_area *area)
{
  for (const sim_clock_user_t *other = users; other != NULL; other = other->next) {
    if (other != user && other->activations == user->activations) {
      const struct hwlib_sim_area *found = other->local_conflict(area);
      if (found != NULL) {
        return found;
      }
    }
  }
  return NULL;
}

/* Whether some bytes from an address on are in a row of the area. The first row that ends behind the address is the
 * only one to look at, as the rows follow each other. */
static int touches(const sim_clock_area_t *area, uintptr_t address, uint32_t bytes)
{
  uint64_t row = 0;
  if (address >= area->address + area->bytes && area->stride != 0) {
    row = (uint64_t)(address - area->address - area->bytes) / area->stride + 1;
  }
  uint64_t first = area->address + row * area->stride;
  return row < area->rows && first < (uint64_t)address + bytes && address < first + area->bytes;
}

int sim_clock_clash(const sim_clock_area_t *one, const sim_clock_area_t *other)
{
  if (!one->writes && !other->writes) {
    return 0;
  }
  for (uint32_t row = 0; row < one->rows; ++row) {
    if (touches(other, one->address + (uintptr_t)row * one->stride, one->bytes)) {
      return 1;
    }
  }
  return 0;
}
