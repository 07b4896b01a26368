/*
 * virtio GPU device (virtio 1.2, 5.7): one scanout, 2D, and with a capability set 3D (virgl). The
 * device checks commands and keeps what guests can see of them; drawing is the renderer's, who
 * hears of everything by EMIT_GPU and is heard by INPUT_GPU.
 */
#ifndef REPRISE_DEV_VIRTIO_GPU_H
#define REPRISE_DEV_VIRTIO_GPU_H

#include "board/description.h"
#include "dev/virtio/gpu_store.h"
#include "dev/virtio/virtio.h"

#define GPU_REQUEST_MAX (1u << 20) /* bytes of a command with what it carries */

struct virtio_gpu {
    struct virtio v; /* first: dev->host */
    struct description_gpu config;
    struct gpu_store store;
    u8 *request; /* scratch, GPU_REQUEST_MAX */
    u8 *row;     /* scratch, a row of pixels */
    struct gpu_entry *entries;
    /* Of the command that is taken: guest memory that it read. */
    struct gpu_range *ranges;
    u32 nranges;
    u8 *upload;
    u64 uploaded;
    bool shown; /* it flushed what is on the screen */
};

int virtio_gpu_create(struct device *dev, const struct dev_env *env, struct device *pci,
                      unsigned slot, const struct description_gpu *config, struct err *err);

/* Does the first command under way wait for the renderer? Its number. */
bool virtio_gpu_waiting(const struct device *dev, u64 *number);
/* Pieces of its replies that were kept, ever (gpu_reply.h). */
u64 virtio_gpu_pieces(const struct device *dev);
/* The renderer's reply to it, or a part of one (gpu_reply.h). */
void virtio_gpu_reply(struct device *dev, const u8 *data, u32 len);

void virtio_gpu_screen(const struct device *dev, struct dev_screen *out);
/* Its row y as width pixels of R, G, B; the cursor is drawn in. */
void virtio_gpu_screen_row(struct device *dev, u32 y, u8 *rgb);
/* Draws only the cursor, over what is there. */
void virtio_gpu_screen_cursor(struct device *dev, u32 y, u8 *rgb);

#endif
