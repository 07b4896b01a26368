/* See place.h. */
#define _GNU_SOURCE /* asprintf */
#include "cmd/hunt/place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file_io.h"
#include "replay/recording.h"

#define LOCK        "lock"
#define LOCK_TRIES  20 /* of 100 ms: the runs of a hunt that was killed just now end first */
#define CLEAN_TRIES 20 /* of 100 ms: a recorder whose run was ended ends its recording first */
#define REC         "rec"
#define NAME_MAX_   128
#define RUNS_BEFORE 1000000u /* directories that are looked at, at most */

static int lock(struct hunt_place *p, struct err *err)
{
    static const struct timespec moment = {.tv_nsec = 100000000};
    p->lock = openat(p->dir, LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, FILE_PRIVATE);
    if (p->lock < 0)
        return err_errno(err, "cannot open %s/" LOCK, p->path);
    for (unsigned i = 0; flock(p->lock, LOCK_EX | LOCK_NB); i++) {
        if (errno != EWOULDBLOCK)
            return err_errno(err, "cannot lock %s/" LOCK, p->path);
        if (i == LOCK_TRIES)
            return err_set(err, -EBUSY,
                           "another hunt goes on in %s; -o names another directory for this one",
                           p->path);
        nanosleep(&moment, NULL);
    }
    return 0;
}

