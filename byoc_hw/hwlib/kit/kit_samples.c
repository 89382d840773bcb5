/* One small job of each kind, which checks of places and extents change. */
#include "kit_internal.h"

enum { APART = 64 }; /* operands start at multiples of it: a multiple of the DMA's alignment */

static const char *const subjects[][2] = {
    [HWLIB_CONV2D] = {"conv2d, upward", "conv2d, tflite"},
    [HWLIB_DEPTHWISE_CONV2D] = {"depthwise_conv2d, upward", "depthwise_conv2d, tflite"},
    [HWLIB_DENSE] = {"dense, upward", "dense, tflite"},
    [HWLIB_ADD] = {"add, upward", "add, tflite"},
    [HWLIB_POOL2D] = {"pool2d, upward", "pool2d, tflite"},
    [HWLIB_SOFTMAX] = {NULL, "softmax, tflite"},
    [HWLIB_MUL] = {"mul, upward", "mul, tflite"},
    [HWLIB_LOOKUP] = {"lookup, upward", "lookup, tflite"},
    [HWLIB_MATMUL] = {"matmul, upward", "matmul, tflite"},
};

int kit_has_sample(unsigned kind, unsigned rounding)
{
  return kind < sizeof subjects / sizeof subjects[0] && subjects[kind][rounding] != NULL && kit_has_kind(kind) &&
         kit_has_rounding(rounding);
}

static int has_window(unsigned kind)
{
  return kind == HWLIB_CONV2D || kind == HWLIB_DEPTHWISE_CONV2D || kind == HWLIB_POOL2D;
}

uint32_t kit_vectors(uint32_t wanted)
{
  return wanted < HWLIB_ACCELERATOR_DENSE_PIXELS ? wanted : HWLIB_ACCELERATOR_DENSE_PIXELS;
}

static int has_weights(unsigned kind)
{
  return kind == HWLIB_CONV2D || kind == HWLIB_DEPTHWISE_CONV2D || kind == HWLIB_DENSE;
}

kit_sample_t kit_sample(unsigned kind, unsigned rounding)
{
  const hwlib_scale_t odd = {KIT_MULTIPLIER(1717986918), 0, 31}, exponent = {KIT_MULTIPLIER(1717986918), 21, 31};
  kit_sample_t sample = {.subject = subjects[kind][rounding]};
  hwlib_layer_t layer = {.kind = (uint8_t)kind, .rounding = (uint8_t)rounding};
  uint32_t size = has_window(kind) ? 2 : 1, channels = 3, columns = kind == HWLIB_DENSE ? kit_vectors(2) : size;
  uint8_t stride = has_window(kind) ? kit_least_stride(kind) : 1;
  switch (kind) {
  case HWLIB_ADD:
    sample.add = kit_addition(rounding, 1).layer;
    columns = 12;
    channels = 1;
    break;
  case HWLIB_MUL:
    sample.mul = (hwlib_mul_t){.layer = layer, .scale = {KIT_MULTIPLIER(1518500250), 0, 38}, .act_min = -128, .act_max = 127};
    columns = 12;
    channels = 1;
    break;
  case HWLIB_MATMUL:
    sample.matmul = (hwlib_matmul_t){.layer = layer,
                                     .scale = {KIT_MULTIPLIER(1518500250), 0, 40},
                                     .ifm_zero_point = 3,
                                     .ifm2_zero_point = -2,
                                     .act_min = -128,
                                     .act_max = 127};
    columns = 4;
    break;
  case HWLIB_LOOKUP:
    sample.lookup = kit_lookup(rounding, 1).layer;
    columns = 12;
    channels = 1;
    break;
  case HWLIB_SOFTMAX:
    sample.softmax = (hwlib_softmax_t){.layer = layer, .scale = exponent, .diff_min = -992};
    columns = 4;
    break;
  case HWLIB_POOL2D:
    sample.pool2d = (hwlib_pool2d_t){.layer = layer,
                                     .kernel_h = 1,
                                     .kernel_w = 1,
                                     .stride_h = stride,
                                     .stride_w = stride,
                                     .mode = HWLIB_POOL_AVG,
                                     .scale = odd,
                                     .act_min = -128,
                                     .act_max = 127};
    break;
  default:
    sample.conv2d = (hwlib_conv2d_t){.layer = layer,
                                     .kernel_h = 1,
                                     .kernel_w = 1,
                                     .stride_h = stride,
                                     .stride_w = stride,
                                     .dilation_h = kit_least_dilation(kind),
                                     .dilation_w = kit_least_dilation(kind),
                                     .weight_bits = kit_widest_weights(kind),
                                     .act_min = -128,
                                     .act_max = 127};
    break;
  }
  sample.tile = (hwlib_tile_t){.ifm_h = (size - 1) * stride + 1,
                               .ifm_w = (columns - 1) * stride + 1,
                               .ifm_c = channels,
                               .ofm_h = size,
                               .ofm_w = columns,
                               .ofm_c = channels,
                               .kernel_h = (uint8_t)has_weights(kind),
                               .kernel_w = (uint8_t)has_weights(kind),
                               .flags = HWLIB_TILE_FIRST | HWLIB_TILE_LAST};
  kit_adapt_sample(&sample);
  (void)kit_lay_out(&sample);
  return sample;
}

