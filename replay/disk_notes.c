/* See disk_notes.h: the text, and who may have written it. */
#include "replay/disk_notes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "replay/private_dir.h"

#define FOLDER   "disks"
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

/* ---- reading and writing ---- */

int disk_notes_save(const struct sha256 *identity, const struct disk_notes *notes, struct err *err)
{
    char path[4096], name[SHA256_TEXT], temporary[SHA256_TEXT + 4];
    int dir = private_open(FOLDER, true, path, sizeof(path), err), code = 0;
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
        private_prune(dir, DISK_NOTES_KEPT);
    free(text);
    close(dir);
    return code;
}

int disk_notes_load(const struct sha256 *identity, struct disk_notes *notes, struct err *err)
{
    char path[4096], name[SHA256_TEXT], text[TEXT_MAX + 1];
    struct stat st;
    int dir = private_open(FOLDER, false, path, sizeof(path), err);
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
    code = private_check(fd, path, err);
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
