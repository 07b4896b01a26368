#define _GNU_SOURCE
/* See statement.h. The file `signature` is the statement and two more lines: the public key and the
 * signature, in hexadecimal. It is as hostile as the rest of a recording. */
#include "replay/statement.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_io.h"
#include "virtio-gpu-log/log.h"

#define FIRST_LINE "reprise statement 1\n"
#define TEXT_MAX   4096u /* bytes of a signature's file */

static void line(FILE *out, const char *name, u64 size, const struct sha256 *hash)
{
    char text[SHA256_TEXT];
    sha256_text(hash, text);
    fprintf(out, "%s %" PRIu64 " %s\n", name, size, text);
}

/* A whole file, by its bytes. 1: there is none. */
static int line_of_file(FILE *out, const struct recording *r, const char *name, u64 most,
                        struct err *err)
{
    u8 part[64u << 10];
    struct blob file;
    int code = recording_file(r, name, most, &file, err);
    if (code == -ENOENT)
        return 1;
    if (code)
        return err_prefix(err, "%s", r->path);
    u64 size = file.size;
    struct sha256_stream *sha = sha256_create();
    code = sha ? 0 : err_set(err, -ENOMEM, "no memory");
    if (sha)
        sha256_begin(sha);
    for (u64 at = 0; !code && at < size;) {
        size_t n = (size_t)MIN(size - at, (u64)sizeof(part));
        if (!blob_read_at(&file, part, n, at))
            code = err_set(err, -EIO, "cannot read %s/%s: %s", r->path, name, blob_why(&file));
        else
            sha256_add(sha, part, n);
        at += n;
    }
    blob_close(&file);
    if (!code) {
        struct sha256 hash = sha256_end(sha);
        line(out, name, size, &hash);
    }
    sha256_destroy(sha);
    return code;
}

static int line_of_kept(FILE *out, struct opened *o, const u8 *name, u64 size, const char *what,
                        struct err *err)
{
    struct hash128 h = description_hash128(name);
    void *data;
    int code = recording_load(&o->rec, &h, size, what, &data, err);
    if (code)
        return code;
    struct sha256 hash = sha256_bytes(data, size);
    free(data);
    line(out, what, size, &hash);
    return 0;
}

/* Reads all of it: its checksums and seals are right up to where it ends. */
static int line_of_log(FILE *out, struct statement *s, struct opened *o, struct err *err)
{
    struct record rec;
    struct sha256 seal;
    while (log_next(o->log, &rec))
        ;
    s->sealed = log_seal(o->log, &seal);
    log_rewind(o->log);
    log_summarise(o->log, &s->log);
    if (s->log.damage.state == CHUNKS_DAMAGED || s->log.damage.state == CHUNKS_TRUNCATED)
        s->sealed = false; /* what is there of it is all that can be said */
    if (!s->sealed)
        return line_of_file(out, &o->rec, "log", NEVER, err);
    line(out, "log", s->log.good_bytes, &seal);
    return 0;
}

int statement_make(struct statement *s, struct opened *o, struct err *err)
{
    const struct machine_description *d = &o->desc;
    memset(s, 0, sizeof(*s));
    FILE *out = open_memstream(&s->text, &s->len);
    if (!out)
        return err_set(err, -ENOMEM, "no memory");
    fputs(FIRST_LINE, out);
    struct sha256 machine = sha256_bytes(o->rec.machine, o->rec.machine_size);
    line(out, "machine.dtb", o->rec.machine_size, &machine);
    int code = line_of_kept(out, o, d->kernel_hash, d->kernel_size, "kernel", err);
    if (!code && d->initrd_size)
        code = line_of_kept(out, o, d->initrd_hash, d->initrd_size, "initrd", err);
    if (!code)
        code = line_of_log(out, s, o, err);
    if (code >= 0 && s->log.tail)
        code = line_of_file(out, &o->rec, LOG_TAIL_NAME, NEVER, err);
    if (code >= 0)
        code = line_of_file(out, &o->rec, GPU_LOG_NAME, NEVER, err);
    if (code >= 0 && o->rec.contents)
        code = contents_check(o->rec.contents, s->log.damage.state == CHUNKS_COMPLETE, err);
    if (code >= 0)
        code = line_of_file(out, &o->rec, CONTENTS_NAME, NEVER, err);
    if (fclose(out) && code >= 0)
        code = err_set(err, -ENOMEM, "no memory");
    if (code >= 0)
        s->hash = sha256_bytes(s->text, s->len);
    if (code < 0)
        statement_free(s);
    return MIN(code, 0);
}

