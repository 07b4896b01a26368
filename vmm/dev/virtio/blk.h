/* virtio block device (virtio 1.2, 5.2) on a disk of the host. */
#ifndef REPRISE_DEV_VIRTIO_BLK_H
#define REPRISE_DEV_VIRTIO_BLK_H

#include "dev/virtio/virtio.h"

struct disk;
struct virtio_blk {
    struct virtio v; /* first: dev->host */
    struct disk *disk;
};

/* `name` is that of its component ("disk0"); the disk outlives the device. */
int virtio_blk_create(struct device *dev, const struct dev_env *env, struct virtio_blk *b,
                      struct device *pci, unsigned slot, struct disk *disk, const char *name,
                      struct err *err);
void virtio_blk_destroy(struct device *dev);

/* Has the host failed at a request that is under way, which the guest is not told yet? *request is
 * its running number. */
bool virtio_blk_failing(struct device *dev, u32 *request);
/* The request, if it is under way, completes with VIRTIO_BLK_S_IOERR, and nothing of it is done. */
void virtio_blk_fail(struct device *dev, u32 request);

#endif
