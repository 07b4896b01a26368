/* See raw_copy.h. */
#define _GNU_SOURCE /* asprintf, mkostemp */
#include "boot/raw_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_io.h"
#include "host/child.h"
#include "host/disk_chain.h"

#define COPY_TIME  3600u
#define COPY_PIECE (1u << 20)

/* Of a server that the user named and that we are connected to: qemu-img may connect to nobody. */
static int copy_served(struct disk *d, int fd, struct err *err)
{
    u64 ignored = 0;
    int code = ftruncate(fd, (off_t)d->size) ? err_errno(err, "cannot write it") : 0;
    u8 *piece = malloc(COPY_PIECE);
    if (!piece)
        code = err_set(err, -ENOMEM, "no memory to look at the disks");
    for (u64 at = 0; at < d->size && !code; at += COPY_PIECE) {
        size_t n = (size_t)MIN(d->size - at, (u64)COPY_PIECE);
        if (child_interrupted()) {
            code = err_set(err, -EINTR, "interrupted");
        } else if (disk_read(d, NULL, at, piece, n, &ignored)) {
            *err = d->failed;
            code = err->code;
        } else if ((piece[0] || memcmp(piece, piece + 1, n - 1)) &&
                   !file_write_at(fd, piece, n, at)) {
            code = err_errno(err, "cannot write it");
        }
    }
    free(piece);
    return code;
}

/* By qemu-img, which knows what of it is not allocated. A file's name is in full, so that no part
 * of it is taken for a protocol. */
static int copy_foreign(const struct disk *d, const char *to, struct err *err)
{
    struct landlock_path files[DISK_CHAIN_MAX + 2] = {
        {.fd = d->fd, .may = LANDLOCK_READ}, {.path = to, .may = LANDLOCK_READ | LANDLOCK_WRITE}};
    const char *driver = disk_format_driver(d->format);
    struct disk_chain chain;
    char *out, *full = realpath(d->path, NULL);
    size_t size;
    if (!full)
        return err_errno(err, "cannot open it");
    int code = disk_chain_find(&chain, d->fd, full, driver, d->backing, err);
    for (unsigned i = 0; !code && i < chain.n; i++)
        files[2 + i] = (struct landlock_path){.path = chain.path[i], .may = LANDLOCK_READ};
    const char *argv[] = {"qemu-img", "convert", "-U", "-f", driver, "-O",
                          "raw",      "--",      full, to,   NULL};
    const struct child_limits limits = {.seconds = COPY_TIME,
                                        .output = 1 << 16,
                                        .memory = 4ull << 30,
                                        .file = 1ull << 42,
                                        .confined = true,
                                        .reads = files,
                                        .nreads = 2 + chain.n};
    if (!code) {
        code = child_run(argv, &limits, &out, &size, err);
        free(out);
        disk_chain_free(&chain);
    }
    free(full);
    return code;
}

int raw_copy(struct disk *d, char **path, struct err *err)
{
    const char *dir = getenv("TMPDIR");
    if (asprintf(path, "%s/reprise-disk-XXXXXX", dir && *dir == '/' ? dir : "/var/tmp") < 0) {
        *path = NULL;
        return err_set(err, -ENOMEM, "no memory to look at the disks");
    }
    int fd = mkostemp(*path, O_CLOEXEC);
    if (fd < 0) {
        err_errno(err, "cannot make a temporary copy %s of %s", *path, d->path);
        free(*path);
        *path = NULL;
        return err->code;
    }
    int code = strcmp(d->format, "nbd") ? copy_foreign(d, *path, err) : copy_served(d, fd, err);
    close(fd);
    if (code == -ENOENT)
        return err_set(err, code,
                       "to boot from %s takes the program qemu-img (Debian's package qemu-utils)",
                       d->path);
    return code ? err_prefix(err, "cannot copy %s", d->path) : 0;
}