void statement_free(struct statement *s)
{
    free(s->text);
    s->text = NULL;
}

/* "NAME HEX\n" of so many bytes at *at. */
static bool hex_line(const char **at, const char *name, u8 *out, size_t bytes)
{
    size_t n = strlen(name);
    const char *p = *at;
    if (strncmp(p, name, n) || p[n] != ' ')
        return false;
    p += n + 1;
    for (size_t i = 0; i < bytes; i += SHA256_SIZE) {
        struct sha256 part;
        if (!sha256_parse(p, &part))
            return false;
        memcpy(out + i, part.bytes, SHA256_SIZE);
        p += 2 * SHA256_SIZE;
    }
    *at = p + 1;
    return *p == '\n';
}

/* The first line of `text` that is not the statement's names the part that was changed. */
static void name_difference(const struct statement *s, const char *text, struct err *err)
{
    const char *a = s->text;
    for (;;) {
        size_t n = strcspn(a, "\n"), m = strcspn(text, "\n");
        if (!a[n] || n != m || memcmp(a, text, n)) {
            const char *from = a[n] ? a : text;
            size_t word = strcspn(from, " \n");
            bool known = word && word < 16 && strspn(from, "abcdefghijklmnopqrstuvwxyz.") == word;
            err_set(err, -EINVAL,
                    "the signature is of another recording: %.*s is not what was signed",
                    known ? (int)word : 9, known ? from : "something");
            return;
        }
        a += n + 1;
        text += m + 1;
    }
}

enum signature_state signature_check(const struct statement *s, const struct recording *r,
                                     struct signing_key **key, struct err *err)
{
    char text[TEXT_MAX + 1];
    u8 public[KEY_SIZE], signature[SIGNATURE_SIZE];
    struct blob file;
    *key = NULL;
    int code = recording_file(r, SIGNATURE_NAME, TEXT_MAX, &file, err);
    if (code == -ENOENT)
        return SIGNATURE_NONE;
    u64 size = file.size;
    bool read = !code && blob_read_at(&file, text, size, 0);
    blob_close(&file);
    if (!read) {
        if (!code)
            err_set(err, -EIO, "cannot read %s/" SIGNATURE_NAME, r->path);
        return SIGNATURE_WRONG;
    }
    text[size] = 0;
    const char *last = memmem(text, size, "\nkey ", 5), *at = last ? last + 1 : text;
    if (!last || strlen(text) != size || !hex_line(&at, "key", public, sizeof(public)) ||
        !hex_line(&at, "signature", signature, sizeof(signature)) || *at) {
        err_set(err, -EINVAL, "the file " SIGNATURE_NAME " is no signature");
        return SIGNATURE_WRONG;
    }
    size_t len = (size_t)(last + 1 - text);
    text[len] = 0;
    if (len != s->len || memcmp(text, s->text, len)) {
        name_difference(s, text, err);
        return SIGNATURE_WRONG;
    }
    *key = signing_key_from(public);
    if (*key && signing_check(*key, s->text, s->len, signature))
        return SIGNATURE_RIGHT;
    signing_key_destroy(*key);
    *key = NULL;
    err_set(err, -EINVAL, "the signature is not that of the key that stands in it");
    return SIGNATURE_WRONG;
}

static void put_hex(FILE *out, const char *name, const u8 *bytes, size_t n)
{
    fprintf(out, "%s ", name);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%02x", bytes[i]);
    fputc('\n', out);
}

int signature_write(const struct statement *s, struct recording *r, const struct signing_key *key,
                    struct err *err)
{
    u8 public[KEY_SIZE], signature[SIGNATURE_SIZE];
    char *text = NULL;
    size_t len = 0;
    int code = signing_sign(key, s->text, s->len, signature, err);
    if (!code)
        code = signing_key_public(key, public, err);
    FILE *out = code ? NULL : open_memstream(&text, &len);
    if (code)
        return code;
    if (!out)
        return err_set(err, -ENOMEM, "no memory");
    fwrite(s->text, 1, s->len, out);
    put_hex(out, "key", public, sizeof(public));
    put_hex(out, "signature", signature, sizeof(signature));
    code = fclose(out) ? err_set(err, -ENOMEM, "no memory")
                       : recording_write_file(r, SIGNATURE_NAME, text, len, err);
    free(text);
    return code;
}
