/*
 * virtio file system device (virtio 1.2, 5.11): a directory of the host, whose FUSE requests a file
 * server answers (vmm/fsd). Its replies are inputs.
 */
#ifndef REPRISE_DEV_VIRTIO_FS_H
#define REPRISE_DEV_VIRTIO_FS_H

#include "dev/virtio/fs_limits.h"
#include "dev/virtio/virtio.h"

struct virtio_fs {
    struct virtio v;
    unsigned unit;
    char tag[37];
    u8 request[SHARE_REQUEST_MAX];
};

/* Does the first request under way wait for the server's reply? Its number, counted from power-on.
 */
bool virtio_fs_waiting(const struct device *dev, u64 *number);

#endif
