/* The array: which jobs it takes, what they touch and cost, and what they compute, by family of layer kinds.
 *
 * The cycles of a job are said in the file of its family, without those to start it; a cost model mirrors them.
 * Divisions round up where it says ceil. Padding, strides, psum and the clamp cost nothing. */
#include "sim_internal.h"

/* What has no family of its own is element-wise; kinds that the array lacks were refused before. */
static const hwlib_sim_family_t *family_of(const hwlib_job_t *job)
{
  switch (job->layer->kind) {
  case HWLIB_CONV2D:
  case HWLIB_DEPTHWISE_CONV2D:
  case HWLIB_DENSE:
    return &hwlib_sim_conv2d;
  case HWLIB_POOL2D:
    return &hwlib_sim_pool2d;
  case HWLIB_SOFTMAX:
    return &hwlib_sim_softmax;
  case HWLIB_MATMUL:
    return &hwlib_sim_matmul;
  case HWLIB_LOOKUP:
    return &hwlib_sim_lookup;
  default:
    return &hwlib_sim_elementwise;
  }
}

static hwlib_status_t check_layer(const hwlib_layer_t *layer)
{
  if (layer->kind > 31 || (hwlib_sim_numbers.kinds >> layer->kind & 1u) == 0) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "job", "the array has no layer kind #", layer->kind);
  }
  if (layer->rounding > 31 || (hwlib_sim_numbers.roundings >> layer->rounding & 1u) == 0) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_LIMIT, "job", "the array has no rounding #", layer->rounding);
  }
  return HWLIB_OK;
}

/* Refuses extents that no memory holds before anything multiplies them. */
static hwlib_status_t check_extents(const hwlib_tile_t *tile)
{
  const uint32_t extents[] = {tile->ifm_h, tile->ifm_w, tile->ifm_c, tile->ofm_h, tile->ofm_w, tile->ofm_c};
  for (size_t i = 0; i < sizeof extents / sizeof extents[0]; ++i) {
    if (extents[i] > hwlib_sim_numbers.memories[HWLIB_LOCAL_ACTIVATIONS].size) {
      return HWLIB_SIM_REFUSE(HWLIB_ERROR_ADDRESS, "tile", "an extent of # is beyond the # bytes of local activations",
                              extents[i], hwlib_sim_numbers.memories[HWLIB_LOCAL_ACTIVATIONS].size);
    }
  }
  return HWLIB_OK;
}

hwlib_status_t hwlib_sim_check_job(const hwlib_job_t *job)
{
  hwlib_status_t status = check_layer(job->layer);
  if (status == HWLIB_OK && (HWLIB_SIM_WHOLE_KINDS >> job->layer->kind & 1u) != 0) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_STEP, "job", "layer kind # has no tiles", job->layer->kind);
  }
  if (status == HWLIB_OK) {
    status = check_extents(job->tile);
  }
  return status == HWLIB_OK ? family_of(job)->check(job) : status;
}

hwlib_status_t hwlib_sim_job_work(const hwlib_job_t *job, hwlib_sim_work_t *work)
{
  hwlib_status_t status = family_of(job)->work(job, work);
  work->cycles += hwlib_sim_numbers.job_setup;
  return status;
}

hwlib_status_t hwlib_sim_check_scales(const hwlib_job_t *job) { return family_of(job)->check_scales(job); }

void hwlib_sim_compute(const hwlib_job_t *job) { family_of(job)->compute(job); }

/* Where operands lie was checked by the compiler: main memory is wherever the host can point. */
hwlib_status_t hwlib_sim_check_whole(const hwlib_whole_layer_t *layer)
{
  hwlib_status_t status = check_layer(&layer->layer);
  if (status == HWLIB_OK && (HWLIB_SIM_WHOLE_KINDS >> layer->layer.kind & 1u) == 0) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_STEP, "job", "layer kind # needs a tile", layer->layer.kind);
  }
  return status;
}
