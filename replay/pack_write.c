/* See pack_write.h. A file's size is known when it ends, so its header is written then. */
#include "replay/pack_write.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/seekable.h"
#include "base/tar.h"
#include "replay/pack.h"

#define PIECE (1u << 20) /* bytes that are copied at once */

struct pack_writer {
    int fd;
    const char *path;
    u64 at;    /* where the next byte goes */
    u64 start; /* of the file that is being written: its header */
    u64 size;  /* of it, as it is */
    char name[PACK_NAME_MAX];
    bool plain;
    struct seekable_writer *z;
    struct sha256_stream *sha;
    struct manifest manifest;
    u8 *piece;
};

static int put_on(void *opaque, const void *data, size_t len)
{
    struct pack_writer *w = opaque;
    if (!file_write_at(w->fd, data, len, w->at))
        return errno ? -errno : -EIO;
    w->at += len;
    return 0;
}

int pack_writer_create(struct pack_writer **out, int fd, const char *path, struct err *err)
{
    struct pack_writer *w = calloc(1, sizeof(*w));
    if (w) {
        w->fd = fd;
        w->path = path;
        w->z = seekable_create(put_on, w);
        w->sha = sha256_create();
        w->piece = malloc(PIECE);
    }
    if (!w || !w->z || !w->sha || !w->piece) {
        pack_writer_destroy(w);
        return err_set(err, -ENOMEM, "no memory to pack");
    }
    *out = w;
    return 0;
}

void pack_writer_destroy(struct pack_writer *w)
{
    if (!w)
        return;
    seekable_destroy(w->z);
    sha256_destroy(w->sha);
    manifest_free(&w->manifest);
    free(w->piece);
    free(w);
}

struct manifest *pack_writer_manifest(struct pack_writer *w)
{
    return &w->manifest;
}

static int failed(const struct pack_writer *w, int code, struct err *err)
{
    errno = -code;
    return err_errno(err, "cannot write %s", w->path);
}

int pack_begin(struct pack_writer *w, const char *name, struct err *err)
{
    static const u8 nothing[TAR_BLOCK];
    (void)err;
    snprintf(w->name, sizeof(w->name), "%s", name);
    w->plain = !w->manifest.n; /* machine.dtb */
    w->start = w->at;
    w->size = 0;
    sha256_begin(w->sha);
    int code = put_on(w, nothing, sizeof(nothing));
    return code ? failed(w, code, err) : 0;
}

int pack_put(struct pack_writer *w, const void *data, size_t len, struct err *err)
{
    sha256_add(w->sha, data, len);
    w->size += len;
    int code = w->plain ? put_on(w, data, len) : seekable_add(w->z, data, len);
    return code ? failed(w, code, err) : 0;
}

/* Fills up the last block, and writes the header. */
static int end_member(struct pack_writer *w, const char *name)
{
    static const u8 zeros[TAR_BLOCK];
    u8 header[TAR_BLOCK];
    u64 size = w->at - w->start - TAR_BLOCK;
    tar_header_write(header, name, size);
    int code = put_on(w, zeros, (size_t)(tar_padded(size) - size));
    if (!code && !file_write_at(w->fd, header, sizeof(header), w->start))
        code = errno ? -errno : -EIO;
    return code;
}

int pack_end(struct pack_writer *w, struct err *err)
{
    char name[TAR_NAME];
    int code = w->plain ? 0 : seekable_end(w->z);
    snprintf(name, sizeof(name), "%s%s", w->name, w->plain ? "" : PACK_SUFFIX);
    if (!code)
        code = end_member(w, name);
    if (code)
        return failed(w, code, err);
    struct sha256 hash = sha256_end(w->sha);
    return manifest_add(&w->manifest, w->name, w->size, &hash, err);
}

int pack_add(struct pack_writer *w, const char *name, const void *data, size_t len, struct err *err)
{
    int code = pack_begin(w, name, err);
    if (!code)
        code = pack_put(w, data, len, err);
    return code ? code : pack_end(w, err);
}

int pack_add_blob(struct pack_writer *w, const char *name, const struct blob *b, struct err *err)
{
    u64 size = blob_size(b);
    int code = pack_begin(w, name, err);
    for (u64 at = 0; !code && at < size;) {
        size_t n = (size_t)MIN(size - at, (u64)PIECE);
        if (!blob_read_at(b, w->piece, n, at))
            code = err_set(err, -EIO, "cannot read %s: %s", name, blob_why(b));
        else
            code = pack_put(w, w->piece, n, err);
        at += n;
    }
    return code ? code : pack_end(w, err);
}

int pack_finish(struct pack_writer *w, u64 *bytes, struct err *err)
{
    static const u8 end[2 * TAR_BLOCK];
    size_t size;
    char *text = manifest_text(&w->manifest, &size);
    if (!text || size > MANIFEST_MAX) {
        free(text);
        return err_set(err, -ENOMEM, "no memory for the manifest");
    }
    w->start = w->at;
    int code = put_on(w, end, TAR_BLOCK);
    if (!code)
        code = put_on(w, text, size);
    if (!code)
        code = end_member(w, MANIFEST_NAME);
    if (!code)
        code = put_on(w, end, sizeof(end));
    if (!code && fsync(w->fd))
        code = -errno;
    free(text);
    *bytes = w->at;
    return code ? failed(w, code, err) : 0;
}
