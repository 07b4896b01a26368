#define _GNU_SOURCE
/* See tree.h. */
#include "host/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file_io.h"
#include "base/room.h"
#include "base/text.h"

#define PERMISSIONS 0777
#define TEMPORARY   ".reprise-%d-%u" /* in the directory that the file will be in */

struct level {
    int fd;    /* -1: could not be entered */
    size_t up; /* length of the path up to the one above */
    struct stat was;
    bool foreign; /* changed by others meanwhile: as it is */
    bool opened;  /* has permissions that it had not */
};

/* A file with several names, one of which we took away: its ctime is our doing. */
struct linked {
    dev_t dev;
    ino_t ino;
    struct timespec ctime;
};

struct tree {
    struct tree_config c;
    struct timespec began; /* by the file system's own clock */
    struct room room;
    struct tree_counts counts;
    bool full;  /* nothing more is done */
    char *path; /* of what is being looked at, with room for `depth` names */
    size_t len;
    struct linked *linked;
    size_t nlinked, linked_room;
    struct {
        int fd; /* -1: none */
        char name[TREE_NAME_MAX + 1], temporary[64];
        struct tree_meta is;
    } file;
    unsigned serial;
    unsigned depth;
    struct level level[];
};

/* ---- words ---- */

void tree_note(struct tree *t, const char *name, const char *why)
{
    char text[1024], clean[1024];
    snprintf(text, sizeof(text), "%s%s%s: %s", t->path, *name || !t->len ? "/" : "", name, why);
    t->c.say(t->c.opaque, text_printable(text, clean, sizeof(clean)));
}

void tree_left(struct tree *t, const char *name, const char *why)
{
    t->counts.left++;
    tree_note(t, name, why);
}

/* What is said next is of `name`, until path_back() to the length that this gives. */
static size_t path_into(struct tree *t, const char *name)
{
    size_t before = t->len, n = strlen(name);
    t->path[t->len] = '/';
    memcpy(t->path + t->len + 1, name, n + 1);
    t->len += n + 1;
    return before;
}

static void path_back(struct tree *t, size_t len)
{
    t->len = len;
    t->path[len] = 0;
}

static void failed(struct tree *t, const char *name, const char *what)
{
    char why[256];
    int error = errno;
    if (t->full) {
        t->counts.left++;
        return;
    }
    t->full = error == ENOSPC || error == EDQUOT;
    if (error == EXDEV)
        snprintf(why, sizeof(why), "%s: another file system is there, which has to be named itself",
                 what);
    else
        snprintf(why, sizeof(why), "%s: %s%s", what, strerror(error),
                 t->full ? "; what comes after it is not written" : "");
    tree_left(t, name, why);
}

bool tree_name(const char *name, size_t len)
{
    return len && len <= TREE_NAME_MAX && !memchr(name, '/', len) && !memchr(name, 0, len) &&
           !(len == 1 && name[0] == '.') && !(len == 2 && name[0] == '.' && name[1] == '.');
}

struct tree_counts tree_counts(const struct tree *t)
{
    return t->counts;
}

/* ---- whose doing it is ---- */

static bool later(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

static struct linked *find_linked(struct tree *t, const struct stat *st)
{
    for (size_t i = 0; i < t->nlinked; i++)
        if (t->linked[i].ino == st->st_ino && t->linked[i].dev == st->st_dev)
            return &t->linked[i];
    return NULL;
}

/* By somebody else, since the tree was opened. */
static bool is_foreign(struct tree *t, const struct stat *st)
{
    const struct linked *l = find_linked(t, st);
    return later(&st->st_ctim, &t->began) && !(l && !later(&st->st_ctim, &l->ctime));
}

/* `name` is about to be taken away from a file; after that, unnamed_note() with what this gave. */
static int unnamed_begin(int dir, const char *name, const struct stat *st)
{
    return st->st_nlink > 1 && !S_ISDIR(st->st_mode)
               ? openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC)
               : -1;
}

