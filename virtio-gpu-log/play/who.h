/* Who drew a pixel: the last command that changed it in the resource that a scanout shows. */
#ifndef REPRISE_GPU_WHO_H
#define REPRISE_GPU_WHO_H

#include "virtio-gpu-log/play/player.h"

struct gpu_who {
    u64 number; /* the command */
    u32 dword;  /* of the virgl command in it; GPU_WHO_COMMAND: the command itself (an upload) */
    u64 frame;  /* that it belongs to: the next one to be completed */
    pos_t position;
    u32 resource, x, y;     /* the pixel in it */
    u8 before[4], after[4]; /* R, G, B, A */
};
#define GPU_WHO_COMMAND UINT32_MAX

/*
 * Looks back from where the player is, at pixel X,Y of what `scanout` shows there, the cursor left
 * out. The player, which must keep no keyframes, moves. Where a resource is drawn to and then drawn
 * from, it is the draw to the shown resource that counts. -ENODATA: nothing has changed the pixel
 * since the resource was made; -EINVAL: there is no such pixel.
 */
int gpu_who_drew(struct gpu_player *p, u32 scanout, u32 x, u32 y, struct gpu_who *out,
                 struct err *err);

#endif
