/* The main loop of a PE: it receives frame n + 1 and sends frame n - 1 while frame n is computed.
 *
 * Every output of the model is there twice, and every input whose channels have two credits. A frame is computed once
 * all its inputs have arrived and the outputs of two frames before have left. */
#ifndef HWLIB_PE_H
#define HWLIB_PE_H

#include "hwlib_link.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HWLIB_PE_PORTS = 64 };

/* What a port moves in each frame: blocks[0] in even frames, blocks[1] in odd ones. Of a single receive both are the
 * same: it begins once the frame before has been computed. */
typedef struct {
  hwlib_link_block_t blocks[2];
  bool single;
} hwlib_pe_port_t;

typedef struct {
  const hwlib_pe_port_t *receives, *sends;
  uint16_t receive_count, send_count;
  int32_t (*run)(uint32_t set); /* computes the inputs of set 0 or 1 to its outputs: 0, or what <mod_name>_run returns */
} hwlib_pe_t;

/* Zero at the start. */
typedef struct {
  uint64_t received[HWLIB_PE_PORTS], sent[HWLIB_PE_PORTS]; /* frames that have ended, by port */
  bool receiving[HWLIB_PE_PORTS], sending[HWLIB_PE_PORTS];
  uint64_t computed;
  int32_t link_error; /* of hwlib_link.h, with `port`; the port of a receive, or of a send + 32768 */
  uint16_t port;
} hwlib_pe_state_t;

/* Does what can be done now for the first `frames` frames, without waiting; computes one frame at most. *progress says
 * whether anything was done. Returns 0, or what the model returned, or -1 with the link's error in `state`. */
int32_t hwlib_pe_step(const hwlib_pe_t *pe, hwlib_pe_state_t *state, uint64_t frames, bool *progress);

/* Whether the first `frames` frames have been computed and have left. */
bool hwlib_pe_done(const hwlib_pe_t *pe, const hwlib_pe_state_t *state, uint64_t frames);

#ifdef __cplusplus
}
#endif

#endif
