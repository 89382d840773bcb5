/* hwlib_hal_copy_1d, hwlib_hal_copy_2d: the extents that plans can ask for. Bytes, rows and strides are more than 8,
 * 12 and 16 bits count, as far as the memories have room for them. */
#include "kit_internal.h"

#define COPY_1D "hwlib_hal_copy_1d"
#define COPY_2D "hwlib_hal_copy_2d"
#define COPY_WAIT "hwlib_hal_copy_wait"

typedef struct {
  uint32_t bytes, rows, local_stride, main_stride;
} rows_t;

/* In units, of one size that is large. */
typedef enum { BYTES, LONG_ROWS, MANY_ROWS, FAR_APART_ROWS, LOCAL_STRIDE, MAIN_STRIDE, EXTENTS } extent_t;

static const char *const names[EXTENTS] = {
    [BYTES] = "many bytes",
    [LONG_ROWS] = "rows of many bytes",
    [MANY_ROWS] = "many rows",
    [FAR_APART_ROWS] = "many rows that lie apart in local memory",
    [LOCAL_STRIDE] = "rows that lie far apart in local memory",
    [MAIN_STRIDE] = "rows that lie far apart in main memory",
};

static rows_t extended(extent_t extent, uint32_t size)
{
  switch (extent) {
  case BYTES:
    return (rows_t){size, 1, 0, 0};
  case LONG_ROWS:
    return (rows_t){size, 2, size + 1, size};
  case MANY_ROWS:
    return (rows_t){1, size, 1, 1};
  case FAR_APART_ROWS:
    return (rows_t){1, size, 2, 1};
  case LOCAL_STRIDE:
    return (rows_t){3, 2, size, 3};
  default:
    return (rows_t){3, 2, 3, size};
  }
}

static uint64_t span(const rows_t *rows, uint32_t stride)
{
  return ((uint64_t)(rows->rows - 1) * stride + rows->bytes) * KIT_UNIT;
}

/* The copy ends where the local memory does, and starts at the start of main memory. */
typedef struct {
  const kit_memory_t *memory;
  int inward;
  uint32_t local;
  rows_t rows;
} copy_t;

static hwlib_status_t start(const copy_t *copy, hwlib_token_t *token)
{
  const rows_t *rows = &copy->rows;
  hwlib_place_t local = kit_local(copy->memory, copy->local), other = kit_main(kit_main_memory);
  hwlib_place_t target = copy->inward ? local : other, source = copy->inward ? other : local;
  uint32_t local_stride = rows->local_stride * KIT_UNIT, main_stride = rows->main_stride * KIT_UNIT;
  if (rows->rows == 1) {
    return hwlib_hal_copy_1d(target, source, rows->bytes * KIT_UNIT, token);
  }
  return hwlib_hal_copy_2d(target, copy->inward ? local_stride : main_stride, source,
                           copy->inward ? main_stride : local_stride, rows->bytes * KIT_UNIT, rows->rows, token);
}

/* The byte of the target that is `offset` behind its first one. */
static uint8_t expected_at(const copy_t *copy, uint32_t offset)
{
  const rows_t *rows = &copy->rows;
  uint32_t target_stride = (copy->inward ? rows->local_stride : rows->main_stride) * KIT_UNIT;
  uint32_t source_stride = (copy->inward ? rows->main_stride : rows->local_stride) * KIT_UNIT;
  uint32_t row = target_stride == 0 ? 0 : offset / target_stride;
  uint32_t column = offset - row * target_stride;
  int is_copied = row < rows->rows && column < rows->bytes * KIT_UNIT;
  uint32_t source = row * source_stride + column;
  if (copy->inward) {
    return is_copied ? kit_pattern(HWLIB_MAIN, source) : kit_pattern(copy->memory->memory, copy->local + offset);
  }
  return is_copied ? kit_pattern(copy->memory->memory, copy->local + source) : kit_pattern(HWLIB_MAIN, offset);
}

static void fill_main(void)
{
  for (uint32_t i = 0; i < HAL_KIT_MAIN; ++i) {
    kit_main_memory[i] = kit_pattern(HWLIB_MAIN, i);
  }
}

static int compare_main(const copy_t *copy)
{
  for (uint32_t i = 0; i < HAL_KIT_MAIN; ++i) {
    if (kit_main_memory[i] != expected_at(copy, i)) {
      kit_fail(copy->rows.rows == 1 ? COPY_1D : COPY_2D, "byte", i, (int8_t)expected_at(copy, i),
               (int8_t)kit_main_memory[i]);
      return 0;
    }
  }
  return 1;
}

static int compare_local(const copy_t *copy)
{
  for (uint32_t at = copy->local; at < copy->memory->size; at += KIT_WINDOW) {
    uint32_t left = copy->memory->size - at, count = left < KIT_WINDOW ? left : KIT_WINDOW;
    for (uint32_t i = 0; i < count; ++i) {
      kit_expected[i] = expected_at(copy, at - copy->local + i);
    }
    if (!kit_fetch(copy->memory, at, kit_got, count) ||
        !kit_compare(copy->rows.rows == 1 ? COPY_1D : COPY_2D, kit_expected, count)) {
      return 0;
    }
  }
  return 1;
}

static int run(const kit_memory_t *memory, int inward, rows_t rows)
{
  uint64_t bytes = span(&rows, rows.local_stride);
  hwlib_token_t token = 0;
  if (bytes > memory->size || span(&rows, rows.main_stride) > HAL_KIT_MAIN) {
    return 1;
  }
  copy_t copy = {memory, inward, memory->size - (uint32_t)bytes, rows};
  fill_main();
  return kit_load_contents(memory, copy.local, memory->size) &&
         kit_ok(rows.rows == 1 ? COPY_1D : COPY_2D, start(&copy, &token)) &&
         kit_ok(COPY_WAIT, hwlib_hal_copy_wait(token)) && (inward ? compare_local(&copy) : compare_main(&copy));
}

static const char *subject(const kit_memory_t *memory, int inward)
{
  if (memory->memory == HWLIB_LOCAL_WEIGHTS) {
    return inward ? "main memory to local weights" : "local weights to main memory";
  }
  return inward ? "main memory to local activations" : "local activations to main memory";
}

void kit_check_copy_extents(void)
{
  static const uint32_t sizes[] = {257, 4099, 65539};
  if (!kit_use_pattern()) {
    return;
  }
  for (unsigned i = 0; i < KIT_MEMORIES; ++i) {
    for (unsigned extent = 0; extent < EXTENTS; ++extent) {
      for (int inward = 1; inward >= 0; --inward) {
        kit_begin(extent == BYTES ? COPY_1D : COPY_2D, subject(&kit_memories[i], inward), names[extent]);
        int fine = 1;
        for (unsigned size = 0; fine && size < sizeof sizes / sizeof sizes[0]; ++size) {
          fine = run(&kit_memories[i], inward, extended((extent_t)extent, sizes[size]));
        }
        kit_end();
      }
    }
  }
  kit_use_images();
}
