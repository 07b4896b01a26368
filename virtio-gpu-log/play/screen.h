/* What the scanouts show and where their cursors are, step by step through a stream. */
#ifndef REPRISE_GPU_SCREEN_H
#define REPRISE_GPU_SCREEN_H

#include "virtio-gpu-log/decode.h"

struct gpu_scanout {
    u32 resource, x, y, width, height;
    u32 cursor;             /* resource */
    i32 cursor_x, cursor_y; /* of its upper left corner */
};
struct gpu_screen {
    struct gpu_scanout scanout[VIRTIO_GPU_MAX_SCANOUTS];
};

void gpu_screen_step(struct gpu_screen *s, const struct gpu_command *c);

/* Blends a row of cursor pixels (R, G, B, A, premultiplied, as the kernel's cursors are) at column
 * `x`, which may be negative, onto a row of R, G, B. */
void gpu_screen_blend(u8 *rgb, u32 width, i64 x, const u8 *rgba, u32 count);

#endif
