#define _GNU_SOURCE 1 /* O_TMPFILE, SEEK_DATA */
/* See copy.h: who makes what is copied. */
#include "guest-agent/agent/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static bool wrong(struct copy_sink *c, const char *what)
{
    snprintf(c->why, COPY_WHY, "the other side broke the protocol: %s", what);
    return false;
}

static bool failed(struct copy_sink *c, const char *name)
{
    snprintf(c->why, COPY_WHY, "%.500s: %s", name, strerror(errno));
    return false;
}

static int here(const struct copy_sink *c)
{
    return c->directory[c->depth];
}

/* ---- where it goes ---- */

static bool is_name(const char *name, size_t len)
{
    return len && len <= NAME_MAX && !memchr(name, '/', len) && !memchr(name, 0, len) &&
           !(len == 1 && name[0] == '.') && !(len == 2 && name[0] == '.' && name[1] == '.');
}

/* The last component of a path; "" if it has none. */
static void last(const char *path, char out[NAME_MAX + 1])
{
    size_t n = strlen(path);
    while (n && path[n - 1] == '/')
        n--;
    size_t from = n;
    while (from && path[from - 1] != '/')
        from--;
    out[0] = 0;
    if (is_name(path + from, n - from)) {
        memcpy(out, path + from, n - from);
        out[n - from] = 0;
    }
}

bool copy_open(struct copy_sink *c, const char *path, const char *source)
{
    char parent[PATH_MAX];
    *c = (struct copy_sink){.file = -1, .directory = {-1}};
    size_t n = strlen(path);
    int fd = open(n ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        last(source, c->top);
    } else if (errno == ENOENT || errno == ENOTDIR) {
        if (n >= sizeof(parent)) {
            errno = ENAMETOOLONG;
            return failed(c, path);
        }
        if (n && path[n - 1] == '/') {
            errno = ENOENT;
            return failed(c, path);
        }
        last(path, c->top);
        const char *slash = strrchr(path, '/');
        snprintf(parent, sizeof(parent), "%.*s", slash ? (int)(slash - path) + 1 : 1,
                 slash ? path : ".");
        fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
            return failed(c, parent);
    } else {
        return failed(c, path);
    }
    c->directory[0] = fd;
    if (*c->top)
        return true;
    snprintf(c->why, COPY_WHY, "%.500s has no name that a copy could have", source);
    return false;
}

/* ---- entries ---- */

/* The entry of a frame and its name, which is `c->top` of the first; *also: what follows. */
static bool read_entry(struct copy_sink *c, const void *data, size_t len, struct agent_entry *e,
                       char name[NAME_MAX + 1], const char **also, size_t *also_len)
{
    const char *bytes = data;
    if (len < sizeof(*e))
        return wrong(c, "half an entry");
    memcpy(e, data, sizeof(*e));
    if (e->name_len > len - sizeof(*e) || !is_name(bytes + sizeof(*e), e->name_len))
        return wrong(c, "an entry's name is none");
    if (e->nanoseconds > 999999999)
        return wrong(c, "an entry's time is none");
    memcpy(name, bytes + sizeof(*e), e->name_len);
    name[e->name_len] = 0;
    *also = bytes + sizeof(*e) + e->name_len;
    *also_len = len - sizeof(*e) - e->name_len;
    if (!c->depth && c->begun)
        return wrong(c, "a second entry beside the first");
    if (!c->depth)
        strcpy(name, c->top);
    c->begun = true;
    c->done.entries++;
    return true;
}

static void times(const struct agent_entry *e, struct timespec out[2])
{
    out[0] = (struct timespec){.tv_nsec = UTIME_OMIT};
    out[1] = (struct timespec){(time_t)e->seconds, (long)e->nanoseconds};
}

