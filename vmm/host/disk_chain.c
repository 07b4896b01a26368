/* See disk_chain.h. Reads the image that it is given and, where the user allowed it, opens those
 * that it names, to look what they name. */
#define _GNU_SOURCE /* memmem, asprintf */
#include "host/disk_chain.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "host/disk_format.h"

#define NAME_MAX_BYTES 1024u
#define TEXT_BYTES     (1u << 20) /* of a description in words, as qemu reads it */

/* A name as it stands in an image, and the format that the image says it has. */
struct reference {
    char name[NAME_MAX_BYTES];
    char driver[DISK_FORMAT_MAX]; /* "": not said */
};

struct references {
    struct reference *list;
    unsigned n;
    bool failed; /* no memory, or more than there can be */
};

static void refer(struct references *r, const void *name, size_t len, const char *driver)
{
    struct reference *more = r->n < DISK_CHAIN_MAX && len < NAME_MAX_BYTES
                                 ? realloc(r->list, (r->n + 1) * sizeof(*more))
                                 : NULL;
    if (!more) {
        r->failed = true;
        return;
    }
    r->list = more;
    struct reference *one = &more[r->n++];
    *one = (struct reference){.name = ""};
    memcpy(one->name, name, len);
    snprintf(one->driver, sizeof(one->driver), "%s", driver);
}

/* As much as there is; the rest is zeros. */
static size_t get(int fd, void *out, size_t len, u64 offset)
{
    size_t done = 0;
    memset(out, 0, len);
    while (done < len && offset < (u64)INT64_MAX - len) {
        ssize_t n = pread(fd, (u8 *)out + done, len - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    return done;
}

static u64 big(const u8 *p, unsigned bytes)
{
    u64 v = 0;
    for (unsigned i = 0; i < bytes; i++)
        v = v << 8 | p[i];
    return v;
}

static u64 little(const u8 *p, unsigned bytes)
{
    u64 v = 0;
    while (bytes--)
        v = v << 8 | p[bytes];
    return v;
}

/* ---- what each format names ---- */

#define QCOW2_BACKING_FORMAT 0xe2792acau
#define QCOW2_DATA_FILE      0x44415441u
#define QCOW2_EXTERNAL_DATA  4u

static void of_qcow2(int fd, struct references *r)
{
    u8 head[104], ext[8], name[NAME_MAX_BYTES];
    char driver[DISK_FORMAT_MAX] = "";
    get(fd, head, sizeof(head), 0);
    if (memcmp(head, "QFI\xfb", 4)) /* qemu-nbd says that it is none */
        return;
    bool three = big(head + 4, 4) >= 3;
    u64 backing = big(head + 8, 8), at = three ? big(head + 100, 4) : 72;
    u32 len = (u32)big(head + 16, 4);
    bool external = three && big(head + 72, 8) & QCOW2_EXTERNAL_DATA, named = false;
    for (unsigned i = 0; i < 64; i++) {
        if (get(fd, ext, sizeof(ext), at) < sizeof(ext))
            break;
        u32 type = (u32)big(ext, 4), size = (u32)big(ext + 4, 4);
        at += sizeof(ext);
        bool ours = type == QCOW2_BACKING_FORMAT || (type == QCOW2_DATA_FILE && external);
        if (!type)
            break;
        if (ours && size >= NAME_MAX_BYTES) {
            r->failed = true;
            return;
        }
        if (ours) {
            get(fd, name, size, at);
            name[size] = 0;
        }
        if (type == QCOW2_BACKING_FORMAT)
            snprintf(driver, sizeof(driver), "%.*s", (int)sizeof(driver) - 1, (char *)name);
        if (type == QCOW2_DATA_FILE && external) {
            refer(r, name, size, "raw");
            named = true;
        }
        at += ((u64)size + 7u) & ~7ull;
    }
    if (external && !named)
        refer(r, "", 0, "raw");
    if (backing && len >= NAME_MAX_BYTES) {
        r->failed = true;
    } else if (backing) {
        get(fd, name, len, backing);
        refer(r, name, len, driver);
    }
}

#define QED_BACKING     1u
#define QED_BACKING_RAW 4u

static void of_qed(int fd, struct references *r)
{
    u8 head[64], name[NAME_MAX_BYTES];
    get(fd, head, sizeof(head), 0);
    if (memcmp(head, "QED", 4))
        return;
    u64 features = little(head + 16, 8), at = little(head + 56, 4), len = little(head + 60, 4);
    if (!(features & QED_BACKING))
        return;
    if (len >= NAME_MAX_BYTES) {
        r->failed = true;
        return;
    }
    get(fd, name, len, at);
    refer(r, name, len, features & QED_BACKING_RAW ? "raw" : "");
}

static void quoted(struct references *r, const char *from, const char *end)
{
    const char *close = from;
    while (close < end && *close != '"' && *close != '\n' && *close != '\r' && *close)
        close++;
    refer(r, from, (size_t)(close - from), "");
}

/* A description in words: `RW 8192 SPARSE "name"` in a line of its own, parentFileNameHint="name".
 */
static void of_words(const char *text, size_t len, bool extents, struct references *r)
{
    static const char hint[] = "parentFileNameHint=\"";
    static const char *const access[] = {"RW ", "RDONLY ", "NOACCESS "};
    const char *end = text + len;
    const char *parent = memmem(text, len, hint, sizeof(hint) - 1);
    if (parent)
        quoted(r, parent + sizeof(hint) - 1, end);
    for (const char *line = text; extents && line < end && !r->failed;) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        next = next ? next + 1 : end;
        for (size_t i = 0; i < ARRAY_SIZE(access); i++) {
            size_t n = strlen(access[i]);
            const char *name = memchr(line, '"', (size_t)(next - line));
            if ((size_t)(next - line) > n && !memcmp(line, access[i], n) && name)
                quoted(r, name + 1, next);
        }
        line = next;
    }
}

static void words_at(int fd, u64 offset, bool extents, struct references *r)
{
    char *text = malloc(TEXT_BYTES);
    if (text)
        of_words(text, get(fd, text, TEXT_BYTES, offset), extents, r);
    else
        r->failed = true;
    free(text);
}

/* One file with a description at sector 1, which names but the file itself unless its capacity is
 * 0; or nothing but a description. */
static void of_vmdk(int fd, struct references *r)
{
    u8 head[44];
    get(fd, head, sizeof(head), 0);
    if (!memcmp(head, "KDMV", 4)) {
        u64 sector = little(head + 28, 8);
        bool elsewhere = !little(head + 12, 8);
        words_at(fd, 512, false, r);
        if (elsewhere && sector && sector < (u64)INT64_MAX / 512)
            words_at(fd, sector * 512, true, r);
    } else if (!memcmp(head, "COWD", 4)) {
        words_at(fd, 512, false, r);
    } else {
        words_at(fd, 0, true, r);
    }
}

static const struct {
    const char *driver;
    void (*look)(int fd, struct references *r);
} drivers[] = {{"qcow2", of_qcow2}, {"qed", of_qed}, {"vmdk", of_vmdk}};

/* ---- following them ---- */

/* Where qemu looks for `name`, which stands in the image `of`; malloc'ed, NULL: *err. */
static char *resolve(const char *of, const char *name, struct err *err)
{
    char shown[300], *path = NULL;
    const char *slash = strchr(name, '/'), *colon = strchr(name, ':'), *last = strrchr(of, '/');
    if (!strncmp(name, "file:", 5)) {
        name += 5;
        colon = NULL;
    }
    if (colon && (!slash || colon < slash))
        err_set(err, -EPERM, "\"%s\" in %s is no name of a file: nothing else is followed",
                text_printable(name, shown, sizeof(shown)), of);
    else if (!*name)
        err_set(err, -EINVAL, "a file that belongs to %s has no name", of);
    else if (asprintf(&path, "%.*s%s", *name == '/' ? 0 : (int)(last - of + 1), of, name) < 0) {
        err_set(err, -ENOMEM, "no memory");
        path = NULL;
    }
    return path;
}

static int open_file(const char *path, const char *of, struct err *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        err_errno(err, "cannot open %s, which %s names", path, of);
        return -1;
    }
    if (!fstat(fd, &st) && (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode)))
        return fd;
    close(fd);
    err_set(err, -EINVAL, "%s, which %s names, is neither a file nor a block device", path, of);
    return -1;
}

