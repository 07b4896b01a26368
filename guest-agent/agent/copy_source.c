#define _GNU_SOURCE 1 /* O_TMPFILE, SEEK_DATA */
/* See copy.h: who reads what is copied. */
#include "guest-agent/agent/copy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The directories that it is in, and the path for texts. */
struct walk {
    struct copy_source *c;
    DIR *open[AGENT_DEPTH];
    unsigned depth;
    char path[PATH_MAX];
};

static bool failed(struct walk *w, const char *what)
{
    snprintf(w->c->why, COPY_WHY, "%.500s: %s%s%s", w->path, what, *what ? ": " : "",
             strerror(errno));
    return false;
}

static bool send(struct walk *w, uint32_t type, const void *data, size_t len)
{
    return w->c->send(w->c->opaque, type, data, len);
}

/* `also`: behind the name and its NUL; NULL: nothing, and no NUL. */
static bool send_entry(struct walk *w, uint32_t type, const struct stat *st, const char *name,
                       const char *also)
{
    char bytes[sizeof(struct agent_entry) + NAME_MAX + 1 + PATH_MAX];
    struct agent_entry e = {.mode = st->st_mode,
                            .name_len = (uint32_t)strlen(name),
                            .nanoseconds = (uint32_t)st->st_mtim.tv_nsec,
                            .seconds = st->st_mtim.tv_sec,
                            .size = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0};
    size_t len = sizeof(e);
    memcpy(bytes, &e, sizeof(e));
    memcpy(bytes + len, name, e.name_len);
    len += e.name_len;
    if (also) {
        bytes[len++] = 0;
        memcpy(bytes + len, also, strlen(also));
        len += strlen(also);
    }
    w->c->done.entries += type != AGENT_OTHER;
    w->c->done.others += type == AGENT_OTHER;
    return send(w, type, bytes, len);
}

static bool send_piece(struct walk *w, int fd, off_t from, off_t to)
{
    struct {
        uint64_t offset;
        uint8_t bytes[AGENT_DATA_MAX - 8 - sizeof(struct agent_frame)];
    } piece;
    while (from < to) {
        size_t want = sizeof(piece.bytes);
        if ((uint64_t)(to - from) < want)
            want = (size_t)(to - from);
        ssize_t n = pread(fd, piece.bytes, want, from);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return failed(w, "");
        if (n == 0) {
            errno = ESTALE;
            return failed(w, "it became shorter while it was read");
        }
        piece.offset = (uint64_t)from;
        if (!send(w, AGENT_CONTENT, &piece, 8 + (size_t)n))
            return false;
        w->c->done.bytes += (uint64_t)n;
        from += n;
    }
    return true;
}

/* Without its holes, where the file system tells them. */
static bool send_contents(struct walk *w, int fd, off_t size)
{
    for (off_t at = 0; at < size;) {
        off_t from = lseek(fd, at, SEEK_DATA);
        if (from < 0 && errno == ENXIO)
            return true;
        off_t to = from < 0 ? size : lseek(fd, from, SEEK_HOLE);
        if (from < 0)
            from = at;
        if (to <= from || to > size)
            to = size;
        if (!send_piece(w, fd, from, to))
            return false;
        at = to;
    }
    return true;
}

static bool send_file(struct walk *w, int at, const char *name, const char *as)
{
    struct stat st;
    int fd = openat(at, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st)) {
        failed(w, "");
        if (fd >= 0)
            close(fd);
        return false;
    }
    bool good = S_ISREG(st.st_mode)
                    ? send_entry(w, AGENT_FILE, &st, as, NULL) && send_contents(w, fd, st.st_size)
                    : (errno = EINVAL, failed(w, "it is no regular file"));
    close(fd);
    return good;
}

static bool send_link(struct walk *w, int at, const char *name, const struct stat *st)
{
    char to[PATH_MAX];
    ssize_t n = readlinkat(at, name, to, sizeof(to) - 1);
    if (n < 0)
        return failed(w, "");
    to[n] = 0;
    return send_entry(w, AGENT_LINK, st, name, to);
}

static bool enter(struct walk *w, int at, const char *name, const char *as, const struct stat *st)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (w->depth ? O_NOFOLLOW : 0));
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        failed(w, "");
        if (fd >= 0)
            close(fd);
        return false;
    }
    w->open[w->depth++] = d;
    return send_entry(w, AGENT_DIRECTORY, st, as, NULL);
}

/* An entry of the innermost directory. */
static bool send_one(struct walk *w, const char *name)
{
    struct stat st;
    int at = dirfd(w->open[w->depth - 1]);
    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT || failed(w, ""); /* removed meanwhile */
    if (S_ISREG(st.st_mode))
        return send_file(w, at, name, name);
    if (S_ISLNK(st.st_mode))
        return send_link(w, at, name, &st);
    if (S_ISDIR(st.st_mode) && w->depth < AGENT_DEPTH)
        return enter(w, at, name, name, &st);
    return send_entry(w, AGENT_OTHER, &st, name, NULL);
}

static bool send_tree(struct walk *w)
{
    while (w->depth) {
        size_t had = strlen(w->path);
        errno = 0;
        struct dirent *e = readdir(w->open[w->depth - 1]);
        if (!e && errno)
            return failed(w, "");
        if (!e) {
            closedir(w->open[--w->depth]);
            char *slash = strrchr(w->path, '/');
            if (slash && w->depth)
                *slash = 0;
            if (!send(w, AGENT_LEAVE, NULL, 0))
                return false;
            continue;
        }
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        unsigned depth = w->depth;
        snprintf(w->path + had, sizeof(w->path) - had, "/%s", e->d_name);
        if (!send_one(w, e->d_name))
            return false;
        if (w->depth == depth)
            w->path[had] = 0;
    }
    return true;
}

bool copy_send(struct copy_source *c, const char *path, uint32_t flags)
{
    struct walk *w = calloc(1, sizeof(*w));
    struct stat st;
    if (!w) {
        snprintf(c->why, COPY_WHY, "no memory");
        return false;
    }
    w->c = c;
    snprintf(w->path, sizeof(w->path), "%s", path);
    bool good = false;
    if (stat(path, &st))
        failed(w, "");
    else if (!S_ISDIR(st.st_mode))
        good = send_file(w, AT_FDCWD, path, "-");
    else if (!(flags & AGENT_RECURSE))
        snprintf(c->why, COPY_WHY, "%.500s is a directory: -r copies those", path);
    else
        good = enter(w, AT_FDCWD, path, "-", &st) && send_tree(w);
    while (w->depth)
        closedir(w->open[--w->depth]);
    free(w);
    return good && c->send(c->opaque, AGENT_COPIED, &c->done, sizeof(c->done));
}
