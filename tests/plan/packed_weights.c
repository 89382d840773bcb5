/* The weights of a tile, by the words of hwlib_hal.h alone: [k][fy][fx][c], `bits` wide, two's complement, the lowest
 * bits first; each output channel starts on a byte. */
#include <stdint.h>

void packed_weights(const uint8_t *stored, uint32_t channels, uint32_t values, uint32_t bits, int64_t *weights)
{
  uint64_t at = 0; /* in bits */
  for (uint32_t k = 0; k < channels; ++k) {
    for (uint32_t i = 0; i < values; ++i) {
      int64_t value = 0;
      for (uint32_t bit = 0; bit < bits; ++bit, ++at) {
        int64_t power = (int64_t)1 << bit;
        if ((stored[at / 8] >> at % 8 & 1) != 0) {
          value += bit == bits - 1 ? -power : power;
        }
      }
      *weights++ = value;
    }
    while (at % 8 != 0) {
      at += 1;
    }
  }
}
