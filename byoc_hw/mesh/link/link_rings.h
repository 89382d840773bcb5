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

/* The same for up to `count` frames, one behind the other in memory: the number of frames, or -1 for a damaged one. */
int64_t link_put_frames(link_ring_t *ring, uint8_t *frames, uint64_t count);
int64_t link_take_frames(link_ring_t *ring, uint8_t *frames, uint64_t count);

#endif
