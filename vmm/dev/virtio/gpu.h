/* virtio GPU device (virtio 1.2, 5.7): one scanout, 2D; resources and pixels in gpu_store.h. */
#ifndef REPRISE_DEV_VIRTIO_GPU_H
#define REPRISE_DEV_VIRTIO_GPU_H

#include "dev/virtio/gpu_store.h"
#include "dev/virtio/virtio.h"

#define GPU_REQUEST_MAX (1u << 20) /* bytes of a command with what it carries */
#define GPU_SIZE_MIN    64u        /* of the screen, pixels */
#define GPU_SIZE_MAX    4096u

struct gpu_config {
    u32 width, height; /* preferred mode; 0: there is no GPU */
    u32 hz;            /* of the display: what a fence waits for at most is a period */
};

struct virtio_gpu {
    struct virtio v; /* first: dev->host */
    struct gpu_config config;
    struct gpu_store store;
    u8 *request; /* scratch, GPU_REQUEST_MAX */
    u8 *row;     /* scratch, a row of pixels */
    struct gpu_entry *entries;
};

int virtio_gpu_create(struct device *dev, const struct dev_env *env, struct virtio_gpu *g,
                      struct device *pci, unsigned slot, const struct gpu_config *config,
                      struct err *err);
void virtio_gpu_destroy(struct device *dev);

void virtio_gpu_screen(const struct device *dev, struct dev_screen *out);
/* Its row y as width pixels of R, G, B; the cursor is drawn in. */
void virtio_gpu_screen_row(struct device *dev, u32 y, u8 *rgb);

#endif
