#define _GNU_SOURCE
/* See run_base.h. */
#include "cmd/apart.h"
#include "cmd/run_base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "guest-agent/agent/protocol.h"
#include "base/file_io.h"
#include "board/description.h"
#include "cmd/installed.h"
#include "cmd/run_place.h"
#include "replay/recording.h"
#include "version.h"

#define READY   "reprise-agent: ready"
#define SECONDS "300" /* in which it is there, on a very slow host */

/* What a file is, without a look into it. */
static int add_file(XXH3_state_t *x, const char *dir, const char *name, struct err *err)
{
    char *path;
    struct stat st;
    if (asprintf(&path, "%s/%s", dir, name) < 0)
        return err_set(err, -ENOMEM, "no memory");
    int code = stat(path, &st) ? err_errno(err, "cannot look at %s", path) : 0;
    if (!code) {
        const u64 is[] = {st.st_dev, st.st_ino, (u64)st.st_size, (u64)st.st_mtim.tv_sec,
                          (u64)st.st_mtim.tv_nsec};
        XXH3_64bits_update(x, is, sizeof(is));
    }
    free(path);
    return code;
}

static int hash_of(const struct run_machine *m, const char *image, u64 *out, struct err *err)
{
    XXH3_state_t *x = XXH3_createState();
    char text[256 + CPU_TEXT];
    if (!x)
        return err_set(err, -ENOMEM, "no memory");
    XXH3_64bits_reset(x);
    int n = snprintf(text, sizeof(text), "%s %d %u %s %s %" PRIu64 " %s", REPRISE_VERSION,
                     DESCRIPTION_REVISION, AGENT_VERSION, m->memory, m->cpu, m->cpus, m->gpu);
    XXH3_64bits_update(x, text, MIN((size_t)n, sizeof(text) - 1));
    int code = add_file(x, image, "vmlinuz", err);
    if (!code)
        code = add_file(x, image, "initrd", err);
    *out = XXH3_64bits_digest(x);
    XXH3_freeState(x);
    return code;
}

static int make(const struct run_machine *m, const char *image, const char *path, struct err *err)
{
    char *kernel = NULL, *initrd = NULL, *fresh = NULL, cpus[24];
    int code = 0;
    snprintf(cpus, sizeof(cpus), "%" PRIu64, m->cpus);
    if (asprintf(&kernel, "%s/vmlinuz", image) < 0 || asprintf(&initrd, "%s/initrd", image) < 0 ||
        asprintf(&fresh, "%s.new", path) < 0)
        return err_set(err, -ENOMEM, "no memory");
    const char *argv[] = {"reprise record",
                          "--force",
                          "-o",
                          fresh,
                          "--engine", /* whoever begins in it counts instructions */
                          "dbt",
                          "--kernel",
                          kernel,
                          "--initrd",
                          initrd,
                          "--memory",
                          m->memory,
                          "--share",
                          RUN_SHARE,
                          "--port",
                          AGENT_PORT "=none",
                          "--net",
                          "unplugged",
                          "--append",
                          "quiet",
                          "--stop-at",
                          READY,
                          "--checkpoint-end",
                          "--timeout",
                          SECONDS,
                          "--cpus",
                          cpus,
                          "--gpu",
                          m->gpu,
                          *m->cpu ? "--cpu" : NULL,
                          m->cpu,
                          NULL};
    fprintf(stderr, "reprise: making the machine that programs run in, once\n");
    int ended = apart_record_quietly(argv, true, NULL);
    if (ended)
        code = err_set(err, -EIO, "the machine that programs run in cannot be made (exit code %d)",
                       ended);
    /* Nobody begins in one that is being put in the place of another: whoever did has its files. */
    char *old = NULL;
    if (!code && !access(path, F_OK)) {
        if (asprintf(&old, "%s.old-%d", path, (int)getpid()) < 0 || rename(path, old))
            code = err_errno(err, "cannot move %s away", path);
    }
    if (!code && rename(fresh, path))
        code = err_errno(err, "cannot rename %s", fresh);
    free(old);
    free(kernel);
    free(initrd);
    free(fresh);
    return code;
}

/* ---- those that nobody wants any more ---- */

#define DIGITS 16u /* of KEY */
#define KEPT   8u  /* machines, the one in use among them */

enum kind { NOT_OURS, MACHINE, REPLACED };

static enum kind kind_of(const char *name)
{
    if (strncmp(name, "run-", 4) || strspn(name + 4, "0123456789abcdef") != DIGITS)
        return NOT_OURS;
    const char *rest = name + 4 + DIGITS;
    return !*rest ? MACHINE : strncmp(rest, ".old-", 5) ? NOT_OURS : REPLACED;
}

/* Whatever began in it has links to what it needs. That one cannot be removed hurts nobody. */
static void drop(const char *dir, const char *name)
{
    struct err ignored = {0};
    char *path = NULL;
    if (asprintf(&path, "%s/%s", dir, name) < 0)
        return;
    recording_remove(path, &ignored);
    free(path);
    if (kind_of(name) == MACHINE && asprintf(&path, "%s/%s.lock", dir, name) >= 0) {
        unlink(path);
        free(path);
    }
}

/* When it was begun in last: run_base() says so in the directory's time. */
static u64 used(int dir, const char *name)
{
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW)
               ? 0
               : (u64)st.st_mtim.tv_sec * 1000000000u + (u64)st.st_mtim.tv_nsec;
}

/* Those that were replaced, and of the others the one that nobody has used for longest, if they are
 * too many: one comes at a time. */
static void prune(const char *dir, const char *mine)
{
    char oldest[4 + DIGITS + 1] = "";
    u64 since = UINT64_MAX;
    unsigned n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        enum kind kind = kind_of(e->d_name);
        if (kind == REPLACED)
            drop(dir, e->d_name);
        if (kind != MACHINE)
            continue;
        n++;
        if (strcmp(e->d_name, mine) != 0 && used(dirfd(d), e->d_name) < since) {
            since = used(dirfd(d), e->d_name);
            memcpy(oldest, e->d_name, sizeof(oldest));
        }
    }
    if (d)
        closedir(d);
    if (n > KEPT)
        drop(dir, oldest);
}

char *run_base(const struct run_machine *m, bool anew, struct err *err)
{
    u64 key;
    char *image = installed_image("run", err),
         *dir = image ? run_home("XDG_CACHE_HOME", ".cache", "", true, err) : NULL, *path = NULL,
         *lock = NULL;
    int code = dir ? hash_of(m, image, &key, err) : err->code, fd = -1;
    if (!code && (asprintf(&path, "%s/run-%016" PRIx64, dir, key) < 0 ||
                  asprintf(&lock, "%s.lock", path) < 0))
        code = err_set(err, -ENOMEM, "no memory");
    if (!code && (anew || access(path, F_OK))) {
        fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, FILE_PRIVATE);
        if (fd < 0 || flock(fd, LOCK_EX))
            code = err_errno(err, "cannot lock %s", lock);
        else if (anew || access(path, F_OK)) /* nobody made it meanwhile */
            code = make(m, image, path, err);
        if (!code)
            prune(dir, strrchr(path, '/') + 1);
    }
    if (!code)
        utimensat(AT_FDCWD, path, NULL, 0);
    if (fd >= 0)
        close(fd);
    free(image);
    free(dir);
    free(lock);
    if (!code)
        return path;
    free(path);
    return NULL;
}
