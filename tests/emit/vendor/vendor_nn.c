#include "vendor_nn.h"

/* Not clean under the flags of generated code, as a vendor's sources may be. */
static int careless(int unused, float value) { return value; }

static int32_t scaled(int32_t value, const int32_t *scale)
{
  int64_t product = (int64_t)value * ((int64_t)1 << scale[1]) * scale[0];
  return (int32_t)((product + ((int64_t)1 << (scale[2] - 1))) >> scale[2]);
}

static int8_t clamped(int32_t value, int32_t low, int32_t high)
{
  return (int8_t)(value < low ? low : value > high ? high : value);
}

static int32_t weight_at(const int8_t *weights, int32_t bits, int32_t index)
{
  if (bits == 8) {
    return weights[index];
  }
  int32_t half = (weights[index / 2] >> (index % 2 == 0 ? 4 : 0)) & 15;
  return half < 8 ? half : half - 16;
}

int32_t vendor_conv(int8_t *out, const int8_t *in, const vendor_conv_t *conv, const int8_t *weights,
                    const int32_t *table, int32_t *sums)
{
  if (conv->channels > 4096) {
    return 7;
  }
  for (int32_t y = 0; y < conv->out_height; ++y) {
    for (int32_t x = 0; x < conv->out_width; ++x) {
      for (int32_t k = 0; k < conv->out_channels; ++k) {
        sums[k] = table[4 * k];
      }
      int32_t weight = 0;
      for (int32_t fy = 0; fy < conv->kernel_h; ++fy) {
        for (int32_t fx = 0; fx < conv->kernel_w; ++fx) {
          int32_t row = y * conv->stride_h + fy - conv->pad_top;
          int32_t column = x * conv->stride_w + fx - conv->pad_left;
          int inside = row >= 0 && row < conv->height && column >= 0 && column < conv->width;
          for (int32_t c = 0; c < conv->channels; ++c) {
            int32_t pixel = row * conv->width + column;
            int32_t value = inside ? in[pixel * conv->channels + c] : conv->ifm_zero_point;
            for (int32_t k = 0; k < conv->out_channels; ++k) {
              sums[k] += value * (weight_at(weights, conv->weight_bits, weight++) - conv->weight_zero_point);
            }
          }
        }
      }
      for (int32_t k = 0; k < conv->out_channels; ++k) {
        *out++ = clamped(scaled(sums[k], &table[4 * k + 1]) + conv->ofm_zero_point, conv->low, conv->high);
      }
    }
  }
  return 0;
}

int32_t vendor_add(int32_t count, const int8_t *one, const int8_t *other, int8_t *out, const int32_t *table)
{
  for (int32_t i = 0; i < count; ++i) {
    int32_t sum = scaled(one[i] - table[0], &table[1]) + scaled(other[i] - table[4], &table[5]);
    out[i] = clamped(sum + table[8], table[9], table[10]);
  }
  return 0;
}
