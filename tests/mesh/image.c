/* A PE's firmware as a test links it: the main loop over a link layer that has all frames in memory, those that the PE
 * receives and those that it has to send. image_frames.h has them, port by port:
 *
 *   FRAMES                     how many there are
 *   received[], sent[]         for each port its frames, one behind the other
 *
 * The image ends with 0 if the PE has sent all frames as they are; it says how many each stage has computed. After
 * "held PORT" a send never ends, as of a channel without a credit; after "lost PORT" the other end of a receive is lost
 * in frame 1. */
#include "hwlib_pe.h"
#include "image_frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const hwlib_pe_t hwlib_pe;

static const hwlib_link_block_t *given[IMAGE_RECEIVES], *taken[IMAGE_SENDS];
static uint32_t at[2][IMAGE_RECEIVES + IMAGE_SENDS]; /* frames of each port */
static bool wrong;
static unsigned long held = 65535, lost = 65535;

static const uint8_t *frame_of(const uint8_t *const *ports, bool sending, uint16_t port, const hwlib_link_block_t *block)
{
  return ports[port] + (size_t)at[sending][port] * block->bytes * block->rows;
}

int32_t hwlib_link_receive(uint16_t port, const hwlib_link_block_t *block)
{
  given[port] = block;
  return port == lost && at[0][port] == 1 ? HWLIB_LINK_ERROR_PEER : HWLIB_LINK_OK;
}

int32_t hwlib_link_received(uint16_t port, bool *done)
{
  const hwlib_link_block_t *block = given[port];
  const uint8_t *from = frame_of(received, false, port, block);
  for (uint32_t row = 0; row < block->rows; ++row) {
    memcpy(block->data + (size_t)row * block->stride, from + (size_t)row * block->bytes, block->bytes);
  }
  ++at[0][port];
  *done = true;
  return HWLIB_LINK_OK;
}

int32_t hwlib_link_send(uint16_t port, const hwlib_link_block_t *block)
{
  taken[port] = block;
  return HWLIB_LINK_OK;
}

int32_t hwlib_link_sent(uint16_t port, bool *done)
{
  const hwlib_link_block_t *block = taken[port];
  *done = port != held;
  if (!*done) {
    return HWLIB_LINK_OK;
  }
  const uint8_t *wanted = frame_of(sent, true, port, block);
  for (uint32_t row = 0; row < block->rows; ++row) {
    const uint8_t *found = block->data + (size_t)row * block->stride;
    if (memcmp(found, wanted + (size_t)row * block->bytes, block->bytes) != 0) {
      printf("wrong: send %u frame %u\n", (unsigned)port, (unsigned)at[1][port]);
      wrong = true;
    }
  }
  ++at[1][port];
  return HWLIB_LINK_OK;
}

int main(int argc, char **argv)
{
  if (argc == 3) {
    *(strcmp(argv[1], "held") == 0 ? &held : &lost) = strtoul(argv[2], NULL, 10);
  }
  hwlib_pe_failure_t failure;
  bool progress = true, good = true;
  hwlib_pe_start(&hwlib_pe);
  while (good && progress) {
    good = hwlib_pe_step(&hwlib_pe, FRAMES, &progress, &failure);
  }
  for (uint16_t stage = 0; stage < hwlib_pe.stage_count; ++stage) {
    printf("computed %u\n", (unsigned)hwlib_pe.computed[stage]);
  }
  if (!good) {
    printf("failed %d: error %d, stage %u, port %u\n", (int)failure.result, (int)failure.link_error,
        (unsigned)failure.stage, (unsigned)failure.port);
  }
  return good && !wrong && hwlib_pe_done(&hwlib_pe, FRAMES) ? 0 : 1;
}
