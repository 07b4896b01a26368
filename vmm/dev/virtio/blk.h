/* virtio block device (virtio 1.2, 5.2) on a disk of the host. */
#ifndef REPRISE_DEV_VIRTIO_BLK_H
#define REPRISE_DEV_VIRTIO_BLK_H

#include "dev/virtio/virtio.h"
#include "host/disk.h"

#define VIRTIO_BLK_UNDER_WAY 256u /* requests taken and not completed */

struct virtio_blk {
    struct virtio v; /* first: dev->host */
    struct disk *disk;
    struct disk_ahead ahead[VIRTIO_BLK_UNDER_WAY];
    bool failing; /* some of them may have failed */
};

/* `name` is that of its component ("disk0"); the disk outlives the device. */
int virtio_blk_create(struct device *dev, const struct dev_env *env, struct device *pci,
                      unsigned slot, struct disk *disk, const char *name, struct err *err);

/* What was written to its disk, of so many pages; and going back to such an image. */
const struct page_image *virtio_blk_written(const struct device *dev, u64 *pages);
int virtio_blk_restore(struct device *dev, const struct page_image *image, struct err *err);

/*
 * Is there a request that the host cannot do (disk->trouble says why)? Its number goes to *request.
 * Known at the first stop after the notification, before the request completes. For the recorder,
 * which makes an input of it; a replay does not ask.
 */
bool virtio_blk_failing(struct device *dev, u32 *request);
/* The input: that request completes with an I/O error, and nothing of it is done. */
void virtio_blk_fail(struct device *dev, u32 request);

#endif
