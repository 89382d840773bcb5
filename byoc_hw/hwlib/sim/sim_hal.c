/* The functions of hwlib_hal.h. */
#include "sim_internal.h"

void hwlib_sim_reset(void)
{
  hwlib_sim_fault_reset();
  hwlib_sim_memory_reset();
  hwlib_sim_timeline_reset();
}

hwlib_status_t hwlib_hal_init(void)
{
  hwlib_sim_idle();
  return HWLIB_OK;
}

hwlib_status_t hwlib_hal_copy_2d(hwlib_place_t target, uint32_t target_stride, hwlib_place_t source,
                                 uint32_t source_stride, uint32_t bytes, uint32_t rows,
                                 hwlib_token_t *token)
{
  const hwlib_sim_copy_t copy = {target, source, target_stride, source_stride, bytes, rows};
  hwlib_status_t status = hwlib_sim_check_copy(&copy);
  if (status != HWLIB_OK) {
    return status;
  }
  const hwlib_sim_work_t work = hwlib_sim_copy_work(&copy);
  status = hwlib_sim_access(&work);
  if (status == HWLIB_OK) {
    status = hwlib_sim_start(HWLIB_SIM_DMA, &work, token);
  }
  if (status != HWLIB_OK) {
    return status;
  }
  hwlib_sim_counters_t *counters = hwlib_sim_counters();
  counters->copies += 1;
  counters->dma_cycles += work.cycles;
  counters->dma_bytes += (uint64_t)rows * bytes;
  hwlib_sim_move(&copy);
  return HWLIB_OK;
}

hwlib_status_t hwlib_hal_copy_1d(hwlib_place_t target, hwlib_place_t source, uint32_t bytes,
                                 hwlib_token_t *token)
{
  return hwlib_hal_copy_2d(target, 0, source, 0, bytes, 1, token);
}

hwlib_status_t hwlib_hal_copy_wait(hwlib_token_t token) { return hwlib_sim_wait(HWLIB_SIM_DMA, token); }

static hwlib_status_t compute_whole(const hwlib_whole_layer_t *layer)
{
#if (HWLIB_ACCELERATOR_KINDS & HWLIB_SIM_WHOLE_KINDS) != 0
  return hwlib_whole_layer(layer);
#else
  (void)layer; /* its kind was refused */
  return HWLIB_ERROR_LIMIT;
#endif
}

static hwlib_status_t start_whole(const hwlib_whole_layer_t *layer, hwlib_token_t *token)
{
  const hwlib_sim_work_t work = {.cycles = layer->cycles, .whole = layer};
  hwlib_status_t status = hwlib_sim_check_whole(layer);
  if (status == HWLIB_OK) {
    status = hwlib_sim_start(HWLIB_SIM_ARRAY, &work, token);
  }
  if (status != HWLIB_OK) {
    return status;
  }
  hwlib_sim_counters_t *counters = hwlib_sim_counters();
  counters->jobs += 1;
  counters->array_cycles += work.cycles;
  return compute_whole(layer);
}

hwlib_status_t hwlib_hal_job_start(const hwlib_job_t *job, hwlib_token_t *token)
{
  if (job->tile == NULL) {
    return start_whole((const hwlib_whole_layer_t *)job->layer, token);
  }
  hwlib_sim_work_t work = {0};
  hwlib_status_t status = hwlib_sim_check_job(job);
  if (status == HWLIB_OK) {
    status = hwlib_sim_job_work(job, &work);
  }
  if (status == HWLIB_OK) {
    status = hwlib_sim_access(&work);
  }
  if (status == HWLIB_OK) {
    status = hwlib_sim_check_scales(job);
  }
  if (status == HWLIB_OK) {
    status = hwlib_sim_start(HWLIB_SIM_ARRAY, &work, token);
  }
  if (status != HWLIB_OK) {
    return status;
  }
  hwlib_sim_counters_t *counters = hwlib_sim_counters();
  counters->jobs += 1;
  counters->array_cycles += work.cycles;
  hwlib_sim_compute(job);
  return HWLIB_OK;
}

hwlib_status_t hwlib_hal_job_wait(hwlib_token_t token) { return hwlib_sim_wait(HWLIB_SIM_ARRAY, token); }

uint64_t hwlib_hal_cycles(void) { return hwlib_sim_now(); }

void hwlib_hal_mark(uint16_t layer) { hwlib_sim_mark(layer); }

hwlib_status_t hwlib_hal_copy_done(hwlib_token_t token, uint8_t *done)
{
  return hwlib_sim_done(HWLIB_SIM_DMA, token, done);
}

hwlib_status_t hwlib_hal_job_done(hwlib_token_t token, uint8_t *done)
{
  return hwlib_sim_done(HWLIB_SIM_ARRAY, token, done);
}

void hwlib_hal_idle(void) { sim_clock_idle(); }
