/* The main loop of a PE. A PE computes one stage of the model, or several: each is what it computes of a frame in one
 * go, with channels and frames of its own. Meanwhile frames of all stages arrive and leave.
 *
 * Every output of a stage is there twice, and every input whose channels have two credits. A stage can compute a frame
 * once all its inputs have arrived and the outputs of two frames before have left. Of the stages that can, the one with
 * the oldest frame comes first, then the one that the table has first: none waits for another one but for the core. */
#ifndef HWLIB_PE_H
#define HWLIB_PE_H

#include "hwlib_link.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a port moves in each frame: blocks[0] in even frames, blocks[1] in odd ones. Of a single receive both are the
 * same: it begins once the frame before has been computed. */
typedef struct {
  hwlib_link_block_t blocks[2];
  bool single;
} hwlib_pe_port_t;

/* A stage: its ports, which follow one another, and what it computes. */
typedef struct {
  uint16_t receive, receive_count, send, send_count;
  int32_t (*run)(uint32_t set); /* computes the inputs of set 0 or 1 to its outputs: 0, or the result of the model */
} hwlib_pe_stage_t;

/* What a port has done: the frames that have ended, and whether one is in flight. */
typedef struct {
  uint64_t frames;
  bool moving;
} hwlib_pe_moved_t;

/* A PE: the tables of its stages and ports, and its state, which is in RAM. */
typedef struct {
  const hwlib_pe_stage_t *stages;
  const hwlib_pe_port_t *receives, *sends;
  uint64_t *computed;                /* frames, by stage */
  hwlib_pe_moved_t *received, *sent; /* by port */
  uint16_t stage_count, receive_count, send_count;
} hwlib_pe_t;

/* Why a PE has stopped: what the model returned for a stage's frame, or -1 with the error of hwlib_link.h and the port,
 * of a receive, or of a send + 32768. */
typedef struct {
  int32_t result, link_error;
  uint16_t stage, port;
} hwlib_pe_failure_t;

/* Sets a PE to its first frame. */
void hwlib_pe_start(const hwlib_pe_t *pe);

/* Does what can be done now for the first `frames` frames, without waiting; computes one frame of one stage at most.
 * *progress says whether anything was done. Returns false after a failure. */
bool hwlib_pe_step(const hwlib_pe_t *pe, uint64_t frames, bool *progress, hwlib_pe_failure_t *failure);

/* Whether the first `frames` frames of all stages have been computed and have left. */
bool hwlib_pe_done(const hwlib_pe_t *pe, uint64_t frames);

#ifdef __cplusplus
}
#endif

#endif
