/* What a share has of requests, for the device and for who answers them. */
#ifndef REPRISE_DEV_VIRTIO_FS_LIMITS_H
#define REPRISE_DEV_VIRTIO_FS_LIMITS_H

#define SHARE_UNDER_WAY   64u         /* requests that are handed on at once */
#define SHARE_REQUEST_MAX (64u << 10) /* bytes of one that are read; the rest is not needed */
#define SHARE_REPLY_MAX   ((1u << 20) + 4096u)

#endif
