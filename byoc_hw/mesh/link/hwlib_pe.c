#include "hwlib_pe.h"

static int32_t failed(hwlib_pe_state_t *state, int32_t error, uint16_t port)
{
  state->link_error = error;
  state->port = port;
  return -1;
}

static int32_t receive(const hwlib_pe_t *pe, hwlib_pe_state_t *state, uint64_t frames, bool *progress)
{
  for (uint16_t port = 0; port < pe->receive_count; ++port) {
    uint64_t frame = state->received[port];
    bool done = false;
    int32_t error = HWLIB_LINK_OK;
    if (!state->receiving[port]) {
      if (frame >= frames || frame >= state->computed + (pe->receives[port].single ? 1 : 2)) {
        continue; /* no more frames, or its buffers are full */
      }
      error = hwlib_link_receive(port, &pe->receives[port].blocks[frame % 2]);
      state->receiving[port] = true;
      *progress = true;
    }
    if (error == HWLIB_LINK_OK) {
      error = hwlib_link_received(port, &done);
    }
    if (error != HWLIB_LINK_OK) {
      return failed(state, error, port);
    }
    if (done) {
      state->receiving[port] = false;
      ++state->received[port];
      *progress = true;
    }
  }
  return 0;
}

static int32_t send(const hwlib_pe_t *pe, hwlib_pe_state_t *state, bool *progress)
{
  for (uint16_t port = 0; port < pe->send_count; ++port) {
    uint64_t frame = state->sent[port];
    bool done = false;
    int32_t error = HWLIB_LINK_OK;
    if (!state->sending[port]) {
      if (frame >= state->computed) {
        continue;
      }
      error = hwlib_link_send(port, &pe->sends[port].blocks[frame % 2]);
      state->sending[port] = true;
      *progress = true;
    }
    if (error == HWLIB_LINK_OK) {
      error = hwlib_link_sent(port, &done);
    }
    if (error != HWLIB_LINK_OK) {
      return failed(state, error, (uint16_t)(port + 32768u));
    }
    if (done) {
      state->sending[port] = false;
      ++state->sent[port];
      *progress = true;
    }
  }
  return 0;
}

static bool ready(const hwlib_pe_t *pe, const hwlib_pe_state_t *state, uint64_t frames)
{
  uint64_t frame = state->computed;
  if (frame >= frames) {
    return false;
  }
  for (uint16_t port = 0; port < pe->receive_count; ++port) {
    if (state->received[port] <= frame) {
      return false;
    }
  }
  for (uint16_t port = 0; port < pe->send_count; ++port) {
    if (frame >= 2 && state->sent[port] < frame - 1) {
      return false; /* the outputs of two frames before are still leaving */
    }
  }
  return true;
}

int32_t hwlib_pe_step(const hwlib_pe_t *pe, hwlib_pe_state_t *state, uint64_t frames, bool *progress)
{
  *progress = false;
  int32_t result = receive(pe, state, frames, progress);
  if (result == 0) {
    result = send(pe, state, progress);
  }
  if (result != 0 || !ready(pe, state, frames)) {
    return result;
  }
  result = pe->run((uint32_t)(state->computed % 2));
  if (result != 0) {
    return result;
  }
  ++state->computed;
  *progress = true;
  return send(pe, state, progress);
}

bool hwlib_pe_done(const hwlib_pe_t *pe, const hwlib_pe_state_t *state, uint64_t frames)
{
  for (uint16_t port = 0; port < pe->send_count; ++port) {
    if (state->sent[port] < frames) {
      return false;
    }
  }
  return state->computed >= frames;
}
