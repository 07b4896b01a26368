/* See disk.h. */
#include "host/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <linux/fs.h>
#include <xxhash.h>

int disk_open(struct disk *d, const char *path, bool readonly, const char *serial, struct err *err)
{
    struct stat st;
    memset(d, 0, sizeof(*d));
    d->readonly = readonly;
    snprintf(d->serial, sizeof(d->serial), "%s", serial);
    d->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    d->path = strdup(path);
    if (d->fd < 0) {
        err_errno(err, "cannot open the disk image %s", path);
        d->fd = 0; /* closed */
        goto fail;
    }
    if (fstat(d->fd, &st)) {
        err_errno(err, "cannot stat the disk image %s", path);
        goto fail;
    }
    if (S_ISBLK(st.st_mode)) {
        if (ioctl(d->fd, BLKGETSIZE64, &d->size)) {
            err_errno(err, "cannot tell the size of %s", path);
            goto fail;
        }
    } else if (S_ISREG(st.st_mode)) {
        d->size = (u64)st.st_size;
    } else {
        err_set(err, -EINVAL, "the disk image %s is neither a file nor a block device", path);
        goto fail;
    }
    if (!d->size || d->size % DISK_SECTOR || d->size > 1ull << 42) {
        err_set(err, -EINVAL,
                "the disk image %s has %" PRIu64 " bytes: a raw image has a multiple of %u, up to "
                "4 TiB",
                path, d->size, DISK_SECTOR);
        goto fail;
    }
    d->written = page_image_create(&d->store, (d->size + PAGE_SIZE - 1) / PAGE_SIZE);
    if (!d->path || !d->written) {
        err_set(err, -ENOMEM, "no memory for the disk %s", path);
        goto fail;
    }
    return 0;
fail:
    disk_close(d);
    return err->code;
}

void disk_close(struct disk *d)
{
    if (d->fd > 0)
        close(d->fd);
    free(d->path);
    page_image_destroy(d->written);
    memset(d, 0, sizeof(*d));
}

/* From the base only. */
static int read_base(struct disk *d, u64 offset, u8 *out, size_t len, u64 *digest)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = pread(d->fd, out + done, len - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (n == 0)
                err_set(&d->failed, -EIO, "the disk image %s became shorter", d->path);
            else
                err_errno(&d->failed, "cannot read the disk image %s", d->path);
            return d->failed.code;
        }
        done += (size_t)n;
    }
    *digest = XXH3_64bits_withSeed(out, len, *digest);
    return 0;
}

int disk_read(struct disk *d, u64 offset, void *out, size_t len, u64 *digest)
{
    u8 *to = out;
    while (len) {
        u64 page = offset / PAGE_SIZE;
        size_t at = offset % PAGE_SIZE, n = MIN(len, PAGE_SIZE - at);
        const u8 *written = page_image_page(d->written, page);
        if (written) {
            memcpy(to, written + at, n);
        } else {
            /* As much as lies in the base in one piece. */
            while (n < len && !page_image_page(d->written, (offset + n) / PAGE_SIZE))
                n += MIN(len - n, (size_t)PAGE_SIZE);
            int code = read_base(d, offset, to, n, digest);
            if (code)
                return code;
        }
        to += n;
        offset += n;
        len -= n;
    }
    return 0;
}

/* A page as it is, to be changed in part. */
static int whole_page(struct disk *d, u64 page, u8 *out, u64 *digest)
{
    u64 offset = page * PAGE_SIZE;
    size_t n = (size_t)MIN(d->size - offset, (u64)PAGE_SIZE);
    memset(out + n, 0, PAGE_SIZE - n);
    return disk_read(d, offset, out, n, digest);
}

static int put(struct disk *d, u64 page, const u8 *data)
{
    if (page_image_put(d->written, page, data) == 0)
        return 0;
    return err_set(&d->failed, -ENOMEM, "no memory for what the guest writes to %s", d->path);
}

/* in NULL: zeros. */
static int write_some(struct disk *d, u64 offset, const u8 *in, u64 len, u64 *digest)
{
    static const u8 zeros[PAGE_SIZE];
    u8 page[PAGE_SIZE];
    while (len) {
        size_t at = offset % PAGE_SIZE, n = (size_t)MIN(len, PAGE_SIZE - at);
        int code = 0;
        const u8 *data = in ? in : zeros;
        if (n < PAGE_SIZE) {
            code = whole_page(d, offset / PAGE_SIZE, page, digest);
            memcpy(page + at, data, n);
            data = page;
        }
        if (!code)
            code = put(d, offset / PAGE_SIZE, data);
        if (code)
            return code;
        in = in ? in + n : NULL;
        offset += n;
        len -= n;
    }
    return 0;
}

int disk_write(struct disk *d, u64 offset, const void *in, size_t len, u64 *digest)
{
    return write_some(d, offset, in, len, digest);
}

int disk_zero(struct disk *d, u64 offset, u64 len, u64 *digest)
{
    return write_some(d, offset, NULL, len, digest);
}

int disk_restore(struct disk *d, const struct page_image *image, struct err *err)
{
    struct page_image *copy = page_image_copy(image);
    if (!copy)
        return err_set(err, -ENOMEM, "no memory to restore the disk %s", d->path);
    page_image_destroy(d->written);
    d->written = copy;
    return 0;
}

int disk_export(struct disk *d, int fd, struct err *err)
{
    static const u8 zeros[1 << 16];
    u8 buf[1 << 16];
    u64 ignored = 0;
    for (u64 at = 0; at < d->size;) {
        size_t n = (size_t)MIN(d->size - at, (u64)sizeof(buf));
        if (disk_read(d, at, buf, n, &ignored)) {
            *err = d->failed;
            return err->code;
        }
        for (size_t done = 0; memcmp(buf, zeros, n) && done < n;) {
            ssize_t w = pwrite(fd, buf + done, n - done, (off_t)(at + done));
            if (w < 0 && errno == EINTR)
                continue;
            if (w <= 0)
                return err_errno(err, "cannot write the disk");
            done += (size_t)w;
        }
        at += n;
    }
    return ftruncate(fd, (off_t)d->size) ? err_errno(err, "cannot write the disk") : 0;
}
