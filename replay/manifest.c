/* See manifest.h. */
#define _GNU_SOURCE /* asprintf */
#include "replay/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "version.h"

#define HEAD "reprise pack "

const char *const pack_disk_names[] = {"none", "read", "all"};

int manifest_add(struct manifest *m, const char *name, u64 size, const struct sha256 *hash,
                 struct err *err)
{
    if (m->n == PACK_FILES_MAX)
        return err_set(err, -EFBIG, "more than %u files", PACK_FILES_MAX);
    if (m->n == m->room) {
        u32 room = m->room ? m->room * 2 : 32;
        struct manifest_file *file = realloc(m->file, room * sizeof(*file));
        if (!file)
            return err_set(err, -ENOMEM, "no memory for the manifest");
        m->file = file;
        m->room = room;
    }
    struct manifest_file *f = &m->file[m->n++];
    *f = (struct manifest_file){.size = size, .hash = *hash};
    snprintf(f->name, sizeof(f->name), "%s", name);
    return 0;
}

int manifest_leave_out(struct manifest *m, struct err *err, const char *fmt, ...)
{
    char *line = NULL, *all = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&line, fmt, ap);
    va_end(ap);
    if (n >= 0)
        n = asprintf(&all, "%s%s\n", m->left_out ? m->left_out : "", line);
    if (n >= 0) {
        free(m->left_out);
        m->left_out = all;
    }
    free(line);
    return n < 0 ? err_set(err, -ENOMEM, "no memory for the manifest") : 0;
}

void manifest_free(struct manifest *m)
{
    free(m->file);
    free(m->left_out);
    *m = (struct manifest){.n = 0};
}

const struct manifest_file *manifest_find(const struct manifest *m, const char *name)
{
    for (u32 i = 0; i < m->n; i++)
        if (!strcmp(m->file[i].name, name))
            return &m->file[i];
    return NULL;
}

char *manifest_text(const struct manifest *m, size_t *size)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, size);
    if (!out)
        return NULL;
    fprintf(out, HEAD "%u\ncreator reprise " REPRISE_VERSION "\n", MANIFEST_VERSION);
    for (u32 i = 0; i < m->n; i++) {
        char hash[SHA256_TEXT];
        sha256_text(&m->file[i].hash, hash);
        fprintf(out, "file %s %" PRIu64 " %s\n", m->file[i].name, m->file[i].size, hash);
    }
    for (unsigned i = 0; i < m->ndisks; i++)
        fprintf(out, "disk %u %s %" PRIu64 "\n", i, pack_disk_names[m->disk[i]], m->disk_bytes[i]);
    for (const char *p = m->left_out; p && *p; p += strcspn(p, "\n") + 1)
        fprintf(out, "left-out %.*s\n", (int)strcspn(p, "\n"), p);
    fputs("end\n", out);
    if (!fclose(out))
        return text;
    free(text);
    return NULL;
}

/* ---- reading ---- */

struct text {
    const char *p, *end;
};

static bool word(struct text *in, const char *w)
{
    size_t n = strlen(w);
    if ((size_t)(in->end - in->p) < n || memcmp(in->p, w, n))
        return false;
    in->p += n;
    return true;
}

static bool number(struct text *in, u64 *out)
{
    const char *from = in->p;
    for (*out = 0; in->p < in->end && *in->p >= '0' && *in->p <= '9'; in->p++) {
        u64 digit = (u64)(*in->p - '0');
        if (*out > (UINT64_MAX - digit) / 10)
            return false;
        *out = *out * 10 + digit;
    }
    return in->p > from && !(*from == '0' && in->p > from + 1);
}

/* Printable, up to `stop`, which is passed. */
static bool until(struct text *in, char stop, char *out, size_t room)
{
    size_t n = 0;
    for (; in->p < in->end && *in->p != stop; in->p++) {
        if (*in->p < ' ' || *in->p > '~' || n + 1 >= room)
            return false;
        out[n++] = *in->p;
    }
    out[n] = 0;
    return n && in->p++ < in->end;
}

static bool file_line(struct text *in, struct manifest *m, struct err *err)
{
    char name[PACK_NAME_MAX];
    struct sha256 hash;
    u64 size;
    if (!until(in, ' ', name, sizeof(name)) || !number(in, &size) || !word(in, " ") ||
        in->end - in->p < 2 * SHA256_SIZE || !sha256_parse(in->p, &hash))
        return false;
    in->p += 2 * SHA256_SIZE;
    return word(in, "\n") && !manifest_add(m, name, size, &hash, err);
}

static bool disk_line(struct text *in, struct manifest *m)
{
    u64 n;
    if (!number(in, &n) || n != m->ndisks || n >= DESCRIPTION_DISKS || !word(in, " "))
        return false;
    for (unsigned how = 0; how < ARRAY_SIZE(pack_disk_names); how++)
        if (word(in, pack_disk_names[how])) {
            m->disk[n] = how;
            m->ndisks++;
            return word(in, " ") && number(in, &m->disk_bytes[n]) && word(in, "\n");
        }
    return false;
}

int manifest_parse(const char *text, size_t size, struct manifest *m, struct err *err)
{
    struct text in = {text, text + size};
    char line[512];
    u64 version;
    unsigned at = 2;
    *m = (struct manifest){.n = 0};
    if (!word(&in, HEAD) || !number(&in, &version) || !word(&in, "\n"))
        return err_set(err, -EINVAL, "its manifest does not begin as one");
    if (version != MANIFEST_VERSION)
        return err_set(err, -EPROTONOSUPPORT,
                       "it was packed by another version of this program (manifest %llu; this one "
                       "reads %u)",
                       (unsigned long long)version, MANIFEST_VERSION);
    bool good = word(&in, "creator ") && until(&in, '\n', line, sizeof(line));
    err_set(err, 0, "%s", "");
    for (; good && word(&in, "file "); at++)
        good = file_line(&in, m, err);
    for (; good && word(&in, "disk "); at++)
        good = disk_line(&in, m);
    for (; good && word(&in, "left-out "); at++)
        good = until(&in, '\n', line, sizeof(line)) && !manifest_leave_out(m, err, "%s", line);
    if (good && word(&in, "end\n") && in.p == in.end)
        return 0;
    manifest_free(m);
    return err->code ? err->code
                     : err_set(err, -EINVAL, "line %u of its manifest makes no sense", at + good);
}
