/* Element-wise layers (add, mul), bit for bit as hwlib_hal.h states them: two runs of elements make a third, or a run of
 * pixels and one pixel. */
#include "sim_internal.h"

static hwlib_status_t check_run(const char *kind, const hwlib_tile_t *tile)
{
  if (tile->ifm_h != 1 || tile->ifm_w == 0 || tile->ifm_c != 1) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, kind, "# x # x # inputs are not one run of elements",
                            tile->ifm_h, tile->ifm_w, tile->ifm_c);
  }
  return HWLIB_OK;
}

static hwlib_status_t check_pixels(const char *kind, const hwlib_tile_t *tile, uint32_t channels)
{
  int fits = tile->ifm_c == 1 || tile->ifm_c == channels;
  if (tile->ifm_h != 1 || tile->ifm_w == 0 || tile->ifm_c == 0 || !fits) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, kind, "# x # x # inputs are not one run of pixels of # channels, or of 1",
                            tile->ifm_h, tile->ifm_w, tile->ifm_c, channels);
  }
  return HWLIB_OK;
}

static hwlib_status_t check_inputs(const char *kind, const hwlib_tile_t *tile, uint8_t broadcast, unsigned most,
                                   uint32_t channels)
{
  if (broadcast > most) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, kind, "broadcast is at most #: #", most, broadcast);
  }
  return broadcast ? check_pixels(kind, tile, channels) : check_run(kind, tile);
}

static uint64_t elements_of(const hwlib_tile_t *tile) { return (uint64_t)tile->ifm_w * tile->ifm_c; }

static int broadcasts(const hwlib_layer_t *layer)
{
  return layer->kind == HWLIB_MUL ? ((const hwlib_mul_t *)layer)->broadcast : ((const hwlib_add_t *)layer)->broadcast;
}

static void add_run(hwlib_sim_work_t *work, const char *name, unsigned access, uint32_t address, uint64_t elements)
{
  hwlib_sim_add_run(work, name, HWLIB_LOCAL_ACTIVATIONS, access, address, elements);
}

/* Cycles: ceil(2 * elements / elementwise_width). */
static hwlib_status_t work_of(const hwlib_job_t *job, hwlib_sim_work_t *work)
{
  const hwlib_tile_t *tile = job->tile;
  uint64_t elements = elements_of(tile);
  work->cycles = hwlib_sim_divide_up(2 * elements, hwlib_sim_numbers.elementwise_width);
  add_run(work, "ifm", HWLIB_SIM_READS, tile->ifm, elements);
  add_run(work, "ifm2", HWLIB_SIM_READS, tile->ifm2, broadcasts(job->layer) ? tile->ifm_c : elements);
  add_run(work, "ofm", HWLIB_SIM_WRITES, tile->ofm, elements);
  return HWLIB_OK;
}

/* ---------------------------------------------------------------- add */

static hwlib_status_t check_add(const hwlib_add_t *layer, const hwlib_tile_t *tile)
{
  hwlib_status_t status =
      check_inputs("add", tile, layer->broadcast, hwlib_sim_numbers.add_broadcast, layer->shape.channels);
  if (status == HWLIB_OK && layer->subtract > 2) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "add", "subtract is at most 2: #", layer->subtract);
  }
  return status == HWLIB_OK ? hwlib_sim_check_clamp(layer->act_min, layer->act_max) : status;
}

static hwlib_status_t check_add_scales(const hwlib_add_t *layer)
{
  uint8_t rounding = layer->layer.rounding;
  hwlib_status_t status = hwlib_sim_check_scale("ifm_scale", rounding, layer->ifm_scale);
  if (status == HWLIB_OK) {
    status = hwlib_sim_check_scale("ifm2_scale", rounding, layer->ifm2_scale);
  }
  if (status == HWLIB_OK && rounding == HWLIB_ROUND_TFLITE) {
    status = hwlib_sim_check_scale("sum_scale", rounding, layer->sum_scale);
  }
  return status;
}

static int8_t add(const hwlib_add_t *layer, int8_t ifm, int8_t ifm2)
{
  uint8_t rounding = layer->layer.rounding;
  int64_t sum = hwlib_sim_scale(rounding, ifm - layer->ifm_zero_point, layer->ifm_scale);
  int64_t other = hwlib_sim_scale(rounding, ifm2 - layer->ifm2_zero_point, layer->ifm2_scale);
  sum = (layer->subtract == 2 ? -sum : sum) + (layer->subtract == 1 ? -other : other);
  if (rounding == HWLIB_ROUND_TFLITE) {
    sum = hwlib_sim_scale(rounding, hwlib_sim_signed32((uint32_t)sum), layer->sum_scale);
  }
  return hwlib_sim_finish(sum, layer->ofm_zero_point, layer->act_min, layer->act_max);
}

/* ---------------------------------------------------------------- mul */

static hwlib_status_t check_mul(const hwlib_mul_t *layer, const hwlib_tile_t *tile)
{
  hwlib_status_t status =
      check_inputs("mul", tile, layer->broadcast, hwlib_sim_numbers.mul_broadcast, layer->shape.channels);
  return status == HWLIB_OK ? hwlib_sim_check_clamp(layer->act_min, layer->act_max) : status;
}

static hwlib_status_t check_mul_scale(const hwlib_mul_t *layer)
{
  return hwlib_sim_check_scale("scale", layer->layer.rounding, layer->scale);
}

static int8_t mul(const hwlib_mul_t *layer, int8_t ifm, int8_t ifm2)
{
  int32_t product = (ifm - layer->ifm_zero_point) * (ifm2 - layer->ifm2_zero_point);
  return hwlib_sim_finish(hwlib_sim_scale(layer->layer.rounding, product, layer->scale), layer->ofm_zero_point,
                          layer->act_min, layer->act_max);
}

/* ---------------------------------------------------------------- the family */

static hwlib_status_t check(const hwlib_job_t *job)
{
  return job->layer->kind == HWLIB_MUL ? check_mul((const hwlib_mul_t *)job->layer, job->tile)
                                       : check_add((const hwlib_add_t *)job->layer, job->tile);
}

static hwlib_status_t check_scales(const hwlib_job_t *job)
{
  return job->layer->kind == HWLIB_MUL ? check_mul_scale((const hwlib_mul_t *)job->layer)
                                       : check_add_scales((const hwlib_add_t *)job->layer);
}

static int8_t element(const hwlib_layer_t *layer, int8_t ifm, int8_t ifm2)
{
  return layer->kind == HWLIB_MUL ? mul((const hwlib_mul_t *)layer, ifm, ifm2)
                                  : add((const hwlib_add_t *)layer, ifm, ifm2);
}

static void compute(const hwlib_job_t *job)
{
  const hwlib_tile_t *tile = job->tile;
  const int8_t *ifm = hwlib_sim_activations(tile->ifm), *ifm2 = hwlib_sim_activations(tile->ifm2);
  int8_t *ofm = hwlib_sim_activations(tile->ofm);
  uint64_t elements = elements_of(tile), period = broadcasts(job->layer) ? tile->ifm_c : elements;
  for (uint64_t i = 0; i < elements; ++i) {
    ofm[i] = element(job->layer, ifm[i], ifm2[i % period]);
  }
}

const hwlib_sim_family_t hwlib_sim_elementwise = {check, work_of, check_scales, compute};
