/* Sizes of virgl's formats: what a box of a resource takes in memory. */
#ifndef REPRISE_GPU_FORMAT_H
#define REPRISE_GPU_FORMAT_H

#include "base/types.h"

/* A block of w x h pixels takes `bytes`. Formats that are not compressed: 1 x 1. */
struct format_block {
    u8 w, h, bytes;
};

/* False: unknown to us (planar video, and numbers that mean nothing). */
bool format_block(u32 format, struct format_block *b);

/* Can what was written to it be read back bit by bit? False where virglrenderer converts. */
bool format_reads_back(u32 format);

/* Where the 8-bit channels of a 4-byte format are: order[i] is the byte of channel i (R, G, B, A);
 * 4: it has none (alpha then reads as 255). False: no such format. */
bool format_channels(u32 format, u8 order[4]);

#endif
