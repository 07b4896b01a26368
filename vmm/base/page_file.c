/* See page_file.h. */
#define _GNU_SOURCE /* O_TMPFILE */
#include "base/page_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file_io.h"

#define STEP_PAGES 4096u /* 16 MiB */
#define STEP_BYTES ((u64)STEP_PAGES * PAGE_SIZE)

struct page_file {
    int fd;
    struct room *room;
    u32 steps; /* of STEP_BYTES each */
    u32 *free; /* slots; room for all of them */
    u32 nfree;
};

static int open_unlinked(const char *dir)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return fd;
    char path[4096]; /* a file system without O_TMPFILE */
    if (snprintf(path, sizeof(path), "%s/.reprise-XXXXXX", dir) >= (int)sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
}

struct page_file *page_file_create(const char *const *dirs, unsigned n, struct room *room)
{
    struct page_file *f = calloc(1, sizeof(*f));
    if (!f)
        return NULL;
    f->fd = -1;
    f->room = room;
    errno = ENOENT;
    for (unsigned i = 0; i < n && f->fd < 0; i++)
        if (dirs[i])
            f->fd = open_unlinked(dirs[i]);
    if (f->fd >= 0)
        return f;
    free(f);
    return NULL;
}

void page_file_destroy(struct page_file *f)
{
    if (!f)
        return;
    close(f->fd);
    free(f->free);
    free(f);
}

static int one_step(struct page_file *f)
{
    u64 at = f->steps * STEP_BYTES;
    if (f->steps >= UINT32_MAX / STEP_PAGES - 1)
        return -EFBIG;
    if (room_ask(f->room, f->fd, at + STEP_BYTES))
        return -ENOSPC;
    u32 *list = realloc(f->free, (f->steps + 1) * (size_t)STEP_PAGES * sizeof(*list));
    if (!list)
        return -ENOMEM;
    f->free = list;
    int code;
    do
        code = posix_fallocate(f->fd, (off_t)at, STEP_BYTES);
    while (code == EINTR);
    if (code) {
        /* What was allocated of it is given back: others may need it more. */
        if (ftruncate(f->fd, (off_t)at))
            return -EIO;
        return -code;
    }
    for (u32 i = STEP_PAGES; i-- > 0;) /* the first one is taken first */
        f->free[f->nfree++] = f->steps * STEP_PAGES + i;
    f->steps++;
    return 0;
}

int page_file_grow(struct page_file *f, u64 room)
{
    int code = 0;
    while (!code && f->nfree < room)
        code = one_step(f);
    return code;
}

int page_file_change(struct page_file *f, u32 slot, const u8 *data)
{
    for (size_t done = 0; done < PAGE_SIZE;) {
        ssize_t n =
            pwrite(f->fd, data + done, PAGE_SIZE - done, (off_t)((u64)slot * PAGE_SIZE + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n ? -errno : -EIO;
        done += (size_t)n;
    }
    return 0;
}

int page_file_put(struct page_file *f, const u8 *data, u32 *slot)
{
    int code = page_file_grow(f, 1);
    if (!code)
        code = page_file_change(f, f->free[f->nfree - 1], data);
    if (!code)
        *slot = f->free[--f->nfree];
    return code;
}

void page_file_free(struct page_file *f, u32 slot)
{
    f->free[f->nfree++] = slot;
}

int page_file_read(const struct page_file *f, u32 slot, u8 *out)
{
    if (file_read_at(f->fd, out, PAGE_SIZE, (u64)slot * PAGE_SIZE))
        return 0;
    return errno ? -errno : -EIO;
}
