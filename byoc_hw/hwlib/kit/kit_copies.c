/* hwlib_hal_copy_1d, hwlib_hal_copy_2d and hwlib_hal_copy_wait. */
#include "kit_internal.h"

#include <string.h>

#define COPY_1D "hwlib_hal_copy_1d"
#define COPY_2D "hwlib_hal_copy_2d"
#define COPY_WAIT "hwlib_hal_copy_wait"

/* All in units of the DMA's alignment. */
typedef struct {
  const char *what;
  uint32_t bytes, rows, local_stride, main_stride;
} rows_t;

static const rows_t row_cases[] = {
    {"dense rows", 16, 5, 16, 16},
    {"dense rows out of rows that lie apart in main memory", 7, 6, 7, 11},
    {"rows that lie apart in local memory", 7, 6, 11, 7},
    {"rows that lie apart on both sides", 5, 7, 9, 13},
    {"rows of one unit", 1, 9, 3, 2},
    {"many rows of one unit", 1, 100, 1, 2},
    {"rows of a little more than a power of two", 65, 3, 70, 67},
    {"a single row, whatever its strides", 13, 1, 1, 0},
};
static const uint32_t lengths[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 255, 257};

typedef struct {
  const kit_memory_t *memory;
  unsigned place;
  int inward, is_2d;
  uint32_t local, main; /* offsets into the window, and into the image in main memory */
  rows_t rows;          /* in bytes */
} copy_t;

static hwlib_status_t start(const copy_t *copy, uint8_t *image, hwlib_token_t *token)
{
  hwlib_place_t local = kit_local(copy->memory, kit_base(copy->memory, copy->place) + copy->local);
  hwlib_place_t other = kit_main(image + copy->main);
  hwlib_place_t target = copy->inward ? local : other, source = copy->inward ? other : local;
  const rows_t *rows = &copy->rows;
  if (!copy->is_2d) {
    return hwlib_hal_copy_1d(target, source, rows->bytes, token);
  }
  uint32_t target_stride = copy->inward ? rows->local_stride : rows->main_stride;
  uint32_t source_stride = copy->inward ? rows->main_stride : rows->local_stride;
  return hwlib_hal_copy_2d(target, target_stride, source, source_stride, rows->bytes, rows->rows, token);
}

/* One copy between a window and an image with known contents: it must change nothing in the target but the
 * copied rows. */
static int run(const copy_t *copy)
{
  const char *function = copy->is_2d ? COPY_2D : COPY_1D;
  uint32_t base = kit_base(copy->memory, copy->place);
  hwlib_token_t token = 0;

  kit_fill(kit_before, KIT_WINDOW);
  kit_fill(kit_weights, KIT_WINDOW); /* the image in main memory */
  memcpy(kit_expected, copy->inward ? kit_before : kit_weights, KIT_WINDOW);
  memcpy(kit_got, kit_weights, KIT_WINDOW);
  for (uint32_t row = 0; row < copy->rows.rows; ++row) {
    uint32_t in_window = copy->local + row * copy->rows.local_stride;
    uint32_t in_main = copy->main + row * copy->rows.main_stride;
    memcpy(kit_expected + (copy->inward ? in_window : in_main),
           copy->inward ? kit_weights + in_main : kit_before + in_window, copy->rows.bytes);
  }

  if (!kit_load(copy->memory, base, kit_before, KIT_WINDOW) ||
      !kit_ok(function, start(copy, copy->inward ? kit_weights : kit_got, &token)) ||
      !kit_ok(COPY_WAIT, hwlib_hal_copy_wait(token))) {
    return 0;
  }
  return (!copy->inward || kit_fetch(copy->memory, base, kit_got, KIT_WINDOW)) &&
         kit_compare(function, kit_expected, KIT_WINDOW);
}

/* At the start of the memory, at an offset, and at the end of the memory. Rows that a small window has no room for
 * are left to larger memories. */
