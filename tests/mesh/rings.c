/* Frames through rings, on a PE's main loop and around it: what arrives is what left, and nothing else is touched. */
#include "link_pe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FRAMES = 50, ROWS = 3, ROW = 5, STRIDE = 9, BYTES = ROWS * ROW };

/* A PE that adds 1 to each byte: it receives blocks with gaps between their rows, and sends rows without. */
static uint8_t in[2][ROWS * STRIDE], out[2][BYTES];

static int32_t run(uint32_t set)
{
  for (uint32_t at = 0; at < BYTES; ++at) {
    out[set][at] = (uint8_t)(in[set][at / ROW * STRIDE + at % ROW] + 1);
  }
  return 0;
}

static const hwlib_pe_port_t receives[] = {{{{in[0], ROW, ROWS, STRIDE}, {in[1], ROW, ROWS, STRIDE}}, false}};
static const hwlib_pe_port_t sends[] = {{{{out[0], BYTES, 1, BYTES}, {out[1], BYTES, 1, BYTES}}, false}};
static const hwlib_pe_stage_t stages[] = {{0, 1, 0, 1, run}};
static uint64_t computed[1];
static hwlib_pe_moved_t received[1], sent[1];
extern const hwlib_pe_t hwlib_pe;
const hwlib_pe_t hwlib_pe = {stages, receives, sends, computed, received, sent, 1, 1, 1};

static void check(bool good, const char *what)
{
  if (!good) {
    fprintf(stderr, "%s\n", what);
    exit(1);
  }
}

static link_ring_t *ring(uint32_t slots)
{
  link_ring_t *one = aligned_alloc(LINK_LINE, link_ring_bytes(slots, BYTES));
  check(one != NULL, "no memory");
  link_ring_start(one, slots, BYTES);
  return one;
}

int main(void)
{
  link_ring_t *to = ring(2), *from = ring(3);
  static uint8_t given[FRAMES * BYTES], found[FRAMES * BYTES];
  for (uint32_t at = 0; at < sizeof given; ++at) {
    given[at] = (uint8_t)(at * 7);
  }
  link_view_t *view = aligned_alloc(LINK_LINE, sizeof *view);
  check(view != NULL, "no memory");
  memset(view, 0, sizeof *view);
  memset(in, 99, sizeof in);
  check(link_attach(false, 0, to) && link_attach(true, 0, from), "the PE has these ports");
  check(!link_attach(false, 1, to) && !link_attach(true, 1, from), "and no others");
  link_start(view);
  link_end_t ends[] = {{to, given, FRAMES, 0, true}, {from, found, FRAMES, 0, false}};
  bool progress = true, all = false;
  while (!all) {
    check(link_move(&ends[0]) >= 0 && link_move(&ends[1]) >= 0, "frames are good");
    check(ends[0].at - ends[1].at <= 2 + 3 + 2 + 2, "credits hold the frames back"); /* two rings, two sets of each */
    int32_t result = link_run(FRAMES, 0, &progress);
    check(result >= 0, "the PE goes on");
    all = result == 1 && ends[1].at == FRAMES;
  }
  for (uint32_t at = 0; at < sizeof given; ++at) {
    check(found[at] == (uint8_t)(given[at] + 1), "a byte is wrong");
  }
  check(in[0][ROW] == 99 && in[1][STRIDE - 1] == 99, "bytes between rows are touched");
  check(view->computed == FRAMES, "the view shows the frames");

  /* A frame that is damaged in the ring, and a block of another size. */
  bool done;
  const hwlib_link_block_t block = {given, BYTES, 1, BYTES}, other = {given, BYTES - 1, 1, BYTES};
  link_ring_start(to, 2, BYTES);
  check(link_put(to, &other, &done) == HWLIB_LINK_ERROR_PORT, "a block of another size");
  check(link_put(to, &block, &done) == HWLIB_LINK_OK && done, "there is room");
  check(link_put(to, &block, &done) == HWLIB_LINK_OK && done, "for two frames");
  check(link_put(to, &block, &done) == HWLIB_LINK_OK && !done, "and no more");
  for (uint32_t at = 0; at < BYTES; ++at) {
    uint8_t *byte = (uint8_t *)(uintptr_t)link_frame(to, 0) + at;
    *byte ^= 1;
    check(link_take(to, &block, &done) == HWLIB_LINK_ERROR_DATA, "every byte is checked");
    *byte ^= 1;
  }
  check(link_take(to, &block, &done) == HWLIB_LINK_OK && done, "the frame is good again");

  /* Turns without work leave the computer to others, and say what they take of it. */
  link_idle_t idle = {0, 0, 0};
  const uint64_t start = link_now();
  for (uint32_t turn = 0; turn < 40; ++turn) {
    link_turn(&idle, false);
  }
  const uint64_t rested = link_now() - start;
  check(idle.turns == 40 && idle.polled > 0 && 2 * idle.polled < rested, "a turn without work is a rest");
  const uint64_t polled = idle.polled;
  link_turn(&idle, true);
  check(idle.turns == 0 && idle.polled == polled, "a turn with work is none");
  free(to);
  free(from);
  free(view);
  return 0;
}