void kit_adapt_sample(kit_sample_t *sample)
{
  hwlib_tile_t *tile = &sample->tile;
  hwlib_shape_t ifm = {tile->ifm_h, tile->ifm_w, tile->ifm_c}, ofm = {tile->ofm_h, tile->ofm_w, tile->ofm_c};
  tile->ifm_pixel = tile->ifm_c;
  tile->ofm_pixel = tile->ofm_c;
  tile->ifm_row = tile->ifm_w * tile->ifm_pixel;
  tile->ofm_row = tile->ofm_w * tile->ofm_pixel;
  switch (sample->layer.kind) {
  case HWLIB_ADD:
    sample->add.shape = ofm;
    break;
  case HWLIB_MUL:
    sample->mul.shape = ofm;
    break;
  case HWLIB_MATMUL:
    sample->matmul.ifm = ifm;
    sample->matmul.ifm2 = (hwlib_shape_t){1, tile->ofm_c, tile->ifm_c};
    sample->matmul.ofm = ofm;
    break;
  case HWLIB_LOOKUP:
    sample->lookup.shape = ofm;
    break;
  case HWLIB_SOFTMAX:
    sample->softmax.shape = ofm;
    break;
  case HWLIB_POOL2D:
    sample->pool2d.ifm = ifm;
    sample->pool2d.ofm = ofm;
    break;
  default:
    sample->conv2d.ifm = ifm;
    sample->conv2d.ofm = ofm;
    break;
  }
}

static uint64_t span(uint32_t rows, uint32_t row, uint32_t pixels, uint32_t pixel, uint32_t bytes)
{
  return (uint64_t)(rows - 1) * row + (uint64_t)(pixels - 1) * pixel + bytes;
}

uint64_t kit_span(const kit_sample_t *sample, kit_operand_t operand)
{
  const hwlib_tile_t *tile = &sample->tile;
  unsigned kind = sample->layer.kind;
  int whole = tile->flags == (HWLIB_TILE_FIRST | HWLIB_TILE_LAST);
  switch (operand) {
  case KIT_IFM:
    return span(tile->ifm_h, tile->ifm_row, tile->ifm_w, tile->ifm_pixel, tile->ifm_c);
  case KIT_IFM2:
    if (kind == HWLIB_MATMUL) {
      return (uint64_t)tile->ofm_c * tile->ifm_c;
    }
    return kind == HWLIB_ADD || kind == HWLIB_MUL ? tile->ifm_w : 0;
  case KIT_OFM:
    return (tile->flags & HWLIB_TILE_LAST) == 0
               ? 0
               : span(tile->ofm_h, tile->ofm_row, tile->ofm_w, tile->ofm_pixel, tile->ofm_c);
  case KIT_PSUM:
    return whole ? 0 : (uint64_t)tile->ofm_h * tile->ofm_w * tile->ofm_c * 4;
  case KIT_WEIGHTS:
    return has_weights(kind) ? (uint64_t)tile->ofm_c * kit_filter_bytes(&sample->conv2d, tile) : 0;
  default:
    return has_weights(kind) ? (uint64_t)tile->ofm_c * sizeof(hwlib_params_t) : 0;
  }
}

uint32_t *kit_address(kit_sample_t *sample, kit_operand_t operand)
{
  hwlib_tile_t *tile = &sample->tile;
  uint32_t *const addresses[KIT_OPERANDS] = {
      [KIT_IFM] = &tile->ifm,   [KIT_IFM2] = &tile->ifm2,       [KIT_OFM] = &tile->ofm,
      [KIT_PSUM] = &tile->psum, [KIT_WEIGHTS] = &tile->weights, [KIT_PARAMS] = &tile->params};
  return addresses[operand];
}

const kit_memory_t *kit_memory_of(kit_operand_t operand)
{
  return &kit_memories[operand == KIT_WEIGHTS || operand == KIT_PARAMS];
}

int kit_lay_out(kit_sample_t *sample)
{
  uint64_t next[KIT_MEMORIES] = {0};
  for (unsigned operand = 0; operand < KIT_OPERANDS; ++operand) {
    const kit_memory_t *memory = kit_memory_of((kit_operand_t)operand);
    uint64_t *at = &next[memory - kit_memories], bytes = kit_span(sample, (kit_operand_t)operand);
    *kit_address(sample, (kit_operand_t)operand) = bytes == 0 ? 0 : (uint32_t)*at;
    if (bytes > memory->size || *at + bytes > memory->size) {
      return 0;
    }
    *at = (*at + bytes + APART - 1) / APART * APART;
  }
  return 1;
}

int kit_run_sample(const kit_sample_t *sample)
{
  const hwlib_tile_t *tile = &sample->tile;
  hwlib_job_t job = {&sample->layer, tile};
  hwlib_token_t token = 0;
  int is_last = (tile->flags & HWLIB_TILE_LAST) != 0;
  uint32_t result = is_last ? tile->ofm : tile->psum;
  kit_note_kind(sample->layer.kind, sample->layer.rounding);
  return (!has_weights(sample->layer.kind) || kit_use_parameters(&sample->conv2d, tile)) &&
         kit_ok("hwlib_hal_job_start", hwlib_hal_job_start(&job, &token)) &&
         kit_ok("hwlib_hal_job_wait", hwlib_hal_job_wait(token)) &&
         kit_compare_part(&sample->layer, tile, result, result + kit_span(sample, is_last ? KIT_OFM : KIT_PSUM));
}
