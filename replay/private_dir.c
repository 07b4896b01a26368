/* See private_dir.h. */
#include "replay/private_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/sha256.h"

/* Is it ours, and can nobody else write it? */
static int check_owner(int fd, const char *path, bool directory, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st))
        return err_errno(err, "cannot look at %s", path);
    if (directory ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode))
        return err_set(err, -EPERM, "%s is not a %s", path, directory ? "directory" : "file");
    if (st.st_uid != geteuid())
        return err_set(err, -EPERM, "%s belongs to another user", path);
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return err_set(err, -EPERM, "%s can be written by others", path);
    if (!directory && st.st_nlink != 1)
        return err_set(err, -EPERM, "%s has more than one name", path);
    return 0;
}

/* A directory below `at`, made if `make` says so; *path grows by its name. -1: *err. */
static int enter(int at, const char *name, bool make, bool ours, char *path, size_t room,
                 struct err *err)
{
    size_t n = strlen(path);
    if ((size_t)snprintf(path + n, room - n, "/%s", name) >= room - n) {
        err_set(err, -ENAMETOOLONG, "the directory for state has too long a name");
        return -1;
    }
    if (make && mkdirat(at, name, DIRECTORY_PRIVATE) && errno != EEXIST) {
        err_errno(err, "cannot make %s", path);
        return -1;
    }
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (ours ? O_NOFOLLOW : 0));
    if (fd < 0)
        err_errno(err, "cannot open %s", path);
    else if (ours && check_owner(fd, path, true, err)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

int private_open(const char *folder, bool make, char *path, size_t room, struct err *err)
{
    const struct {
        const char *name;
        bool ours; /* the rest is the user's way to it, links and all */
    } below[] = {{".local", false}, {"state", false}, {"reprise", true}, {folder, true}};
    const char *base = getenv("XDG_STATE_HOME");
    size_t at = 2;
    if (!base || *base != '/') {
        base = getenv("HOME");
        at = 0;
    }
    if (!base || *base != '/' || strlen(base) >= room) {
        err_set(err, -ENOENT, "neither XDG_STATE_HOME nor HOME names a directory");
        return -1;
    }
    strcpy(path, base);
    if (make && at && mkdir(base, DIRECTORY_PRIVATE) && errno != EEXIST) {
        err_errno(err, "cannot make %s", base);
        return -1;
    }
    int fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    if (fd < 0) {
        err_errno(err, "cannot open %s", base);
    } else if (!at && (fstat(fd, &st) || st.st_uid != geteuid())) {
        /* Root with the HOME of somebody else would leave there what they cannot use. */
        err_set(err, -EPERM, "HOME, %s, belongs to another user", base);
        close(fd);
        return -1;
    }
    for (; fd >= 0 && at < ARRAY_SIZE(below); at++) {
        int next = enter(fd, below[at].name, make, below[at].ours, path, room, err);
        close(fd);
        fd = next;
    }
    return fd;
}

int private_check(int fd, const char *path, struct err *err)
{
    return check_owner(fd, path, false, err);
}

/* ---- keeping few ---- */

struct entry {
    char name[SHA256_TEXT];
    struct timespec used;
};

static int older(const void *a, const void *b)
{
    const struct timespec *x = &((const struct entry *)a)->used;
    const struct timespec *y = &((const struct entry *)b)->used;
    return x->tv_sec != y->tv_sec ? (x->tv_sec < y->tv_sec ? -1 : 1)
                                  : (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

void private_prune(int dir, unsigned kept)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct entry *all = NULL;
    size_t n = 0, room = 0;
    struct dirent *e;
    if (!d) {
        if (fd >= 0)
            close(fd);
        return;
    }
    while ((e = readdir(d))) {
        struct sha256 ignored;
        struct stat st;
        if (strlen(e->d_name) != SHA256_TEXT - 1 || !sha256_parse(e->d_name, &ignored) ||
            fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        if (n == room) {
            struct entry *more = realloc(all, (room = room ? 2 * room : 256) * sizeof(*all));
            if (!more)
                break;
            all = more;
        }
        strcpy(all[n].name, e->d_name);
        all[n++].used = st.st_mtim;
    }
    closedir(d);
    if (n > kept) {
        qsort(all, n, sizeof(*all), older);
        for (size_t i = 0; i < n - kept; i++)
            unlinkat(dir, all[i].name, 0);
    }
    free(all);
}