static void unnamed_note(struct tree *t, int fd)
{
    struct stat st;
    if (fd < 0)
        return;
    struct linked *l = NULL;
    if (!fstat(fd, &st) && !(l = find_linked(t, &st))) {
        if (t->nlinked == t->linked_room) {
            size_t room = 2 * t->linked_room + 16;
            struct linked *more = realloc(t->linked, room * sizeof(*more));
            if (more) {
                t->linked = more;
                t->linked_room = room;
            }
        }
        if (t->nlinked < t->linked_room)
            l = &t->linked[t->nlinked++];
    }
    if (l)
        *l = (struct linked){st.st_dev, st.st_ino, st.st_ctim};
    close(fd);
}

/* ---- directories ---- */

/* A directory of `dir`, and on the same file system. */
static int open_directory(int dir, const char *name)
{
    const struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
                                 .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
                                            RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
    int fd = (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));
    if (fd >= 0 || errno != ENOSYS)
        return fd;
    /* A kernel before 5.6. */
    struct stat up, st;
    fd = openat(dir, name, (int)how.flags);
    if (fd >= 0 && !fstat(dir, &up) && !fstat(fd, &st) && up.st_dev == st.st_dev)
        return fd;
    if (fd >= 0) {
        close(fd);
        errno = EXDEV;
    }
    return -1;
}

/* One that its owner, this user, must not write in is written in all the same: the guest's was. */
static int open_writable(int dir, const char *name, const struct stat *st, bool *opened)
{
    *opened = (st->st_mode & S_IRWXU) != S_IRWXU && st->st_uid == geteuid();
    int fd = open_directory(dir, name);
    if (fd < 0 && errno == EACCES && *opened) {
        /* By descriptor: a link may have its name by now. */
        int at = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        char path[64];
        snprintf(path, sizeof(path), "/proc/self/fd/%d", at);
        if (at >= 0 && !chmod(path, (st->st_mode & PERMISSIONS) | S_IRWXU))
            fd = open_directory(dir, name);
        if (at >= 0)
            close(at);
    } else if (fd >= 0 && *opened) {
        fchmod(fd, (st->st_mode & 07777) | S_IRWXU);
    }
    return fd;
}

static bool remove_entry(struct tree *t, int dir, const char *name, unsigned depth);

/* False: something of it stays, and that was said. Takes over `fd`. */
static bool empty(struct tree *t, int fd, unsigned depth)
{
    bool all = true;
    DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return false;
    }
    for (struct dirent *e; !t->full && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            all &= remove_entry(t, dirfd(d), e->d_name, depth);
    closedir(d);
    return all;
}

static bool remove_directory(struct tree *t, int dir, const char *name, const struct stat *st,
                             unsigned depth)
{
    bool opened;
    int fd = depth < t->c.depth ? open_writable(dir, name, st, &opened) : -1;
    if (fd < 0) {
        errno = depth < t->c.depth ? errno : ELOOP;
        failed(t, name, "cannot be removed");
        return false;
    }
    size_t before = path_into(t, name);
    bool all = empty(t, fd, depth + 1);
    path_back(t, before);
    if (!all)
        return false;
    if (!unlinkat(dir, name, AT_REMOVEDIR))
        return true;
    failed(t, name, "cannot be removed");
    return false;
}

static bool remove_entry(struct tree *t, int dir, const char *name, unsigned depth)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW)) {
        if (errno == ENOENT)
            return true;
        failed(t, name, "cannot be looked at");
        return false;
    }
    if (S_ISDIR(st.st_mode))
        return remove_directory(t, dir, name, &st, depth);
    if (is_foreign(t, &st)) {
        tree_left(t, name, "was changed here meanwhile, and is not removed");
        return false;
    }
    int watched = unnamed_begin(dir, name, &st);
    bool good = !unlinkat(dir, name, 0) || errno == ENOENT;
    if (!good)
        failed(t, name, "cannot be removed");
    unnamed_note(t, watched);
    return good;
}

static struct level *here(struct tree *t)
{
    return &t->level[t->depth];
}

/* Whether anything can be done here; what cannot is counted. */
static bool works(struct tree *t)
{
    if (here(t)->fd >= 0 && !t->full)
        return true;
    t->counts.left++;
    return false;
}

void tree_empty(struct tree *t)
{
    if (!works(t))
        return;
    int fd = open_directory(here(t)->fd, ".");
    if (fd < 0)
        failed(t, "", "cannot be read");
    else
        empty(t, fd, t->depth + 1);
}