/* A directory that is no hunt's is not written into. */
static int check_contents(const struct hunt_place *p, struct err *err)
{
    struct stat st;
    if (!fstatat(p->dir, HUNT_STATE, &st, AT_SYMLINK_NOFOLLOW) ||
        !fstatat(p->dir, LOCK, &st, AT_SYMLINK_NOFOLLOW))
        return 0;
    int fd = openat(p->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    bool empty = d;
    for (struct dirent *e; d && (e = readdir(d));)
        empty = empty && (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."));
    if (d)
        closedir(d);
    else if (fd >= 0)
        close(fd);
    return empty ? 0
                 : err_set(err, -EEXIST,
                           "%s holds something else than a hunt; -o names another directory",
                           p->path);
}

int hunt_place_open(struct hunt_place *p, const char *path, bool locks, struct err *err)
{
    *p = HUNT_PLACE_CLOSED;
    if (mkdir(path, DIRECTORY_PRIVATE) && errno != EEXIST)
        return err_errno(err, "cannot make the directory %s", path);
    p->path = realpath(path, NULL);
    if (!p->path)
        return err_errno(err, "cannot find %s", path);
    p->dir = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (p->dir < 0)
        return err_errno(err, "cannot open the directory %s", path);
    int code = check_contents(p, err);
    return code || !locks ? code : lock(p, err);
}

void hunt_place_close(struct hunt_place *p)
{
    free(p->path);
    if (p->dir >= 0)
        close(p->dir);
    if (p->lock >= 0)
        close(p->lock);
    *p = HUNT_PLACE_CLOSED;
}

/* A run's directory and all that can be in it. */
static void drop(const struct hunt_place *p, const char *name)
{
    static const char *const files[] = {"out", "err", HUNT_RESULT, "." HUNT_RESULT ".new"};
    struct err ignored;
    char *rec = NULL;
    if (asprintf(&rec, "%s/%s/" REC, p->path, name) < 0)
        return;
    int code = access(rec, F_OK) ? 0 : recording_remove(rec, &ignored);
    free(rec);
    if (code)
        return;
    int dir = openat(p->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    for (size_t i = 0; dir >= 0 && i < ARRAY_SIZE(files); i++)
        unlinkat(dir, files[i], 0);
    if (dir >= 0)
        close(dir);
    unlinkat(p->dir, name, AT_REMOVEDIR);
}

/* Names that begin so, in any order; NULL: none, or no memory. */
static char **list(const struct hunt_place *p, const char *prefix, size_t *n)
{
    char **names = NULL;
    *n = 0;
    int fd = openat(p->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0)
        close(fd);
    for (struct dirent *e; d && *n < RUNS_BEFORE && (e = readdir(d));) {
        if (strncmp(e->d_name, prefix, strlen(prefix)))
            continue;
        char **more = realloc(names, (*n + 1) * sizeof(*names)), *name = strdup(e->d_name);
        names = more ? more : names;
        if (!more || !name) {
            free(name);
            break;
        }
        names[(*n)++] = name;
    }
    if (d)
        closedir(d);
    return names;
}

static void free_list(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

void hunt_place_clean(const struct hunt_place *p)
{
    static const struct timespec moment = {.tv_nsec = 100000000};
    size_t n = 1;
    for (unsigned tries = 0; n && tries < CLEAN_TRIES; tries++) {
        if (tries)
            nanosleep(&moment, NULL);
        char **names = list(p, HUNT_RUN, &n);
        for (size_t i = 0; i < n; i++)
            drop(p, names[i]);
        free_list(names, n);
    }
}

bool hunt_place_is_done(const struct hunt_place *p, u64 run)
{
    char name[NAME_MAX_];
    struct stat st;
    snprintf(name, sizeof(name), HUNT_DONE "%" PRIu64 "/" HUNT_RESULT, run);
    return !fstatat(p->dir, name, &st, AT_SYMLINK_NOFOLLOW);
}

char *hunt_place_kept(const struct hunt_place *p, const struct hunt_state *s,
                      const struct hunt_kind *k)
{
    char *path = NULL;
    return asprintf(&path, "%s/seed-%" PRIu64, p->path, s->seed + k->first) < 0 ? NULL : path;
}

/* What a run that failed said last. */
static void read_why(int dir, char *why, size_t size)
{
    char buf[2048];
    int fd = openat(dir, "err", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    ssize_t n = fd < 0 ? 0 : pread(fd, buf, sizeof(buf), MAX(end - (off_t)sizeof(buf), 0));
    size_t len = n > 0 ? (size_t)n : 0;
    while (len && (buf[len - 1] == '\n' || buf[len - 1] == '\r'))
        len--;
    size_t begin = len;
    while (begin && buf[begin - 1] != '\n')
        begin--;
    if (len - begin > 9 && !memcmp(buf + begin, "reprise: ", 9))
        begin += 9;
    snprintf(why, size, "%.*s", (int)(len - begin), buf + begin);
    if (!*why)
        snprintf(why, size, "it said nothing");
    if (fd >= 0)
        close(fd);
}

/* The recording of a kind's first run takes the place of one that came before it. *old: that one,
 * for later. */
static int keep(const struct hunt_place *p, struct hunt_state *s, struct hunt_kind *k, u64 run,
                const char *name, char **old, struct err *err)
{
    struct hunt_kind fresh = {.first = run};
    char *from = NULL, *to = hunt_place_kept(p, s, &fresh);
    int code = !to || asprintf(&from, "%s/%s/" REC, p->path, name) < 0
                   ? err_set(err, -ENOMEM, "no memory")
                   : 0;
    /* Killed between this and the next line of the state: it is there already. */
    if (!code && rename(from, to) && (errno != ENOENT || access(to, F_OK)))
        code = err_errno(err, "cannot keep %s", from);
    if (!code) {
        *old = k->kept && k->first != run ? hunt_place_kept(p, s, k) : NULL;
        k->kept = true;
        k->first = run;
    }
    free(from);
    free(to);
    return code;
}

/* What the result says, put into the state. */
static int merge(const struct hunt_place *p, struct hunt_state *s, const struct hunt_state *one,
                 u64 run, const char *name, char **old, struct err *err)
{
    if (one->nkinds > 1 || one->ndone != 1 || one->done[0].first != run || one->done[0].last != run)
        return err_set(err, -EINVAL, "%s/" HUNT_RESULT " is no result of that run", name);
    int code = hunt_state_done(s, run, err);
    if (code || !one->nkinds) {
        s->failed += !code;
        return code;
    }
    struct hunt_kind *k = hunt_state_count(s, one->kinds[0].text, one->kinds[0].found, run);
    if (!k)
        return err_set(err, -ENOMEM, "no memory");
    if (k->found && (k->count == 1 || run < k->first))
        return keep(p, s, k, run, name, old, err);
    k->first = MIN(k->first, run);
    return 0;
}

int hunt_place_take(const struct hunt_place *p, struct hunt_state *s, u64 run, char *why,
                    size_t size, struct err *err)
{
    char name[NAME_MAX_], *old = NULL;
    struct hunt_state one = {0};
    struct err ignored;
    *why = 0;
    snprintf(name, sizeof(name), HUNT_DONE "%" PRIu64, run);
    int dir = openat(p->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int code = dir < 0 ? err_errno(err, "cannot open %s/%s", p->path, name)
                       : hunt_state_read(&one, dir, HUNT_RESULT, err);
    if (!code && hunt_state_has(s, run)) { /* it came twice */
        drop(p, name);
    } else if (!code) {
        code = merge(p, s, &one, run, name, &old, err);
        if (!code && one.failed)
            read_why(dir, why, size);
        if (!code)
            code = hunt_state_write(s, p->dir, HUNT_STATE, err);
        if (!code)
            drop(p, name);
        if (!code && old)
            recording_remove(old, &ignored);
    }
    free(old);
    hunt_state_free(&one);
    if (dir >= 0)
        close(dir);
    return code;
}

void hunt_place_each_done(const struct hunt_place *p, void (*take)(struct hunt *h, u64 run),
                          struct hunt *h)
{
    size_t n;
    char **names = list(p, HUNT_DONE, &n);
    for (size_t i = 0; i < n; i++) {
        char *end;
        u64 run = strtoull(names[i] + strlen(HUNT_DONE), &end, 10);
        if (!*end && run < HUNT_RUNS_MAX && hunt_place_is_done(p, run))
            take(h, run);
    }
    free_list(names, n);
}
