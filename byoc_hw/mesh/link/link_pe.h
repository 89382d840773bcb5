/* A PE as a shared library: its main loop over rings, for the program that loads it. */
#ifndef LINK_PE_H
#define LINK_PE_H

#include "hwlib_pe.h"
#include "link_rings.h"

/* What others see of a PE while it runs. */
typedef struct {
  _Alignas(LINK_LINE) _Atomic uint64_t steps; /* rises as long as the PE's loop goes round */
  _Atomic uint64_t computed;                  /* frames, of all its stages */
  _Atomic uint32_t stop;                      /* others ask it to end */
  _Atomic uint64_t used, polled;              /* nanoseconds of CPU, and those of turns in which nothing could be done */
} link_view_t;

/* Connects a port with a ring; with `sending` the PE writes there. Returns false if it has no such port. */
bool link_attach(bool sending, uint16_t port, link_ring_t *ring);

/* Sets the PE to its start. It shows its state in `view`. */
void link_start(link_view_t *view);

/* Goes on for so many nanoseconds, or with 0 until it has to wait. Returns 0 while there is more to do, 1 when all
 * frames have left, 2 when it was asked to stop, -1 after a failure. *progress says whether anything was done. */
int32_t link_run(uint64_t frames, uint64_t nanoseconds, bool *progress);

/* Why a PE has failed: what the model returned, or -1 with error and port of the link; and the frame of the stage. */
typedef struct {
  int32_t result, error;
  uint32_t port;
  uint64_t frame;
} link_failure_t;

void link_failure(link_failure_t *found);

#endif
