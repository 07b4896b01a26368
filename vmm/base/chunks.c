/* See chunks.h. */
#include "base/chunks.h"

#include <errno.h>
#include <inttypes.h>
#include <lz4.h>
#include <lz4hc.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/file_io.h"

/* ---- the fields that every kind of header has ---- */

static u32 word(const void *header, u32 at)
{
    u32 value;
    memcpy(&value, (const u8 *)header + at, sizeof(value));
    return value;
}

static u64 stored(const struct chunk_format *f, const void *header, unsigned which)
{
    u64 value;
    memcpy(&value, (const u8 *)header + f->header - 16 + 8 * which, sizeof(value));
    return value;
}

/* ---- checks and contents ---- */

u64 chunk_file_check(const struct chunk_file_header *h)
{
    return XXH3_64bits(h, offsetof(struct chunk_file_header, check));
}

struct chunk_file_header chunk_file_begin(const struct chunk_format *f)
{
    struct chunk_file_header h = {.version = f->version, .size = sizeof(h)};
    memcpy(h.magic, f->magic, sizeof(h.magic));
    h.check = chunk_file_check(&h);
    return h;
}

u64 chunk_header_check(const struct chunk_format *f, const void *header)
{
    return XXH3_64bits(header, f->header - 16);
}

u64 chunk_check(const struct chunk_format *f, const void *header, const void *payload, u64 seed)
{
    /* Payload first, then the header with the payload's hash as seed: one value over both. */
    u64 inner = XXH3_64bits_withSeed(payload, word(header, f->packed_at), seed);
    return XXH3_64bits_withSeed(header, f->header - 8, inner);
}

u64 chunk_put_checks(const struct chunk_format *f, void *header, const void *payload, u64 seed)
{
    u64 check[2] = {chunk_header_check(f, header)};
    memcpy((u8 *)header + f->header - 16, check, 8);
    check[1] = chunk_check(f, header, payload, seed);
    memcpy((u8 *)header + f->header - 8, check + 1, 8);
    return check[1];
}

u32 chunk_pack(const void *raw, u32 size, void *out, int effort)
{
    int bound = LZ4_compressBound((int)size);
    int n = effort ? LZ4_compress_HC(raw, out, (int)size, bound, effort)
                   : LZ4_compress_default(raw, out, (int)size, bound);
    if (n > 0 && (u32)n < size)
        return (u32)n;
    memcpy(out, raw, size);
    return size;
}

bool chunk_unpack(const void *packed, u32 packed_size, void *raw, u32 raw_size)
{
    if (packed_size == raw_size) {
        memcpy(raw, packed, raw_size);
        return true;
    }
    return LZ4_decompress_safe(packed, raw, (int)packed_size, (int)raw_size) == (int)raw_size;
}

/* ---- reading ---- */

int chunks_open(struct chunk_reader *r, const struct chunk_format *f, struct blob blob,
                struct chunk_file_header *h, struct err *err)
{
    struct stat st;
    *r = (struct chunk_reader){.format = f, .blob = blob};
    if (!blob.ops && fstat(blob.fd, &st))
        return err_errno(err, "cannot stat %s", f->name);
    if (!blob.ops && !S_ISREG(st.st_mode))
        return err_set(err, -EINVAL, "%s is not a regular file", f->name);
    r->file_size = blob.ops ? blob.size : (u64)st.st_size;
    if (r->file_size < sizeof(*h))
        return err_set(err, -EINVAL, "%s has %" PRIu64 " bytes, less than its header: %s", f->name,
                       r->file_size, r->file_size ? "it was cut short" : f->empty);
    if (!blob_read_at(&blob, h, sizeof(*h), 0))
        return err_set(err, -EIO, "cannot read %s: %s", f->name, blob_why(&blob));
    if (memcmp(h->magic, f->magic, sizeof(h->magic)))
        return err_set(err, -EINVAL, "not %s: it does not start as one", f->one);
    /* An unknown version may check its header otherwise, but a flipped bit is likelier. */
    if (h->check != chunk_file_check(h))
        return err_set(err, -EINVAL, "%s's file header (offset 0) is damaged: wrong checksum",
                       f->name);
    if (h->version != f->version)
        return err_set(err, -EPROTO, "%s has format version %u; this program reads version %u",
                       f->name, h->version, f->version);
    if (h->flags || h->size < sizeof(*h) || h->size > r->file_size)
        return err_set(err, -EPROTO, "%s uses features that this program does not know", f->name);
    r->start = h->size;
    r->start_seed = h->check;
    chunks_rewind(r);
    return 0;
}

