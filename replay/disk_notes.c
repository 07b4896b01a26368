/* See disk_notes.h: the text, and who may have written it. */
#include "replay/disk_notes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"

#define HEAD     "reprise disks 1\n"
#define LINE_MAX 4096u /* three bytes for each of a name, and the numbers */
#define TEXT_MAX (sizeof(HEAD) + DESCRIPTION_DISKS * LINE_MAX)

/* ---- the text: a line for each disk, NAME=VALUE for each row, in this order ---- */

enum kind { KIND_TEXT, KIND_U32, KIND_U64 };

static const struct row {
    const char *name;
    enum kind kind;
    u32 offset, size;
} rows[] = {
#define ROW(name, kind, field)                                                                     \
    {                                                                                              \
        name, kind, offsetof(struct disk_note, field), sizeof(((struct disk_note *)0)->field)      \
    }
    ROW("file", KIND_TEXT, file),          ROW("format", KIND_TEXT, format),
    ROW("backing", KIND_U32, backing),     ROW("timeout", KIND_U32, timeout),
    ROW("bytes", KIND_U64, stamp.bytes),   ROW("modified", KIND_U64, stamp.modified),
    ROW("device", KIND_U64, stamp.device), ROW("inode", KIND_U64, stamp.inode),
};

static bool plain(u8 c)
{
    return c > ' ' && c < 127 && c != '%';
}

static void put(FILE *out, const struct disk_note *n, const struct row *r)
{
    const u8 *field = (const u8 *)n + r->offset;
    u32 v32;
    u64 v64;
    fprintf(out, " %s=", r->name);
    switch (r->kind) {
    case KIND_TEXT:
        for (; *field; field++)
            fprintf(out, plain(*field) ? "%c" : "%%%02x", *field);
        break;
    case KIND_U32:
        memcpy(&v32, field, sizeof(v32));
        fprintf(out, "%" PRIu32, v32);
        break;
    case KIND_U64:
        memcpy(&v64, field, sizeof(v64));
        fprintf(out, "%" PRIu64, v64);
        break;
    }
}

char *disk_notes_text(const struct disk_notes *notes)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    fputs(HEAD, out);
    for (unsigned i = 0; i < notes->n; i++) {
        fputs("disk", out);
        for (size_t r = 0; r < ARRAY_SIZE(rows); r++)
            put(out, &notes->disk[i], &rows[r]);
        fputc('\n', out);
    }
    if (fclose(out)) {
        free(text);
        text = NULL;
    }
    return text;
}

struct reader {
    const char *p, *end;
};

static bool word(struct reader *in, const char *text)
{
    size_t n = strlen(text);
    if ((size_t)(in->end - in->p) < n || memcmp(in->p, text, n))
        return false;
    in->p += n;
    return true;
}

static bool number(struct reader *in, u64 max, u64 *out)
{
    const char *from = in->p;
    for (*out = 0; in->p < in->end && *in->p >= '0' && *in->p <= '9'; in->p++) {
        u64 digit = (u64)(*in->p - '0');
        if (*out > (max - digit) / 10)
            return false;
        *out = *out * 10 + digit;
    }
    return in->p > from && !(*from == '0' && in->p > from + 1);
}

