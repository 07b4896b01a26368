/* See recording.h. All access goes through the directory's descriptor. */
#include "replay/recording.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file_io.h"
#include "board/description.h"
#include "replay/pack.h"
#include "virtio-gpu-log/log.h"

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

void recording_close(struct recording *r)
{
    blob_close(&r->log);
    blob_close(&r->tail);
    blob_close(&r->kept);
    if (r->dir >= 0)
        close(r->dir);
    pack_close(r->pack);
    contents_destroy(r->contents);
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

/* Images that somebody put beside it (disk_sources.h), or that came with a pack (pack_disk.h). */
static bool is_disk_name(const char *name)
{
    return (*name >= '0' && *name <= '9' && (!name[1] || !strcmp(name + 1, ".map"))) ||
           !strcmp(name, "pages");
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
                   {CHECKPOINT_DIR, is_checkpoint_name},
                   {"screens", is_screen_name},
                   {RECORDING_DISKS, is_disk_name},
                   {"checkpoints.new", is_checkpoint_name}};

static bool is_top_name(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
        if (!strcmp(name, directories[i].name))
            return true;
    return !strcmp(name, "log") || !strcmp(name, "machine.dtb") ||
           !strcmp(name, "machine.dtb.tmp") || !strcmp(name, "marks") ||
           !strcmp(name, LOG_TAIL_NAME) || !strcmp(name, "signature") ||
           !strcmp(name, "signature.tmp") || !strcmp(name, GPU_LOG_NAME) ||
           !strcmp(name, CONTENTS_NAME);
}

bool recording_name_packed(const char *name)
{
    static const char *const top[] = {"machine.dtb", "log",       LOG_TAIL_NAME, CONTENTS_NAME,
                                      GPU_LOG_NAME,  "signature", "marks"};
    size_t n = strlen(name);
    for (size_t i = 0; i < ARRAY_SIZE(top); i++)
        if (!strcmp(name, top[i]))
            return true;
    const char *below = strchr(name, '/');
    if (!below)
        return false;
    if (!strncmp(name, "files/", sizeof("files/") - 1))
        return n == sizeof("files/") - 1 + HASH_TEXT - 1 && is_hash_name(below + 1);
    return !strncmp(name, CHECKPOINT_DIR "/", sizeof(CHECKPOINT_DIR)) && strlen(below + 1) == 6 &&
           !below[1 + strspn(below + 1, "0123456789")];
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

int recording_remove(const char *path, struct err *err)
{
    struct recording r;
    int code = begin(&r, path, err);
    if (code)
        return code;
    r.dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (r.dir < 0)
        code = err_errno(err, "cannot open %s", path);
    else if (faccessat(r.dir, "machine.dtb", F_OK, 0))
        code = err_set(err, -ENOENT, "%s is not a recording: it has no machine.dtb", path);
    if (!code)
        code = empty(&r, err);
    if (!code && rmdir(path) && errno != ENOENT) /* a killed recorder's (host/outside.h) does so */
        code = err_errno(err, "cannot remove %s", path);
    recording_close(&r);
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
    int code = recording_writable(r, err);
    return code ? code : write_file(r, r->dir, name, data, size, err);
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

static bool copy(const struct blob *in, int out, u64 size)
{
    size_t room = 1u << 20;
    u8 *buf = malloc(room);
    bool good = buf;
    for (u64 at = 0; good && at < size; at += room) {
        size_t n = (size_t)MIN(size - at, (u64)room);
        good = blob_read_at(in, buf, n, at) && file_write_at(out, buf, n, at);
    }
    free(buf);
    return good;
}

/* The same out of a pack. -1: errno. */
static int unpack_file(const struct recording *from, const char *name, int to, const char *as)
{
    struct blob blob;
    struct err ignored;
    int code = recording_file(from, name, NEVER, &blob, &ignored);
    errno = -code;
    int out = code ? -1 : file_create_at(to, as);
    bool good = out >= 0 && copy(&blob, out, blob.size);
    int why = errno;
    blob_close(&blob);
    if (out >= 0 && !good) {
        close(out);
        unlinkat(to, as, 0);
        out = -1;
    }
    errno = why ? why : EIO;
    return out;
}

/* A file of `from`'s directory in `to`, a clone where the file system can: its descriptor, or -1
 * (errno). What it is is looked at by whoever reads it. */
static int clone_file(int from, int to, const char *name)
{
    struct err ignored;
    u64 size;
    int in = file_open_regular(from, name, NEVER, &size, &ignored);
    int out = in < 0 ? -1 : file_create_at(to, name);
    const struct blob blob = {.fd = in};
    bool good = out >= 0 && (!ioctl(out, FICLONE, in) || copy(&blob, out, size));
    int why = errno;
    if (in >= 0)
        close(in);
    if (out >= 0 && !good) {
        close(out);
        unlinkat(to, name, 0);
        out = -1;
    }
    errno = why;
    return out;
}

/* The same of one that nobody writes to any more: a link where the file system can. */
static int share(int from, int to, const char *name)
{
    if (!linkat(from, name, to, name, 0))
        return 0;
    int out = clone_file(from, to, name);
    if (out >= 0)
        close(out);
    return out < 0 ? -1 : 0;
}

int recording_create_contents(struct recording *r, const struct room *room, struct err *err)
{
    int fd = file_create_at(r->dir, CONTENTS_NAME);
    int code = fd < 0 ? err_errno(err, "cannot create " CONTENTS_NAME) : 0;
    if (!code)
        code = contents_create(&r->contents, fd, room, err);
    return code ? err_prefix(err, "%s", r->path) : 0;
}

int recording_follow_contents(struct recording *r, const struct recording *from,
                              const struct room *room, struct err *err)
{
    int fd = from->pack ? unpack_file(from, CONTENTS_NAME, r->dir, CONTENTS_NAME)
                        : clone_file(from->dir, r->dir, CONTENTS_NAME);
    if (fd < 0)
        return err_errno(err, "cannot copy " CONTENTS_NAME " of %s", from->path);
    int code = contents_follow(&r->contents, fd, room, err);
    return code ? err_prefix(err, "%s", r->path) : 0;
}

/* What the log goes on from; `from` NULL: it begins. */
struct follows {
    struct log_reader *from;
    const struct log_place *place;
    pos_t position;
    vns_t time;
    u64 *host_ns;
};

static int create_log(struct recording *r, struct log_writer **out, const struct follows *f,
                      struct err *err)
{
    int fd =
        openat(r->dir, "log", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, FILE_PRIVATE);
    if (fd < 0)
        return err_errno(err, "cannot create %s/log", r->path);
    if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
        close(fd);
        return err_set(err, -EBUSY, "%s is being recorded by another process", r->path);
    }
    int code = f->from ? log_writer_follow(out, fd, f->from, f->place, f->position, f->time,
                                           f->host_ns, err)
                       : log_writer_create(out, fd, err);
    if (!code && (code = log_writer_tail(*out, r->dir, err))) {
        struct err ignored;
        log_writer_close(*out, &ignored);
        err_prefix(err, "%s", r->path);
    }
    return code;
}

int recording_create_log(struct recording *r, struct log_writer **out, struct err *err)
{
    const struct follows nothing = {.from = NULL};
    return create_log(r, out, &nothing, err);
}

int recording_follow_log(struct recording *r, struct log_writer **out, struct log_reader *from,
                         const struct log_place *place, pos_t position, vns_t time, u64 *host_ns,
                         struct err *err)
{
    const struct follows f = {from, place, position, time, host_ns};
    return create_log(r, out, &f, err);
}

/* `folder`/`name` of `from`, in `to`. */
static int share_of(const struct recording *from, const char *folder, int to, const char *name)
{
    char whole[sizeof(CHECKPOINT_DIR) + HASH_TEXT];
    int out = -1;
    if (from->pack) {
        snprintf(whole, sizeof(whole), "%s/%s", folder, name);
        out = unpack_file(from, whole, to, name);
        if (out >= 0)
            close(out);
        return out < 0 ? -1 : 0;
    }
    int in = open_directory(from->dir, folder);
    int result = in < 0 ? -1 : share(in, to, name);
    if (in >= 0)
        close(in);
    return result;
}

int recording_share(struct recording *r, const struct recording *from, const struct hash128 *hash,
                    struct err *err)
{
    char name[HASH_TEXT];
    hash_text(hash, name);
    int out = open_directory(r->dir, "files");
    int code = out < 0 || share_of(from, "files", out, name)
                   ? err_errno(err, "cannot share files/%s of %s", name, from->path)
                   : 0;
    if (out >= 0)
        close(out);
    return code;
}

int recording_share_checkpoints(struct recording *r, const struct recording *from, struct err *err)
{
    char name[sizeof(CHECKPOINT_DIR) + 16] = CHECKPOINT_DIR "/000000";
    char *number = name + sizeof(CHECKPOINT_DIR);
    int code = 0;
    if (!recording_has(from, name))
        return 0;
    int out = mkdirat(r->dir, CHECKPOINT_DIR, DIRECTORY_PRIVATE)
                  ? -1
                  : open_directory(r->dir, CHECKPOINT_DIR);
    if (out < 0)
        code = err_errno(err, "cannot make %s/" CHECKPOINT_DIR, r->path);
    for (u32 n = 0; !code && recording_has(from, name); n++) {
        if (share_of(from, CHECKPOINT_DIR, out, number))
            code = err_errno(err, "cannot share the checkpoint %s of %s", number, from->path);
        snprintf(number, 16, "%06u", n + 1);
    }
    if (out >= 0)
        close(out);
    return code;
}

int recording_share_disks(struct recording *r, const struct recording *from, struct err *err)
{
    static const char *const names[] = {"pages", "0.map", "1.map", "2.map", "3.map"};
    _Static_assert(ARRAY_SIZE(names) == DESCRIPTION_DISKS + 1, "a map each");
    int code = 0, out = -1;
    for (size_t i = 0; i < ARRAY_SIZE(names) && !code; i++) {
        char name[sizeof(RECORDING_DISKS) + 16];
        snprintf(name, sizeof(name), RECORDING_DISKS "/%s", names[i]);
        if (!recording_has(from, name))
            continue;
        if (out < 0 && !mkdirat(r->dir, RECORDING_DISKS, DIRECTORY_PRIVATE))
            out = open_directory(r->dir, RECORDING_DISKS);
        if (out < 0 || share_of(from, RECORDING_DISKS, out, names[i]))
            code = err_errno(err, "cannot share %s of %s", name, from->path);
    }
    if (out >= 0)
        close(out);
    return code;
}
