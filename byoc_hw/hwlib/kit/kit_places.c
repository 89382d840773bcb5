/* hwlib_hal_job_start: each operand of each kind wherever it can lie, so that every bit of its address counts. */
#include "kit_internal.h"

enum { APART = 64 };

static int overlap(kit_sample_t *sample, kit_operand_t one, kit_operand_t other)
{
  uint64_t from = *kit_address(sample, one), to = *kit_address(sample, other);
  return kit_memory_of(one) == kit_memory_of(other) && from < to + kit_span(sample, other) &&
         to < from + kit_span(sample, one);
}

/* One operand there, the others where it leaves room. Returns whether all fit. */
static int place(kit_sample_t *sample, kit_operand_t moved, uint32_t address)
{
  unsigned placed = 1u << moved;
  *kit_address(sample, moved) = address;
  for (unsigned operand = 0; operand < KIT_OPERANDS; ++operand) {
    uint32_t at = 0;
    int fits = 0;
    if ((placed >> operand & 1u) != 0 || kit_span(sample, (kit_operand_t)operand) == 0) {
      continue;
    }
    for (; !fits; at += APART) {
      if (at + kit_span(sample, (kit_operand_t)operand) > kit_memory_of((kit_operand_t)operand)->size) {
        return 0;
      }
      *kit_address(sample, (kit_operand_t)operand) = at;
      fits = 1;
      for (unsigned other = 0; other < KIT_OPERANDS; ++other) {
        fits = fits && ((placed >> other & 1u) == 0 || !overlap(sample, (kit_operand_t)operand, (kit_operand_t)other));
      }
    }
    placed |= 1u << operand;
  }
  return 1;
}

static int run_at(kit_sample_t *sample, kit_operand_t operand, uint64_t address)
{
  uint32_t alignment = operand == KIT_PSUM || operand == KIT_PARAMS ? 4 : 1;
  address = address / alignment * alignment;
  return address + kit_span(sample, operand) > kit_memory_of(operand)->size ||
         !place(sample, operand, (uint32_t)address) || kit_run_sample(sample);
}

static void check_operand(kit_sample_t *sample, kit_operand_t operand)
{
  static const char *const names[KIT_OPERANDS][2] = {
      [KIT_IFM] = {"every address bit of ifm", "every address bit of ifm, with sums"},
      [KIT_IFM2] = {"every address bit of ifm2", ""},
      [KIT_OFM] = {"every address bit of ofm", "every address bit of ofm, with sums"},
      [KIT_PSUM] = {"", "every address bit of psum"},
      [KIT_WEIGHTS] = {"every address bit of weights", "every address bit of weights, with sums"},
      [KIT_PARAMS] = {"every address bit of params", "every address bit of params, with sums"},
  };
  uint64_t bytes = kit_span(sample, operand), size = kit_memory_of(operand)->size;
  if (bytes == 0) {
    return;
  }
  kit_begin("hwlib_hal_job_start", sample->subject,
            names[operand][sample->tile.flags != (HWLIB_TILE_FIRST | HWLIB_TILE_LAST)]);
  int fine = 1;
  for (uint64_t bit = 1; fine && bit < size; bit *= 2) { /* at it, and across it */
    fine = run_at(sample, operand, bit) && run_at(sample, operand, bit < bytes / 2 ? 0 : bit - bytes / 2);
  }
  (void)(fine && run_at(sample, operand, size - bytes));
  kit_end();
}

static void check_sample(kit_sample_t sample)
{
  for (unsigned operand = 0; operand < KIT_OPERANDS; ++operand) {
    check_operand(&sample, (kit_operand_t)operand);
  }
}

static void check_kind(unsigned kind, unsigned rounding)
{
  kit_sample_t sample = kit_sample(kind, rounding);
  check_sample(sample);
  if (kind == HWLIB_CONV2D || kind == HWLIB_DENSE) {
    sample.tile.flags = HWLIB_TILE_FIRST; /* sums are written */
    check_operand(&sample, KIT_PSUM);
    sample.tile.flags = HWLIB_TILE_LAST; /* and read */
    check_sample(sample);
  }
}

/* ---------------------------------------------------------------- tokens */

/* More than 16 bits of a token can count, a few at a time in flight. */
enum { TOKENS = 66000, IN_FLIGHT = 4 };

static void check_tokens(const kit_sample_t *sample)
{
  hwlib_job_t job = {&sample->layer, &sample->tile};
  hwlib_token_t tokens[IN_FLIGHT] = {0};
  kit_begin("hwlib_hal_job_start", "", "thousands of tokens: not 0, and different while their jobs are in flight");
  int fine = kit_run_sample(sample); /* leaves its parameters there */
  for (uint32_t i = 0; fine && i < TOKENS; ++i) {
    hwlib_token_t *token = &tokens[i % IN_FLIGHT];
    fine = (i < IN_FLIGHT || kit_ok("hwlib_hal_job_wait", hwlib_hal_job_wait(*token))) &&
           kit_ok("hwlib_hal_job_start", hwlib_hal_job_start(&job, token));
    if (fine && *token == 0) {
      kit_fail("hwlib_hal_job_start", "token of job", i, 1, 0);
      fine = 0;
    }
    for (uint32_t j = 1; fine && j < IN_FLIGHT && j <= i; ++j) {
      if (tokens[(i - j) % IN_FLIGHT] == *token) {
        kit_fail("hwlib_hal_job_start", "tokens that equal that of job", i - j, 0, 1);
        fine = 0;
      }
    }
  }
  (void)kit_ok("hwlib_hal_init", hwlib_hal_init());
  kit_end();
}

void kit_check_places(void)
{
  int has_tokens = 0;
  if (!kit_use_pattern()) {
    return;
  }
  for (unsigned kind = 0; kind < 32; ++kind) {
    for (unsigned rounding = HWLIB_ROUND_UPWARD; rounding <= HWLIB_ROUND_TFLITE; ++rounding) {
      if (kit_has_sample(kind, rounding)) {
        check_kind(kind, rounding);
        if (!has_tokens) {
          kit_sample_t sample = kit_sample(kind, rounding);
          check_tokens(&sample);
          has_tokens = kit_use_pattern();
        }
      }
    }
  }
  kit_use_images();
}
