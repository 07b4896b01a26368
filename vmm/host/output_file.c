/* See output_file.h. Opens what the user named with an option for output. */
#define _GNU_SOURCE /* renameat2 */
#include "host/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "host/outside.h"

/* The directory and the name in it. */
static int take_apart(struct output_file *o, const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/');
    u64 salt;
    o->path = strdup(path);
    o->name = strdup(slash ? slash + 1 : path);
    char *dir = !slash          ? strdup(".")
                : slash == path ? strdup("/")
                                : strndup(path, (size_t)(slash - path));
    if (getrandom(&salt, sizeof(salt), 0) != sizeof(salt))
        salt = (u64)getpid();
    if (!o->path || !o->name || !dir ||
        asprintf(&o->temporary, "%.200s.%016" PRIx64 ".tmp", o->name, salt) < 0) {
        o->temporary = NULL;
        free(dir);
        return err_set(err, -ENOMEM, "no memory for a file's name");
    }
    o->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(dir);
    return o->dir < 0 ? err_errno(err, "cannot create %s", path) : 0;
}

int output_open_here(struct output_file *o, const char *path, bool replace, struct err *err)
{
    struct stat st;
    *o = OUTPUT_CLOSED;
    o->replace = replace;
    if (!stat(path, &st) && !S_ISREG(st.st_mode))
        return err_set(err, -EEXIST, "%s is there and not a regular file; choose another", path);
    if (!replace && !lstat(path, &st))
        return err_set(err, -EEXIST, "%s is there already; --force replaces it", path);
    int code = take_apart(o, path, err);
    int fd = code ? -1 : file_create_at(o->dir, o->temporary);
    if (!code && fd < 0)
        code = err_errno(err, "cannot create %s", path);
    if (code) { /* there is nothing to remove */
        free(o->temporary);
        o->temporary = NULL;
    }
    o->file = fd < 0 ? NULL : fdopen(fd, "w+");
    if (!code && !o->file)
        code = err_set(err, -ENOMEM, "no memory for %s", path);
    if (fd >= 0 && !o->file)
        close(fd);
    if (code)
        output_discard_here(o);
    return code;
}

int output_name_here(struct output_file *o)
{
    int r = 1;
    if (!o->replace)
        r = renameat2(o->dir, o->temporary, o->dir, o->name, RENAME_NOREPLACE);
    if (o->replace || (r && errno == EINVAL)) /* not every file system has it */
        r = renameat(o->dir, o->temporary, o->dir, o->name);
    if (r)
        return -errno;
    free(o->temporary); /* there is none any more */
    o->temporary = NULL;
    return 0;
}

void output_discard_here(struct output_file *o)
{
    if (o->file)
        fclose(o->file);
    if (o->temporary && o->dir >= 0)
        unlinkat(o->dir, o->temporary, 0);
    if (o->path && o->dir >= 0)
        close(o->dir);
    free(o->path);
    free(o->name);
    free(o->temporary);
    *o = OUTPUT_CLOSED;
}

/* ---- here, or outside ---- */

int output_open(struct output_file *o, const char *path, bool replace, struct err *err)
{
    if (outside_runs())
        return outside_create(o, path, replace, err);
    int code = output_open_here(o, path, replace, err);
    if (!code)
        outside_keep(o);
    return code;
}

int output_commit(struct output_file *o, struct err *err)
{
    int code = 0, named;
    bool there = o->outside >= 0 && outside_runs();
    if (fflush(o->file) || fsync(fileno(o->file))) {
        code = err_errno(err, "cannot write %s", o->path);
    } else if ((named = there ? outside_name(o) : output_name_here(o))) {
        errno = -named;
        code = err_errno(err, "cannot give %s its name", o->path);
    } else if (there) {
        free(o->temporary);
        o->temporary = NULL;
        o->outside = -1;
    }
    output_discard(o);
    return code;
}

void output_discard(struct output_file *o)
{
    if (o->path && o->outside >= 0 && outside_runs()) {
        outside_drop(o);
        free(o->temporary);
        o->temporary = NULL;
    } else if (o->path) {
        outside_forget(o);
    }
    output_discard_here(o);
}
