#define _POSIX_C_SOURCE 200809L
#include "link_rings.h"

#include <sched.h>
#include <string.h>
#include <time.h>

typedef struct {
  uint64_t frame, check;
} slot_t;

static uint64_t slot_bytes(uint32_t bytes)
{
  return (sizeof(slot_t) + bytes + LINK_LINE - 1) / LINK_LINE * LINK_LINE;
}

uint64_t link_ring_bytes(uint32_t slots, uint32_t bytes)
{
  return sizeof(link_ring_t) + slots * slot_bytes(bytes);
}

void link_ring_start(link_ring_t *ring, uint32_t slots, uint32_t bytes)
{
  atomic_store(&ring->written, 0);
  atomic_store(&ring->read, 0);
  ring->slots = slots;
  ring->bytes = bytes;
}

static uint8_t *slot_of(link_ring_t *ring, uint64_t frame)
{
  return (uint8_t *)ring + sizeof *ring + frame % ring->slots * slot_bytes(ring->bytes);
}

/* Of the frame's number and every byte, eight at a time. */
static uint64_t check_of(const uint8_t *data, uint32_t bytes, uint64_t frame)
{
  uint64_t check = frame + 0x9e3779b97f4a7c15u;
  for (uint32_t at = 0; at < bytes; at += 8) {
    uint64_t word = 0;
    memcpy(&word, data + at, bytes - at < 8 ? bytes - at : 8);
    check = (check ^ word) * 0xff51afd7ed558ccdu;
    check ^= check >> 32;
  }
  return check;
}

int32_t link_put(link_ring_t *ring, const hwlib_link_block_t *block, bool *done)
{
  const uint64_t frame = atomic_load_explicit(&ring->written, memory_order_relaxed);
  *done = frame - atomic_load_explicit(&ring->read, memory_order_acquire) < ring->slots;
  if (ring->bytes != block->bytes * block->rows) {
    return HWLIB_LINK_ERROR_PORT;
  }
  if (!*done) {
    return HWLIB_LINK_OK;
  }
  uint8_t *slot = slot_of(ring, frame), *data = slot + sizeof(slot_t);
  for (uint32_t row = 0; row < block->rows; ++row) {
    memcpy(data + (uint64_t)row * block->bytes, block->data + (uint64_t)row * block->stride, block->bytes);
  }
  const slot_t head = {frame, check_of(data, ring->bytes, frame)};
  memcpy(slot, &head, sizeof head);
  atomic_store_explicit(&ring->written, frame + 1, memory_order_release);
  return HWLIB_LINK_OK;
}

int32_t link_take(link_ring_t *ring, const hwlib_link_block_t *block, bool *done)
{
  const uint64_t frame = atomic_load_explicit(&ring->read, memory_order_relaxed);
  *done = atomic_load_explicit(&ring->written, memory_order_acquire) != frame;
  if (ring->bytes != block->bytes * block->rows) {
    return HWLIB_LINK_ERROR_PORT;
  }
  if (!*done) {
    return HWLIB_LINK_OK;
  }
  const uint8_t *slot = slot_of(ring, frame), *data = slot + sizeof(slot_t);
  slot_t head;
  memcpy(&head, slot, sizeof head);
  if (head.frame != frame || head.check != check_of(data, ring->bytes, frame)) {
    return HWLIB_LINK_ERROR_DATA;
  }
  for (uint32_t row = 0; row < block->rows; ++row) {
    memcpy(block->data + (uint64_t)row * block->stride, data + (uint64_t)row * block->bytes, block->bytes);
  }
  atomic_store_explicit(&ring->read, frame + 1, memory_order_release);
  return HWLIB_LINK_OK;
}

int32_t link_move(link_end_t *end)
{
  const uint64_t before = end->at;
  for (; end->at < end->count; ++end->at) {
    const uint32_t bytes = end->ring->bytes;
    const hwlib_link_block_t block = {end->frames + end->at * bytes, bytes, 1, bytes};
    bool done;
    if ((end->sending ? link_put : link_take)(end->ring, &block, &done) != HWLIB_LINK_OK) {
      return -1;
    }
    if (!done) {
      break;
    }
  }
  return end->at != before;
}

int32_t link_move_all(link_end_t *ends, uint32_t count, uint64_t nanoseconds, link_idle_t *idle)
{
  const uint64_t stop = link_now() + nanoseconds;
  for (;;) {
    bool all = true, moved = false;
    for (uint32_t index = 0; index < count; ++index) {
      int32_t result = link_move(&ends[index]);
      if (result < 0) {
        return -1 - (int32_t)index;
      }
      moved = moved || result > 0;
      all = all && ends[index].at == ends[index].count;
    }
    if (all || link_now() >= stop) {
      return all;
    }
    link_turn(idle, moved);
  }
}

const uint8_t *link_frame(link_ring_t *ring, uint64_t frame)
{
  return slot_of(ring, frame) + sizeof(slot_t);
}

static uint64_t nanoseconds_of(clockid_t clock)
{
  struct timespec time;
  (void)clock_gettime(clock, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t link_now(void)
{
  return nanoseconds_of(CLOCK_MONOTONIC);
}

uint64_t link_cpu(void)
{
  return nanoseconds_of(CLOCK_THREAD_CPUTIME_ID);
}

static void rest(uint64_t turn)
{
  enum { YIELDS = 4, DOUBLINGS = 6 };
  if (turn < YIELDS) {
    (void)sched_yield();
    return;
  }
  const uint64_t longer = turn - YIELDS < DOUBLINGS ? turn - YIELDS : DOUBLINGS;
  const struct timespec pause = {0, 20000L << longer}; /* up to 1.3 milliseconds: rings hold what comes meanwhile */
  (void)nanosleep(&pause, NULL);
}

void link_turn(link_idle_t *idle, bool worked)
{
  if (worked) {
    idle->turns = 0;
    return;
  }
  if (idle->turns == 0) {
    idle->mark = link_cpu();
  }
  rest(++idle->turns);
  const uint64_t now = link_cpu();
  idle->polled += now - idle->mark;
  idle->mark = now;
}
