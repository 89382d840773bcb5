/* What a job touches of the local memories, and what it costs. */
#include "sim_internal.h"

/* ---------------------------------------------------------------- bytes */

/* Weights of one output channel. */
uint64_t hwlib_sim_filter_values(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile)
{
  uint32_t channels = layer->layer.kind == HWLIB_DEPTHWISE_CONV2D ? 1 : tile->ifm_c;
  return (uint64_t)layer->kernel_h * layer->kernel_w * channels;
}

static uint64_t divide_up(uint64_t dividend, uint64_t divisor) { return (dividend + divisor - 1) / divisor; }

uint64_t hwlib_sim_filter_bytes(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile)
{
  return divide_up(hwlib_sim_filter_values(layer, tile) * layer->weight_bits, 8);
}

static void add_run(hwlib_sim_work_t *work, const char *name, uint8_t memory, unsigned access,
                    uint32_t address, uint64_t bytes)
{
  work->area[work->areas++] = (hwlib_sim_area_t){.name = name,
                                                 .memory = memory,
                                                 .access = (uint8_t)access,
                                                 .rows = 1,
                                                 .pixels = 1,
                                                 .address = address,
                                                 .bytes = bytes};
}

static hwlib_status_t add_words(hwlib_sim_work_t *work, const char *name, uint8_t memory, unsigned access,
                                uint32_t address, uint64_t bytes)
{
  if (address % 4 != 0) {
    return HWLIB_SIM_REFUSE(HWLIB_ERROR_ALIGNMENT, name, "address # is not a multiple of 4", address);
  }
  add_run(work, name, memory, access, address, bytes);
  return HWLIB_OK;
}

static void add_ifm(hwlib_sim_work_t *work, const hwlib_tile_t *tile)
{
  work->area[work->areas++] = (hwlib_sim_area_t){.name = "ifm",
                                                 .memory = HWLIB_LOCAL_ACTIVATIONS,
                                                 .access = HWLIB_SIM_READS,
                                                 .rows = tile->ifm_h,
                                                 .pixels = tile->ifm_w,
                                                 .row_stride = tile->ifm_row,
                                                 .pixel_stride = tile->ifm_pixel,
                                                 .address = tile->ifm,
                                                 .bytes = tile->ifm_c};
}

static void add_ofm(hwlib_sim_work_t *work, const hwlib_tile_t *tile)
{
  work->area[work->areas++] = (hwlib_sim_area_t){.name = "ofm",
                                                 .memory = HWLIB_LOCAL_ACTIVATIONS,
                                                 .access = HWLIB_SIM_WRITES,
                                                 .rows = tile->ofm_h,
                                                 .pixels = tile->ofm_w,
                                                 .row_stride = tile->ofm_row,
                                                 .pixel_stride = tile->ofm_pixel,
                                                 .address = tile->ofm,
                                                 .bytes = tile->ofm_c};
}

/* Each slice touches what it needs: the first reads the bias, the last the scales, those between
 * carry sums from psum to psum. */
static hwlib_status_t add_conv2d_areas(hwlib_sim_work_t *work, const hwlib_conv2d_t *layer,
                                       const hwlib_tile_t *tile)
{
  int first = (tile->flags & HWLIB_TILE_FIRST) != 0, last = (tile->flags & HWLIB_TILE_LAST) != 0;
  hwlib_status_t status = HWLIB_OK;
  add_ifm(work, tile);
  add_run(work, "weights", HWLIB_LOCAL_WEIGHTS, HWLIB_SIM_READS, tile->weights,
          tile->ofm_c * hwlib_sim_filter_bytes(layer, tile));
  if (first || last) {
    status = add_words(work, "params", HWLIB_LOCAL_WEIGHTS, HWLIB_SIM_READS, tile->params,
                       (uint64_t)tile->ofm_c * sizeof(hwlib_params_t));
  }
  if (status == HWLIB_OK && !(first && last)) {
    status = add_words(work, "psum", HWLIB_LOCAL_ACTIVATIONS,
                       (first ? 0u : HWLIB_SIM_READS) | (last ? 0u : HWLIB_SIM_WRITES), tile->psum,
                       (uint64_t)tile->ofm_h * tile->ofm_w * tile->ofm_c * sizeof(int32_t));
  }
  if (last) {
    add_ofm(work, tile);
  }
  return status;
}

static void add_add_areas(hwlib_sim_work_t *work, const hwlib_tile_t *tile)
{
  add_run(work, "ifm", HWLIB_LOCAL_ACTIVATIONS, HWLIB_SIM_READS, tile->ifm, tile->ifm_w);
  add_run(work, "ifm2", HWLIB_LOCAL_ACTIVATIONS, HWLIB_SIM_READS, tile->ifm2, tile->ifm_w);
  add_run(work, "ofm", HWLIB_LOCAL_ACTIVATIONS, HWLIB_SIM_WRITES, tile->ofm, tile->ifm_w);
}