static int run_at_all_places(copy_t copy)
{
  uint32_t span = (copy.rows.rows - 1) * copy.rows.local_stride + copy.rows.bytes;
  uint32_t main_span = (copy.rows.rows - 1) * copy.rows.main_stride + copy.rows.bytes;
  copy.main = 5 * KIT_UNIT;
  if (span + 3 * KIT_UNIT > KIT_WINDOW || main_span + copy.main > KIT_WINDOW) {
    return 1;
  }
  copy.place = KIT_AT_START;
  copy.local = 0;
  if (!run(&copy)) {
    return 0;
  }
  copy.local = 3 * KIT_UNIT;
  if (!run(&copy)) {
    return 0;
  }
  copy.place = KIT_AT_END;
  copy.local = KIT_WINDOW - span;
  return run(&copy);
}

static const char *subject(const kit_memory_t *memory, int inward)
{
  if (memory->memory == HWLIB_LOCAL_WEIGHTS) {
    return inward ? "main memory to local weights" : "local weights to main memory";
  }
  return inward ? "main memory to local activations" : "local activations to main memory";
}

static void check_1d(const kit_memory_t *memory, int inward)
{
  kit_begin(COPY_1D, subject(memory, inward), "lengths from one unit on, and nothing beyond them");
  int fine = 1;
  for (size_t i = 0; fine && i < sizeof lengths / sizeof lengths[0]; ++i) {
    rows_t rows = {"", lengths[i] * KIT_UNIT, 1, 0, 0};
    fine = run_at_all_places((copy_t){.memory = memory, .inward = inward, .rows = rows});
  }
  kit_end();
}

static void check_2d(const kit_memory_t *memory, int inward)
{
  for (size_t i = 0; i < sizeof row_cases / sizeof row_cases[0]; ++i) {
    rows_t rows = row_cases[i];
    rows.bytes *= KIT_UNIT;
    rows.local_stride *= KIT_UNIT;
    rows.main_stride *= KIT_UNIT;
    kit_begin(COPY_2D, subject(memory, inward), rows.what);
    (void)run_at_all_places((copy_t){.memory = memory, .inward = inward, .is_2d = 1, .rows = rows});
    kit_end();
  }
}

static uint32_t chunk(const kit_memory_t *memory, uint32_t address)
{
  uint32_t left = memory->size - address;
  return left < KIT_WINDOW ? left : KIT_WINDOW;
}

static void fill_by_address(uint8_t *bytes, const kit_memory_t *memory, uint32_t address)
{
  for (uint32_t i = 0; i < chunk(memory, address); ++i) {
    bytes[i] = kit_pattern(memory->memory, address + i);
  }
}

static void check_every_byte(const kit_memory_t *memory)
{
  kit_begin(COPY_1D, memory->name, "every byte in, then every byte out");
  int fine = 1;
  for (uint32_t address = 0; fine && address < memory->size; address += KIT_WINDOW) {
    fill_by_address(kit_before, memory, address);
    fine = kit_load(memory, address, kit_before, chunk(memory, address));
  }
  for (uint32_t address = 0; fine && address < memory->size; address += KIT_WINDOW) {
    fill_by_address(kit_expected, memory, address);
    fine = kit_fetch(memory, address, kit_got, chunk(memory, address)) &&
           kit_compare(COPY_1D, kit_expected, chunk(memory, address));
  }
  kit_end();
}

void kit_check_copies(void)
{
  for (unsigned i = 0; i < KIT_MEMORIES; ++i) {
    check_every_byte(&kit_memories[i]);
  }
  for (unsigned i = 0; i < KIT_MEMORIES; ++i) {
    for (int inward = 1; inward >= 0; --inward) {
      check_1d(&kit_memories[i], inward);
      check_2d(&kit_memories[i], inward);
    }
  }
}

/* ---------------------------------------------------------------- waits */

enum { UNITS = KIT_WINDOW / KIT_UNIT, MORE_THAN_A_QUEUE = 2 * HWLIB_ACCELERATOR_QUEUE + 5 };

int kit_start_pieces(hwlib_token_t *tokens)
{
  const kit_memory_t *memory = &kit_memories[0];
  kit_fill(kit_expected, KIT_WINDOW);
  memset(kit_got, 0, KIT_WINDOW);
  if (!kit_load(memory, 0, kit_expected, KIT_WINDOW)) {
    return 0;
  }
  for (uint32_t i = 0; i < KIT_PIECES; ++i) {
    tokens[i] = 0;
    if (!kit_ok(COPY_1D, hwlib_hal_copy_1d(kit_main(kit_got + i * KIT_PIECE), kit_local(memory, i * KIT_PIECE), KIT_PIECE,
                                           &tokens[i]))) {
      return 0;
    }
  }
  return 1;
}

