/* HWlib for a region on several accelerators of a chip: one core drives all of them without waiting for one. Also for
 * one accelerator, where the program polls the model, or that has events, a library or layers without tiles.
 *
 * A region has lanes, one for each accelerator that gets work. A lane has parts, which run one after the other. A part
 * is planned for its accelerator alone; where it touches memory that another lane writes
 * or reads, it awaits an event: the end of a copy or a job of that lane. The core goes round the lanes, and in each it carries
 * out steps up to one that has to wait for something that is not done. When no lane can go on, it is idle until an
 * operation ends that it has asked for, and goes round again.
 *
 * Where the hardware has events (hwlib_hal.h), engines await each other, and the core goes on. Of the lanes whose engines
 * do, each gives way to the others now and then, so that all engines have work early.
 *
 * A region that fails has called the init of every HAL that it uses before it ends: nothing of it is in flight then,
 * and nothing is written any more.
 */
#ifndef HWLIB_LANES_H
#define HWLIB_LANES_H

#include "hwlib.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The functions of hwlib_hal.h that drive one of the accelerators; NULL for those that its HAL leaves out. */
typedef struct {
  hwlib_status_t (*init)(void);
  hwlib_status_t (*copy_1d)(hwlib_place_t target, hwlib_place_t source, uint32_t bytes, hwlib_token_t *token);
  hwlib_status_t (*copy_2d)(hwlib_place_t target, uint32_t target_stride, hwlib_place_t source,
                            uint32_t source_stride, uint32_t bytes, uint32_t rows, hwlib_token_t *token);
  hwlib_status_t (*copy_wait)(hwlib_token_t token);
  hwlib_status_t (*job_start)(const hwlib_job_t *job, hwlib_token_t *token);
  hwlib_status_t (*job_wait)(hwlib_token_t token);
  uint64_t (*cycles)(void);
  void (*mark)(uint16_t layer);
  hwlib_status_t (*copy_done)(hwlib_token_t token, uint8_t *done);
  hwlib_status_t (*job_done)(hwlib_token_t token, uint8_t *done);
  void (*idle)(void);
  hwlib_status_t (*signal)(uint8_t engine, uint8_t event);
  hwlib_status_t (*await)(uint8_t engine, uint8_t event, uint16_t value);
} hwlib_hal_t;

/* Kinds of hwlib_step_t. An operation is one event at most, and an event is signalled once; those of the hardware
 * are counters. */
enum {
  HWLIB_STEP_COPY = 0,      /* start copies[index], keep its token in slot */
  HWLIB_STEP_JOB = 1,       /* start a job on tiles[index], keep its token in slot */
  HWLIB_STEP_COPY_WAIT = 2, /* wait for the copy whose token is in slot */
  HWLIB_STEP_JOB_WAIT = 3,  /* wait for the job whose token is in slot */
  HWLIB_STEP_SIGNAL = 4,     /* the copy whose token is in slot is event index */
  HWLIB_STEP_AWAIT = 5,      /* go on when event index, an operation of lane slot, has ended */
  HWLIB_STEP_LAYER = 6,      /* start the layer as a whole, keep its token in slot: a job without a tile */
  HWLIB_STEP_SIGNAL_JOB = 7, /* the job or whole layer whose token is in slot is event index */
  HWLIB_STEP_COPY_SIGNAL = 8, /* the DMA signals event index of the hardware, */
  HWLIB_STEP_JOB_SIGNAL = 9,  /* or the array */
  HWLIB_STEP_COPY_AWAIT = 10, /* the DMA goes on when event slot of the hardware has come index times, */
  HWLIB_STEP_JOB_AWAIT = 11,  /* or the array */
  HWLIB_STEP_TURN = 12,       /* go on with the next lane */
};

typedef struct {
  uint8_t kind, slot;
  uint16_t index;
} hwlib_step_t;

typedef struct {
  const hwlib_step_t *steps;
  const hwlib_copy_t *copies;
  const hwlib_tile_t *tiles;
  uint16_t layer; /* the first one of the part */
} hwlib_part_plan_t;

