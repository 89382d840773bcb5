/* Functions of one byte by table, as hwlib_hal.h states them. */
#include "sim_internal.h"

enum { ENTRIES = 256 };

static hwlib_status_t check(const hwlib_job_t *job)
{
  const hwlib_lookup_t *layer = (const hwlib_lookup_t *)job->layer;
  const hwlib_tile_t *tile = job->tile;
  uint32_t channels = layer->by_channel ? layer->shape.channels : 1;
  if (layer->tables == NULL || layer->by_channel > 1) {
    return hwlib_sim_refuse(HWLIB_ERROR_LIMIT, "lookup", "there are no tables", NULL);
  }
  if (tile->ifm_h != 1 || tile->ifm_w == 0 || tile->ifm_c != channels || channels == 0) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "lookup", "# x # x # inputs are not one run of pixels of # channels",
                            tile->ifm_h, tile->ifm_w, tile->ifm_c, channels);
  }
  return HWLIB_OK;
}

/* Cycles: ceil(elements / elementwise_width). */
static hwlib_status_t work_of(const hwlib_job_t *job, hwlib_sim_work_t *work)
{
  const hwlib_tile_t *tile = job->tile;
  uint64_t elements = (uint64_t)tile->ifm_w * tile->ifm_c;
  work->cycles = hwlib_sim_divide_up(elements, hwlib_sim_numbers.elementwise_width);
  hwlib_sim_add_run(work, "ifm", HWLIB_LOCAL_ACTIVATIONS, HWLIB_SIM_READS, tile->ifm, elements);
  hwlib_sim_add_run(work, "ofm", HWLIB_LOCAL_ACTIVATIONS, HWLIB_SIM_WRITES, tile->ofm, elements);
  return HWLIB_OK;
}

static hwlib_status_t check_scales(const hwlib_job_t *job)
{
  (void)job; /* has none */
  return HWLIB_OK;
}

static void compute(const hwlib_job_t *job)
{
  const hwlib_lookup_t *layer = (const hwlib_lookup_t *)job->layer;
  const hwlib_tile_t *tile = job->tile;
  const uint8_t *ifm = hwlib_sim_local(HWLIB_LOCAL_ACTIVATIONS, tile->ifm);
  uint8_t *ofm = hwlib_sim_local(HWLIB_LOCAL_ACTIVATIONS, tile->ofm);
  for (uint32_t pixel = 0; pixel < tile->ifm_w; ++pixel) {
    for (uint32_t channel = 0; channel < tile->ifm_c; ++channel) {
      *ofm++ = layer->tables[ENTRIES * (layer->by_channel ? channel : 0) + *ifm++];
    }
  }
}

const hwlib_sim_family_t hwlib_sim_lookup = {check, work_of, check_scales, compute};
