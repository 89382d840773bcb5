/* A vendor's library of whole layers, as tests/emit/test_library_mode.py plugs it in. */
#ifndef VENDOR_NN_H
#define VENDOR_NN_H

#include <stdint.h>

/* Geometry of a convolution. Padding reads as ifm_zero_point. */
typedef struct {
  int32_t height, width, channels, out_height, out_width, out_channels;
  int32_t kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left;
  int32_t ifm_zero_point, weight_zero_point, ofm_zero_point, low, high;
  int32_t weight_bits; /* 8 or 4 */
} vendor_conv_t;

/* weights: [fy][fx][c][k]; of 4 bits two are in a byte, the first in its high half. table: offset, multiplier, left, right of each output channel.
 * sums: work space for one int32 each output channel. */
int32_t vendor_conv(int8_t *out, const int8_t *in, const vendor_conv_t *conv, const int8_t *weights,
                    const int32_t *table, int32_t *sums);

/* table: zero point, multiplier, left, right of either input; zero point, low, high of the output. */
int32_t vendor_add(int32_t count, const int8_t *one, const int8_t *other, int8_t *out, const int32_t *table);

#endif