/* More than 16 bits of a token can count, a few at a time in flight. */
enum { TOKENS = 66000 };

static void check_tokens(void)
{
  static hwlib_token_t tokens[KIT_PIECES];
  kit_begin(COPY_1D, "", "thousands of tokens: not 0, and different while their copies are in flight");
  int fine = kit_start_pieces(tokens);
  for (uint32_t i = KIT_PIECES; fine && i < TOKENS; ++i) {
    hwlib_token_t *token = &tokens[i % KIT_PIECES];
    for (uint32_t j = 1; fine && j < KIT_PIECES; ++j) {
      if (tokens[(i + j) % KIT_PIECES] == *token) {
        kit_fail(COPY_1D, "tokens that equal that of copy", i - KIT_PIECES, 0, 1);
        fine = 0;
      }
    }
    if (*token == 0) {
      kit_fail(COPY_1D, "token of copy", i - KIT_PIECES, 1, 0);
      fine = 0;
    }
    fine = fine && kit_ok(COPY_WAIT, hwlib_hal_copy_wait(*token)) &&
           kit_ok(COPY_1D, hwlib_hal_copy_1d(kit_main(kit_got), kit_local(&kit_memories[0], 0), KIT_UNIT, token));
  }
  (void)kit_ok("hwlib_hal_init", hwlib_hal_init());
  kit_end();
}

static void check_order(const char *what, const uint8_t *order)
{
  hwlib_token_t tokens[KIT_PIECES];
  kit_begin(COPY_WAIT, "", what);
  int fine = kit_start_pieces(tokens);
  for (uint32_t i = 0; fine && i < KIT_PIECES; ++i) {
    uint32_t piece = order[i] * (uint32_t)KIT_PIECE;
    fine = kit_ok(COPY_WAIT, hwlib_hal_copy_wait(tokens[order[i]]));
    if (fine && !kit_equal(kit_expected + piece, kit_got + piece, KIT_PIECE)) {
      kit_fail(COPY_WAIT, "too early, copy", order[i], 1, 0);
      fine = 0;
    }
  }
  kit_end();
}

static void check_last(void)
{
  hwlib_token_t tokens[KIT_PIECES];
  kit_begin(COPY_WAIT, "", "when a copy has ended, those started before it have too");
  if (kit_start_pieces(tokens) && kit_ok(COPY_WAIT, hwlib_hal_copy_wait(tokens[KIT_PIECES - 1]))) {
    (void)kit_compare(COPY_WAIT, kit_expected, KIT_WINDOW);
  }
  (void)kit_ok("hwlib_hal_init", hwlib_hal_init());
  kit_end();
}

static void check_many(void)
{
  hwlib_token_t token = 0;
  kit_begin(COPY_1D, "", "more copies than any queue holds, only the last waited for");
  kit_fill(kit_expected, KIT_WINDOW);
  int fine = kit_load(&kit_memories[0], 0, kit_expected, KIT_WINDOW);
  memcpy(kit_got, kit_expected, KIT_WINDOW);
  for (uint32_t i = 0; i < MORE_THAN_A_QUEUE; ++i) {
    memset(kit_got + i % UNITS * KIT_UNIT, 0, KIT_UNIT);
  }
  for (uint32_t i = 0; fine && i < MORE_THAN_A_QUEUE; ++i) {
    uint32_t at = i % UNITS * KIT_UNIT;
    fine = kit_ok(COPY_1D, hwlib_hal_copy_1d(kit_main(kit_got + at), kit_local(&kit_memories[0], at), KIT_UNIT, &token));
  }
  if (fine && kit_ok(COPY_WAIT, hwlib_hal_copy_wait(token))) {
    (void)kit_compare(COPY_1D, kit_expected, KIT_WINDOW);
  }
  (void)kit_ok("hwlib_hal_init", hwlib_hal_init());
  kit_end();
}

