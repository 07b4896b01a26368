/*
 * A disk: a base image on the host, which is never written, and the pages of 4 KiB that the guest
 * wrote since power-on. What the guest wrote follows from the replay, so nothing of it is logged;
 * that the base image is still the same is seen by a running digest of all that was read of it.
 */
#ifndef REPRISE_HOST_DISK_H
#define REPRISE_HOST_DISK_H

#include "base/err.h"
#include "base/page_image.h"

#define DISK_SECTOR 512u

struct disk {
    int fd;
    char *path;
    u64 size; /* bytes, a multiple of DISK_SECTOR */
    bool readonly;
    char serial[21];            /* 20 characters at most, NUL */
    struct page_store store;    /* what `written` takes */
    struct page_image *written; /* pages that differ from the base */
    struct err failed;          /* of the host; code 0: none so far */
};

/* Opens a raw image: a regular file or block device. *d is zeroed first. */
int disk_open(struct disk *d, const char *path, bool readonly, const char *serial, struct err *err);
void disk_close(struct disk *d); /* safe on zeros */

/*
 * [offset, offset + len) lies within the disk. What is read from the base goes into *digest as
 * well. <0: the host failed (d->failed says how).
 */
int disk_read(struct disk *d, u64 offset, void *out, size_t len, u64 *digest);
int disk_write(struct disk *d, u64 offset, const void *in, size_t len, u64 *digest);
int disk_zero(struct disk *d, u64 offset, u64 len, u64 *digest);

/* Goes back (or on) to what had been written when `image` was copied from d->written. */
int disk_restore(struct disk *d, const struct page_image *image, struct err *err);

/* Writes the whole disk as it is now to `fd`, leaving holes for zeros. */
int disk_export(struct disk *d, int fd, struct err *err);

#endif
