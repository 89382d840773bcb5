/* The simulator as a process: requests of ten 64-bit words (and a payload) on stdin, answers of two
 * words (and a payload) on stdout. hwlib_simulator.py is the other end. A process of its own, so that
 * the sanitizers watch every random tile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hwlib_sim.h"

enum { WORDS = 10, MAIN_BYTES = 1 << 20 };

enum {
  RESET, WRITE_MAIN, READ_MAIN, COPY_1D, COPY_2D, JOB, COPY_WAIT, JOB_WAIT, INIT, MARK,
  CYCLES, LAYER_CYCLES, COUNTERS, HOST_CYCLES, IN_FLIGHT, FAULT, COPY_DONE, JOB_DONE, IDLE
};

static _Alignas(64) uint8_t main_memory[MAIN_BYTES];
static _Alignas(64) uint8_t layer[128];
static hwlib_tile_t tile;

static void receive(void *bytes, size_t count)
{
  if (fread(bytes, 1, count, stdin) != count) {
    exit(1);
  }
}

static void answer(uint64_t status, uint64_t value, const void *payload, size_t count)
{
  uint64_t words[2] = {status, value};
  fwrite(words, sizeof words, 1, stdout);
  fwrite(payload, 1, count, stdout);
  fflush(stdout);
}

static hwlib_place_t place(uint64_t memory, uint64_t address)
{
  uintptr_t base = memory == HWLIB_MAIN ? (uintptr_t)main_memory : 0;
  return (hwlib_place_t){(uint8_t)memory, base + (uintptr_t)address};
}

int main(void)
{
  uint64_t word[WORDS];
  while (fread(word, sizeof word, 1, stdin) == 1) {
    hwlib_status_t status = HWLIB_OK;
    uint64_t value = 0;
    hwlib_token_t token = 0;
    uint8_t done = 9;
    const void *payload = "";
    size_t count = 0;
    switch (word[0]) {
    case RESET:
      hwlib_sim_reset();
      break;
    case WRITE_MAIN:
      receive(main_memory + word[1], word[2]);
      break;
    case READ_MAIN:
      payload = main_memory + word[1];
      count = word[2];
      break;
    case COPY_1D:
      status = hwlib_hal_copy_1d(place(word[1], word[2]), place(word[3], word[4]), (uint32_t)word[5], &token);
      value = token;
      break;
    case COPY_2D:
      status = hwlib_hal_copy_2d(place(word[1], word[2]), (uint32_t)word[6], place(word[3], word[4]),
                                 (uint32_t)word[7], (uint32_t)word[5], (uint32_t)word[8], &token);
      value = token;
      break;
    case JOB:
      receive(layer, word[1]);
      receive(&tile, sizeof tile);
      if (((const hwlib_layer_t *)layer)->kind == HWLIB_LOOKUP) { /* tables: an offset into main memory */
        hwlib_lookup_t *lookup = (hwlib_lookup_t *)layer;
        lookup->tables = main_memory + (uintptr_t)lookup->tables;
      }
      status = hwlib_hal_job_start(&(hwlib_job_t){(const hwlib_layer_t *)layer, &tile}, &token);
      value = token;
      break;
    case COPY_WAIT:
      status = hwlib_hal_copy_wait((hwlib_token_t)word[1]);
      break;
    case JOB_WAIT:
      status = hwlib_hal_job_wait((hwlib_token_t)word[1]);
      break;
    case INIT:
      status = hwlib_hal_init();
      break;
    case MARK:
      hwlib_hal_mark((uint16_t)word[1]);
      break;
    case CYCLES:
      value = hwlib_sim_cycles();
      break;
    case LAYER_CYCLES:
      value = hwlib_sim_layer_cycles((uint16_t)word[1]);
      break;
    case COUNTERS:
      payload = hwlib_sim_layer_counters((uint16_t)word[1]);
      count = sizeof(hwlib_sim_counters_t);
      break;
    case HOST_CYCLES:
      value = hwlib_hal_cycles();
      break;
    case IN_FLIGHT:
      value = hwlib_sim_in_flight();
      break;
    case FAULT:
      payload = hwlib_sim_fault();
      count = strlen(payload);
      value = count;
      break;
    case COPY_DONE:
      status = hwlib_hal_copy_done((hwlib_token_t)word[1], &done);
      value = done;
      break;
    case JOB_DONE:
      status = hwlib_hal_job_done((hwlib_token_t)word[1], &done);
      value = done;
      break;
    case IDLE:
      hwlib_hal_idle();
      break;
    default:
      return 1;
    }
    answer((uint64_t)status, value, payload, count);
  }
  return 0;
}