static int nibble(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One spelling only: what needs no escape has none. */
static bool text_value(struct reader *in, char *out, size_t room)
{
    size_t n = 0;
    for (; in->p < in->end && *in->p != ' ' && *in->p != '\n'; n++) {
        u8 c = (u8)*in->p++;
        if (c == '%') {
            int high = in->end - in->p >= 2 ? nibble(in->p[0]) : -1;
            int low = high >= 0 ? nibble(in->p[1]) : -1;
            if (low < 0)
                return false;
            c = (u8)(high << 4 | low);
            in->p += 2;
            if (!c || plain(c))
                return false;
        } else if (!plain(c)) {
            return false;
        }
        if (n + 1 >= room)
            return false;
        out[n] = (char)c;
    }
    out[n] = 0;
    return n;
}

static bool get(struct reader *in, struct disk_note *n, const struct row *r)
{
    u8 *field = (u8 *)n + r->offset;
    u64 v64;
    if (!word(in, " ") || !word(in, r->name) || !word(in, "="))
        return false;
    if (r->kind == KIND_TEXT)
        return text_value(in, (char *)field, r->size);
    if (!number(in, r->kind == KIND_U32 ? UINT32_MAX : UINT64_MAX, &v64))
        return false;
    u32 v32 = (u32)v64;
    memcpy(field, r->kind == KIND_U32 ? (void *)&v32 : (void *)&v64, r->size);
    return true;
}

static bool makes_sense(const struct disk_note *n)
{
    bool uri = !strcmp(n->format, "nbd");
    return n->backing <= 1 && (uri || (n->file[0] == '/' && disk_format_driver(n->format)));
}

int disk_notes_parse(const char *text, size_t size, struct disk_notes *notes, struct err *err)
{
    struct reader in = {text, text + size};
    *notes = (struct disk_notes){.n = 0};
    bool good = word(&in, HEAD);
    while (good && in.p < in.end) {
        struct disk_note *n = &notes->disk[notes->n];
        good = notes->n < DESCRIPTION_DISKS && word(&in, "disk");
        for (size_t r = 0; good && r < ARRAY_SIZE(rows); r++)
            good = get(&in, n, &rows[r]);
        good = good && word(&in, "\n") && makes_sense(n);
        if (good)
            notes->n++;
    }
    return good && notes->n
               ? 0
               : err_set(err, -EINVAL, "line %u is not what a recorder writes", notes->n + 2);
}

/* ---- where it lies ---- */

int disk_notes_identity(const struct machine_description *d, const void *dtb, size_t size,
                        struct sha256 *out, struct err *err)
{
    if (!description_has_id(d))
        return err_set(err, -ENOENT, "the recording has no id");
    *out = sha256_bytes(dtb, size);
    return 0;
}

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

/* The directory of all notes; *path: its name. -1: *err. */
static int open_state(bool make, char *path, size_t room, struct err *err)
{
    static const struct {
        const char *name;
        bool ours; /* the rest is the user's way to it, links and all */
    } below[] = {{".local", false}, {"state", false}, {"reprise", true}, {"disks", true}};
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

/* Removes those that were not used for longest. What cannot be looked at stays. */
static void prune(int dir)
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
    if (n > DISK_NOTES_KEPT) {
        qsort(all, n, sizeof(*all), older);
        for (size_t i = 0; i < n - DISK_NOTES_KEPT; i++)
            unlinkat(dir, all[i].name, 0);
    }
    free(all);
}

/* ---- reading and writing ---- */

int disk_notes_save(const struct sha256 *identity, const struct disk_notes *notes, struct err *err)
{
    char path[4096], name[SHA256_TEXT], temporary[SHA256_TEXT + 4];
    int dir = open_state(true, path, sizeof(path), err), code = 0;
    if (dir < 0)
        return err->code;
    char *text = disk_notes_text(notes);
    sha256_text(identity, name);
    snprintf(temporary, sizeof(temporary), "%s.tmp", name);
    int fd = file_create_at(dir, temporary);
    if (!text)
        code = err_set(err, -ENOMEM, "no memory");
    else if (fd < 0)
        code = err_errno(err, "cannot create %s/%s", path, temporary);
    else if (!file_write_at(fd, text, strlen(text), 0))
        code = err_errno(err, "cannot write %s/%s", path, temporary);
    if (fd >= 0 && close(fd) && !code)
        code = err_errno(err, "cannot write %s/%s", path, temporary);
    if (!code && renameat(dir, temporary, dir, name))
        code = err_errno(err, "cannot rename %s/%s", path, temporary);
    if (code)
        unlinkat(dir, temporary, 0);
    else
        prune(dir);
    free(text);
    close(dir);
    return code;
}

int disk_notes_load(const struct sha256 *identity, struct disk_notes *notes, struct err *err)
{
    char path[4096], name[SHA256_TEXT], text[TEXT_MAX + 1];
    struct stat st;
    int dir = open_state(false, path, sizeof(path), err);
    if (dir < 0)
        return err->code;
    sha256_text(identity, name);
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int code = fd < 0 ? err_errno(err, "cannot open %s/%s", path, name) : 0;
    close(dir);
    if (code)
        return code;
    size_t n = strlen(path);
    snprintf(path + n, sizeof(path) - n, "/%s", name);
    code = check_owner(fd, path, false, err);
    if (!code && fstat(fd, &st))
        code = err_errno(err, "cannot look at %s", path);
    size_t size = code ? 0 : (size_t)st.st_size;
    if (!code && (st.st_size < 0 || size > TEXT_MAX))
        code = err_set(err, -EFBIG, "%s is too large", path);
    if (!code && !file_read_at(fd, text, size, 0))
        code = err_errno(err, "cannot read %s", path);
    if (!code) {
        code = disk_notes_parse(text, size, notes, err);
        if (code)
            err_prefix(err, "%s", path);
        else
            futimens(fd, NULL); /* it was used */
    }
    close(fd);
    return code;
}
