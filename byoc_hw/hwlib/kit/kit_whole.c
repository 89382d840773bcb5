/* hwlib_hal_job_start without a tile: layers that run as a whole, from main memory to main memory. What is expected is
 * computed in the plainest way: the first of those that are left, again and again. */
#include "kit_internal.h"

#include <string.h>

#define JOB_START "hwlib_hal_job_start"
#define JOB_WAIT "hwlib_hal_job_wait"
#define JOB_DONE "hwlib_hal_job_done"

enum { ROWS = 3, EXTENT = 21, STEP = 2, COUNT = 6, BOXES = 12, VALUES = 6, BATCHES = 2, MOST = 256 };
enum { QUESTIONS = 10000000 }; /* so often a job is asked for that never ends */
enum { INT8, UINT8, INT32, FLOAT32, TYPES };

/* Operands, with bytes around the output that no layer touches. */
static struct {
  float data[MOST];
  int32_t second[MOST], third[MOST], workspace[MOST];
  uint8_t ofm[4 * MOST], expected[4 * MOST];
} main_memory;

enum { AROUND = 16 };

static hwlib_place_t places[5];
static hwlib_operand_t operands[5];
static int32_t numbers[16];
static hwlib_whole_layer_t layer;

/* All but `kind` are bytes, 0 for an operand that is not there. */
static void prepare(unsigned kind, uint32_t ofm, uint32_t data, uint32_t second, uint32_t third, uint32_t workspace)
{
  const uint32_t sizes[] = {ofm, data, second, third, workspace};
  const void *starts[] = {main_memory.ofm + AROUND, main_memory.data, main_memory.second, main_memory.third,
                          main_memory.workspace};
  uint16_t count = 0;
  for (unsigned i = 0; i < 5; ++i) {
    if (sizes[i] != 0) {
      places[count] = (hwlib_place_t){HWLIB_MAIN, (uintptr_t)starts[i] - 8};
      operands[count] = (hwlib_operand_t){&places[count], 8, sizes[i], i == 0 || i == 4};
      ++count;
    }
  }
  layer = (hwlib_whole_layer_t){
      .layer = {.kind = (uint8_t)kind, .rounding = (uint8_t)kit_some_rounding()},
      .operands = operands,
      .operand_count = count,
      .cycles = 100,
      .numbers = numbers,
  };
  memset(main_memory.ofm, 0xa5, sizeof main_memory.ofm);
  memset(main_memory.expected, 0xa5, sizeof main_memory.expected);
  for (unsigned rounding = HWLIB_ROUND_UPWARD; rounding <= HWLIB_ROUND_TFLITE; ++rounding) {
    kit_note_kind(kind, rounding); /* there is nothing to round */
  }
}

static int as_expected(void) { return kit_equal(main_memory.ofm, main_memory.expected, sizeof main_memory.ofm); }

/* Whether the output is there when `function` has said so. */
static void compare(const char *function)
{
  uint32_t at = 0;
  if (as_expected()) {
    return;
  }
  while (main_memory.ofm[at] == main_memory.expected[at]) {
    ++at;
  }
  const uint8_t got = main_memory.ofm[at];
  kit_settle();
  const int late = as_expected();
  kit_fail(late ? function : JOB_START, late ? "too early, byte" : "byte", at, main_memory.expected[at], got);
}

static void run(const char *subject, const char *what)
{
  hwlib_token_t token = 0;
  hwlib_job_t job = {&layer.layer, NULL};
  kit_begin(JOB_START, subject, what);
  hwlib_status_t status = hwlib_hal_job_start(&job, &token);
  memset(&job, 0, sizeof job); /* the HAL may not read it after job_start returns */
  if (kit_ok(JOB_START, status) && kit_ok(JOB_WAIT, hwlib_hal_job_wait(token))) {
    compare(JOB_WAIT);
  }
  kit_end();
  if (hwlib_hal_job_done != NULL) {
    uint8_t done = 0;
    memset(main_memory.ofm, 0xa5, sizeof main_memory.ofm);
    job = (hwlib_job_t){&layer.layer, NULL};
    kit_begin(JOB_DONE, subject, what);
    int fine = kit_ok(JOB_START, hwlib_hal_job_start(&job, &token));
    for (uint32_t i = 0; fine && !done && i < QUESTIONS; ++i) {
      fine = kit_ok(JOB_DONE, hwlib_hal_job_done(token, &done));
    }
    if (fine && !done) {
      kit_fail_once(JOB_DONE, "never done", 1, 0);
    } else if (fine) {
      compare(JOB_DONE);
    }
    kit_end();
  }
}

