/* See recording.h: what is read of a recording, be it a directory or a pack. */
#include "replay/recording.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "board/description.h"
#include "replay/pack.h"

#define TAIL_MAX (1u << 24)   /* of the log's tail; a writer's ends far below */
#define KEPT_MAX (1ull << 30) /* bytes of a kernel or initrd */

/* ---- the door: a file of it, by its name ---- */

/* The directory that `name` lies in, and *name without it. -1: errno. */
static int open_below(const struct recording *r, const char **name)
{
    char folder[32];
    const char *slash = strchr(*name, '/');
    size_t n = slash ? (size_t)(slash - *name) : 0;
    if (!slash)
        return fcntl(r->dir, F_DUPFD_CLOEXEC, 0);
    if (n >= sizeof(folder)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(folder, *name, n);
    folder[n] = 0;
    *name = slash + 1;
    return openat(r->dir, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int recording_file(const struct recording *r, const char *name, u64 max, struct blob *out,
                   struct err *err)
{
    *out = (struct blob)BLOB_CLOSED;
    if (r->pack) {
        int code = pack_file(r->pack, name, out, err);
        if (!code && out->size > max) {
            code = err_set(err, -EFBIG, "%s has %llu bytes, more than %llu", name,
                           (unsigned long long)out->size, (unsigned long long)max);
            blob_close(out);
        }
        return code;
    }
    int dir = open_below(r, &name);
    if (dir < 0)
        return errno == ENOENT ? err_set(err, -ENOENT, "%s is not there", name)
                               : err_errno(err, "cannot open %s", name);
    int fd = file_open_regular(dir, name, max, &out->size, err);
    close(dir);
    out->fd = MAX(fd, -1);
    return MIN(fd, 0);
}

bool recording_size(const struct recording *r, const char *name, u64 *size)
{
    struct stat st;
    struct err ignored;
    if (r->pack) {
        const struct manifest *m = pack_manifest(r->pack, &ignored);
        const struct manifest_file *f = m ? manifest_find(m, name) : NULL;
        *size = f ? f->size : 0;
        return f;
    }
    int dir = open_below(r, &name);
    bool there = dir >= 0 && !fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW);
    if (dir >= 0)
        close(dir);
    *size = there && S_ISREG(st.st_mode) ? (u64)st.st_size : 0;
    return there;
}

bool recording_has(const struct recording *r, const char *name)
{
    u64 size;
    return r->pack ? pack_has(r->pack, name) : recording_size(r, name, &size);
}

int recording_writable(const struct recording *r, struct err *err)
{
    return r->pack ? err_set(err, -EROFS,
                             "%s is packed, and stays as it is: `reprise unpack` makes a directory "
                             "of it, which can be added to and packed again",
                             r->path)
                   : 0;
}

/* Reads the whole of a file of at most `max` bytes. */
static int read_file(const struct recording *r, const char *name, u64 max, void **data,
                     size_t *size, struct err *err)
{
    struct blob blob;
    int code = recording_file(r, name, max, &blob, err);
    if (code)
        return err_prefix(err, "%s", r->path);
    void *buf = malloc(blob.size + 1);
    if (!buf)
        code = err_set(err, -ENOMEM, "no memory for %s in %s", name, r->path);
    else if (!blob_read_at(&blob, buf, blob.size, 0))
        code = err_set(err, -EIO, "cannot read %s in %s: %s", name, r->path, blob_why(&blob));
    if (code) {
        free(buf);
    } else {
        *data = buf;
        *size = blob.size;
    }
    blob_close(&blob);
    return code;
}

/* ---- opening ---- */

static int open_directory(struct recording *r, int fd, struct err *err)
{
    r->dir = fd;
    if (faccessat(r->dir, "machine.dtb", F_OK, 0))
        return err_set(err, -ENOENT, "%s is not a recording: it has no machine.dtb", r->path);
    if (faccessat(r->dir, "log", F_OK, 0))
        return err_set(err, -ENOENT, "%s has no log: its recorder ended before the machine ran",
                       r->path);
    return read_file(r, "machine.dtb", DESCRIPTION_MAX_SIZE, &r->machine, &r->machine_size, err);
}

static int open_pack(struct recording *r, int fd, struct err *err)
{
    size_t size;
    int code = pack_open(&r->pack, fd, r->path, err);
    if (code)
        return code;
    const void *machine = pack_machine(r->pack, &size);
    if (!pack_has(r->pack, "log"))
        return err_set(err, -ENOENT, "%s has no log", r->path);
    r->machine = malloc(size + 1);
    if (!r->machine)
        return err_set(err, -ENOMEM, "no memory to open %s", r->path);
    memcpy(r->machine, machine, size);
    r->machine_size = size;
    return 0;
}

int recording_open(struct recording *r, const char *path, struct err *err)
{
    struct stat st;
    *r = (struct recording)RECORDING_CLOSED;
    r->path = strdup(path);
    if (!r->path)
        return err_set(err, -ENOMEM, "no memory");
    int code, fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) {
        code = err_errno(err, "cannot open the recording %s", path);
        if (fd >= 0)
            close(fd);
    } else if (S_ISDIR(st.st_mode)) {
        code = open_directory(r, fd, err);
    } else if (S_ISREG(st.st_mode)) {
        code = open_pack(r, fd, err);
    } else {
        close(fd);
        code = err_set(err, -EINVAL, "%s is neither a directory nor a file: no recording", path);
    }
    if (code)
        recording_close(r);
    else
        r->machine_hash = hash_bytes(r->machine, r->machine_size);
    return code;
}

static void close_found(struct recording *r)
{
    blob_close(&r->log);
    blob_close(&r->tail);
    blob_close(&r->kept);
}

/* One that need not be there. */
static int find_part(struct recording *r, const char *name, u64 max, struct blob *out,
                     struct err *err)
{
    int code = recording_file(r, name, max, out, err);
    return code == -ENOENT ? 0 : code;
}

static int find_parts(struct recording *r, struct err *err)
{
    int code = recording_file(r, "log", NEVER, &r->log, err);
    if (!code && r->log.fd >= 0 && flock(r->log.fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK)
        return err_set(err, -EBUSY, "%s is still being recorded", r->path);
    if (!code)
        code = find_part(r, LOG_TAIL_NAME, TAIL_MAX, &r->tail, err);
    if (!code)
        code = find_part(r, CONTENTS_NAME, NEVER, &r->kept, err);
    return code ? err_prefix(err, "%s", r->path) : 0;
}

int recording_find_log(struct recording *r, struct err *err)
{
    close_found(r);
    /* Of a pack nothing needs a name later, and nothing is unpacked before the door. */
    int code = r->pack ? 0 : find_parts(r, err);
    if (code)
        close_found(r);
    return code;
}

int recording_open_log(struct recording *r, struct log_reader **out, struct err *err)
{
    struct log_reader *log;
    int code = blob_is_open(&r->log) ? 0 : find_parts(r, err);
    if (code) {
        close_found(r);
        return code;
    }
    code = log_reader_open(&log, r->log, err);
    r->log = (struct blob)BLOB_CLOSED;
    if (code)
        return err_prefix(err, "%s/log", r->path);
    if (blob_is_open(&r->tail))
        log_reader_tail(log, r->tail);
    r->tail = (struct blob)BLOB_CLOSED;
    /* A log of another machine would diverge at once; say why instead. */
    struct record rec;
    bool started = log_next(log, &rec);
    if (!started)
        code = err_set(err, -EINVAL, "%s/log holds no whole chunk: %s", r->path,
                       log_damage(log)->text);
    else if (!hash_equal(&rec.start.machine, &r->machine_hash))
        code = err_set(err, -EINVAL,
                       "%s/machine.dtb is damaged or belongs to another recording: its hash is not "
                       "the one in the log",
                       r->path);
    if (code) {
        log_reader_destroy(log);
        return code;
    }
    log_rewind(log);
    if (blob_is_open(&r->kept) && !r->contents) {
        code = contents_open(&r->contents, r->kept, err);
        r->kept = (struct blob)BLOB_CLOSED;
        if (code) {
            log_reader_destroy(log);
            return code;
        }
    }
    *out = log;
    return 0;
}

int recording_load(const struct recording *r, const struct hash128 *hash, u64 size,
                   const char *what, void **data, struct err *err)
{
    char text[HASH_TEXT], name[sizeof("files/") + HASH_TEXT];
    size_t got_size;
    hash_text(hash, text);
    snprintf(name, sizeof(name), "files/%s", text);
    *data = NULL;
    if (size > KEPT_MAX)
        return err_set(err, -EFBIG, "the recording's %s is said to have %llu bytes, more than %llu",
                       what, (unsigned long long)size, (unsigned long long)KEPT_MAX);
    int code = read_file(r, name, size, data, &got_size, err);
    if (code)
        return err_prefix(err, "the recording's %s", what);
    struct hash128 got = hash_bytes(*data, got_size);
    if (got_size == size && hash_equal(&got, hash))
        return 0;
    free(*data);
    *data = NULL;
    return err_set(err, -EINVAL, "the recording's %s (%s/files/%s) was changed or damaged", what,
                   r->path, text);
}
