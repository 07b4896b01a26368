/* What a machine's screen shows while it is recorded: its own pixels, or those of its renderer. */
#ifndef REPRISE_HOST_SCREEN_H
#define REPRISE_HOST_SCREEN_H

#include "base/err.h"
#include "base/types.h"

struct machine;
struct gpu_host;

struct screen {
    u32 width, height; /* 0: it is off */
    u64 frames;        /* shown so far */
    u8 *rgb;           /* rows from the top, 3 bytes a pixel, no gaps */
    size_t room;       /* allocated */
};

/*
 * Takes the picture; the machine stands meanwhile, and may wait for the renderer. `gpu` NULL: there
 * is no renderer. A renderer that is gone leaves what 2D commands made. <0: no memory, or it gives
 * no picture.
 */
int screen_take(struct screen *s, struct machine *m, struct gpu_host *gpu, struct err *err);
void screen_free(struct screen *s); /* safe on zeros */

#endif
