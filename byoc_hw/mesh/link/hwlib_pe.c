#include "hwlib_pe.h"

static const uint16_t SEND = 32768; /* what a failure adds to the port of a send */

static bool failed(hwlib_pe_failure_t *failure, uint16_t stage, int32_t error, uint16_t port)
{
  *failure = (hwlib_pe_failure_t){-1, error, stage, port};
  return false;
}

static bool receive(const hwlib_pe_t *pe, uint16_t stage, uint64_t frames, bool *progress, hwlib_pe_failure_t *failure)
{
  const hwlib_pe_stage_t *own = &pe->stages[stage];
  for (uint16_t index = 0; index < own->receive_count; ++index) {
    const uint16_t port = (uint16_t)(own->receive + index);
    hwlib_pe_moved_t *moved = &pe->received[port];
    bool done = false;
    int32_t error = HWLIB_LINK_OK;
    if (!moved->moving) {
      if (moved->frames >= frames || moved->frames >= pe->computed[stage] + (pe->receives[port].single ? 1 : 2)) {
        continue; /* no more frames, or its buffers are full */
      }
      error = hwlib_link_receive(port, &pe->receives[port].blocks[moved->frames % 2]);
      moved->moving = true;
      *progress = true;
    }
    if (error == HWLIB_LINK_OK) {
      error = hwlib_link_received(port, &done);
    }
    if (error != HWLIB_LINK_OK) {
      return failed(failure, stage, error, port);
    }
    if (done) {
      moved->moving = false;
      ++moved->frames;
      *progress = true;
    }
  }
  return true;
}

static bool send(const hwlib_pe_t *pe, uint16_t stage, bool *progress, hwlib_pe_failure_t *failure)
{
  const hwlib_pe_stage_t *own = &pe->stages[stage];
  for (uint16_t index = 0; index < own->send_count; ++index) {
    const uint16_t port = (uint16_t)(own->send + index);
    hwlib_pe_moved_t *moved = &pe->sent[port];
    bool done = false;
    int32_t error = HWLIB_LINK_OK;
    if (!moved->moving) {
      if (moved->frames >= pe->computed[stage]) {
        continue;
      }
      error = hwlib_link_send(port, &pe->sends[port].blocks[moved->frames % 2]);
      moved->moving = true;
      *progress = true;
    }
    if (error == HWLIB_LINK_OK) {
      error = hwlib_link_sent(port, &done);
    }
    if (error != HWLIB_LINK_OK) {
      return failed(failure, stage, error, (uint16_t)(port + SEND));
    }
    if (done) {
      moved->moving = false;
      ++moved->frames;
      *progress = true;
    }
  }
  return true;
}

static bool ready(const hwlib_pe_t *pe, uint16_t stage, uint64_t frames)
{
  const hwlib_pe_stage_t *own = &pe->stages[stage];
  const uint64_t frame = pe->computed[stage];
  if (frame >= frames) {
    return false;
  }
  for (uint16_t index = 0; index < own->receive_count; ++index) {
    if (pe->received[own->receive + index].frames <= frame) {
      return false;
    }
  }
  for (uint16_t index = 0; index < own->send_count; ++index) {
    if (frame >= 2 && pe->sent[own->send + index].frames < frame - 1) {
      return false; /* the outputs of two frames before are still leaving */
    }
  }
  return true;
}

/* The stage to compute next, or the number of stages if none can. */
static uint16_t next(const hwlib_pe_t *pe, uint64_t frames)
{
  uint16_t found = pe->stage_count;
  for (uint16_t stage = 0; stage < pe->stage_count; ++stage) {
    if ((found == pe->stage_count || pe->computed[stage] < pe->computed[found]) && ready(pe, stage, frames)) {
      found = stage;
    }
  }
  return found;
}

void hwlib_pe_start(const hwlib_pe_t *pe)
{
  for (uint16_t stage = 0; stage < pe->stage_count; ++stage) {
    pe->computed[stage] = 0;
  }
  for (uint16_t port = 0; port < pe->receive_count; ++port) {
    pe->received[port] = (hwlib_pe_moved_t){0, false};
  }
  for (uint16_t port = 0; port < pe->send_count; ++port) {
    pe->sent[port] = (hwlib_pe_moved_t){0, false};
  }
}

bool hwlib_pe_step(const hwlib_pe_t *pe, uint64_t frames, bool *progress, hwlib_pe_failure_t *failure)
{
  *progress = false;
  for (uint16_t stage = 0; stage < pe->stage_count; ++stage) {
    if (!receive(pe, stage, frames, progress, failure) || !send(pe, stage, progress, failure)) {
      return false;
    }
  }
  const uint16_t stage = next(pe, frames);
  if (stage == pe->stage_count) {
    return true;
  }
  const int32_t result = pe->stages[stage].run((uint32_t)(pe->computed[stage] % 2));
  if (result != 0) {
    *failure = (hwlib_pe_failure_t){result, HWLIB_LINK_OK, stage, 0};
    return false;
  }
  ++pe->computed[stage];
  *progress = true;
  return send(pe, stage, progress, failure);
}

bool hwlib_pe_done(const hwlib_pe_t *pe, uint64_t frames)
{
  for (uint16_t stage = 0; stage < pe->stage_count; ++stage) {
    if (pe->computed[stage] < frames) {
      return false;
    }
  }
  for (uint16_t port = 0; port < pe->send_count; ++port) {
    if (pe->sent[port].frames < frames) {
      return false;
    }
  }
  return true;
}
