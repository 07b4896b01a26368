/* See checkpoint_notes.h. */
#include "replay/checkpoint_notes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "replay/opened.h"
#include "replay/private_dir.h"

#define FOLDER "checkpoints"
#define LINE   SHA256_TEXT /* with its newline */

/* ---- links ---- */

static int add_kept(const struct recording *r, const u8 *name, u64 size, const char *what,
                    struct sha256 *out, struct err *err)
{
    struct hash128 h = description_hash128(name);
    void *data;
    int code = recording_load(r, &h, size, what, &data, err);
    if (code)
        return code;
    *out = sha256_bytes(data, size);
    free(data);
    return 0;
}

int checkpoint_root(const struct recording *r, const struct machine_description *d,
                    struct sha256 *out, struct err *err)
{
    struct sha256 part[3] = {sha256_bytes(r->machine, r->machine_size)};
    int code = add_kept(r, d->kernel_hash, d->kernel_size, "kernel", &part[1], err);
    if (!code && d->initrd_size)
        code = add_kept(r, d->initrd_hash, d->initrd_size, "initrd", &part[2], err);
    *out = sha256_bytes(part, sizeof(part));
    return code;
}

struct sha256 checkpoint_link(const struct sha256 *before, const struct sha256 *log,
                              const struct sha256 *file)
{
    const struct sha256 part[] = {*before, *log, *file};
    return sha256_bytes(part, sizeof(part));
}

/* ---- the text ---- */

static int by_bytes(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct sha256));
}

/* What is no line, as a killed writer leaves it, is passed over. -ENOMEM. */
static int parse(struct checkpoint_notes *n, const char *text, size_t size)
{
    n->known = calloc(size / LINE + 1, sizeof(*n->known));
    n->n = 0;
    if (!n->known)
        return -ENOMEM;
    for (const char *at = text, *end; (end = memchr(at, '\n', size - (size_t)(at - text)));
         at = end + 1)
        if (end - at == LINE - 1 && sha256_parse(at, &n->known[n->n]))
            n->n++;
    qsort(n->known, n->n, sizeof(*n->known), by_bytes);
    return 0;
}

bool checkpoint_noted(const struct checkpoint_notes *n, const struct sha256 *link)
{
    return n->n && bsearch(link, n->known, n->n, sizeof(*n->known), by_bytes);
}

/* ---- the file ---- */

static int open_notes(const struct recording *r, bool add, char *path, size_t room, struct err *err)
{
    char name[SHA256_TEXT];
    struct sha256 identity = sha256_bytes(r->machine, r->machine_size);
    int flags = add ? O_RDWR | O_CREAT | O_APPEND : O_RDONLY;
    int dir = private_open(FOLDER, add, path, room, err);
    if (dir < 0)
        return -1;
    sha256_text(&identity, name);
    size_t n = strlen(path);
    int fd = openat(dir, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, FILE_PRIVATE);
    if ((size_t)snprintf(path + n, room - n, "/%s", name) >= room - n)
        path[n] = 0;
    if (fd < 0)
        err_errno(err, "cannot open %s", path);
    else if (add)
        private_prune(dir, CHECKPOINT_NOTES_KEPT);
    close(dir);
    if (fd >= 0 && private_check(fd, path, err)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* All of it, malloc'ed; of one that is too large the end. */
static char *read_all(int fd, size_t *size, const char *path, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st)) {
        err_errno(err, "cannot look at %s", path);
        return NULL;
    }
    u64 all = (u64)st.st_size,
        from = all > 2 * CHECKPOINT_NOTES_FULL ? all - CHECKPOINT_NOTES_FULL : 0;
    *size = (size_t)(all - from);
    char *text = malloc(*size + 1);
    if (!text) {
        err_set(err, -ENOMEM, "no memory");
    } else if (!file_read_at(fd, text, *size, from)) {
        err_errno(err, "cannot read %s", path);
        free(text);
        return NULL;
    }
    return text;
}

/* A file that became large loses its older half, unless somebody is adding to it now. */
static void shorten(int fd, const char *text, size_t size)
{
    if (size <= CHECKPOINT_NOTES_FULL || flock(fd, LOCK_EX | LOCK_NB))
        return;
    const char *from = memchr(text + size / 2, '\n', size - size / 2);
    if (from && !ftruncate(fd, 0)) { /* O_APPEND */
        size_t left = size - (size_t)(from + 1 - text);
        if (write(fd, from + 1, left) != (ssize_t)left)
            return; /* notes are lost, which costs a check */
    }
}

static int load(struct checkpoint_notes *n, const struct recording *r, bool add, struct err *err)
{
    char path[4096];
    size_t size = 0;
    *n = (struct checkpoint_notes)CHECKPOINT_NOTES_NONE;
    int fd = open_notes(r, add, path, sizeof(path), err);
    if (fd < 0)
        return err->code;
    char *text = read_all(fd, &size, path, err);
    int code = text ? 0 : err->code;
    if (!code && parse(n, text, size))
        code = err_set(err, -ENOMEM, "no memory");
    if (!code && add) {
        shorten(fd, text, size);
        flock(fd, LOCK_SH | LOCK_NB);
        if (size && text[size - 1] != '\n' && write(fd, "\n", 1) != 1)
            code = err_errno(err, "cannot write %s", path);
    }
    futimens(fd, NULL); /* it was used */
    free(text);
    if (add && !code)
        n->fd = fd;
    else
        close(fd);
    return code;
}

int checkpoint_notes_read(struct checkpoint_notes *n, const struct recording *r, struct err *err)
{
    return load(n, r, false, err);
}

int checkpoint_notes_begin(struct checkpoint_notes *n, const struct recording *r, struct err *err)
{
    return load(n, r, true, err);
}

int checkpoint_note(struct checkpoint_notes *n, const struct sha256 *link, struct err *err)
{
    char line[LINE + 1];
    sha256_text(link, line);
    line[LINE - 1] = '\n';
    errno = 0;
    if (write(n->fd, line, LINE) == (ssize_t)LINE)
        return 0;
    if (!errno)
        errno = ENOSPC;
    return err_errno(err, "cannot write this user's notes");
}

void checkpoint_notes_close(struct checkpoint_notes *n)
{
    if (n->fd >= 0)
        close(n->fd);
    free(n->known);
    *n = (struct checkpoint_notes)CHECKPOINT_NOTES_NONE;
}
