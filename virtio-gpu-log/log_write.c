/*
 * The writer of gpu.log. Records gather in one buffer, contents in another; each is written as a
 * chunk when it is full, contents always before records, so that what a record refers to lies in
 * front of it. Nothing here looks at a clock.
 */
#include <errno.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file_io.h"
#include "virtio-gpu-log/log_format.h"

#define LZ4_RATIO 256u /* it packs a byte into no less than a 255th, roughly */

struct buffer {
    u8 *data;
    size_t size, room;
    u32 entries;
};

/* The pieces there are: open addressing, at most 3/4 full. */
struct piece {
    XXH128_hash_t hash;
    u64 number; /* plus 1; 0: free */
};

struct gpu_log_writer {
    int fd;
    u64 good; /* bytes in the file: all whole chunks */
    u32 sequence;
    u64 seed;
    struct gpu_log_base base;
    struct buffer records, contents, out;
    struct piece *pieces;
    u64 slots;
    bool no_memory;
    struct gpu_frames frames;
    struct gpu_log_sizes sizes;
    struct room room;
    struct err failed; /* code 0: none */
};

static bool plausible(const void *header)
{
    const struct gpu_chunk_header *h = header;
    return h->kind <= GPU_CHUNK_CONTENTS && h->raw_size >= 1 && h->raw_size <= GPU_CHUNK_MAX &&
           h->packed_size >= 1 && h->packed_size <= h->raw_size && h->entries >= 1 &&
           h->raw_size / LZ4_RATIO <= h->packed_size && h->entries <= h->raw_size;
}

static u64 chunk_size(const void *header)
{
    struct gpu_chunk_header h;
    memcpy(&h, header, sizeof(h));
    return sizeof(h) + h.packed_size;
}

const struct chunk_format gpu_log_format = {
    .magic = GPU_LOG_MAGIC,
    .version = GPU_LOG_VERSION,
    .chunk_magic = GPU_CHUNK_MAGIC,
    .header = sizeof(struct gpu_chunk_header),
    .raw_at = offsetof(struct gpu_chunk_header, raw_size),
    .packed_at = offsetof(struct gpu_chunk_header, packed_size),
    .name = "the GPU log",
    .one = "a GPU log",
    .empty = "it was cut short",
    .plausible = plausible,
    .size = chunk_size,
};

/* Makes room for `more` bytes. */
static bool reserve(struct buffer *b, size_t more)
{
    if (b->room - b->size >= more)
        return true;
    size_t room = MAX(b->size + more, b->room + b->room / 2);
    u8 *data = realloc(b->data, room);
    if (!data)
        return false;
    b->data = data;
    b->room = room;
    return true;
}

static int fail(struct gpu_log_writer *w, struct err *err)
{
    if (!w->failed.code)
        err_errno(&w->failed, "cannot write " GPU_LOG_NAME "; it ends at its last whole chunk");
    if (ftruncate(w->fd, (off_t)w->good))
        err_errno(&w->failed, "cannot write " GPU_LOG_NAME ", nor cut it back to its last chunk");
    *err = w->failed;
    return err->code;
}

void gpu_log_room(struct gpu_log_writer *w, const struct room *room)
{
    w->room = *room;
}

static bool write_all(struct gpu_log_writer *w, const void *data, size_t len)
{
    char text[96];
    if (room_ask(&w->room, w->fd, w->good + len)) {
        err_set(&w->failed, -ENOSPC, GPU_LOG_NAME " ends at its last whole chunk: %s",
                room_text(&w->room, text, sizeof(text)));
        return false;
    }
    if (!file_write_at(w->fd, data, len, w->good))
        return false;
    w->good += len;
    return true;
}

static int flush(struct gpu_log_writer *w, enum gpu_chunk_kind kind, struct err *err)
{
    struct buffer *b = kind == GPU_CHUNK_RECORDS ? &w->records : &w->contents;
    if (!b->entries)
        return 0;
    struct gpu_chunk_header h = {.magic = GPU_CHUNK_MAGIC,
                                 .sequence = w->sequence,
                                 .kind = kind,
                                 .raw_size = (u32)b->size,
                                 .entries = b->entries};
    int bound = LZ4_compressBound((int)b->size);
    w->out.size = 0;
    if (!reserve(&w->out, sizeof(h) + (size_t)bound)) {
        errno = ENOMEM;
        return fail(w, err);
    }
    u8 *payload = w->out.data + sizeof(h);
    /* Commands are few and repeat themselves; uploads are many. */
    h.packed_size = chunk_pack(b->data, h.raw_size, payload, kind == GPU_CHUNK_RECORDS ? 9 : 0);
    chunk_put_checks(&gpu_log_format, &h, payload, w->seed);
    memcpy(w->out.data, &h, sizeof(h));
    if (!write_all(w, w->out.data, sizeof(h) + h.packed_size))
        return fail(w, err);
    w->seed = h.check;
    w->sequence++;
    if (kind == GPU_CHUNK_RECORDS) {
        w->sizes.words += b->size;
        w->sizes.packed += h.packed_size;
        w->base = (struct gpu_log_base){0, 0};
    }
    b->size = 0;
    b->entries = 0;
    return 0;
}