static int find(struct disk_chain *c, int fd, const char *path, const char *driver, bool allowed,
                struct err *err);

static int follow(struct disk_chain *c, const struct reference *one, const char *of,
                  struct err *err)
{
    if (c->n == DISK_CHAIN_MAX)
        return err_set(err, -ELOOP, "%s and what it names are more than %u files", of,
                       DISK_CHAIN_MAX);
    char *path = resolve(of, one->name, err);
    int fd = path ? open_file(path, of, err) : -1;
    if (fd < 0) {
        free(path);
        return err->code;
    }
    c->path[c->n++] = path;
    const char *driver = one->driver[0] ? one->driver : disk_format_inside(fd);
    int code = find(c, fd, path, driver, true, err);
    close(fd);
    return code;
}

static int find(struct disk_chain *c, int fd, const char *path, const char *driver, bool allowed,
                struct err *err)
{
    struct references r = {.n = 0};
    char shown[300];
    int code = 0;
    for (size_t i = 0; i < ARRAY_SIZE(drivers); i++)
        if (!strcmp(drivers[i].driver, driver))
            drivers[i].look(fd, &r);
    if (r.failed)
        code =
            err_set(err, -EINVAL, "the names of other files in %s are too long or too many", path);
    else if (r.n && !allowed)
        code = err_set(err, -EPERM,
                       "it is not all of the disk: it names the file \"%s\", and files that an "
                       "image names are read only if you say so: add ,backing=on",
                       text_printable(r.list[0].name, shown, sizeof(shown)));
    for (unsigned i = 0; i < r.n && !code; i++)
        code = follow(c, &r.list[i], path, err);
    free(r.list);
    return code;
}

int disk_chain_find(struct disk_chain *c, int fd, const char *path, const char *driver,
                    bool allowed, struct err *err)
{
    *c = (struct disk_chain){.n = 0};
    int code = find(c, fd, path, driver, allowed, err);
    if (code)
        disk_chain_free(c);
    return code;
}

void disk_chain_free(struct disk_chain *c)
{
    for (unsigned i = 0; i < c->n; i++)
        free(c->path[i]);
    *c = (struct disk_chain){.n = 0};
}
