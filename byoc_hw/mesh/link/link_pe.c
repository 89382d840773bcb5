#include "link_pe.h"

#include <stdlib.h>
#include <string.h>

extern const hwlib_pe_t hwlib_pe;

typedef struct {
  link_ring_t *ring;
  hwlib_link_block_t block;
  bool busy;
} port_t;

static port_t *ports[2]; /* of receives and of sends */
static hwlib_pe_failure_t failure;
static bool has_failed;
static link_view_t *shown;
static link_idle_t idle;

static uint32_t count(bool sending)
{
  return sending ? hwlib_pe.send_count : hwlib_pe.receive_count;
}

static int32_t begin(bool sending, uint16_t port, const hwlib_link_block_t *block)
{
  if (port >= count(sending) || ports[sending] == NULL) {
    return HWLIB_LINK_ERROR_PORT;
  }
  port_t *one = &ports[sending][port];
  if (one->ring == NULL || one->busy) {
    return HWLIB_LINK_ERROR_PORT;
  }
  one->block = *block;
  one->busy = true;
  return HWLIB_LINK_OK;
}

/* A computer has no DMA for this: the bytes move when the PE asks whether they have. */
static int32_t ended(bool sending, uint16_t port, bool *done)
{
  port_t *one = &ports[sending][port];
  *done = !one->busy;
  if (*done) {
    return HWLIB_LINK_OK;
  }
  int32_t error = sending ? link_put(one->ring, &one->block, done) : link_take(one->ring, &one->block, done);
  one->busy = !*done;
  return error;
}

int32_t hwlib_link_send(uint16_t port, const hwlib_link_block_t *block)
{
  return begin(true, port, block);
}

int32_t hwlib_link_receive(uint16_t port, const hwlib_link_block_t *block)
{
  return begin(false, port, block);
}

int32_t hwlib_link_sent(uint16_t port, bool *done)
{
  return ended(true, port, done);
}

int32_t hwlib_link_received(uint16_t port, bool *done)
{
  return ended(false, port, done);
}

bool link_attach(bool sending, uint16_t port, link_ring_t *ring)
{
  if (ports[sending] == NULL) {
    ports[sending] = calloc(count(sending), sizeof *ports[sending]);
  }
  if (ports[sending] == NULL || port >= count(sending)) {
    return false;
  }
  ports[sending][port].ring = ring;
  return true;
}

void link_start(link_view_t *view)
{
  hwlib_pe_start(&hwlib_pe);
  memset(&idle, 0, sizeof idle);
  for (uint32_t sending = 0; sending < 2; ++sending) {
    for (uint32_t port = 0; ports[sending] != NULL && port < count(sending); ++port) {
      ports[sending][port].busy = false;
    }
  }
  has_failed = false;
  shown = view;
}

/* The frames that all stages have computed. */
static uint64_t computed(void)
{
  uint64_t least = hwlib_pe.computed[0];
  for (uint16_t stage = 1; stage < hwlib_pe.stage_count; ++stage) {
    least = hwlib_pe.computed[stage] < least ? hwlib_pe.computed[stage] : least;
  }
  return least;
}

static int32_t turns(uint64_t frames, uint64_t nanoseconds, bool *progress)
{
  const uint64_t end = link_now() + nanoseconds;
  *progress = false;
  while (!has_failed) {
    bool moved;
    atomic_fetch_add_explicit(&shown->steps, 1, memory_order_relaxed);
    has_failed = !hwlib_pe_step(&hwlib_pe, frames, &moved, &failure);
    atomic_store_explicit(&shown->computed, computed(), memory_order_relaxed);
    if (has_failed) {
      break;
    }
    if (hwlib_pe_done(&hwlib_pe, frames)) {
      return 1;
    }
    if (atomic_load_explicit(&shown->stop, memory_order_relaxed) != 0) {
      return 2;
    }
    *progress = *progress || moved;
    if (nanoseconds != 0) {
      link_turn(&idle, moved);
    }
    if (nanoseconds != 0 ? link_now() >= end : !moved) {
      return 0;
    }
  }
  return -1;
}

int32_t link_run(uint64_t frames, uint64_t nanoseconds, bool *progress)
{
  const uint64_t before = link_cpu();
  const int32_t found = turns(frames, nanoseconds, progress);
  atomic_fetch_add_explicit(&shown->used, link_cpu() - before, memory_order_relaxed);
  atomic_store_explicit(&shown->polled, idle.polled, memory_order_relaxed);
  return found;
}

void link_failure(link_failure_t *found)
{
  *found = (link_failure_t){failure.result, failure.link_error, failure.port, hwlib_pe.computed[failure.stage]};
}