static struct piece *slot_of(struct piece *pieces, u64 slots, XXH128_hash_t hash)
{
    u64 i = hash.low64 & (slots - 1);
    while (pieces[i].number && !XXH128_isEqual(pieces[i].hash, hash))
        i = (i + 1) & (slots - 1);
    return &pieces[i];
}

static bool grow(struct gpu_log_writer *w)
{
    u64 slots = w->slots ? w->slots * 2 : 1024;
    struct piece *pieces = calloc(slots, sizeof(*pieces));
    if (!pieces)
        return false;
    for (u64 i = 0; i < w->slots; i++)
        if (w->pieces[i].number)
            *slot_of(pieces, slots, w->pieces[i].hash) = w->pieces[i];
    free(w->pieces);
    w->pieces = pieces;
    w->slots = slots;
    return true;
}

/* Of a piece not seen before: its hash, varint size and bytes go to the contents. */
static u64 piece_number(void *opaque, const u8 *data, u32 size)
{
    struct gpu_log_writer *w = opaque;
    XXH128_hash_t hash = XXH3_128bits(data, size);
    w->sizes.carried += size;
    if (w->sizes.contents * 4 >= w->slots * 3 && !grow(w)) {
        w->no_memory = true;
        return 0;
    }
    struct piece *p = slot_of(w->pieces, w->slots, hash);
    if (p->number)
        return p->number - 1;
    struct buffer *b = &w->contents;
    if (!reserve(b, sizeof(XXH128_canonical_t) + 10 + size)) {
        w->no_memory = true;
        return 0;
    }
    struct cursor c = {.out = b->data, .at = b->size, .end = b->room};
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    cursor_put(&c, &canonical, sizeof(canonical));
    cursor_put_varint(&c, size);
    cursor_put(&c, data, size);
    b->size = c.at;
    b->entries++;
    u64 number = w->sizes.contents++;
    *p = (struct piece){hash, number + 1};
    w->sizes.kept += size;
    /* One command may carry more than a chunk may hold. */
    struct err kept_by_the_writer;
    if (b->size >= GPU_CONTENTS_FULL && !w->failed.code)
        flush(w, GPU_CHUNK_CONTENTS, &kept_by_the_writer);
    return number;
}

/* Could the record be longer than this? */
static size_t bound(const struct gpu_record *rec)
{
    const struct gpu_ranges *r = NULL;
    size_t n = 256;
    if (rec->type == GPU_REC_COMMAND) {
        n += rec->command.words.len;
        r = &rec->command.uploads;
    } else if (rec->type == GPU_REC_REPLY) {
        n += (size_t)(rec->reply.body.size / GPU_PIECE + 1) * 10;
        r = &rec->reply.readback;
    } else if (rec->type == GPU_REC_START) {
        n += rec->start.capset.len;
    } else if (rec->type == GPU_REC_LOST) {
        n += rec->lost.why.len;
    } else if (rec->type == GPU_REC_FAULT) {
        n += rec->fault.why.len;
    }
    for (u32 i = 0; r && i < r->count; i++)
        n += 40 + (size_t)(r->list[i].bytes.size / GPU_PIECE + 1) * 10;
    return n;
}

static int add(struct gpu_log_writer *w, const struct gpu_record *rec, struct err *err)
{
    if (w->failed.code) {
        *err = w->failed;
        return err->code;
    }
    struct buffer *b = &w->records;
    size_t n = 0;
    if (reserve(b, bound(rec)))
        n = gpu_record_encode(rec, &w->base, b->data + b->size, b->room - b->size, piece_number, w);
    else
        w->no_memory = true;
    if (w->no_memory) {
        err_set(&w->failed, -ENOMEM, "no memory for " GPU_LOG_NAME);
        return fail(w, err);
    }
    if (w->failed.code) {
        *err = w->failed;
        return err->code;
    }
    if (!n) {
        err_set(&w->failed, -EINVAL, "a GPU record at position %llu does not fit " GPU_LOG_NAME,
                (unsigned long long)rec->position);
        return fail(w, err);
    }
    b->size += n;
    b->entries++;
    int code = 0;
    if (w->contents.size >= GPU_CONTENTS_FULL || b->size >= GPU_WORDS_FULL)
        code = flush(w, GPU_CHUNK_CONTENTS, err);
    if (!code && b->size >= GPU_WORDS_FULL)
        code = flush(w, GPU_CHUNK_RECORDS, err);
    return code;
}

