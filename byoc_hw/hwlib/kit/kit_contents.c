/* What the local memories hold: images of a window, or a pattern over all of both. */
#include "kit_internal.h"

#include <string.h>

static struct {
  int is_pattern;
  uint32_t base, bytes; /* what kit_expected shows of local activations */
  int has_parameters;
  hwlib_conv2d_t layer; /* whose parameters local weights hold */
  hwlib_tile_t tile;
  unsigned spread;
} contents = {.bytes = KIT_WINDOW};

uint8_t kit_pattern(unsigned memory, uint32_t address)
{
  uint32_t mixed = (address + (memory << 27)) * 2654435761u;
  mixed = (mixed ^ mixed >> 15) * 2246822519u;
  return (uint8_t)(mixed >> 24);
}

void kit_use_images(void)
{
  contents.is_pattern = 0;
  contents.base = 0;
  contents.bytes = KIT_WINDOW;
}

int kit_use_pattern(void)
{
  contents.is_pattern = 1;
  contents.has_parameters = 0;
  return kit_load_contents(&kit_memories[0], 0, kit_memories[0].size) &&
         kit_load_contents(&kit_memories[1], 0, kit_memories[1].size);
}

uint32_t kit_filter_values(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile)
{
  uint32_t places = (uint32_t)tile->kernel_h * tile->kernel_w;
  return layer->layer.kind == HWLIB_DEPTHWISE_CONV2D ? places : places * tile->ifm_c;
}

uint32_t kit_filter_bytes(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile)
{
  return (kit_filter_values(layer, tile) * layer->weight_bits + 7) / 8;
}

static uint64_t end_of_parameters(void)
{
  return contents.tile.params + (uint64_t)contents.tile.ofm_c * sizeof(hwlib_params_t);
}

int kit_use_parameters(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile)
{
  const kit_memory_t *weights = &kit_memories[1];
  int had = contents.has_parameters;
  contents.has_parameters = 0;
  if (had && !kit_load_contents(weights, contents.tile.params, end_of_parameters())) {
    return 0;
  }
  contents.has_parameters = 1;
  contents.layer = *layer;
  contents.tile = *tile;
  contents.spread = 2u * layer->weight_bits - 2u;
  for (uint32_t rest = kit_filter_values(layer, tile); rest > 1; rest /= 2) {
    contents.spread += 1; /* sums grow with the square root of the number of values */
  }
  return kit_load_contents(weights, tile->params, end_of_parameters());
}

/* A scale that spreads the outputs over their range. All differ by channel. */
static hwlib_params_t parameters(uint32_t k)
{
  uint32_t mixed = (k + 1) * 2654435761u;
  uint8_t left = (uint8_t)(k % 3);
  return (hwlib_params_t){.bias = (int32_t)(mixed >> 20) - 2048,
                          .multiplier = KIT_MULTIPLIER((int32_t)((1u << 30) + mixed % (1u << 30))),
                          .left = left,
                          .right = (uint8_t)(31u + contents.spread / 2 + left)};
}

/* Made once for all bytes of a channel, which are asked for one after the other. */
static uint8_t parameter_byte(uint32_t offset)
{
  static struct {
    int is_made;
    uint32_t k;
    unsigned spread;
    uint8_t bytes[sizeof(hwlib_params_t)];
  } last;
  uint32_t k = offset / (uint32_t)sizeof(hwlib_params_t);
  if (!last.is_made || last.k != k || last.spread != contents.spread) {
    hwlib_params_t made = parameters(k);
    last.is_made = 1;
    last.k = k;
    last.spread = contents.spread;
    memcpy(last.bytes, &made, sizeof made);
  }
  return last.bytes[offset % sizeof last.bytes];
}

uint8_t kit_activation(uint32_t address)
{
  return contents.is_pattern ? kit_pattern(HWLIB_LOCAL_ACTIVATIONS, address) : kit_expected[address];
}

uint8_t kit_weight_byte(uint32_t address)
{
  if (!contents.is_pattern) {
    return kit_weights[address];
  }
  if (contents.has_parameters && address >= contents.tile.params && address < end_of_parameters()) {
    return parameter_byte(address - contents.tile.params);
  }
  return kit_pattern(HWLIB_LOCAL_WEIGHTS, address);
}

int kit_load_contents(const kit_memory_t *memory, uint64_t address, uint64_t end)
{
  uint8_t (*byte)(uint32_t) = memory->memory == HWLIB_LOCAL_WEIGHTS ? kit_weight_byte : kit_activation;
  uint32_t from = (uint32_t)(address / KIT_UNIT * KIT_UNIT);
  uint32_t to = end < memory->size ? (uint32_t)((end + KIT_UNIT - 1) / KIT_UNIT * KIT_UNIT) : memory->size;
  while (from < to) {
    uint32_t count = to - from < KIT_WINDOW ? to - from : KIT_WINDOW;
    for (uint32_t i = 0; i < count; ++i) {
      kit_before[i] = byte(from + i);
    }
    if (!kit_load(memory, from, kit_before, count)) {
      return 0;
    }
    from += count;
  }
  return 1;
}

void kit_put(uint32_t address, uint8_t byte)
{
  if (address - contents.base < contents.bytes) { /* below the base it wraps to a large number */
    kit_expected[address - contents.base] = byte;
  }
}

kit_range_t kit_shown(uint64_t address, uint32_t stride, uint64_t bytes, uint32_t count)
{
  uint64_t base = contents.base, end = base + contents.bytes;
  if (count == 0 || address >= end || address + (uint64_t)(count - 1) * stride + bytes <= base) {
    return (kit_range_t){0, 0};
  }
  if (stride == 0) {
    return (kit_range_t){0, count};
  }
  uint64_t first = address + bytes > base ? 0 : (base - address - bytes) / stride + 1;
  uint64_t last = (end - 1 - address) / stride;
  return (kit_range_t){(uint32_t)first, (uint32_t)(last < count ? last + 1 : count)};
}

void kit_show(uint32_t base, uint32_t bytes)
{
  contents.base = base;
  contents.bytes = bytes;
  for (uint32_t i = 0; i < bytes; ++i) {
    kit_expected[i] = kit_activation(base + i);
  }
}
