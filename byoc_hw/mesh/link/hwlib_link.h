/* The link layer of a PE: frames of data to and from its neighbours, while its accelerator works.
 *
 * A port is one end of a channel, numbered from 0 for receiving and from 0 for sending. A channel holds a fixed number
 * of frames, its credits: a send ends when there is room, a receive when a frame is there. At most one operation of a
 * port is in flight. Send and receive return at once, and a DMA may do the work; until the operation has ended, the
 * bytes of a send do not change, and those of a receive are not read.
 *
 * The functions return HWLIB_LINK_OK, or why the link has failed: then the PE stops. */
#ifndef HWLIB_LINK_H
#define HWLIB_LINK_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  HWLIB_LINK_OK = 0,
  HWLIB_LINK_ERROR_DATA = 1,  /* a frame that is damaged, or not the next one */
  HWLIB_LINK_ERROR_PORT = 2,  /* no such port, or one in use */
  HWLIB_LINK_ERROR_PEER = 3,  /* the other end is lost */
};

/* Rows of bytes in memory, `stride` bytes from row to row. On the link they follow one another. */
typedef struct {
  uint8_t *data;
  uint32_t bytes, rows, stride;
} hwlib_link_block_t;

int32_t hwlib_link_send(uint16_t port, const hwlib_link_block_t *block);
int32_t hwlib_link_receive(uint16_t port, const hwlib_link_block_t *block);

/* Whether the last send, or receive, of the port has ended. */
int32_t hwlib_link_sent(uint16_t port, bool *done);
int32_t hwlib_link_received(uint16_t port, bool *done);

#ifdef __cplusplus
}
#endif

#endif
