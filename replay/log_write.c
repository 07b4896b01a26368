/*
 * The log's writer. Records gather in a buffer; a chunk is header and compressed payload in one
 * write(). When the host cannot write (full disk, I/O error), the file is cut back to its last
 * whole chunk, and a small chunk with a cut record is tried: it usually fits in what was just
 * freed.
 */
#include "base/file_io.h"
#include "replay/log_format.h"

#include <errno.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* A chunk is closed once it holds this much: a reader unpacks it in well under a millisecond. */
#define CHUNK_FULL (64u << 10)

struct log_writer {
    int fd;
    u64 good; /* bytes in the file: all whole chunks */
    u32 sequence;
    u64 seed;
    struct record_base first, base; /* before the chunk's first record; after its last */
    u32 records;
    u64 index; /* records ever added */
    u64 last_type;
    size_t raw_size;
    struct err failed; /* code 0: none */
    u8 raw[LOG_CHUNK_MAX];
    u8 out[sizeof(struct log_chunk_header) + LZ4_COMPRESSBOUND(LOG_CHUNK_MAX)];
};

_Static_assert(CHUNK_FULL + RECORD_MAX + 64 <= LOG_CHUNK_MAX, "a full chunk takes one more record");

u64 log_file_check(const struct log_file_header *h)
{
    return XXH3_64bits(h, offsetof(struct log_file_header, check));
}

u64 log_chunk_header_check(const struct log_chunk_header *h)
{
    return XXH3_64bits(h, offsetof(struct log_chunk_header, header_check));
}

u64 log_chunk_check(const struct log_chunk_header *h, const void *payload, u64 seed)
{
    /* Payload first, then the header with the payload's hash as seed: one value over both. */
    u64 inner = XXH3_64bits_withSeed(payload, h->packed_size, seed);
    return XXH3_64bits_withSeed(h, offsetof(struct log_chunk_header, check), inner);
}

static int write_all(struct log_writer *w, const void *data, size_t len)
{
    if (!file_write_at(w->fd, data, len, w->good))
        return -1;
    w->good += len;
    return 0;
}

/* Cuts back what a failed write left behind. */
static int fail(struct log_writer *w, struct err *err)
{
    err_errno(&w->failed, "cannot write the log; it ends at its last whole chunk");
    if (ftruncate(w->fd, (off_t)w->good))
        err_errno(&w->failed, "cannot write the log, nor cut it back to its last whole chunk");
    *err = w->failed;
    return err->code;
}

int log_writer_create(struct log_writer **out, int fd, struct err *err)
{
    struct log_writer *w = calloc(1, sizeof(*w));
    if (!w) {
        close(fd);
        return err_set(err, -ENOMEM, "no memory for the log's buffers");
    }
    w->fd = fd;
    struct log_file_header h = {.version = LOG_VERSION, .size = sizeof(h)};
    memcpy(h.magic, LOG_MAGIC, sizeof(h.magic));
    h.check = log_file_check(&h);
    w->seed = h.check;
    if (write_all(w, &h, sizeof(h))) {
        int code = fail(w, err);
        close(fd);
        free(w);
        return code;
    }
    *out = w;
    return 0;
}

/* Makes the chunk in w->out and writes it. On failure the state is as before. */
static int write_chunk(struct log_writer *w, bool last)
{
    struct log_chunk_header h = {
        .magic = LOG_CHUNK_MAGIC,
        .sequence = w->sequence,
        .raw_size = (u32)w->raw_size,
        .first_position = w->first.position,
        .last_position = w->base.position,
        .first_time = w->first.time,
        .records = w->records,
        .flags = last ? LOG_CHUNK_LAST : 0,
    };
    u8 *payload = w->out + sizeof(h);
    int n = LZ4_compress_default((const char *)w->raw, (char *)payload, (int)w->raw_size,
                                 (int)(sizeof(w->out) - sizeof(h)));
    h.packed_size = (u32)n;
    if (n <= 0 || (size_t)n >= w->raw_size) {
        h.packed_size = h.raw_size;
        memcpy(payload, w->raw, w->raw_size);
    }
    h.header_check = log_chunk_header_check(&h);
    h.check = log_chunk_check(&h, payload, w->seed);
    memcpy(w->out, &h, sizeof(h));
    if (write_all(w, w->out, sizeof(h) + h.packed_size))
        return -1;
    w->seed = h.check;
    w->sequence++;
    w->first = w->base;
    w->raw_size = 0;
    w->records = 0;
    return 0;
}

/* The log ends here; says so in the log itself if a small chunk still fits. */
static void write_cut(struct log_writer *w)
{
    w->base = w->first; /* the records that did not reach the disk are given up */
    w->raw_size = 0;
    w->records = 1;
    struct record rec = {.type = REC_CUT, .position = w->base.position, .time = w->base.time};
    rec.cut.why = (struct log_bytes){(u32)strlen(w->failed.text), (const u8 *)w->failed.text};
    w->raw_size = record_encode(&rec, &w->base, w->raw, sizeof(w->raw));
    if (write_chunk(w, true) && ftruncate(w->fd, (off_t)w->good))
        return; /* the reader copes with an incomplete last chunk */
}

int log_flush(struct log_writer *w, bool last, struct err *err)
{
    if (w->failed.code) {
        *err = w->failed;
        return err->code;
    }
    if (!w->records)
        return 0;
    if (!write_chunk(w, last))
        return 0;
    int code = fail(w, err);
    write_cut(w);
    return code;
}

int log_add(struct log_writer *w, const struct record *rec, struct err *err)
{
    if (w->failed.code) {
        *err = w->failed;
        return err->code;
    }
    if (!w->records)
        w->first = w->base = (struct record_base){rec->position, rec->time};
    size_t n = record_encode(rec, &w->base, w->raw + w->raw_size, sizeof(w->raw) - w->raw_size);
    if (!n)
        return err_set(err, -EINVAL, "record type %llu at position %llu does not fit the log",
                       (unsigned long long)rec->type, (unsigned long long)rec->position);
    w->raw_size += n;
    w->records++;
    w->index++;
    w->last_type = rec->type;
    return w->raw_size >= CHUNK_FULL ? log_flush(w, false, err) : 0;
}

bool log_pending(const struct log_writer *w)
{
    return w->records != 0;
}

void log_writer_tell(const struct log_writer *w, struct log_place *out)
{
    *out = (struct log_place){.offset = w->good,
                              .seed = w->seed,
                              .index = w->index,
                              .position = w->base.position,
                              .time = w->base.time,
                              .sequence = w->sequence,
                              .last_type = (u32)w->last_type};
}

u64 log_bytes(const struct log_writer *w)
{
    return w->good;
}

int log_writer_close(struct log_writer *w, struct err *err)
{
    if (!w)
        return 0;
    int code = log_flush(w, false, err);
    if (fsync(w->fd) && !code && errno != EINVAL && errno != EROFS)
        code = err_errno(err, "cannot sync the log to disk");
    if (close(w->fd) && !code)
        code = err_errno(err, "cannot close the log");
    free(w);
    return code;
}