/* What stands there may be replaced by a file or a link. */
static bool replaceable(struct copy_sink *c, const char *name)
{
    struct stat st;
    if (fstatat(here(c), name, &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT || failed(c, name);
    if (S_ISREG(st.st_mode) || (S_ISLNK(st.st_mode) && c->depth))
        return true;
    snprintf(c->why, COPY_WHY, "%.300s is there, and is %s: it is not replaced", name,
             S_ISDIR(st.st_mode)   ? "a directory"
             : S_ISLNK(st.st_mode) ? "a symbolic link"
                                   : "a device, FIFO or socket");
    return false;
}

static void temporary(struct copy_sink *c)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(c->temporary, sizeof(c->temporary), ".reprise-%d-%lx-%u", (int)getpid(),
             (unsigned long)now.tv_nsec, c->count++);
}

/* Without a name until it is whole, where the file system can; else with a temporary one. */
static bool begin_file(struct copy_sink *c, const char *name)
{
    if (!replaceable(c, name))
        return false;
    strcpy(c->name, name);
    temporary(c);
    c->named = false;
    c->at = 0;
    c->file = openat(here(c), ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (c->file < 0) {
        c->file = openat(here(c), c->temporary,
                         O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        c->named = c->file >= 0;
    }
    return c->file >= 0 || failed(c, name);
}

static bool put_name(struct copy_sink *c)
{
    char self[40];
    snprintf(self, sizeof(self), "/proc/self/fd/%d", c->file);
    if (!c->named && linkat(AT_FDCWD, self, here(c), c->temporary, AT_SYMLINK_FOLLOW))
        return false;
    c->named = true;
    if (renameat(here(c), c->temporary, here(c), c->name))
        return false;
    c->named = false;
    return true;
}

static void drop_file(struct copy_sink *c)
{
    if (c->file >= 0)
        close(c->file);
    if (c->named)
        unlinkat(here(c), c->temporary, 0);
    c->file = -1;
    c->named = false;
}

/* The file before this frame is whole. */
static bool end_file(struct copy_sink *c)
{
    struct timespec when[2];
    if (c->file < 0)
        return true;
    times(&c->entry, when);
    if (c->entry.size > INT64_MAX || ftruncate(c->file, (off_t)c->entry.size) ||
        fchmod(c->file, c->entry.mode & 0777) || futimens(c->file, when) || !put_name(c))
        return failed(c, c->name);
    drop_file(c);
    return true;
}

static bool content(struct copy_sink *c, const void *data, size_t len)
{
    uint64_t offset;
    if (c->file < 0 || len <= sizeof(offset))
        return wrong(c, "contents of no file");
    memcpy(&offset, data, sizeof(offset));
    const char *from = (const char *)data + sizeof(offset);
    len -= sizeof(offset);
    if (offset < c->at || offset > c->entry.size || len > c->entry.size - offset)
        return wrong(c, "contents beside the file");
    c->at = offset + len;
    c->done.bytes += len;
    while (len) {
        ssize_t n = pwrite(c->file, from, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return failed(c, c->name);
        from += n;
        offset += (uint64_t)n;
        len -= (size_t)n;
    }
    return true;
}

static bool enter(struct copy_sink *c, const struct agent_entry *e, const char *name)
{
    if (c->depth == AGENT_DEPTH)
        return wrong(c, "directories too deep");
    if (mkdirat(here(c), name, 0700) && errno != EEXIST)
        return failed(c, name);
    int fd = openat(here(c), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return failed(c, name);
    c->directory[++c->depth] = fd;
    c->entered[c->depth] = *e;
    return true;
}

static bool leave(struct copy_sink *c)
{
    struct timespec when[2];
    if (!c->depth)
        return wrong(c, "the end of no directory");
    const struct agent_entry *e = &c->entered[c->depth];
    times(e, when);
    if (fchmod(here(c), e->mode & 0777) || futimens(here(c), when))
        return failed(c, "a directory");
    close(c->directory[c->depth--]);
    return true;
}

static bool make_link(struct copy_sink *c, const char *name, const char *also, size_t len)
{
    char to[PATH_MAX];
    if (len < 2 || len > sizeof(to) || *also || memchr(also + 1, 0, len - 1))
        return wrong(c, "a link to nothing");
    memcpy(to, also + 1, len - 1);
    to[len - 1] = 0;
    temporary(c);
    if (!replaceable(c, name))
        return false;
    if (symlinkat(to, here(c), c->temporary))
        return failed(c, name);
    if (renameat(here(c), c->temporary, here(c), name)) {
        failed(c, name);
        unlinkat(here(c), c->temporary, 0);
        return false;
    }
    return true;
}

bool copy_take(struct copy_sink *c, uint32_t type, const void *data, size_t len)
{
    struct agent_entry e;
    char name[NAME_MAX + 1];
    const char *also;
    size_t also_len;
    if (type == AGENT_CONTENT)
        return content(c, data, len);
    if (!end_file(c))
        return false;
    switch (type) {
    case AGENT_COPIED:
        c->over = true;
        return (!c->depth && c->begun) || wrong(c, "the end comes too early");
    case AGENT_LEAVE: return leave(c);
    case AGENT_FILE:
        if (!read_entry(c, data, len, &e, name, &also, &also_len))
            return false;
        c->entry = e;
        return begin_file(c, name);
    case AGENT_DIRECTORY:
        return read_entry(c, data, len, &e, name, &also, &also_len) && enter(c, &e, name);
    case AGENT_LINK:
        return read_entry(c, data, len, &e, name, &also, &also_len) &&
               make_link(c, name, also, also_len);
    case AGENT_OTHER:
        if (!read_entry(c, data, len, &e, name, &also, &also_len))
            return false;
        c->done.entries--;
        c->done.others++;
        return true;
    default: return wrong(c, "a frame that belongs to no copy");
    }
}

void copy_close(struct copy_sink *c)
{
    drop_file(c);
    for (unsigned i = 0; i <= c->depth; i++)
        if (c->directory[i] >= 0)
            close(c->directory[i]);
    c->depth = 0;
    c->directory[0] = -1;
}
