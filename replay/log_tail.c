#define _GNU_SOURCE
/*
 * The tail: records that wait for their chunk to be full, in a file of their own, which survives
 * the recorder. The log itself stays a function of what was recorded: when something is kept here
 * may depend on the host. The writer is log_write.c, the reader log_read.c.
 *
 * Nothing is ever removed from the file. A new chunk starts with a new header, whose check starts a
 * new chain, so that older batches after it do not follow.
 */
#include "base/file_io.h"
#include "replay/log_format.h"

#include <string.h>
#include <xxhash.h>

static u64 header_check(const struct log_tail_header *h)
{
    return XXH3_64bits(h, offsetof(struct log_tail_header, check));
}

static u64 batch_check(const struct log_tail_batch *b, const void *bytes, u64 seed)
{
    u64 inner = XXH3_64bits_withSeed(bytes, b->size, seed);
    return XXH3_64bits_withSeed(b, offsetof(struct log_tail_batch, check), inner);
}

/* Appends a batch at *to. */
static u64 put_batch(u8 **to, const void *bytes, size_t size, u32 records, u64 seed)
{
    struct log_tail_batch b = {.size = (u32)size, .records = records};
    b.check = batch_check(&b, bytes, seed);
    *to = mempcpy(mempcpy(*to, &b, sizeof(b)), bytes, size);
    return b.check;
}

bool log_tail_put(struct log_tail *t, const struct log_tail_header *h, const u8 *raw, size_t size,
                  u32 records, const u8 *mark, size_t mark_size, u8 *scratch)
{
    struct log_tail now = *t;
    u8 *to = scratch;
    if (!now.started || (!now.records && records)) {
        struct log_tail_header header = *h;
        memcpy(header.magic, LOG_TAIL_MAGIC, sizeof(header.magic));
        header.check = header_check(&header);
        to = mempcpy(to, &header, sizeof(header));
        now = (struct log_tail){.dir = t->dir, .fd = t->fd, .started = true, .check = header.check};
    }
    u64 from = now.at;
    if (size > now.done) {
        now.check =
            put_batch(&to, raw + now.done, size - now.done, records - now.records, now.check);
        now.done = size;
        now.records = records;
    }
    now.at = from + (u64)(to - scratch);
    u8 *end = to + LOG_TAIL_ROOM;
    put_batch(&to, mark, mark_size, 1, now.check);
    while (to < end)
        *to++ = 0;
    if (!file_write_at(t->fd, scratch, (size_t)(to - scratch), from))
        return false;
    *t = now;
    return true;
}

bool log_tail_end(struct log_tail *t, const u8 *last, size_t size, u8 *scratch)
{
    u8 *to = scratch;
    put_batch(&to, last, size, 1, t->check);
    return file_write_at(t->fd, scratch, (size_t)(to - scratch), t->at);
}

bool log_tail_get(const struct blob *tail, u64 offset, u64 seed, struct log_chunk_header *h,
                  u8 *raw)
{
    struct log_tail_header header;
    struct log_tail_batch b;
    u64 at = sizeof(header);
    size_t size = 0;
    u32 records = 0;
    if (!blob_read_at(tail, &header, sizeof(header), 0) ||
        memcmp(header.magic, LOG_TAIL_MAGIC, sizeof(header.magic)) ||
        header.check != header_check(&header) || header.offset != offset || header.seed != seed)
        return false;
    u64 check = header.check;
    while (blob_read_at(tail, &b, sizeof(b), at) && b.size && b.size <= LOG_CHUNK_MAX - size &&
           b.records && b.records <= b.size &&
           blob_read_at(tail, raw + size, b.size, at + sizeof(b)) &&
           b.check == batch_check(&b, raw + size, check)) {
        at += sizeof(b) + b.size;
        size += b.size;
        records += b.records;
        check = b.check;
    }
    if (!records)
        return false;
    *h = (struct log_chunk_header){.raw_size = (u32)size,
                                   .packed_size = (u32)size,
                                   .first_position = header.position,
                                   .first_time = header.time,
                                   .records = records};
    return true;
}

void log_tail_repair(u8 *data, size_t size, u64 offset, u64 seed)
{
    struct log_tail_header h;
    struct log_tail_batch b;
    if (size < sizeof(h))
        return;
    memcpy(&h, data, sizeof(h));
    memcpy(h.magic, LOG_TAIL_MAGIC, sizeof(h.magic));
    h.offset = offset;
    h.seed = seed;
    h.check = header_check(&h);
    memcpy(data, &h, sizeof(h));
    u64 check = h.check;
    for (size_t at = sizeof(h); size - at >= sizeof(b); at += sizeof(b) + b.size) {
        memcpy(&b, data + at, sizeof(b));
        if (b.size > size - at - sizeof(b))
            return;
        b.check = check = batch_check(&b, data + at + sizeof(b), check);
        memcpy(data + at, &b, sizeof(b));
    }
}
