/* See recording.h. All access goes through the directory's descriptor. */
#include "replay/recording.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file_io.h"
#include "board/description.h"
#include "virtio-gpu-log/log.h"

#define TAIL_MAX (1u << 24)   /* of the log's tail; a writer's ends far below */
#define KEPT_MAX (1ull << 30) /* bytes of a kernel or initrd */

struct hash128 hash_bytes(const void *data, size_t size)
{
    XXH128_hash_t h = XXH3_128bits(data, size);
    return (struct hash128){h.high64, h.low64};
}

void hash_text(const struct hash128 *hash, char out[HASH_TEXT])
{
    snprintf(out, HASH_TEXT, "%016" PRIx64 "%016" PRIx64, hash->hi, hash->lo);
}

static int begin(struct recording *r, const char *path, struct err *err)
{
    *r = (struct recording)RECORDING_CLOSED;
    r->path = strdup(path);
    return r->path ? 0 : err_set(err, -ENOMEM, "no memory");
}

static void close_found(struct recording *r)
{
    if (r->log >= 0)
        close(r->log);
    if (r->tail >= 0)
        close(r->tail);
    r->log = r->tail = -1;
}

void recording_close(struct recording *r)
{
    if (r->dir >= 0) {
        close_found(r);
        close(r->dir);
    }
    free(r->path);
    free(r->machine);
    *r = (struct recording)RECORDING_CLOSED;
}

static bool is_hash_name(const char *name)
{
    size_t n = strspn(name, "0123456789abcdef");
    return n == HASH_TEXT - 1 && (!name[n] || !strcmp(name + n, ".tmp"));
}

static bool is_checkpoint_name(const char *name)
{
    return !strcmp(name, "incomplete") || (*name && !name[strspn(name, "0123456789")]);
}

/* Images that somebody put beside it (disk_sources.h). */
static bool is_disk_name(const char *name)
{
    return *name >= '0' && *name <= '9' && !name[1];
}

/* Of --display png-every (live/display_png.c). */
static bool is_screen_name(const char *name)
{
    size_t n = strlen(name);
    return !strncmp(name, "time-", 5) && n > 4 &&
           (!strcmp(name + n - 4, ".png") || !strcmp(name + n - 4, ".tmp"));
}

/* What may lie in a recording: its directories and what may lie in those. */
static const struct {
    const char *name;
    bool (*ours)(const char *);
} directories[] = {{"files", is_hash_name},
                   {"checkpoints", is_checkpoint_name},
                   {"screens", is_screen_name},
                   {"disks", is_disk_name},
                   {"checkpoints.new", is_checkpoint_name}};

static bool is_top_name(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
        if (!strcmp(name, directories[i].name))
            return true;
    return !strcmp(name, "log") || !strcmp(name, "machine.dtb") ||
           !strcmp(name, "machine.dtb.tmp") || !strcmp(name, "marks") ||
           !strcmp(name, LOG_TAIL_NAME) || !strcmp(name, "signature") ||
           !strcmp(name, "signature.tmp") || !strcmp(name, GPU_LOG_NAME);
}

/*
 * Walks directory `fd` (which it closes). Without `remove`: is every entry one of a recording's?
 * With it: unlinks them. false: a foreign entry, named in `foreign`, or an error in errno.
 */
static bool walk(int fd, bool (*ours)(const char *), bool remove, char foreign[256])
{
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    bool ok = true;
    struct dirent *e;
    while (ok && (e = readdir(d))) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        if (!ours(e->d_name)) {
            snprintf(foreign, 256, "%s", e->d_name);
            ok = false;
        } else if (remove) {
            ok =
                !unlinkat(dirfd(d), e->d_name, 0) || ((errno == EISDIR || errno == EPERM) &&
                                                      !unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR));
        }
    }
    closedir(d);
    return ok;
}