void chunks_rewind(struct chunk_reader *r)
{
    r->offset = r->start;
    r->seed = r->start_seed;
    r->sequence = 0;
    memset(&r->damage, 0, sizeof(r->damage));
}

bool chunks_stop(struct chunk_reader *r, enum chunk_state state, const char *fmt, ...)
{
    r->damage.state = state;
    r->damage.chunk = r->sequence;
    r->damage.offset = r->offset;
    int n = snprintf(r->damage.text, sizeof(r->damage.text),
                     "chunk %u at file offset %" PRIu64 ": ", r->sequence, r->offset);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->damage.text + n, sizeof(r->damage.text) - (size_t)n, fmt, ap);
    va_end(ap);
    return false;
}

/* Only zero bytes to the end of the file: what a crashed host's file system leaves. */
static bool rest_is_zero(const struct chunk_reader *r)
{
    u8 buf[4096];
    for (u64 at = r->offset; at < r->file_size;) {
        size_t n = (size_t)MIN(r->file_size - at, (u64)sizeof(buf));
        if (!blob_read_at(&r->blob, buf, n, at))
            return false;
        for (size_t i = 0; i < n; i++)
            if (buf[i])
                return false;
        at += n;
    }
    return true;
}

bool chunks_header(struct chunk_reader *r, void *header)
{
    const struct chunk_format *f = r->format;
    u64 rest = r->file_size - r->offset;
    if (rest < f->header)
        return chunks_stop(r, CHUNKS_TRUNCATED, "only %" PRIu64 " bytes of it are there", rest);
    if (!blob_read_at(&r->blob, header, f->header, r->offset))
        return chunks_stop(r, CHUNKS_DAMAGED, "cannot be read: %s", blob_why(&r->blob));
    if (stored(f, header, 0) != chunk_header_check(f, header)) {
        if (rest_is_zero(r))
            return chunks_stop(r, CHUNKS_TRUNCATED,
                               "only zero bytes from here to the end of the file");
        return chunks_stop(r, CHUNKS_DAMAGED, "wrong checksum of its header");
    }
    if (word(header, 0) != f->chunk_magic || !f->plausible(header))
        return chunks_stop(r, CHUNKS_DAMAGED, "its header makes no sense");
    if (word(header, 4) != r->sequence)
        return chunks_stop(r, CHUNKS_DAMAGED, "it is numbered %u", word(header, 4));
    if (f->size(header) > rest)
        return chunks_stop(r, CHUNKS_TRUNCATED,
                           "only %" PRIu64 " of its %" PRIu64 " bytes are there", rest,
                           f->size(header));
    return true;
}

bool chunks_payload(struct chunk_reader *r, const void *header, void *packed)
{
    const struct chunk_format *f = r->format;
    if (!blob_read_at(&r->blob, packed, word(header, f->packed_at), r->offset + f->header))
        return chunks_stop(r, CHUNKS_DAMAGED, "cannot be read: %s", blob_why(&r->blob));
    if (stored(f, header, 1) != chunk_check(f, header, packed, r->seed))
        return chunks_stop(r, CHUNKS_DAMAGED, "wrong checksum");
    return true;
}

void chunks_past(struct chunk_reader *r, const void *header)
{
    r->offset += r->format->size(header);
    r->seed = stored(r->format, header, 1);
    r->sequence++;
}

void chunks_repair(const struct chunk_format *f, u8 *data, size_t size,
                   void (*each)(void *opaque, u8 *chunk), void *opaque)
{
    struct chunk_file_header h = chunk_file_begin(f);
    if (size < sizeof(h))
        return;
    memcpy(data, &h, sizeof(h));
    u64 seed = h.check;
    u32 sequence = 0;
    for (size_t at = sizeof(h); size - at >= f->header;) {
        u8 *chunk = data + at;
        u64 whole = f->size(chunk);
        if (whole > size - at)
            return;
        memcpy(chunk, &f->chunk_magic, 4);
        memcpy(chunk + 4, &sequence, 4);
        sequence++;
        seed = chunk_put_checks(f, chunk, chunk + f->header, seed);
        if (each)
            each(opaque, chunk);
        at += whole;
    }
}
