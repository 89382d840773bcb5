/* The library of vendor_nn.h with an engine of its own: calls start layers, which run one after the other. */
#ifndef VENDOR_QUEUE_H
#define VENDOR_QUEUE_H

#include "vendor_nn.h"

int32_t vendor_conv_start(int8_t *out, const int8_t *in, const vendor_conv_t *conv, const int8_t *weights,
                          const int32_t *table, int32_t *sums, uint32_t *token);

int32_t vendor_add_start(int32_t count, const int8_t *one, const int8_t *other, int8_t *out, const int32_t *table,
                         uint32_t *token);

int32_t vendor_queue_wait(uint32_t token);

int32_t vendor_queue_done(uint32_t token, uint8_t *done);

#endif
