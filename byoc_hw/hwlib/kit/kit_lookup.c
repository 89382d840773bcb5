/* hwlib_hal_job_start: lookup, one table or one for each channel; every entry of every table is read. */
#include "kit_internal.h"

enum {
  ENTRIES = 256,
  HALF = KIT_WINDOW / 2,
  TABLES = HAL_KIT_MAIN / ENTRIES < 300 ? HAL_KIT_MAIN / ENTRIES : 300, /* more than 8 bits count, given the room */
};

kit_lookup_t kit_lookup(unsigned rounding, uint32_t count)
{
  static uint8_t table[ENTRIES]; /* all entries differ */
  for (unsigned i = 0; i < ENTRIES; ++i) {
    table[i] = (uint8_t)(i * 167 + 13);
  }
  return (kit_lookup_t){
      .layer = {.layer = {.kind = HWLIB_LOOKUP, .rounding = (uint8_t)rounding}, .shape = {1, count, 1}, .tables = table},
      .tile = {.ofm = HALF,
               .ifm_h = 1,
               .ifm_w = count,
               .ifm_c = 1,
               .ofm_h = 1,
               .ofm_w = count,
               .ofm_c = 1,
               .flags = HWLIB_TILE_FIRST | HWLIB_TILE_LAST},
  };
}

void kit_expect_lookup(const hwlib_lookup_t *layer, const hwlib_tile_t *tile)
{
  uint32_t channels = tile->ifm_c;
  kit_range_t shown = kit_shown(tile->ofm, 1, 1, tile->ifm_w * channels);
  for (uint32_t i = shown.first; i < shown.end; ++i) {
    uint32_t table = layer->by_channel ? i % channels : 0;
    kit_put(tile->ofm + i, layer->tables[ENTRIES * table + kit_activation(tile->ifm + i)]);
  }
}

/* Expects filled images. */
static void check_filled(const char *what, const kit_lookup_t *by)
{
  kit_expect_unchanged();
  kit_expect_lookup(&by->layer, &by->tile);
  kit_check_job(by->layer.layer.rounding == HWLIB_ROUND_TFLITE ? "lookup, tflite" : "lookup, upward", what,
                &by->layer.layer, &by->tile);
}

static void check_one_table(unsigned rounding)
{
  kit_lookup_t by = kit_lookup(rounding, 1);
  kit_fill(kit_before, KIT_WINDOW);
  check_filled("one element", &by);
  by = kit_lookup(rounding, ENTRIES);
  for (unsigned i = 0; i < ENTRIES; ++i) {
    kit_before[i] = (uint8_t)i;
  }
  check_filled("every entry of a table", &by);
  by = kit_lookup(rounding, HALF - 4);
  by.tile.ifm = 1;
  by.tile.ofm = HALF + 3;
  check_filled("tiles at odd addresses", &by);
}

/* Pixels whose bytes count up along each channel, until each of its entries was read or the window is full. */
static void check_channels(unsigned rounding, uint32_t channels, const char *what)
{
  uint32_t most = (uint32_t)HALF / channels, pixels = most < ENTRIES ? most : ENTRIES;
  kit_lookup_t by = kit_lookup(rounding, pixels);
  if (pixels == 0) {
    return;
  }
  by.layer.shape.channels = channels;
  by.layer.tables = kit_main_memory;
  by.layer.by_channel = 1;
  by.tile.ifm_c = channels;
  by.tile.ofm_c = channels;
  kit_fill(kit_before, KIT_WINDOW);
  for (uint32_t i = 0; i < pixels * channels; ++i) {
    kit_before[i] = (uint8_t)(i / channels);
  }
  check_filled(what, &by);
}

void kit_check_lookup(void)
{
  kit_fill(kit_main_memory, HAL_KIT_MAIN);
  for (unsigned rounding = HWLIB_ROUND_UPWARD; rounding <= HWLIB_ROUND_TFLITE; ++rounding) {
    if (kit_has_kind(HWLIB_LOOKUP) && kit_has_rounding(rounding)) {
      check_one_table(rounding);
      check_channels(rounding, 1, "a table by channel, of one channel");
      check_channels(rounding, 3, "tables by channel");
      check_channels(rounding, 17, "tables by channel, of more channels than most arrays have rows");
      check_channels(rounding, TABLES, "tables of many channels");
    }
  }
}
