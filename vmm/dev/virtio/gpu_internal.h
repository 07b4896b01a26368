/*
 * What the parts of virtio-gpu share: gpu.c (queues, answers, the renderer's replies),
 * gpu_command.c (what commands do), gpu_screen.c (what is shown, EDID).
 */
#ifndef REPRISE_DEV_VIRTIO_GPU_INTERNAL_H
#define REPRISE_DEV_VIRTIO_GPU_INTERNAL_H

#include <linux/virtio_gpu.h>

#include "dev/util.h"
#include "dev/virtio/gpu.h"
#include "virtio-gpu-log/decode.h"

#define UNDER_WAY VIRTIO_QUEUE_MAX

#define GPU_STATE(F, A)                                                                            \
    VIRTIO_STATE(F, A)                                                                             \
    F(u64, commands)                                                                               \
    F(u64, digest)  /* running, of all commands and of what they read of guest memory */           \
    F(u64, frames)  /* times that what the scanout shows was flushed */                            \
    F(u64, pieces)  /* of what came back from the renderer, kept ever */                           \
    F(u32, events)  /* configuration: events_read */                                               \
    F(u32, scanout) /* resource shown; 0: off */                                                   \
    F(u32, x)       /* the part of it that is shown */                                             \
    F(u32, y)                                                                                      \
    F(u32, width)                                                                                  \
    F(u32, height)                                                                                 \
    F(u32, cursor) /* resource; 0: none */                                                         \
    F(u32, cursor_x)                                                                               \
    F(u32, cursor_y)                                                                               \
    F(u32, hot_x)                                                                                  \
    F(u32, hot_y)                                                                                  \
    F(u8, waiting) /* the first command under way is due, and the renderer's reply is not there */ \
    F(u8, lost)    /* the renderer is gone until the next reset */                                 \
    F(u16, first)  /* of the commands under way */                                                 \
    F(u16, count)                                                                                  \
    A(u16, head, UNDER_WAY)                                                                        \
    A(u8, awaited, UNDER_WAY)   /* the renderer has a say in the answer */                         \
    A(u32, response, UNDER_WAY) /* what it will be if nothing else comes */                        \
    A(u64, number, UNDER_WAY)                                                                      \
    A(u64, due, UNDER_WAY) /* virtual time */

STATE_STRUCT(gpu, GPU_STATE);

/* What a command reads of guest memory goes through here; `ranges` point into `bytes`. */
#define GPU_UPLOADS      65536u
#define GPU_UPLOAD_BYTES (256ull << 20)

/* Carries a command out as far as that is the device's business; what it read of guest memory is in
 * g->ranges. The response. */
u32 gpu_execute(struct virtio_gpu *g, const struct gpu_command *c);
/* Writes to a resource's backing. false: there is none, or it is shorter; nothing was written. */
bool gpu_backing_write(struct virtio_gpu *g, u32 resource, u64 offset, const u8 *in, u64 len);

void gpu_make_edid(const struct description_gpu *c, u8 edid[128]);

static inline struct virtio_gpu *gpu_self(const struct device *dev)
{
    return dev->host;
}

#endif