static int open_directory(int dir, const char *name)
{
    return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Looks through, or removes what is in, the directories of a recording. */
static bool walk_directories(int dir, bool remove, char foreign[256])
{
    bool ok = true;
    for (size_t i = 0; ok && i < ARRAY_SIZE(directories); i++) {
        int fd = open_directory(dir, directories[i].name);
        ok = fd < 0 || walk(fd, directories[i].ours, remove, foreign);
    }
    return ok;
}

/* Removes the recording in r->dir but for the directory itself. */
static int empty(struct recording *r, struct err *err)
{
    char foreign[256] = "";
    int log = openat(r->dir, "log", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (log >= 0) {
        int busy = flock(log, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
        close(log);
        if (busy)
            return err_set(err, -EBUSY, "%s is being recorded by another process", r->path);
    }
    bool ok =
        walk(openat(r->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), is_top_name, false, foreign);
    ok = ok && walk_directories(r->dir, false, foreign);
    if (!ok)
        return foreign[0] ? err_set(err, -EEXIST,
                                    "%s is not only a recording (there is '%s' in it): not removed",
                                    r->path, foreign)
                          : err_errno(err, "cannot look through %s", r->path);
    /* The log goes first: what is left after a kill here is no recording any more. */
    unlinkat(r->dir, "log", 0);
    ok = walk_directories(r->dir, true, foreign) &&
         walk(openat(r->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), is_top_name, true, foreign);
    return ok ? 0 : err_errno(err, "cannot remove the recording in %s", r->path);
}

int recording_create(struct recording *r, const char *path, bool force, struct err *err)
{
    int code = begin(r, path, err);
    if (code)
        return code;
    bool existed = false;
    if (mkdir(path, DIRECTORY_PRIVATE)) {
        if (errno != EEXIST) {
            code = err_errno(err, "cannot create %s", path);
            goto fail;
        }
        existed = true;
        if (!force) {
            code = err_set(err, -EEXIST, "%s exists already; --force replaces a recording", path);
            goto fail;
        }
    }
    r->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r->dir < 0) {
        code = err_errno(err, "cannot open %s", path);
        goto fail;
    }
    if (existed && (code = empty(r, err)))
        goto fail;
    if (mkdirat(r->dir, "files", DIRECTORY_PRIVATE)) {
        code = err_errno(err, "cannot create %s/files", path);
        goto fail;
    }
    return 0;
fail:
    recording_close(r);
    return code;
}

void recording_discard(struct recording *r)
{
    struct err ignored;
    if (r->dir >= 0 && !empty(r, &ignored))
        rmdir(r->path);
    recording_close(r);
}

/* Writes `name` in one go: under a temporary name first, so that it is whole or not there. */
static int write_file(struct recording *r, int dir, const char *name, const void *data, size_t size,
                      struct err *err)
{
    char tmp[64];
    snprintf(tmp, sizeof(tmp), "%s.tmp", name);
    int fd = file_create_at(dir, tmp);
    if (fd < 0)
        return err_errno(err, "cannot create %s in %s", name, r->path);
    int code = 0;
    if (!file_write_on(fd, data, size))
        code = err_errno(err, "cannot write %s in %s", name, r->path);
    if (close(fd) && !code)
        code = err_errno(err, "cannot write %s in %s", name, r->path);
    if (!code && renameat(dir, tmp, dir, name))
        code = err_errno(err, "cannot rename %s in %s", tmp, r->path);
    if (code)
        unlinkat(dir, tmp, 0);
    return code;
}

int recording_write_file(struct recording *r, const char *name, const void *data, size_t size,
                         struct err *err)
{
    return write_file(r, r->dir, name, data, size, err);
}

int recording_keep(struct recording *r, const void *data, size_t size, struct hash128 *hash,
                   struct err *err)
{
    char name[HASH_TEXT];
    *hash = hash_bytes(data, size);
    hash_text(hash, name);
    int files = open_directory(r->dir, "files");
    if (files < 0)
        return err_errno(err, "cannot open %s/files", r->path);
    int code = write_file(r, files, name, data, size, err);
    close(files);
    return code;
}

int recording_write_machine(struct recording *r, const void *dtb, size_t size, struct err *err)
{
    void *copy = malloc(size);
    if (!copy)
        return err_set(err, -ENOMEM, "no memory");
    memcpy(copy, dtb, size);
    free(r->machine);
    r->machine = copy;
    r->machine_size = size;
    r->machine_hash = hash_bytes(dtb, size);
    return write_file(r, r->dir, "machine.dtb", dtb, size, err);
}

int recording_create_gpu_log(struct recording *r, int *fd, struct err *err)
{
    *fd = openat(r->dir, GPU_LOG_NAME, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                 FILE_PRIVATE);
    return *fd < 0 ? err_errno(err, "cannot create %s/" GPU_LOG_NAME, r->path) : 0;
}

int recording_create_log(struct recording *r, struct log_writer **out, struct err *err)
{
    int fd =
        openat(r->dir, "log", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, FILE_PRIVATE);
    if (fd < 0)
        return err_errno(err, "cannot create %s/log", r->path);
    if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
        close(fd);
        return err_set(err, -EBUSY, "%s is being recorded by another process", r->path);
    }
    int code = log_writer_create(out, fd, err);
    if (!code && (code = log_writer_tail(*out, r->dir, err))) {
        struct err ignored;
        log_writer_close(*out, &ignored);
        err_prefix(err, "%s", r->path);
    }
    return code;
}

/* Reads the whole of a regular file of at most `max` bytes. */
static int read_file(const struct recording *r, int dir, const char *name, u64 max, void **data,
                     size_t *size, struct err *err)
{
    u64 bytes = 0;
    int fd = file_open_regular(dir, name, max, &bytes, err);
    if (fd < 0)
        return err_prefix(err, "%s", r->path);
    int code = 0;
    void *buf = malloc(bytes + 1);
    if (!buf)
        code = err_set(err, -ENOMEM, "no memory for %s in %s", name, r->path);
    else if (!file_read_at(fd, buf, bytes, 0))
        code = errno ? err_errno(err, "cannot read %s in %s", name, r->path)
                     : err_set(err, -EIO, "%s in %s became shorter", name, r->path);
    close(fd);
    if (code) {
        free(buf);
        return code;
    }
    *data = buf;
    *size = bytes;
    return 0;
}

int recording_open(struct recording *r, const char *path, struct err *err)
{
    int code = begin(r, path, err);
    if (code)
        return code;
    r->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r->dir < 0) {
        code = err_errno(err, "cannot open the recording %s", path);
    } else if (faccessat(r->dir, "machine.dtb", F_OK, 0)) {
        code = err_set(err, -ENOENT, "%s is not a recording: it has no machine.dtb", path);
    } else if (faccessat(r->dir, "log", F_OK, 0)) {
        code =
            err_set(err, -ENOENT, "%s has no log: its recorder ended before the machine ran", path);
    } else {
        code = read_file(r, r->dir, "machine.dtb", DESCRIPTION_MAX_SIZE, &r->machine,
                         &r->machine_size, err);
        if (!code)
            r->machine_hash = hash_bytes(r->machine, r->machine_size);
    }
    if (code)
        recording_close(r);
    return code;
}

