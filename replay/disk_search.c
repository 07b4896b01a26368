/* See disk_search.h. */
#define _GNU_SOURCE /* asprintf */
#include "replay/disk_search.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "replay/pack_disk.h"

static bool has_map(const struct opened *o, unsigned i)
{
    char name[32];
    snprintf(name, sizeof(name), RECORDING_DISKS "/%u.map", i);
    return recording_has(&o->rec, name);
}

void disk_candidates_close(struct disk_candidates *c)
{
    for (unsigned i = 0; i < c->n; i++) {
        close(c->fd[i]);
        free(c->path[i]);
    }
    c->n = 0;
}

/* A raw image of that size. Links are not followed, and nothing that waits or acts is opened. */
static void consider(struct disk_candidates *c, int dir, const char *in, const char *name, u64 size)
{
    struct stat st;
    char *path;
    if (c->n == DISK_CANDIDATES || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) ||
        !S_ISREG(st.st_mode) || (u64)st.st_size != size)
        return;
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (asprintf(&path, "%s/%s", in, name) < 0) {
        close(fd);
        return;
    }
    c->fd[c->n] = fd;
    c->path[c->n++] = path;
}

/* `only`: files of that name; NULL: all. */
static void look_in(struct disk_candidates *c, const char *in, const char *only, u64 size)
{
    DIR *d = opendir(in);
    struct dirent *e;
    while (d && (e = readdir(d)))
        if (!only || !strcmp(e->d_name, only))
            consider(c, dirfd(d), in, e->d_name, size);
    if (d)
        closedir(d);
}

/* Where the recording lies; malloc'ed. */
static char *beside(const struct opened *o)
{
    char *real = realpath(o->rec.path, NULL), *slash = real ? strrchr(real, '/') : NULL;
    if (slash)
        slash[slash == real] = 0;
    return real;
}

int disk_search(struct opened *o, unsigned i, struct disk_candidates *c, struct err *err)
{
    const struct description_disk *k = &o->desc.disk[i];
    const char *name = text_base_name(k->path);
    unsigned paths = o->named ? o->named->npaths : 0;
    c->n = 0;
    for (unsigned p = 0; p < paths; p++) /* the same name first */
        if (*name && strcmp(name, ".") && strcmp(name, ".."))
            look_in(c, o->named->path[p], name, k->size);
    if (c->n && !has_map(o, i)) {
        while (c->n > 1) { /* the first directory's */
            close(c->fd[--c->n]);
            free(c->path[c->n]);
        }
        return 0;
    }
    for (unsigned p = 0; p < paths; p++)
        look_in(c, o->named->path[p], NULL, k->size);
    c->asked = c->n;
    if (has_map(o, i)) {
        char *dir = beside(o);
        if (dir)
            look_in(c, dir, NULL, k->size);
        free(dir);
    }
    if (c->n && (c->n == 1 || has_map(o, i)))
        return 0;
    char text[200];
    unsigned n = c->n;
    disk_candidates_close(c);
    if (n)
        return err_set(err, -ENOENT,
                       "%u files have its size, and none its name (%s): name it: --disk %u=FILE", n,
                       text_printable(name, text, sizeof(text)), i);
    return err_set(err, -ENOENT, "no file of its size (%llu bytes) is there",
                   (unsigned long long)k->size);
}

/* One of several. */
static int choose(struct opened *o, unsigned i, struct disk_map *m, struct err *err)
{
    struct disk_candidates *c = &o->candidates[i];
    struct disk *d = &o->disks[i];
    u64 at = 0;
    for (unsigned n = 0; n < c->n; n++) {
        if (!disk_map_fits(m, c->fd[n], &at))
            continue;
        if (dup3(c->fd[n], d->fd, O_CLOEXEC) < 0)
            return err_errno(err, "cannot open %s", c->path[n]);
        if (n >= c->asked) { /* nobody named it: no more of it than the recording knows */
            int code = disk_map_blob(m, i, d->fd, &d->base, err);
            if (code)
                return code;
            d->fd = 0;
        }
        free(d->path);
        d->path = c->path[n];
        c->path[n] = NULL;
        fprintf(stderr, "reprise: disk %u: %s, found by what is in it\n", i, d->path);
        return 0;
    }
    return c->n == 1
               ? err_set(err, -EINVAL,
                         "disk %u of the recording: %s is not the image as it was recorded: it "
                         "differs in the page at byte %llu",
                         i, c->path[0], (unsigned long long)at)
               : err_set(err, -EINVAL,
                         "disk %u of the recording: none of %u files of its size is the image as "
                         "it was recorded",
                         i, c->n);
}

static int settle(struct opened *o, unsigned i, struct err *err)
{
    struct disk *d = &o->disks[i];
    struct disk_map map;
    u64 at;
    if (d->base.ops || d->nbd || !has_map(o, i))
        return 0;
    int code = disk_map_load(&o->rec, i, d->size, &map, err);
    if (!code && o->candidates[i].n)
        code = choose(o, i, &map, err);
    else if (!code && !disk_map_fits(&map, d->fd, &at))
        code =
            err_set(err, -EINVAL,
                    "disk %u of the recording: %s has changed: the page at byte %llu is not what "
                    "was read there",
                    i, d->path, (unsigned long long)at);
    disk_map_free(&map);
    return code;
}

int disk_search_settle(struct opened *o, struct err *err)
{
    int code = 0;
    for (unsigned i = 0; i < o->nseen; i++) {
        if (!code)
            code = settle(o, i, err);
        disk_candidates_close(&o->candidates[i]);
    }
    return code;
}
