/* An Ethernet frame as a line of text. Any bytes are safe: they come from guests and networks. */
#ifndef REPRISE_FRAME_H
#define REPRISE_FRAME_H

#include <stddef.h>

#include "base/types.h"

#define FRAME_TEXT 256 /* bytes that any description fits in */

/*
 * "74 bytes 52:55:0a:00:02:02 > 52:54:00:12:34:56 IPv4 TCP 10.0.2.2:40112 > 10.0.2.15:22 [S]
 * seq 1 len 0". What a frame is too short for is not said. Returns `out`.
 */
char *frame_text(const u8 *frame, size_t len, char out[FRAME_TEXT]);

#endif