/* A range of the part's steps. */
typedef struct {
  uint32_t first, count;
} hwlib_steps_t;

/* Steps of a layer that begins or goes on; of no layer after the last. */
typedef struct {
  const hwlib_layer_t *layer;
  hwlib_steps_t steps;
} hwlib_call_t;

typedef struct {
  const hwlib_part_plan_t *plan;
  const hwlib_call_t *calls;
  uint16_t call_count;
  uint16_t spaces; /* the first of its spaces among those of the region */
} hwlib_part_t;

typedef struct {
  const hwlib_hal_t *hal;
  const hwlib_part_t *parts;
  uint16_t part_count;
} hwlib_lane_t;

/* An event while the region runs. */
typedef struct {
  uint8_t state;       /* not started, running as a copy or a job, or done */
  hwlib_token_t token; /* of the operation that it is */
} hwlib_event_t;

/* A lane while the region runs: where it is, and what it has started in this part. */
typedef struct {
  const hwlib_step_t *step, *end; /* the next one, and the end of the call */
  const hwlib_layer_t *running;   /* the call's layer */
  const hwlib_part_t *part;
  const hwlib_place_t *spaces; /* where each space of the part starts */
  hwlib_status_t (*done)(hwlib_token_t token, uint8_t *done); /* what it asks where it waits, */
  hwlib_token_t token;                                        /* for what, */
  hwlib_event_t *event;                                       /* and the event that this is, or NULL */
  uint16_t call;
  uint16_t layer;               /* the number of the layer that runs, or that failed */
  uint8_t found;                /* whether it can go on */
  uint8_t alone;                /* all others have ended, and the program waits for the region */
  uint16_t events[HWLIB_SLOTS]; /* the event that the operation of a slot is, counted from 1 */
  hwlib_token_t tokens[HWLIB_SLOTS];
} hwlib_lane_state_t;

/* A region, with the memory that it needs while it runs. */
typedef struct {
  const hwlib_lane_t *lanes;
  const hwlib_place_t *spaces; /* where each space of each part starts */
  hwlib_lane_state_t *states;  /* of each lane */
  hwlib_event_t *events;
  uint16_t lane_count, event_count;
  uint8_t single; /* whether a start may find the queue of an engine full, and wait */
  uint8_t counter_count;
  uint16_t *counters; /* the signals that engines were given of each event of the hardware */
} hwlib_chip_plan_t;

/* A running region. */
typedef struct {
  const hwlib_chip_plan_t *plan;
  int32_t result;     /* HWLIB_RESULT of the first failure, or 0 */
  uint16_t idle_lane; /* the lane whose HAL was idle last */
  uint16_t first;     /* the lane with which a poll begins */
  uint16_t left;      /* so many lanes have not ended */
  uint8_t ended;
  uint8_t single; /* whether a poll makes a single step */
  uint8_t waited; /* whether the last poll has made that step */
} hwlib_lanes_t;

/* Begins a region: calls the init of each HAL that it uses. */
void hwlib_lanes_start(hwlib_lanes_t *lanes, const hwlib_chip_plan_t *plan);

/* Carries out what can be done now, without waiting; a single step where it may have to wait: where a HAL has not both
 * questions, or the plan says so. Returns 1 if the region has ended, else 0. */
uint8_t hwlib_lanes_poll(hwlib_lanes_t *lanes);

/* Ends a region before its end, with the init of each HAL: nothing of it is in flight then. */
void hwlib_lanes_stop(hwlib_lanes_t *lanes);

/* Carries out the rest. Returns 0, or HWLIB_RESULT of the layer that failed. */
int32_t hwlib_lanes_wait(hwlib_lanes_t *lanes);

/* As hwlib_trace_job, of the accelerator with this HAL. A job without a tile is a hwlib_whole_layer_t. */
#ifdef HWLIB_TRACE
hwlib_status_t hwlib_trace_lane_job(const hwlib_hal_t *hal, const hwlib_job_t *job, hwlib_token_t *token);
#endif

#ifdef __cplusplus
}
#endif

#endif
