/*
 * Where a stream's frames end: at a RESOURCE_FLUSH of a resource that a scanout shows (that is when
 * it becomes visible, virtio 1.2, 5.7.6.8; Linux sends one after every SET_SCANOUT and every page
 * flip). Frames are numbered from 1.
 */
#ifndef REPRISE_GPU_FRAMES_H
#define REPRISE_GPU_FRAMES_H

#include "virtio-gpu-log/decode.h"

struct gpu_frames {
    u32 shown[VIRTIO_GPU_MAX_SCANOUTS]; /* resource ids; 0: none */
    u64 count;
};

/* Takes the next command of the stream; returns the number of the frame that it completes, or 0.
 * Start with zeros. */
u64 gpu_frames_step(struct gpu_frames *f, const struct gpu_command *c);
/* The device was reset: nothing is shown. */
void gpu_frames_reset(struct gpu_frames *f);

#endif
