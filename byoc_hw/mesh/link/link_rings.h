/* Channels as rings in memory that threads or processes share: a link layer for computers.
 *
 * A ring has a head, and a slot for each frame that it can hold. A slot starts with the number of the frame and a
 * check of its bytes. One end writes, the other reads. */
#ifndef LINK_RINGS_H
#define LINK_RINGS_H

#include "hwlib_link.h"

#include <stdatomic.h>

enum { LINK_LINE = 64 };

typedef struct {
  _Alignas(LINK_LINE) _Atomic uint64_t written; /* frames, since the start */
  _Alignas(LINK_LINE) _Atomic uint64_t read;
  _Alignas(LINK_LINE) uint32_t slots;
  uint32_t bytes; /* of a frame */
} link_ring_t;

/* Bytes of a ring. */
uint64_t link_ring_bytes(uint32_t slots, uint32_t bytes);
void link_ring_start(link_ring_t *ring, uint32_t slots, uint32_t bytes);

/* Moves the next frame into the ring, or out of it, if there is room, or a frame; *done says whether it did. */
int32_t link_put(link_ring_t *ring, const hwlib_link_block_t *block, bool *done);
int32_t link_take(link_ring_t *ring, const hwlib_link_block_t *block, bool *done);

/* One end of a ring, and `count` frames, one behind the other in memory, of which `at` have been moved. */
typedef struct {
  link_ring_t *ring;
  uint8_t *frames;
  uint64_t count, at;
  bool sending;
} link_end_t;

/* Moves as many frames as can be moved: whether there were any, or -1 for a damaged frame. */
int32_t link_move(link_end_t *end);

/* What a thread knows of its turns without work: how many there were since it had some, and the nanoseconds of CPU that
 * all of them have taken. Zero at the start. */
typedef struct {
  uint64_t turns, mark, polled;
} link_idle_t;

/* Moves frames for so many nanoseconds, and lets others work while there are none. Returns 1 when all of them have been
 * moved, 0 when the time is over, -1 - index for a damaged frame. */
int32_t link_move_all(link_end_t *ends, uint32_t count, uint64_t nanoseconds, link_idle_t *idle);

/* The bytes of one of the last frames that a ring held, if no later one is in its slot. */
const uint8_t *link_frame(link_ring_t *ring, uint64_t frame);

/* The time, and the CPU time of this thread, in nanoseconds. */
uint64_t link_now(void);
uint64_t link_cpu(void);

/* After a turn: with work the next one follows at once, without it there is a rest for those that have some. */
void link_turn(link_idle_t *idle, bool worked);

#endif