/* In, out, and in again: each copy reads what the one before it has written. */
static void check_chain(void)
{
  hwlib_token_t token = 0;
  hwlib_place_t first = kit_local(&kit_memories[0], 0), second = kit_local(&kit_memories[1], 0);
  kit_begin(COPY_1D, "", "moves what the copy before it brought, without a wait in between");
  kit_fill(kit_before, KIT_WINDOW);
  memset(kit_expected, 0, KIT_WINDOW); /* the buffer in main memory between the two local ones */
  if (kit_ok(COPY_1D, hwlib_hal_copy_1d(first, kit_main(kit_before), KIT_WINDOW, &token)) &&
      kit_ok(COPY_1D, hwlib_hal_copy_1d(kit_main(kit_expected), first, KIT_WINDOW, &token)) &&
      kit_ok(COPY_1D, hwlib_hal_copy_1d(second, kit_main(kit_expected), KIT_WINDOW, &token)) &&
      kit_ok(COPY_WAIT, hwlib_hal_copy_wait(token)) && kit_fetch(&kit_memories[1], 0, kit_got, KIT_WINDOW)) {
    (void)kit_compare(COPY_1D, kit_before, KIT_WINDOW);
  }
  kit_end();
}

/* The first copies of all, call by call: a function that crashes or hangs is named. */
static void check_there_and_back(void)
{
  hwlib_token_t token = 0;
  kit_begin(COPY_1D, "", "returns 0");
  kit_fill(kit_before, KIT_WINDOW);
  int fine = kit_ok(COPY_1D, hwlib_hal_copy_1d(kit_local(&kit_memories[0], 0), kit_main(kit_before), KIT_UNIT, &token));
  kit_end();
  kit_begin(COPY_WAIT, "", "returns 0");
  (void)(fine && kit_ok(COPY_WAIT, hwlib_hal_copy_wait(token)));
  kit_end();
  kit_begin(COPY_1D, "", "there and back");
  if (kit_load(&kit_memories[0], 0, kit_before, KIT_WINDOW) && kit_fetch(&kit_memories[0], 0, kit_got, KIT_WINDOW)) {
    (void)kit_compare(COPY_1D, kit_before, KIT_WINDOW);
  }
  kit_end();
}

/* If the wait returns early, the copy reads bytes that are written to its source after the wait. */
static void check_source_is_free(void)
{
  hwlib_token_t token = 0;
  kit_begin(COPY_WAIT, "", "after the wait, the source in main memory may change");
  kit_fill(kit_before, KIT_WINDOW);
  memcpy(kit_expected, kit_before, KIT_WINDOW);
  int fine = kit_ok(COPY_1D, hwlib_hal_copy_1d(kit_local(&kit_memories[0], 0), kit_main(kit_before), KIT_WINDOW,
                                               &token)) &&
             kit_ok(COPY_WAIT, hwlib_hal_copy_wait(token));
  for (uint32_t i = KIT_WINDOW; i > 0; --i) { /* from the last byte, which the copy reads last */
    kit_before[i - 1] = (uint8_t)~kit_before[i - 1];
  }
  if (fine && kit_fetch(&kit_memories[0], 0, kit_got, KIT_WINDOW) && !kit_equal(kit_expected, kit_got, KIT_WINDOW)) {
    kit_settle(); /* the wait for the copy out may be early too */
    int early = kit_got[KIT_WINDOW - 1] == kit_before[KIT_WINDOW - 1];
    (void)kit_compare(early ? COPY_WAIT : COPY_1D, kit_expected, KIT_WINDOW);
  }
  kit_end();
}

void kit_check_copy_wait(void)
{
  static const uint8_t forward[KIT_PIECES] = {0, 1, 2, 3, 4, 5, 6, 7}, backward[KIT_PIECES] = {7, 6, 5, 4, 3, 2, 1, 0},
                       mixed[KIT_PIECES] = {3, 0, 7, 1, 5, 4, 2, 6};
  check_there_and_back();
  check_source_is_free();
  check_tokens();
  check_order("in the order of the starts", forward);
  check_order("in the opposite order", backward);
  check_order("in any order", mixed);
  check_last();
  check_many();
  check_chain();
}
