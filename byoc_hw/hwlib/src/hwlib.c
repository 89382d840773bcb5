/* The wrappers of hwlib.h. Each adds its kind and passes its arguments on in the same registers: two
 * instructions. */
#include "hwlib_steps.h"

#include <stddef.h>

hwlib_status_t hwlib_conv2d(hwlib_region_t *region, const hwlib_conv2d_t *layer, hwlib_steps_t steps)
{
  return hwlib_run_layer(region, &layer->layer, steps, HWLIB_CONV2D);
}

hwlib_status_t hwlib_depthwise_conv2d(hwlib_region_t *region, const hwlib_conv2d_t *layer, hwlib_steps_t steps)
{
  return hwlib_run_layer(region, &layer->layer, steps, HWLIB_DEPTHWISE_CONV2D);
}

hwlib_status_t hwlib_dense(hwlib_region_t *region, const hwlib_conv2d_t *layer, hwlib_steps_t steps)
{
  return hwlib_run_layer(region, &layer->layer, steps, HWLIB_DENSE);
}

hwlib_status_t hwlib_add(hwlib_region_t *region, const hwlib_add_t *layer, hwlib_steps_t steps)
{
  return hwlib_run_layer(region, &layer->layer, steps, HWLIB_ADD);
}

hwlib_status_t hwlib_mul(hwlib_region_t *region, const hwlib_mul_t *layer, hwlib_steps_t steps)
{
  return hwlib_run_layer(region, &layer->layer, steps, HWLIB_MUL);
}

hwlib_status_t hwlib_matmul(hwlib_region_t *region, const hwlib_matmul_t *layer, hwlib_steps_t steps)
{
  return hwlib_run_layer(region, &layer->layer, steps, HWLIB_MATMUL);
}

hwlib_status_t hwlib_pool2d(hwlib_region_t *region, const hwlib_pool2d_t *layer, hwlib_steps_t steps)
{
  return hwlib_run_layer(region, &layer->layer, steps, HWLIB_POOL2D);
}

hwlib_status_t hwlib_softmax(hwlib_region_t *region, const hwlib_softmax_t *layer, hwlib_steps_t steps)
{
  return hwlib_run_layer(region, &layer->layer, steps, HWLIB_SOFTMAX);
}

hwlib_status_t hwlib_lookup(hwlib_region_t *region, const hwlib_lookup_t *layer, hwlib_steps_t steps)
{
  return hwlib_run_layer(region, &layer->layer, steps, HWLIB_LOOKUP);
}

hwlib_status_t hwlib_reshape(hwlib_region_t *region, const hwlib_layer_t *layer, hwlib_steps_t steps)
{
  return hwlib_run_layer(region, layer, steps, HWLIB_RESHAPE);
}

hwlib_status_t hwlib_transpose(hwlib_region_t *region, const hwlib_layer_t *layer, hwlib_steps_t steps)
{
  return hwlib_run_layer(region, layer, steps, HWLIB_TRANSPOSE);
}

hwlib_status_t hwlib_concat(hwlib_region_t *region, const hwlib_layer_t *layer, hwlib_steps_t steps)
{
  return hwlib_run_layer(region, layer, steps, HWLIB_CONCAT);
}

hwlib_status_t hwlib_slice(hwlib_region_t *region, const hwlib_layer_t *layer, hwlib_steps_t steps)
{
  return hwlib_run_layer(region, layer, steps, HWLIB_SLICE);
}

hwlib_status_t hwlib_pad(hwlib_region_t *region, const hwlib_layer_t *layer, hwlib_steps_t steps)
{
  return hwlib_run_layer(region, layer, steps, HWLIB_PAD);
}

hwlib_status_t hwlib_resize(hwlib_region_t *region, const hwlib_layer_t *layer, hwlib_steps_t steps)
{
  return hwlib_run_layer(region, layer, steps, HWLIB_RESIZE);
}

hwlib_status_t hwlib_wait(hwlib_region_t *region, hwlib_steps_t steps)
{
  return hwlib_run_steps(region, NULL, steps);
}