int gpu_log_create(struct gpu_log_writer **out, int fd, const struct gpu_rec_start *start,
                   struct err *err)
{
    struct gpu_log_writer *w = calloc(1, sizeof(*w));
    if (!w) {
        close(fd);
        return err_set(err, -ENOMEM, "no memory for " GPU_LOG_NAME);
    }
    w->fd = fd;
    const struct chunk_file_header h = chunk_file_begin(&gpu_log_format);
    w->seed = h.check;
    struct gpu_record rec = {.type = GPU_REC_START, .start = *start};
    int code = write_all(w, &h, sizeof(h)) ? add(w, &rec, err) : fail(w, err);
    /* A chunk of its own: a log says what it needs as soon as there is one. */
    if (!code)
        code = flush(w, GPU_CHUNK_RECORDS, err);
    if (code) {
        close(fd);
        w->fd = -1;
        struct err ignored;
        gpu_log_close(w, &ignored);
        return code;
    }
    *out = w;
    return 0;
}

int gpu_log_command(struct gpu_log_writer *w, pos_t position, vns_t time, u32 queue,
                    const void *words, u32 size, const struct gpu_range *uploads, u32 count,
                    u32 refused, struct err *err)
{
    u32 kept = MIN(size, GPU_COMMAND_MAX);
    struct gpu_record rec = {.type = GPU_REC_COMMAND,
                             .position = position,
                             .time = time,
                             .command = {.queue = queue,
                                         .words = {kept, words},
                                         .dropped = size - kept,
                                         .uploads = {.count = count, .list = uploads},
                                         .refused = refused}};
    int code = add(w, &rec, err);
    if (!code) {
        struct gpu_command c;
        gpu_record_command(&rec, &c);
        gpu_frames_step(&w->frames, &c);
        w->sizes.commands++;
    }
    return code;
}

u64 gpu_log_next_number(const struct gpu_log_writer *w)
{
    return w->sizes.commands;
}

int gpu_log_reply(struct gpu_log_writer *w, pos_t position, vns_t time, u64 number, u32 response,
                  const void *body, u32 size, const struct gpu_range *readback, u32 count,
                  struct err *err)
{
    struct gpu_record rec = {.type = GPU_REC_REPLY,
                             .position = position,
                             .time = time,
                             .reply = {.back = w->sizes.commands - 1 - number,
                                       .response = response,
                                       .body = {.size = size, .data = body},
                                       .readback = {.count = count, .list = readback}}};
    return add(w, &rec, err);
}

int gpu_log_lost(struct gpu_log_writer *w, pos_t position, vns_t time, const char *why,
                 struct err *err)
{
    struct gpu_record rec = {.type = GPU_REC_LOST,
                             .position = position,
                             .time = time,
                             .lost = {{(u32)strlen(why), (const u8 *)why}}};
    return add(w, &rec, err);
}

int gpu_log_reset(struct gpu_log_writer *w, pos_t position, vns_t time, struct err *err)
{
    struct gpu_record rec = {.type = GPU_REC_RESET, .position = position, .time = time};
    gpu_frames_reset(&w->frames);
    return add(w, &rec, err);
}

int gpu_log_fault(struct gpu_log_writer *w, pos_t position, vns_t time, u32 context,
                  const char *why, struct err *err)
{
    struct gpu_record rec = {.type = GPU_REC_FAULT,
                             .position = position,
                             .time = time,
                             .fault = {context, {(u32)strlen(why), (const u8 *)why}}};
    return add(w, &rec, err);
}

int gpu_log_end(struct gpu_log_writer *w, pos_t position, vns_t time, struct err *err)
{
    struct gpu_record rec = {.type = GPU_REC_END,
                             .position = position,
                             .time = time,
                             .end = {w->sizes.commands, w->sizes.contents}};
    return add(w, &rec, err);
}

int gpu_log_close(struct gpu_log_writer *w, struct err *err)
{
    if (!w)
        return 0;
    int code = 0;
    if (w->fd >= 0) {
        code = w->failed.code;
        if (code)
            *err = w->failed;
        else if (!(code = flush(w, GPU_CHUNK_CONTENTS, err)))
            code = flush(w, GPU_CHUNK_RECORDS, err);
        if (fsync(w->fd) && !code && errno != EINVAL && errno != EROFS)
            code = err_errno(err, "cannot sync " GPU_LOG_NAME " to disk");
        if (close(w->fd) && !code)
            code = err_errno(err, "cannot close " GPU_LOG_NAME);
    }
    free(w->records.data);
    free(w->contents.data);
    free(w->out.data);
    free(w->pieces);
    free(w);
    return code;
}

void gpu_log_writer_sizes(const struct gpu_log_writer *w, struct gpu_log_sizes *out)
{
    *out = w->sizes;
    out->file = w->good;
    out->frames = w->frames.count;
}
