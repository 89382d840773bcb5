/* Matrix products of two activations, bit for bit as hwlib_hal.h states them. */
#include "sim_internal.h"

static hwlib_status_t check(const hwlib_job_t *job)
{
  const hwlib_matmul_t *layer = (const hwlib_matmul_t *)job->layer;
  const hwlib_tile_t *tile = job->tile;
  if (tile->ifm_h != 1 || tile->ifm_w == 0 || tile->ifm_c == 0) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "matmul", "# x # x # inputs are not some vectors", tile->ifm_h,
                            tile->ifm_w, tile->ifm_c);
  }
  if (tile->ofm_h != 1 || tile->ofm_w != tile->ifm_w || tile->ofm_c == 0) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "matmul", "# x # x # outputs are not as many vectors", tile->ofm_h,
                            tile->ofm_w, tile->ofm_c);
  }
  return hwlib_sim_check_clamp(layer->act_min, layer->act_max);
}

/* Cycles, as of a dense layer with weights of 8 bits:
 *   ceil(ofm_w / array_columns) * ceil(ofm_c / array_rows) * (3 * ifm_c + job_overhead) */
static hwlib_status_t work_of(const hwlib_job_t *job, hwlib_sim_work_t *work)
{
  const hwlib_tile_t *tile = job->tile;
  uint64_t groups = hwlib_sim_divide_up(tile->ofm_w, hwlib_sim_numbers.array_columns) *
                    hwlib_sim_divide_up(tile->ofm_c, hwlib_sim_numbers.array_rows);
  work->cycles = groups * (3 * (uint64_t)tile->ifm_c + hwlib_sim_numbers.job_overhead);
  hwlib_sim_add_run(work, "ifm", HWLIB_LOCAL_ACTIVATIONS, HWLIB_SIM_READS, tile->ifm,
                    (uint64_t)tile->ifm_w * tile->ifm_c);
  hwlib_sim_add_run(work, "ifm2", HWLIB_LOCAL_ACTIVATIONS, HWLIB_SIM_READS, tile->ifm2,
                    (uint64_t)tile->ofm_c * tile->ifm_c);
  hwlib_sim_add_run(work, "ofm", HWLIB_LOCAL_ACTIVATIONS, HWLIB_SIM_WRITES, tile->ofm,
                    (uint64_t)tile->ofm_w * tile->ofm_c);
  return HWLIB_OK;
}

static hwlib_status_t check_scales(const hwlib_job_t *job)
{
  const hwlib_matmul_t *layer = (const hwlib_matmul_t *)job->layer;
  return hwlib_sim_check_scale("scale", layer->layer.rounding, layer->scale);
}

static int8_t product(const hwlib_matmul_t *layer, const int8_t *ifm, const int8_t *ifm2, uint32_t channels)
{
  uint32_t sum = 0;
  for (uint32_t c = 0; c < channels; ++c) {
    sum += (uint32_t)((ifm[c] - layer->ifm_zero_point) * (ifm2[c] - layer->ifm2_zero_point));
  }
  return hwlib_sim_finish(hwlib_sim_scale(layer->layer.rounding, hwlib_sim_signed32(sum), layer->scale),
                          layer->ofm_zero_point, layer->act_min, layer->act_max);
}

static void compute(const hwlib_job_t *job)
{
  const hwlib_matmul_t *layer = (const hwlib_matmul_t *)job->layer;
  const hwlib_tile_t *tile = job->tile;
  const int8_t *ifm = hwlib_sim_activations(tile->ifm), *ifm2 = hwlib_sim_activations(tile->ifm2);
  int8_t *ofm = hwlib_sim_activations(tile->ofm);
  for (uint64_t row = 0; row < tile->ofm_w; ++row) {
    for (uint64_t k = 0; k < tile->ofm_c; ++k) {
      ofm[row * tile->ofm_c + k] = product(layer, ifm + row * tile->ifm_c, ifm2 + k * tile->ifm_c, tile->ifm_c);
    }
  }
}

const hwlib_sim_family_t hwlib_sim_matmul = {check, work_of, check_scales, compute};