void tree_remove(struct tree *t, const char *name)
{
    if (works(t))
        t->counts.done += remove_entry(t, here(t)->fd, name, t->depth + 1);
}

/* A directory of that name, there or made; -1: that was said. */
static int make_directory(struct tree *t, const char *name, struct stat *st, bool *opened)
{
    int dir = here(t)->fd;
    *opened = false;
    if (!fstatat(dir, name, st, AT_SYMLINK_NOFOLLOW)) {
        if (S_ISDIR(st->st_mode)) {
            int fd = open_writable(dir, name, st, opened);
            if (fd < 0)
                failed(t, name, "cannot be opened");
            return fd;
        }
        if (!remove_entry(t, dir, name, t->depth + 1))
            return -1;
    }
    memset(st, 0, sizeof(*st));
    int fd = mkdirat(dir, name, DIRECTORY_PRIVATE) ? -1 : open_directory(dir, name);
    if (fd < 0)
        failed(t, name, "cannot be made");
    return fd;
}

void tree_enter(struct tree *t, const char *name)
{
    CHECK(t->depth + 1 < t->c.depth, "a tree of more than %u levels", t->c.depth);
    struct level *l = &t->level[t->depth + 1];
    *l = (struct level){.fd = works(t) ? make_directory(t, name, &l->was, &l->opened) : -1,
                        .was = l->was,
                        .opened = l->opened};
    l->up = path_into(t, name);
    l->foreign = l->fd >= 0 && is_foreign(t, &l->was);
    t->depth++;
}

void tree_leave(struct tree *t, const struct tree_meta *is)
{
    struct level *l = here(t);
    bool same = l->foreign || !is;
    mode_t special = l->was.st_mode & 07000;
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, same ? l->was.st_mtim : is->mtime};
    if (l->fd >= 0 && (!same || l->opened)) {
        if (fchmod(l->fd, same ? l->was.st_mode & 07777 : special | (is->mode & PERMISSIONS)))
            failed(t, "", "its permissions cannot be changed");
        else if (!same && futimens(l->fd, times))
            failed(t, "", "its time cannot be changed");
    }
    t->counts.done += l->fd >= 0;
    if (!t->depth)
        return;
    if (l->fd >= 0)
        close(l->fd);
    path_back(t, l->up);
    t->depth--;
}

/* ---- files ---- */

/* What has the name makes room for something that is none of its directories. */
static bool clear_name(struct tree *t, const char *name, struct stat *st)
{
    int dir = here(t)->fd;
    if (fstatat(dir, name, st, AT_SYMLINK_NOFOLLOW)) {
        memset(st, 0, sizeof(*st));
        return true;
    }
    if (S_ISDIR(st->st_mode))
        return remove_directory(t, dir, name, st, t->depth + 1);
    if (!is_foreign(t, st))
        return true;
    tree_left(t, name, "was changed here meanwhile, and stays as it is");
    return false;
}

static void drop_file(struct tree *t)
{
    if (t->file.fd < 0)
        return;
    close(t->file.fd);
    t->file.fd = -1;
    unlinkat(here(t)->fd, t->file.temporary, 0);
}

static void give_name(struct tree *t, const char *name, const struct stat *st)
{
    int dir = here(t)->fd, watched = unnamed_begin(dir, name, st);
    if (renameat(dir, t->file.temporary, dir, name)) {
        failed(t, name, "cannot be written");
        unlinkat(dir, t->file.temporary, 0);
    } else {
        t->counts.done++;
    }
    unnamed_note(t, watched);
}

static void name_temporary(struct tree *t)
{
    snprintf(t->file.temporary, sizeof(t->file.temporary), TEMPORARY, (int)getpid(), t->serial++);
}

void tree_file(struct tree *t, const char *name, const struct tree_meta *is, u64 size)
{
    drop_file(t);
    if (!works(t))
        return;
    name_temporary(t);
    snprintf(t->file.name, sizeof(t->file.name), "%s", name);
    t->file.is = *is;
    t->file.fd = openat(here(t)->fd, t->file.temporary,
                        O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, FILE_PRIVATE);
    if (t->file.fd >= 0 && size <= INT64_MAX && !ftruncate(t->file.fd, (off_t)size))
        return;
    if (size > INT64_MAX)
        errno = EFBIG;
    failed(t, name, "cannot be written");
    drop_file(t);
}