/* ---------------------------------------------------------------- order */

/* Of few different values, so that many are equal; both zeros among the floats. */
static void fill_with_ties(unsigned type)
{
  for (unsigned i = 0; i < MOST; ++i) {
    const int32_t value = (int32_t)(kit_random() % 7) - 3;
    switch (type) {
    case INT8:
      ((int8_t *)main_memory.data)[i] = (int8_t)(value == 3 ? 127 : value == -3 ? -128 : value);
      break;
    case UINT8:
      ((uint8_t *)main_memory.data)[i] = (uint8_t)value;
      break;
    case INT32:
      memcpy(&main_memory.data[i], &(int32_t){value == 3 ? INT32_MAX : value == -3 ? INT32_MIN : value}, 4);
      break;
    default:
      main_memory.data[i] = value == 3 ? -0.0f : (float)value / 4;
      break;
    }
  }
}

static double value_at(unsigned type, uint32_t at)
{
  int32_t whole;
  switch (type) {
  case INT8:
    return ((int8_t *)main_memory.data)[at];
  case UINT8:
    return ((uint8_t *)main_memory.data)[at];
  case INT32:
    memcpy(&whole, &main_memory.data[at], sizeof whole);
    return whole;
  default:
    return (double)main_memory.data[at];
  }
}

static void expect(uint32_t at, const void *bytes, uint32_t size)
{
  memcpy(main_memory.expected + AROUND + at * size, bytes, size);
}

static void expect_order(unsigned type, int descending, uint32_t count)
{
  for (uint32_t row = 0; row < ROWS * STEP; ++row) {
    const uint32_t start = row / STEP * EXTENT * STEP + row % STEP;
    uint8_t taken[EXTENT] = {0};
    for (uint32_t number = 0; number < count; ++number) {
      int32_t first = -1;
      for (uint32_t place = 0; place < EXTENT; ++place) {
        const double value = value_at(type, start + place * STEP);
        const double best = first < 0 ? value : value_at(type, start + (uint32_t)first * STEP);
        if (!taken[place] && (first < 0 || (descending ? value > best : value < best))) {
          first = (int32_t)place;
        }
      }
      taken[first] = 1;
      expect(row / STEP * count * STEP + number * STEP + row % STEP, &first, sizeof first);
    }
  }
}

static void check_order(unsigned type, int descending, uint32_t count, const char *what)
{
  static const char *const subjects[TYPES] = {"order of int8", "order of uint8", "order of int32", "order of float32"};
  prepare(HWLIB_ORDER, ROWS * STEP * count * 4, ROWS * STEP * EXTENT * (type < INT32 ? 1 : 4), 0, 0, 0);
  const int32_t given[] = {(int32_t)type, ROWS, EXTENT, STEP, (int32_t)count, descending};
  memcpy(numbers, given, sizeof given);
  fill_with_ties(type);
  expect_order(type, descending, count);
  run(subjects[type], what);
}

/* ---------------------------------------------------------------- gather */

static void check_gather(uint32_t size)
{
  prepare(HWLIB_GATHER, ROWS * STEP * COUNT * size, ROWS * STEP * EXTENT * size, ROWS * STEP * COUNT * 4, 0, 0);
  const int32_t given[] = {(int32_t)size, ROWS, EXTENT, STEP, COUNT};
  memcpy(numbers, given, sizeof given);
  kit_fill((uint8_t *)main_memory.data, sizeof main_memory.data);
  for (uint32_t i = 0; i < ROWS * STEP * COUNT; ++i) {
    const int32_t place = main_memory.second[i] = (int32_t)(kit_random() % (EXTENT + 4)) - 2;
    const uint32_t row = place < 0 ? 0 : place < EXTENT ? (uint32_t)place : EXTENT - 1;
    const uint32_t from = (i / (COUNT * STEP) * EXTENT + row) * STEP + i % STEP;
    expect(i, (const uint8_t *)main_memory.data + from * size, size);
  }
  run(size == 1 ? "gather of bytes" : "gather of words", "places from -2 to 2 behind the last");
}

/* ---------------------------------------------------------------- suppression */

/* Kind, score, left, top, right, bottom: corners are whole numbers, so that all products are exact. */
static void fill_boxes(void)
{
  for (unsigned i = 0; i < BATCHES * BOXES; ++i) {
    float *box = main_memory.data + i * VALUES;
    box[0] = (float)(kit_random() % 2);
    box[1] = (float)(kit_random() % 5) / 4; /* some are 0 */
    box[2] = (float)(kit_random() % 4);
    box[3] = (float)(kit_random() % 4);
    box[4] = box[2] + 1 + (float)(kit_random() % 4);
    box[5] = box[3] + 1 + (float)(kit_random() % 4);
  }
}

