#include "link_pe.h"

#include <string.h>

extern const hwlib_pe_t hwlib_pe;

typedef struct {
  link_ring_t *ring;
  hwlib_link_block_t block;
  bool busy;
} port_t;

static port_t ports[2][HWLIB_PE_PORTS]; /* of receives and of sends */
static hwlib_pe_state_t state;
static int32_t result;
static link_view_t *shown;
static link_idle_t idle;

static int32_t begin(bool sending, uint16_t port, const hwlib_link_block_t *block)
{
  port_t *one = &ports[sending][port];
  if (port >= HWLIB_PE_PORTS || one->ring == NULL || one->busy) {
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

void link_attach(bool sending, uint16_t port, link_ring_t *ring)
{
  ports[sending][port].ring = ring;
}

void link_start(link_view_t *view)
{
  memset(&state, 0, sizeof state);
  memset(&idle, 0, sizeof idle);
  for (uint32_t port = 0; port < HWLIB_PE_PORTS; ++port) {
    ports[0][port].busy = ports[1][port].busy = false;
  }
  result = 0;
  shown = view;
}

static int32_t turns(uint64_t frames, uint64_t nanoseconds, bool *progress)
{
  const uint64_t end = link_now() + nanoseconds;
  *progress = false;
  while (result == 0) {
    bool moved;
    atomic_fetch_add_explicit(&shown->steps, 1, memory_order_relaxed);
    result = hwlib_pe_step(&hwlib_pe, &state, frames, &moved);
    atomic_store_explicit(&shown->computed, state.computed, memory_order_relaxed);
    if (result != 0) {
      break;
    }
    if (hwlib_pe_done(&hwlib_pe, &state, frames)) {
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

void link_failure(int32_t *model, int32_t *error, uint32_t *port, uint64_t *frame)
{
  *model = result;
  *error = state.link_error;
  *port = state.port;
  *frame = state.computed;
}
