/* See disk.h. */
#include "base/file_io.h"
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

#include "host/disk_chain.h"
#include "host/nbd.h"

#define LARGEST_DISK (1ull << 42)
#define PIECE        (1u << 18) /* bytes that are got ahead at once */
#define CUT_SHORT    (-2)       /* disk_piece.error: the image ends there */

/* A range of the base, got ahead. */
struct disk_piece {
    struct disk_piece *next;
    u64 offset;
    u32 len;
    int error; /* as nbd_source_read() */
    u8 data[];
};

/* ---- opening ---- */

static int open_file(struct disk *d, int fd, struct err *err)
{
    struct stat st;
    d->fd = fd > 0 ? fd : open(d->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (d->fd < 0) {
        err_errno(err, "cannot open the disk image %s", d->path);
        d->fd = 0;
        return err->code;
    }
    if (fstat(d->fd, &st))
        return err_errno(err, "cannot stat the disk image %s", d->path);
    if (S_ISBLK(st.st_mode)) {
        if (ioctl(d->fd, BLKGETSIZE64, &d->size))
            return err_errno(err, "cannot tell the size of %s", d->path);
    } else if (S_ISREG(st.st_mode)) {
        d->size = (u64)st.st_size;
    } else {
        return err_set(err, -EINVAL, "the disk image %s is neither a file nor a block device",
                       d->path);
    }
    d->stamp = (struct disk_stamp){.bytes = d->size,
                                   .modified = (u64)st.st_mtim.tv_sec * 1000000000u +
                                               (u64)st.st_mtim.tv_nsec,
                                   .device = st.st_dev,
                                   .inode = st.st_ino};
    return 0;
}

static int choose_format(struct disk *d, const char *wanted, struct err *err)
{
    const char *name = wanted;
    char names[200];
    if (!wanted || !strcmp(wanted, "auto")) {
        int code = disk_format_guess(d->fd, d->path, &name, err);
        if (code)
            return code;
    } else if (!disk_format_driver(wanted)) {
        disk_format_names(names, sizeof(names));
        return err_set(err, -EINVAL, "the format '%s' is none of: auto, %s", wanted, names);
    }
    snprintf(d->format, sizeof(d->format), "%s", name);
    return 0;
}

/* Formats of others. qemu takes "x:y" for a protocol unless it is clearly a path. */
static int open_foreign(struct disk *d, unsigned timeout, struct err *err)
{
    struct landlock_path files[DISK_CHAIN_MAX + 1] = {{.fd = d->fd, .may = LANDLOCK_READ}};
    const char *driver = disk_format_driver(d->format);
    struct disk_chain chain;
    char *real = realpath(d->path, NULL);
    if (!real)
        return err_errno(err, "cannot open the disk image %s", d->path);
    int code = disk_chain_find(&chain, d->fd, real, driver, d->backing, err);
    if (!code) {
        for (unsigned i = 0; i < chain.n; i++)
            files[1 + i] = (struct landlock_path){.path = chain.path[i], .may = LANDLOCK_READ};
        code = nbd_source_start(&d->nbd, real, driver, files, 1 + chain.n, timeout, err);
        disk_chain_free(&chain);
    }
    free(real);
    if (code)
        return err_prefix(err, "cannot open the disk image %s as %s", d->path, d->format);
    d->size = nbd_source_size(d->nbd);
    return 0;
}

static int open_base(struct disk *d, const struct disk_config *c, struct err *err)
{
    unsigned timeout = c->timeout ? c->timeout : DISK_TIMEOUT;
    int code;
    if (c->blob.ops) {
        d->base = c->blob;
        d->size = c->blob.size;
        strcpy(d->format, "raw");
        return 0;
    }
    if (!(c->fd > 0) && nbd_source_uri(d->path)) {
        if (c->format && strcmp(c->format, "auto") && strcmp(c->format, "nbd"))
            return err_set(err, -EINVAL, "the format '%s' is not for an NBD server, which sends %s",
                           c->format, "the disk's bytes as they are");
        strcpy(d->format, "nbd");
        code = nbd_source_connect(&d->nbd, d->path, timeout, err);
        if (code)
            return err_prefix(err, "cannot open the disk %s", d->path);
        d->size = nbd_source_size(d->nbd);
        return 0;
    }
    code = open_file(d, c->fd, err);
    if (!code)
        code = choose_format(d, c->fd > 0 ? "raw" : c->format, err);
    return !code && strcmp(d->format, "raw") ? open_foreign(d, timeout, err) : code;
}

int disk_open(struct disk *d, const struct disk_config *c, struct err *err)
{
    int code = 0;
    memset(d, 0, sizeof(*d));
    d->readonly = c->readonly;
    d->again = c->again;
    d->backing = c->backing;
    d->timeout = c->timeout;
    snprintf(d->serial, sizeof(d->serial), "%s", c->serial);
    d->path = strdup(c->file);
    if (!d->path)
        code = err_set(err, -ENOMEM, "no memory for the disk %s", c->file);
    if (!code)
        code = open_base(d, c, err);
    if (!code && (!d->size || d->size % DISK_SECTOR || d->size > LARGEST_DISK))
        code = err_set(err, -EINVAL,
                       "the disk image %s has %" PRIu64 " bytes: a disk has a multiple of %u, up "
                       "to 4 TiB",
                       d->path, d->size, DISK_SECTOR);
    d->store.limit = DISK_MEMORY / PAGE_SIZE;
    d->store.room.keep = c->again ? ROOM_LEAST : ROOM_DEFAULT;
    d->store.dir = (const char *const *)d->overlay_dir;
    d->store.ndirs = DISK_OVERLAY_DIRS;
    if (!code)
        d->written = page_image_create(&d->store, (d->size + PAGE_SIZE - 1) / PAGE_SIZE);
    if (!code && !d->written)
        code = err_set(err, -ENOMEM, "no memory for the disk %s", c->file);
    const char *tmp = getenv("TMPDIR");
    if (!code && tmp && *tmp)
        disk_overlay_in(d, tmp);
    if (!code)
        disk_overlay_in(d, "/var/tmp");
    if (code)
        disk_close(d);
    return code;
}

void disk_overlay_in(struct disk *d, const char *dir)
{
    unsigned last = DISK_OVERLAY_DIRS - 1;
    free(d->overlay_dir[last]);
    memmove(d->overlay_dir + 1, d->overlay_dir, last * sizeof(d->overlay_dir[0]));
    d->overlay_dir[0] = strdup(dir);
}

void disk_overlay_room(struct disk *d, u64 keep_free, u64 limit)
{
    d->store.room = (struct room){.keep = keep_free, .limit = limit};
}

void disk_overlay_ready(struct disk *d)
{
    if (!d->readonly)
        page_store_file(&d->store);
}

void disk_close(struct disk *d)
{
    if (d->fd > 0)
        close(d->fd);
    nbd_source_close(d->nbd);
    if (d->base.ops)
        blob_close(&d->base);
    disk_reads_destroy(d->reads);
    free(d->path);
    page_image_destroy(d->written);
    page_store_close(&d->store);
    for (unsigned i = 0; i < DISK_OVERLAY_DIRS; i++)
        free(d->overlay_dir[i]);
    memset(d, 0, sizeof(*d));
}

/* ---- the base ---- */

static int explain(struct disk *d, int error, struct err *err)
{
    if (d->nbd) {
        nbd_source_explain(d->nbd, error, err);
        return err_prefix(err, "cannot read the disk %s", d->path);
    }
    if (d->base.ops) {
        errno = error;
        return err_set(err, -EIO, "cannot read the disk %s: %s", d->path, blob_why(&d->base));
    }
    if (error == CUT_SHORT)
        return err_set(err, -EIO, "the disk image %s became shorter", d->path);
    errno = error;
    return err_errno(err, "cannot read the disk image %s", d->path);
}

/* The overlay could not grow: *err says which of the two, the host's or ours. */
static int no_room(const struct disk *d, int code, struct err *err)
{
    char text[96];
    errno = -code;
    if (code == -ENOSPC && d->store.room.answer)
        return err_set(err, code, "no room for what the guest writes to the disk %s: %s", d->path,
                       room_text(&d->store.room, text, sizeof(text)));
    return err_errno(err, "no room for what the guest writes to the disk %s", d->path);
}

/* Once, while there is time to do something about it. */
static void tell(struct disk *d)
{
    if (d->told || d->again || !d->store.room.nearly)
        return;
    d->told = true;
    fprintf(stderr,
            "reprise: what the guest wrote to the disk %s takes four fifths of the room that it "
            "has on this host; with the rest gone the guest gets I/O errors\n",
            d->path);
}

/* What could not be performed although it should be. */
static int failed(struct disk *d, int code, const char *then)
{
    size_t n = strlen(d->failed.text);
    if (d->again)
        snprintf(d->failed.text + n, sizeof(d->failed.text) - n, "; %s when it was recorded", then);
    return code;
}

/* Sets *error at once, or soon (nbd_source_read). */
static void start_read(struct disk *d, u64 offset, u8 *out, u32 len, int *error)
{
    if (d->nbd) {
        nbd_source_read(d->nbd, offset, out, len, error);
        return;
    }
    *error = 0;
    if (d->base.ops) {
        if (!blob_read_at(&d->base, out, len, offset))
            *error = errno ? errno : EIO;
        return;
    }
    for (u32 done = 0; done < len && !*error;) {
        ssize_t n = pread(d->fd, out + done, len - done, (off_t)(offset + done));
        if (n > 0)
            done += (u32)n;
        else if (n == 0)
            *error = CUT_SHORT;
        else if (errno != EINTR)
            *error = errno;
    }
}

/* From the base now. Whole pages, because a server may want no less. */
static int read_now(struct disk *d, u64 offset, u8 *out, size_t len)
{
    while (len) {
        u8 page[PAGE_SIZE];
        if (d->base.ops) { /* it may have this, and not what lies beside it */
            int no = 0;
            start_read(d, offset, out, (u32)len, &no);
            return no ? failed(d, explain(d, no, &d->failed), "it could be") : 0;
        }
        u32 at = offset % PAGE_SIZE, n = (u32)MIN(len, (size_t)PAGE_SIZE - at);
        u64 from = offset - at;
        int error = 0;
        if (!at && len >= PAGE_SIZE) {
            n = (u32)MIN(len & ~(size_t)(PAGE_SIZE - 1), (size_t)1 << 20);
            start_read(d, offset, out, n, &error);
        } else {
            start_read(d, from, page, (u32)MIN(d->size - from, (u64)PAGE_SIZE), &error);
        }
        if (d->nbd)
            nbd_source_wait(d->nbd);
        if (error)
            return failed(d, explain(d, error, &d->failed), "it could be");
        if (at || n < PAGE_SIZE)
            memcpy(out, page + at, n);
        out += n;
        offset += n;
        len -= n;
    }
    return 0;
}

/* From the base: what was got ahead, or now. */
static int read_base(struct disk *d, const struct disk_ahead *a, u64 offset, u8 *out, size_t len,
                     u64 *digest)
{
    const struct disk_piece *p = a ? a->first : NULL;
    for (size_t done = 0; done < len;) {
        u64 at = offset + done;
        size_t n = len - done;
        while (p && (p->error || p->offset + p->len <= at))
            p = p->next;
        if (p && p->offset <= at) {
            n = MIN(n, (size_t)(p->offset + p->len - at));
            memcpy(out + done, p->data + (at - p->offset), n);
        } else {
            if (p)
                n = (size_t)MIN((u64)n, p->offset - at);
            int code = read_now(d, at, out + done, n);
            if (code)
                return code;
        }
        done += n;
    }
    *digest = XXH3_64bits_withSeed(out, len, *digest);
    d->base_reads += len;
    disk_reads_add(d->reads, offset, len);
    return 0;
}

int disk_base(struct disk *d, u64 offset, void *out, size_t len, struct err *err)
{
    int code = read_now(d, offset, out, len);
    if (code)
        *err = d->failed;
    return code;
}

/* ---- ahead ---- */

static void trouble(struct disk *d, struct disk_ahead *a, int code)
{
    a->failed = code ? code : -EIO;
    d->troubles++;
}

static void want(struct disk *d, struct disk_ahead *a, u64 offset, u32 len)
{
    struct disk_piece *p = malloc(sizeof(*p) + len);
    if (!p) {
        trouble(d, a, err_set(&d->trouble, -ENOMEM, "no memory to read the disk %s", d->path));
        return;
    }
    *p = (struct disk_piece){.offset = offset, .len = len};
    if (a->last)
        a->last->next = p;
    else
        a->first = p;
    a->last = p;
    start_read(d, offset, p->data, len, &p->error);
}

/* Of the pages [first, end), as far as they are the base's, what lies in [from, to). */
static void want_within(struct disk *d, struct disk_ahead *a, u64 first, u64 end, u64 from, u64 to)
{
    while (first < end && !a->failed) {
        u64 n = 0;
        while (first + n < end && n < PIECE / PAGE_SIZE && !page_image_has(d->written, first + n))
            n++;
        u64 at = MAX(first * PAGE_SIZE, from);
        if (n)
            want(d, a, at, (u32)(MIN((first + n) * PAGE_SIZE, to) - at));
        first += MAX(n, (u64)1);
    }
}

static void want_pages(struct disk *d, struct disk_ahead *a, u64 first, u64 end)
{
    want_within(d, a, first, end, 0, d->size);
}

void disk_ahead_start(struct disk *d, struct disk_ahead *a, enum disk_access access, u64 offset,
                      u64 len)
{
    u64 first = offset / PAGE_SIZE, end = (offset + len + PAGE_SIZE - 1) / PAGE_SIZE;
    if (!len)
        return;
    if (access == DISK_READ) {
        if (d->base.ops)
            want_within(d, a, first, end, offset, offset + len);
        else
            want_pages(d, a, first, end);
        return;
    }
    /* Of pages that are changed in part, the rest. */
    bool partly = (offset + len) % PAGE_SIZE;
    if (offset % PAGE_SIZE)
        want_pages(d, a, first, first + 1);
    if (partly && !(offset % PAGE_SIZE && first + 1 == end))
        want_pages(d, a, end - 1, end);
    if (a->failed)
        return;
    u64 pages = access == DISK_ZERO ? MIN(end - first, (u64)2) : end - first;
    int code = page_store_reserve(&d->store, pages);
    if (code)
        trouble(d, a, no_room(d, code, &d->trouble));
    else
        a->reserved = pages;
    tell(d);
}

void disk_ahead_wait(struct disk *d, struct disk_ahead *a)
{
    if (d->nbd)
        nbd_source_wait(d->nbd);
    for (struct disk_piece *p = a->first; p && !a->failed; p = p->next)
        if (p->error)
            trouble(d, a, explain(d, p->error, &d->trouble));
}

void disk_ahead_take(struct disk *d, struct disk_ahead *a)
{
    page_store_release(&d->store, a->reserved);
    a->reserved = 0;
}

void disk_ahead_drop(struct disk *d, struct disk_ahead *a)
{
    disk_ahead_take(d, a);
    if (d->nbd && a->first)
        nbd_source_wait(d->nbd); /* nothing is read into it any more */
    while (a->first) {
        struct disk_piece *p = a->first;
        a->first = p->next;
        free(p);
    }
    *a = (struct disk_ahead){0};
}

/* ---- reading and writing ---- */

int disk_read(struct disk *d, const struct disk_ahead *a, u64 offset, void *out, size_t len,
              u64 *digest)
{
    u8 *to = out, room[PAGE_SIZE];
    while (len) {
        u64 page = offset / PAGE_SIZE;
        size_t at = offset % PAGE_SIZE, n = MIN(len, PAGE_SIZE - at);
        const u8 *written;
        int error = page_image_read(d->written, page, room, &written);
        if (error) {
            errno = -error;
            return err_errno(&d->failed, "cannot read back what the guest wrote to the disk %s",
                             d->path);
        }
        if (written) {
            memcpy(to, written + at, n);
        } else {
            /* As much as lies in the base in one piece. */
            while (n < len && !page_image_has(d->written, (offset + n) / PAGE_SIZE))
                n += MIN(len - n, (size_t)PAGE_SIZE);
            int code = read_base(d, a, offset, to, n, digest);
            if (code)
                return code;
        }
        to += n;
        offset += n;
        len -= n;
    }
    return 0;
}

static int put(struct disk *d, u64 page, const u8 *data)
{
    int code = page_image_put(d->written, page, data);
    if (!code)
        return 0;
    no_room(d, code, &d->failed);
    return failed(d, code, "there was");
}

/* in NULL: zeros. */
static int write_some(struct disk *d, const struct disk_ahead *a, u64 offset, const u8 *in, u64 len,
                      u64 *digest)
{
    static const u8 zeros[PAGE_SIZE];
    u8 page[PAGE_SIZE];
    while (len) {
        size_t at = offset % PAGE_SIZE, n = (size_t)MIN(len, PAGE_SIZE - at);
        int code = 0;
        const u8 *data = in ? in : zeros;
        if (n < PAGE_SIZE) { /* the rest as it is */
            u64 start = offset - at;
            size_t whole = (size_t)MIN(d->size - start, (u64)PAGE_SIZE);
            memset(page + whole, 0, PAGE_SIZE - whole);
            code = disk_read(d, a, start, page, whole, digest);
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

int disk_write(struct disk *d, const struct disk_ahead *a, u64 offset, const void *in, size_t len,
               u64 *digest)
{
    return write_some(d, a, offset, in, len, digest);
}

int disk_zero(struct disk *d, const struct disk_ahead *a, u64 offset, u64 len, u64 *digest)
{
    return write_some(d, a, offset, NULL, len, digest);
}

int disk_discard(struct disk *d, u64 offset, u64 len)
{
    u64 end = (offset + len) / PAGE_SIZE;
    int code = 0;
    for (u64 page = page_image_next(d->written, (offset + PAGE_SIZE - 1) / PAGE_SIZE);
         page < end && !code; page = page_image_next(d->written, page + 1))
        code = put(d, page, page_image_zeros());
    return code;
}

int disk_restore(struct disk *d, const struct page_image *image, struct err *err)
{
    struct page_image *copy = page_image_copy(image);
    if (!copy)
        return err_set(err, -ENOMEM, "no memory to restore the disk %s", d->path);
    page_image_destroy(d->written);
    d->written = copy;
    d->failed.code = 0;
    return 0;
}

int disk_export(struct disk *d, int fd, struct err *err)
{
    static const u8 zeros[1 << 16];
    u8 buf[1 << 16];
    u64 ignored = 0;
    for (u64 at = 0; at < d->size;) {
        size_t n = (size_t)MIN(d->size - at, (u64)sizeof(buf));
        if (disk_read(d, NULL, at, buf, n, &ignored)) {
            *err = d->failed;
            return err->code;
        }
        if (memcmp(buf, zeros, n) && !file_write_at(fd, buf, n, at))
            return err_errno(err, "cannot write the disk");
        at += n;
    }
    return ftruncate(fd, (off_t)d->size) ? err_errno(err, "cannot write the disk") : 0;
}