int recording_find_log(struct recording *r, struct err *err)
{
    close_found(r);
    int fd = file_open_regular(r->dir, "log", NEVER, NULL, err);
    if (fd < 0)
        return err_prefix(err, "%s", r->path);
    r->log = fd;
    if (flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK) {
        close_found(r);
        return err_set(err, -EBUSY, "%s is still being recorded", r->path);
    }
    fd = file_open_regular(r->dir, LOG_TAIL_NAME, TAIL_MAX, NULL, err);
    if (fd < 0 && fd != -ENOENT) {
        close_found(r);
        return err_prefix(err, "%s", r->path);
    }
    r->tail = MAX(fd, -1);
    return 0;
}

int recording_open_log(struct recording *r, struct log_reader **out, struct err *err)
{
    struct log_reader *log;
    int code = r->log < 0 ? recording_find_log(r, err) : 0;
    if (code)
        return code;
    int fd = r->log;
    r->log = -1;
    code = log_reader_create(&log, fd, err);
    if (code)
        return err_prefix(err, "%s/log", r->path);
    if (r->tail >= 0)
        log_reader_tail(log, r->tail);
    r->tail = -1;
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
    *out = log;
    return 0;
}

int recording_load(const struct recording *r, const struct hash128 *hash, u64 size,
                   const char *what, void **data, struct err *err)
{
    char name[HASH_TEXT];
    size_t got_size;
    hash_text(hash, name);
    *data = NULL;
    if (size > KEPT_MAX)
        return err_set(err, -EFBIG, "the recording's %s is said to have %llu bytes, more than %llu",
                       what, (unsigned long long)size, (unsigned long long)KEPT_MAX);
    int files = open_directory(r->dir, "files");
    if (files < 0)
        return err_errno(err, "cannot open %s/files", r->path);
    int code = read_file(r, files, name, size, data, &got_size, err);
    close(files);
    if (code)
        return err_prefix(err, "the recording's %s", what);
    struct hash128 got = hash_bytes(*data, got_size);
    if (got_size == size && hash_equal(&got, hash))
        return 0;
    free(*data);
    *data = NULL;
    return err_set(err, -EINVAL, "the recording's %s (%s/files/%s) was changed or damaged", what,
                   r->path, name);
}