void tree_file_data(struct tree *t, const void *data, size_t len, u64 offset)
{
    if (t->file.fd < 0 || file_write_at(t->file.fd, data, len, offset))
        return;
    failed(t, t->file.name, "cannot be written");
    drop_file(t);
}

void tree_file_end(struct tree *t)
{
    struct stat st;
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, t->file.is.mtime};
    if (t->file.fd < 0)
        return;
    if (!clear_name(t, t->file.name, &st)) {
        drop_file(t);
        return;
    }
    /* Whoever may not give files away has his own. */
    if (S_ISREG(st.st_mode) && fchown(t->file.fd, st.st_uid, st.st_gid))
        errno = 0;
    if (fchmod(t->file.fd, t->file.is.mode & PERMISSIONS) || futimens(t->file.fd, times)) {
        failed(t, t->file.name, "cannot be written");
        drop_file(t);
        return;
    }
    close(t->file.fd);
    t->file.fd = -1;
    give_name(t, t->file.name, &st);
}

void tree_link(struct tree *t, const char *name, const struct tree_meta *is, const char *to)
{
    struct stat st;
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, is->mtime};
    drop_file(t);
    if (!works(t) || !clear_name(t, name, &st))
        return;
    name_temporary(t);
    if (symlinkat(to, here(t)->fd, t->file.temporary)) {
        failed(t, name, "cannot be written");
        return;
    }
    /* Some file systems have no times of links. */
    if (utimensat(here(t)->fd, t->file.temporary, times, AT_SYMLINK_NOFOLLOW))
        errno = 0;
    give_name(t, name, &st);
}

/* ---- life ---- */

/* The file system's clock, which may be another machine's, and whether files can be made. */
static int begin_clock(struct tree *t, struct err *err)
{
    struct stat st;
    int dir = t->level[0].fd, fd = openat(dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, FILE_PRIVATE);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL || errno == ENOENT)) {
        name_temporary(t);
        fd = openat(dir, t->file.temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, FILE_PRIVATE);
        if (fd >= 0)
            unlinkat(dir, t->file.temporary, 0);
    }
    if (fd < 0 || fstat(fd, &st)) {
        int code = err_errno(err, "cannot write in %s", t->c.path);
        if (fd >= 0)
            close(fd);
        return code;
    }
    t->began = st.st_ctim;
    close(fd);
    return fstat(dir, &t->level[0].was) ? err_errno(err, "cannot look at %s", t->c.path) : 0;
}

int tree_open(struct tree **out, const struct tree_config *c, struct err *err)
{
    size_t n = strlen(c->path);
    struct tree *t = calloc(1, sizeof(*t) + (c->depth + 1) * sizeof(t->level[0]));
    *out = NULL;
    if (!t || !(t->path = malloc(n + 1 + c->depth * (size_t)(TREE_NAME_MAX + 1)))) {
        free(t);
        return err_set(err, -ENOMEM, "no memory");
    }
    t->c = *c;
    memcpy(t->path, c->path, n + 1);
    path_back(t, n > 1 ? n : 0); /* of "/" nothing comes before a slash */
    t->room.keep = ROOM_LEAST;
    t->file.fd = -1;
    t->level[0].fd = open(c->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int code = t->level[0].fd < 0 ? err_errno(err, "cannot open %s", c->path) : begin_clock(t, err);
    if (code) {
        tree_close(t);
        return code;
    }
    *out = t;
    return 0;
}

void tree_ask(struct tree *t, u64 bytes)
{
    char kept[96], why[160];
    if (room_ask(&t->room, t->level[0].fd, bytes) == ROOM_FINE)
        return;
    snprintf(why, sizeof(why), "no room for %.1f MB, as %s: nothing is written",
             (double)bytes / 1e6, room_text(&t->room, kept, sizeof(kept)));
    tree_left(t, "", why);
    t->full = true;
}

void tree_close(struct tree *t)
{
    if (!t)
        return;
    drop_file(t);
    for (unsigned i = 0; i <= t->depth; i++)
        if (t->level[i].fd >= 0)
            close(t->level[i].fd);
    free(t->linked);
    free(t->path);
    free(t);
}