/* Whether the intersection of two boxes is at least half of their union. */
static int overlap(const float *a, const float *b)
{
  const float left = a[2] > b[2] ? a[2] : b[2], top = a[3] > b[3] ? a[3] : b[3];
  const float right = a[4] < b[4] ? a[4] : b[4], bottom = a[5] < b[5] ? a[5] : b[5];
  const float both = right > left && bottom > top ? (right - left) * (bottom - top) : 0;
  return 2 * both >= (a[4] - a[2]) * (a[5] - a[3]) + (b[4] - b[2]) * (b[5] - b[3]) - both;
}

/* Boxes, or with `by_place` what the third operand has for them. */
static void expect_suppression(uint32_t batch, uint32_t count, int32_t most, int by_place)
{
  const float *boxes = main_memory.data + batch * BOXES * VALUES;
  const float no_box = -1;
  const int32_t no_place = -1;
  uint8_t taken[BOXES] = {0}, kept[BOXES] = {0};
  int32_t left = most;
  uint32_t at = batch * BOXES * VALUES, place = batch * BOXES;
  for (uint32_t i = 0; i < BOXES * VALUES && !by_place; ++i) {
    expect(at + i, &no_box, sizeof no_box);
  }
  for (uint32_t i = 0; i < BOXES && by_place; ++i) {
    expect(place + i, &no_place, sizeof no_place);
  }
  for (uint32_t number = 0; number < count; ++number, at += VALUES) {
    uint32_t first = BOXES;
    for (uint32_t i = 0; i < count; ++i) {
      if (!taken[i] && (first == BOXES || boxes[i * VALUES + 1] > boxes[first * VALUES + 1])) {
        first = i;
      }
    }
    const float *box = boxes + first * VALUES;
    int stays = left != 0;
    for (uint32_t i = 0; i < count && box[1] > 0; ++i) {
      const float *other = boxes + i * VALUES;
      stays &= !(kept[i] && other[1] > 0 && other[0] == box[0] && overlap(box, other));
    }
    taken[first] = 1;
    kept[first] = (uint8_t)stays;
    left -= stays && box[1] > 0;
    for (uint32_t value = 0; stays && !by_place && value < VALUES; ++value) {
      expect(at + value, &box[value], sizeof box[value]);
    }
    if (stays && by_place) {
      expect(place++, &main_memory.third[batch * BOXES + first], 4);
    }
  }
}

static void check_suppression(int32_t most, int by_place, const char *what)
{
  const uint32_t values = by_place ? 1 : VALUES, batches = by_place ? BATCHES : 0;
  const float threshold = 0.5f;
  int32_t bits;
  memcpy(&bits, &threshold, sizeof bits);
  prepare(HWLIB_SUPPRESSION, BATCHES * BOXES * values * 4, BATCHES * BOXES * VALUES * 4, BATCHES * 4,
          batches * BOXES * 4, (BOXES + batches) * 4);
  const int32_t given[] = {BATCHES, BOXES, VALUES, -1, 2, 1, 0, 0, 0, most, bits};
  memcpy(numbers, given, sizeof given);
  fill_boxes();
  for (int32_t i = 0; i < BATCHES * BOXES; ++i) {
    main_memory.third[i] = i * 5 % BOXES;
  }
  for (uint32_t batch = 0; batch < BATCHES; ++batch) {
    const uint32_t count = batch == 0 ? BOXES : kit_random() % BOXES;
    main_memory.second[batch] = (int32_t)count;
    expect_suppression(batch, count, most, by_place);
  }
  run(by_place ? "suppression, places" : "suppression", what);
}

void kit_check_whole(void)
{
  for (unsigned type = 0; type < TYPES && kit_has_kind(HWLIB_ORDER); ++type) {
    check_order(type, 0, COUNT, "the first of each row, rising");
    check_order(type, 1, COUNT, "the first of each row, falling");
    check_order(type, 1, EXTENT, "all of each row");
    check_order(type, 0, 1, "one of each row");
  }
  if (kit_has_kind(HWLIB_GATHER)) {
    check_gather(1);
    check_gather(4);
  }
  if (kit_has_kind(HWLIB_SUPPRESSION)) {
    for (int by_place = 0; by_place < 2; ++by_place) {
      check_suppression(-1, by_place, "any number is kept");
      check_suppression(2, by_place, "two of each batch are kept");
      check_suppression(0, by_place, "none is kept");
    }
  }
}
