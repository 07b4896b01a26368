#define _GNU_SOURCE
/* See run_place.h. */
#include "cmd/run_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"

#define NUMBER_MAX 1000000u

/* All of a path's directories. */
static int make_path(char *path, struct err *err)
{
    for (char *at = path + 1;; at++) {
        char c = *at;
        if (c && c != '/')
            continue;
        *at = 0;
        int r = mkdir(path, DIRECTORY_PRIVATE);
        int why = errno;
        *at = c;
        if (r && why != EEXIST) {
            errno = why;
            return err_errno(err, "cannot make %s", path);
        }
        if (!c)
            return 0;
    }
}

char *run_home(const char *variable, const char *usual, const char *hint, bool make,
               struct err *err)
{
    const char *base = getenv(variable), *home = getenv("HOME");
    char *path = NULL;
    int n = base && *base == '/'   ? asprintf(&path, "%s/reprise", base)
            : home && *home == '/' ? asprintf(&path, "%s/%s/reprise", home, usual)
                                   : -2;
    if (n == -2)
        err_set(err, -ENOENT, "neither %s nor HOME names a directory%s", variable, hint);
    else if (n < 0)
        err_set(err, -ENOMEM, "no memory");
    if (n < 0)
        return NULL;
    if (make && make_path(path, err)) {
        free(path);
        return NULL;
    }
    return path;
}

char *run_place(bool make, struct err *err)
{
    return run_home("XDG_DATA_HOME", ".local/share", " for recordings; -o DIR says another", make,
                    err);
}

/* A program's name as a part of a directory's. */
static const char *part(const char *program, char out[64])
{
    const char *slash = strrchr(program, '/');
    snprintf(out, 64, "%s", slash && slash[1] ? slash + 1 : program);
    for (char *p = out; *p; p++)
        if (*p == '/' || (unsigned char)*p < ' ')
            *p = '_';
    if (*out == '.' || !*out)
        *out = '_';
    return out;
}

static char *lock_of(const char *path)
{
    char *lock = NULL;
    const char *name = strrchr(path, '/') + 1;
    return asprintf(&lock, "%.*s.%s", (int)(name - path), path, name) < 0 ? NULL : lock;
}

/* Another `run` may be about to take that number, which shows before there is a recording. -1: it
 * is, or has. */
static int take(const char *path, struct err *err)
{
    char *lock = lock_of(path);
    struct stat st;
    if (!lock)
        return err_set(err, -ENOMEM, "no memory"), -1;
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, FILE_PRIVATE);
    if (fd < 0)
        err_errno(err, "cannot create %s", lock);
    else if (flock(fd, LOCK_EX | LOCK_NB) || fstat(fd, &st) || !st.st_nlink) {
        close(fd);
        fd = -1;
    }
    free(lock);
    return fd;
}

void run_place_taken(const char *path, int lock)
{
    char *name = lock < 0 ? NULL : lock_of(path);
    if (name)
        unlink(name);
    free(name);
    if (lock >= 0)
        close(lock);
}

char *run_place_new(const char *program, int *lock, struct err *err)
{
    char name[64], *path = NULL, *place = run_place(true, err);
    struct stat st;
    *lock = -1;
    for (unsigned n = 0; place && n < NUMBER_MAX && !err->code; n++) {
        if (asprintf(&path, "%s/%s-%u", place, part(program, name), n) < 0) {
            path = NULL;
            err_set(err, -ENOMEM, "no memory");
            break;
        }
        if (lstat(path, &st) && errno == ENOENT && (*lock = take(path, err)) >= 0) {
            if (lstat(path, &st) && errno == ENOENT)
                break;
            run_place_taken(path, *lock);
            *lock = -1;
        }
        free(path);
        path = NULL;
    }
    if (place && !path && !err->code)
        err_set(err, -EEXIST, "%s is full of recordings of %s", place, name);
    free(place);
    return path;
}

const char *run_place_last(void)
{
    struct err none = {0};
    char *place = run_place(false, &none), *link = NULL, *path = NULL;
    if (place && asprintf(&link, "%s/" RUN_LATEST, place) >= 0)
        path = realpath(link, NULL);
    free(link);
    free(place);
    return path;
}

int run_place_latest(const char *recording, struct err *err)
{
    char *place = run_place(false, err), *link = NULL, *fresh = NULL;
    if (!place)
        return err->code;
    int code = 0;
    if (asprintf(&link, "%s/" RUN_LATEST, place) < 0 ||
        asprintf(&fresh, "%s/." RUN_LATEST "-%d", place, (int)getpid()) < 0)
        code = err_set(err, -ENOMEM, "no memory");
    const char *name = recording ? strrchr(recording, '/') : NULL;
    if (!code && !recording) {
        if (unlink(link) && errno != ENOENT)
            code = err_errno(err, "cannot remove the link %s", link);
    } else if (!code && (symlink(name ? name + 1 : recording, fresh) || rename(fresh, link))) {
        code = err_errno(err, "cannot make the link %s", link);
        unlink(fresh);
    }
    free(place);
    free(link);
    free(fresh);
    return code;
}
