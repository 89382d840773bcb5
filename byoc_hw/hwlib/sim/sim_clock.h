/* What the simulators of a chip share, each compiled for an accelerator of its own: the clocks of the one host, and
 * who is at which bytes of main memory. sim_clock.c is compiled once. */
#ifndef SIM_CLOCK_H
#define SIM_CLOCK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Two clocks: on the first the host takes no time of its own, on the second it takes what hwlib_sim_host_advance
 * says. */
enum { SIM_CLOCK_ACCELERATOR, SIM_CLOCK_END_TO_END, SIM_CLOCKS };

/* Bytes of main memory that a copy reads or writes: rows of bytes; 0 rows are none. */
typedef struct {
  uintptr_t address;
  uint32_t rows, stride, bytes;
  uint8_t writes;
} sim_clock_area_t;

struct hwlib_sim_area; /* of sim_internal.h */

/* A simulator. It is known here from the start of its first operation on. */
typedef struct sim_clock_user {
  /* The area of a copy that the host does not know to have ended, and that may not run beside this one; or NULL. */
  const sim_clock_area_t *(*conflict)(const sim_clock_area_t *area);
  /* The same for bytes of its local activations: of anything that the host does not know to have ended. NULL of a
   * library, which has none. */
  const struct hwlib_sim_area *(*local_conflict)(const struct hwlib_sim_area *area);
  const uint8_t *activations; /* its memory, which may be that of others too */
  struct sim_clock_user *next;
  uint8_t known;
} sim_clock_user_t;

typedef struct {
  uint64_t host[SIM_CLOCKS]; /* now */
  uint64_t total;            /* the latest end of any operation, on the accelerators' clock */
  uint64_t done;             /* the latest end of a job or of a copy to main memory */
  uint32_t asks;             /* in vain, since the host was idle or found an end */
  uint64_t asked;            /* the first end of the operations that the host has asked for since it was idle; or 0 */
} sim_clock_t;

extern sim_clock_t sim_clock;

/* All clocks at 0. What is in flight is each simulator's own: all of them are reset together. */
void sim_clock_reset(void);

void sim_clock_join(sim_clock_user_t *user);

/* The host's time on both clocks, unless it is later already. */
void sim_clock_wait_until(const uint64_t *end);

/* The host has asked for an operation that has not ended. One that only asks, so often, finds that time passes too. */
enum { SIM_CLOCK_PATIENCE = 1000 };
void sim_clock_ask(uint64_t end);

/* The host has nothing to do until an operation ends that it has asked for. */
void sim_clock_idle(void);

/* As `conflict`, with the copies of all other accelerators. */
const sim_clock_area_t *sim_clock_conflict(const sim_clock_user_t *user, const sim_clock_area_t *area);

/* As `local_conflict`, with all other accelerators that have the same activation memory. */
const struct hwlib_sim_area *sim_clock_local_conflict(const sim_clock_user_t *user, const struct hwlib_sim_area *area);

/* Whether one of the two writes bytes that the other reads or writes. Exact for rows with strides. */
int sim_clock_clash(const sim_clock_area_t *one, const sim_clock_area_t *other);

#ifdef __cplusplus
}
#endif

#endif