/* ---------------------------------------------------------------- cost */

/* Cycles of a job: the one place that says so, and what a cost model mirrors. Divisions round
 * up where it says ceil; C is ifm_c of the tile, so a slice pays for its channels.
 *   conv2d, dense  ofm_h * ceil(ofm_c / rows) * ceil(ofm_w / columns)
 *                    * (ceil(C * FY * FX * bits / 8) + 2 * C * FY + overhead)
 *   depthwise      the same with C = 1 and depthwise_rows for rows
 *   add            ceil(2 * elements / elementwise_width)
 *   pool2d         ceil(ofm_h * ofm_w * ofm_c * FY * FX / elementwise_width)
 *   softmax        ceil(3 * elements / elementwise_width): maximum, sum of exponentials, quotients
 * Padding, strides, psum and the clamp cost nothing; FY and FX count in full at the borders. */
static uint64_t conv2d_cycles(const hwlib_conv2d_t *layer, const hwlib_tile_t *tile)
{
  int depthwise = layer->layer.kind == HWLIB_DEPTHWISE_CONV2D;
  uint64_t rows = depthwise ? HWLIB_SIM_DEPTHWISE_ROWS : HWLIB_SIM_ARRAY_ROWS;
  uint64_t channels = depthwise ? 1 : tile->ifm_c;
  uint64_t groups = tile->ofm_h * divide_up(tile->ofm_c, rows) * divide_up(tile->ofm_w, HWLIB_SIM_ARRAY_COLUMNS);
  return groups * (hwlib_sim_filter_bytes(layer, tile) + 2 * channels * layer->kernel_h + HWLIB_SIM_JOB_OVERHEAD);
}

static uint64_t pool2d_cycles(const hwlib_pool2d_t *layer, const hwlib_tile_t *tile)
{
  uint64_t outputs = (uint64_t)tile->ofm_h * tile->ofm_w * tile->ofm_c;
  return divide_up(outputs * layer->kernel_h * layer->kernel_w, HWLIB_SIM_ELEMENTWISE_WIDTH);
}

static uint64_t add_cycles(const hwlib_tile_t *tile)
{
  return divide_up(2 * (uint64_t)tile->ifm_w, HWLIB_SIM_ELEMENTWISE_WIDTH);
}

static uint64_t softmax_cycles(const hwlib_tile_t *tile)
{
  return divide_up(3 * (uint64_t)tile->ifm_w * tile->ifm_c, HWLIB_SIM_ELEMENTWISE_WIDTH);
}

hwlib_status_t hwlib_sim_job_work(const hwlib_job_t *job, hwlib_sim_work_t *work)
{
  const hwlib_tile_t *tile = job->tile;
  switch (job->layer->kind) {
  case HWLIB_ADD:
    work->cycles = add_cycles(tile);
    add_add_areas(work, tile);
    return HWLIB_OK;
  case HWLIB_SOFTMAX:
    work->cycles = softmax_cycles(tile);
    add_run(work, "ifm", HWLIB_LOCAL_ACTIVATIONS, HWLIB_SIM_READS, tile->ifm, (uint64_t)tile->ifm_w * tile->ifm_c);
    add_run(work, "ofm", HWLIB_LOCAL_ACTIVATIONS, HWLIB_SIM_WRITES, tile->ofm, (uint64_t)tile->ifm_w * tile->ifm_c);
    return HWLIB_OK;
  case HWLIB_POOL2D:
    work->cycles = pool2d_cycles((const hwlib_pool2d_t *)job->layer, tile);
    add_ifm(work, tile);
    add_ofm(work, tile);
    return HWLIB_OK;
  default:
    work->cycles = conv2d_cycles((const hwlib_conv2d_t *)job->layer, tile);
    return add_conv2d_areas(work, (const hwlib_conv2d_t *)job->layer, tile);
  }
}

hwlib_sim_output_t hwlib_sim_output(const hwlib_job_t *job)
{
  hwlib_sim_work_t work = {0};
  (void)hwlib_sim_job_work(job, &work);
  const hwlib_sim_area_t *ofm = &work.area[work.areas - 1]; /* of every kind the last */
  return (hwlib_sim_output_t){hwlib_sim_local(ofm->memory, ofm->address),
                              ofm->rows,
                              ofm->pixels,
                              (uint32_t)ofm->bytes,
                              ofm->row_stride,
                              ofm->pixel_stride};
}
