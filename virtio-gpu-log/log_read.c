/*
 * The reader of gpu.log. Whatever the bytes are, it hands out the records of all chunks up to the
 * first bad one and then says which that is, where it starts and what is wrong with it. Memory is
 * bounded by the file: a chunk may not claim more than LZ4 can pack into it.
 */
#include <errno.h>
#include <inttypes.h>
#include <lz4.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file_io.h"
#include "virtio-gpu-log/log_format.h"

#define LZ4_RATIO 256u /* it packs a byte into no less than a 255th, roughly */

/* Where a piece's bytes are: which contents chunk, where in it. */
struct place {
    u32 chunk, offset, size;
};
struct contents_chunk {
    u64 offset; /* in the file, of the payload */
    u32 packed_size, raw_size;
    u64 hash; /* of the payload, to notice a file that changes while it is read */
};

struct gpu_log_reader {
    int fd;
    u64 file_size, offset;
    u64 start, start_seed;
    u32 sequence;
    u64 seed;
    struct gpu_chunk_header h;
    u8 *raw, *packed; /* of the records chunk; scratch */
    size_t raw_room, packed_room;
    u32 left;
    size_t at;
    struct gpu_log_base base, previous;
    bool ended;
    u64 commands;
    struct gpu_frames frames;
    struct place *places;
    u64 contents, places_room;
    struct contents_chunk *chunks;
    u32 nchunks, chunks_room;
    u8 *loaded; /* one contents chunk, unpacked */
    size_t loaded_room;
    u32 loaded_chunk; /* plus 1; 0: none */
    struct gpu_rec_start head;
    u8 *capset;
    struct gpu_log_sizes sizes;
    struct gpu_log_damage damage;
    struct gpu_log_mark chunk; /* in front of the chunk that is being read */
};

static bool room(void *buffer, size_t *have, size_t want, size_t each)
{
    if (*have >= want)
        return true;
    void *p = realloc(*(void **)buffer, want * each);
    if (!p)
        return false;
    *(void **)buffer = p;
    *have = want;
    return true;
}

static int read_file_header(struct gpu_log_reader *r, struct err *err)
{
    struct gpu_log_header h;
    struct stat st;
    if (fstat(r->fd, &st))
        return err_errno(err, "cannot stat the GPU log");
    if (!S_ISREG(st.st_mode))
        return err_set(err, -EINVAL, "the GPU log is not a regular file");
    r->file_size = (u64)st.st_size;
    if (r->file_size < sizeof(h))
        return err_set(err, -EINVAL,
                       "the GPU log has %" PRIu64 " bytes, less than its header: it was cut short",
                       r->file_size);
    if (!file_read_at(r->fd, &h, sizeof(h), 0))
        return err_errno(err, "cannot read the GPU log");
    if (memcmp(h.magic, GPU_LOG_MAGIC, sizeof(h.magic)))
        return err_set(err, -EINVAL, "not a GPU log: it does not start as one");
    if (h.check != gpu_log_header_check(&h))
        return err_set(err, -EINVAL, "the GPU log's header (offset 0) is damaged: wrong checksum");
    if (h.version != GPU_LOG_VERSION)
        return err_set(err, -EPROTO,
                       "the GPU log has format version %u; this program reads version %u",
                       h.version, GPU_LOG_VERSION);
    if (h.flags || h.size < sizeof(h) || h.size > r->file_size)
        return err_set(err, -EPROTO, "the GPU log uses features that this program does not know");
    r->start = h.size;
    r->start_seed = h.check;
    return 0;
}

void gpu_log_rewind(struct gpu_log_reader *r)
{
    struct gpu_record first;
    r->offset = r->start;
    r->seed = r->start_seed;
    r->sequence = 0;
    r->left = 0;
    r->previous = (struct gpu_log_base){0, 0};
    r->ended = false;
    r->commands = 0;
    memset(&r->frames, 0, sizeof(r->frames));
    r->contents = 0;
    r->nchunks = 0;
    r->loaded_chunk = 0;
    memset(&r->sizes, 0, sizeof(r->sizes));
    memset(&r->damage, 0, sizeof(r->damage));
    gpu_log_next(r, &first); /* the start record, seen by gpu_log_open */
}

/* Where the next chunk starts, with what came before it. */
static void mark_chunk(const struct gpu_log_reader *r, struct gpu_log_mark *out)
{
    *out = (struct gpu_log_mark){.offset = r->offset,
                                 .seed = r->seed,
                                 .contents = r->contents,
                                 .previous_position = r->previous.position,
                                 .previous_time = r->previous.time,
                                 .commands = r->commands,
                                 .frames = r->frames,
                                 .sizes = r->sizes,
                                 .sequence = r->sequence,
                                 .chunks = r->nchunks,
                                 .ended = r->ended};
}

void gpu_log_mark(const struct gpu_log_reader *r, struct gpu_log_mark *out)
{
    if (r->left) {
        *out = r->chunk;
        out->skip = r->h.entries - r->left;
    } else {
        mark_chunk(r, out);
    }
}

void gpu_log_return(struct gpu_log_reader *r, const struct gpu_log_mark *mark)
{
    struct gpu_record rec;
    r->offset = mark->offset;
    r->seed = mark->seed;
    r->sequence = mark->sequence;
    r->left = 0;
    r->previous = (struct gpu_log_base){mark->previous_position, mark->previous_time};
    r->ended = mark->ended;
    r->commands = mark->commands;
    r->frames = mark->frames;
    r->contents = mark->contents;
    r->nchunks = mark->chunks;
    r->loaded_chunk = 0;
    r->sizes = mark->sizes;
    memset(&r->damage, 0, sizeof(r->damage));
    for (u32 i = 0; i < mark->skip && gpu_log_next(r, &rec); i++)
        ;
}

int gpu_log_open(struct gpu_log_reader **out, int fd, struct err *err)
{
    struct gpu_record first;
    struct gpu_log_reader *r = calloc(1, sizeof(*r));
    if (!r) {
        close(fd);
        return err_set(err, -ENOMEM, "no memory to read the GPU log");
    }
    r->fd = fd;
    int code = read_file_header(r, err);
    if (!code) {
        r->offset = r->start;
        r->seed = r->start_seed;
        if (!gpu_log_next(r, &first))
            code = err_set(err, -EINVAL, "the GPU log has no start: %s", r->damage.text);
        else
            r->head = first.start;
    }
    if (!code && r->head.capset.len) {
        r->capset = malloc(r->head.capset.len);
        if (!r->capset)
            code = err_set(err, -ENOMEM, "no memory to read the GPU log");
        else
            memcpy(r->capset, r->head.capset.data, r->head.capset.len);
    }
    if (code) {
        gpu_log_reader_destroy(r);
        return code;
    }
    r->head.capset.data = r->capset;
    *out = r;
    return 0;
}

void gpu_log_reader_destroy(struct gpu_log_reader *r)
{
    if (!r)
        return;
    close(r->fd);
    free(r->raw);
    free(r->packed);
    free(r->places);
    free(r->chunks);
    free(r->loaded);
    free(r->capset);
    free(r);
}

const struct gpu_rec_start *gpu_log_start(const struct gpu_log_reader *r)
{
    return &r->head;
}

const struct gpu_log_damage *gpu_log_damage(const struct gpu_log_reader *r)
{
    return &r->damage;
}

static PRINTF(3, 4) bool stop(struct gpu_log_reader *r, enum gpu_log_state state, const char *fmt,
                              ...)
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
    r->left = 0;
    return false;
}

static bool header_plausible(const struct gpu_chunk_header *h)
{
    return h->kind <= GPU_CHUNK_CONTENTS && h->raw_size >= 1 && h->raw_size <= GPU_CHUNK_MAX &&
           h->packed_size >= 1 && h->packed_size <= h->raw_size && h->entries >= 1 &&
           h->raw_size / LZ4_RATIO <= h->packed_size && h->entries <= h->raw_size;
}

/* Only zero bytes to the end of the file: what a crashed host's file system leaves. */
static bool rest_is_zero(struct gpu_log_reader *r)
{
    u8 buf[4096];
    for (u64 at = r->offset; at < r->file_size;) {
        size_t n = (size_t)MIN(r->file_size - at, (u64)sizeof(buf));
        if (!file_read_at(r->fd, buf, n, at))
            return false;
        for (size_t i = 0; i < n; i++)
            if (buf[i])
                return false;
        at += n;
    }
    return true;
}

bool gpu_chunk_unpack(const u8 *packed, u32 packed_size, u8 *raw, u32 raw_size)
{
    if (packed_size == raw_size) {
        memcpy(raw, packed, raw_size);
        return true;
    }
    return LZ4_decompress_safe((const char *)packed, (char *)raw, (int)packed_size,
                               (int)raw_size) == (int)raw_size;
}

/* All records of the chunk must decode, and be where they belong. */
static bool check_records(struct gpu_log_reader *r)
{
    struct gpu_log_base base = {0, 0};
    struct gpu_record rec;
    const char *why = "";
    size_t at = 0;
    u64 commands = r->commands;
    for (u32 i = 0; i < r->h.entries; i++) {
        size_t n =
            gpu_record_decode(&rec, &base, r->raw + at, r->h.raw_size - at, r->contents, &why);
        if (!n)
            return stop(r, GPU_LOG_DAMAGED, "record %u: %s", i, why);
        if (i == 0 && (base.position < r->previous.position || base.time < r->previous.time))
            return stop(r, GPU_LOG_DAMAGED, "it starts before the chunk ahead of it ends");
        if ((rec.type == GPU_REC_START) != (r->sequence == 0 && i == 0))
            return stop(r, GPU_LOG_DAMAGED, "record %u: the start record is not where it belongs",
                        i);
        if (rec.type == GPU_REC_END && i + 1 != r->h.entries)
            return stop(r, GPU_LOG_DAMAGED, "record %u ends the log, but more follow", i);
        if (rec.type == GPU_REC_COMMAND)
            commands++;
        if (rec.type == GPU_REC_REPLY && rec.reply.back >= commands)
            return stop(r, GPU_LOG_DAMAGED, "record %u answers a command that there is not", i);
        at += n;
    }
    if (at != r->h.raw_size)
        return stop(r, GPU_LOG_DAMAGED, "its records do not agree with its header");
    r->previous = base;
    r->ended = rec.type == GPU_REC_END;
    return true;
}

/* Notes where each piece of a contents chunk is; their hashes must be right. */
static bool check_contents(struct gpu_log_reader *r)
{
    struct cursor c = {.in = r->raw, .end = r->h.raw_size};
    size_t have = r->places_room;
    if (r->contents + r->h.entries > have &&
        !room(&r->places, &have, MAX(r->contents + r->h.entries, have * 2), sizeof(*r->places)))
        return stop(r, GPU_LOG_DAMAGED, "no memory for its %u pieces", r->h.entries);
    r->places_room = have;
    have = r->chunks_room;
    if (r->nchunks == have && !room(&r->chunks, &have, MAX(64, have * 2), sizeof(*r->chunks)))
        return stop(r, GPU_LOG_DAMAGED, "no memory for its place");
    r->chunks_room = (u32)have;
    for (u32 i = 0; i < r->h.entries; i++) {
        const u8 *hash = cursor_get(&c, sizeof(XXH128_canonical_t));
        u64 size = cursor_get_varint(&c);
        size_t at = c.at;
        const u8 *data = cursor_get(&c, size);
        if (!hash || !data || !size || size > GPU_PIECE)
            return stop(r, GPU_LOG_DAMAGED, "piece %u does not fit it", i);
        XXH128_canonical_t want;
        memcpy(&want, hash, sizeof(want));
        if (!XXH128_isEqual(XXH3_128bits(data, size), XXH128_hashFromCanonical(&want)))
            return stop(r, GPU_LOG_DAMAGED, "piece %u is not what its hash says", i);
        r->places[r->contents + i] = (struct place){r->nchunks, (u32)at, (u32)size};
        r->sizes.kept += size;
    }
    if (c.at != c.end)
        return stop(r, GPU_LOG_DAMAGED, "its pieces do not agree with its header");
    r->chunks[r->nchunks++] =
        (struct contents_chunk){r->offset + sizeof(r->h), r->h.packed_size, r->h.raw_size,
                                XXH3_64bits(r->packed, r->h.packed_size)};
    r->contents += r->h.entries;
    return true;
}

/* The next chunk, of either kind, checked. */
static bool load_chunk(struct gpu_log_reader *r)
{
    struct gpu_chunk_header *h = &r->h;
    u64 rest = r->file_size - r->offset;
    if (!rest && r->ended) {
        r->damage.state = GPU_LOG_COMPLETE;
        return false;
    }
    if (!rest)
        return stop(r, GPU_LOG_KILLED, "not there: the recorder was killed, or could not write");
    if (r->ended)
        return stop(r, GPU_LOG_DAMAGED, "%" PRIu64 " bytes follow the end of the log", rest);
    if (rest < sizeof(*h))
        return stop(r, GPU_LOG_TRUNCATED, "only %" PRIu64 " bytes of it are there", rest);
    if (!file_read_at(r->fd, h, sizeof(*h), r->offset))
        return stop(r, GPU_LOG_DAMAGED, "cannot be read: %s", strerror(errno));
    if (h->header_check != gpu_chunk_header_check(h)) {
        if (rest_is_zero(r))
            return stop(r, GPU_LOG_TRUNCATED, "only zero bytes from here to the end of the file");
        return stop(r, GPU_LOG_DAMAGED, "wrong checksum of its header");
    }
    if (h->magic != GPU_CHUNK_MAGIC || !header_plausible(h))
        return stop(r, GPU_LOG_DAMAGED, "its header makes no sense");
    if (h->sequence != r->sequence)
        return stop(r, GPU_LOG_DAMAGED, "it is numbered %u", h->sequence);
    if (h->packed_size > rest - sizeof(*h))
        return stop(r, GPU_LOG_TRUNCATED, "only %" PRIu64 " of its %" PRIu64 " bytes are there",
                    rest, (u64)h->packed_size + sizeof(*h));
    if (!room(&r->packed, &r->packed_room, h->packed_size, 1) ||
        !room(&r->raw, &r->raw_room, h->raw_size, 1))
        return stop(r, GPU_LOG_DAMAGED, "no memory for its %u bytes", h->raw_size);
    if (!file_read_at(r->fd, r->packed, h->packed_size, r->offset + sizeof(*h)))
        return stop(r, GPU_LOG_DAMAGED, "cannot be read: %s",
                    errno ? strerror(errno) : "file changed");
    if (h->check != gpu_chunk_check(h, r->packed, r->seed))
        return stop(r, GPU_LOG_DAMAGED, "wrong checksum");
    if (!gpu_chunk_unpack(r->packed, h->packed_size, r->raw, h->raw_size))
        return stop(r, GPU_LOG_DAMAGED, "cannot be decompressed");
    if (h->kind == GPU_CHUNK_RECORDS ? !check_records(r) : !check_contents(r))
        return false;
    r->offset += sizeof(*h) + h->packed_size;
    r->seed = h->check;
    r->sequence++;
    if (h->kind == GPU_CHUNK_RECORDS) {
        r->sizes.words += h->raw_size;
        r->sizes.packed += h->packed_size;
        r->left = h->entries;
        r->at = 0;
        r->base = (struct gpu_log_base){0, 0};
    }
    return true;
}

static void count_ranges(struct gpu_log_reader *r, const struct gpu_ranges *ranges)
{
    struct gpu_range range;
    for (u32 at = 0; gpu_ranges_next(ranges, &at, &range);)
        r->sizes.carried += range.bytes.size;
}

int gpu_log_next(struct gpu_log_reader *r, struct gpu_record *rec)
{
    const char *why;
    if (r->damage.state != GPU_LOG_READING)
        return 0;
    while (!r->left) {
        mark_chunk(r, &r->chunk);
        if (!load_chunk(r))
            return 0;
    }
    r->at += gpu_record_decode(rec, &r->base, r->raw + r->at, r->h.raw_size - r->at, r->contents,
                               &why); /* cannot fail: check_records has seen it */
    r->left--;
    if (rec->type == GPU_REC_COMMAND) {
        struct gpu_command c;
        gpu_record_command(rec, &c);
        rec->frame = gpu_frames_step(&r->frames, &c);
        rec->number = r->commands++;
        count_ranges(r, &rec->command.uploads);
    } else if (rec->type == GPU_REC_REPLY) {
        rec->number = r->commands - 1 - rec->reply.back;
        r->sizes.carried += rec->reply.body.size;
        count_ranges(r, &rec->reply.readback);
    } else if (rec->type == GPU_REC_RESET) {
        gpu_frames_reset(&r->frames);
    }
    return 1;
}

static int load_contents(struct gpu_log_reader *r, u32 chunk, struct err *err)
{
    const struct contents_chunk *c = &r->chunks[chunk];
    if (r->loaded_chunk == chunk + 1)
        return 0;
    r->loaded_chunk = 0;
    if (!room(&r->loaded, &r->loaded_room, c->raw_size, 1) ||
        !room(&r->packed, &r->packed_room, c->packed_size, 1))
        return err_set(err, -ENOMEM, "no memory for contents of the GPU log");
    if (!file_read_at(r->fd, r->packed, c->packed_size, c->offset) ||
        XXH3_64bits(r->packed, c->packed_size) != c->hash ||
        !gpu_chunk_unpack(r->packed, c->packed_size, r->loaded, c->raw_size))
        return err_set(err, -EIO, "the GPU log changed while it was read (offset %" PRIu64 ")",
                       c->offset);
    r->loaded_chunk = chunk + 1;
    return 0;
}

int gpu_log_read(struct gpu_log_reader *r, const struct gpu_blob *blob, u64 offset, void *out,
                 u64 size, struct err *err)
{
    struct cursor c = {.in = blob->refs, .end = blob->refs_size};
    u8 *to = out;
    if (offset > blob->size || size > blob->size - offset)
        return err_set(err, -EINVAL, "there are only %" PRIu64 " bytes", blob->size);
    for (u64 at = 0; size; at += GPU_PIECE) {
        u64 number = cursor_get_varint(&c);
        u64 want = MIN(blob->size - at, (u64)GPU_PIECE);
        if (offset >= at + want)
            continue;
        if (c.bad || number >= r->contents || r->places[number].size != want)
            return err_set(err, -EINVAL,
                           "the GPU log is damaged: a piece of %" PRIu64 " bytes is missing", want);
        int code = load_contents(r, r->places[number].chunk, err);
        if (code)
            return code;
        u64 skip = offset - at, n = MIN(want - skip, size);
        memcpy(to, r->loaded + r->places[number].offset + skip, n);
        to += n;
        offset += n;
        size -= n;
    }
    return 0;
}

void gpu_log_reader_sizes(const struct gpu_log_reader *r, struct gpu_log_sizes *out)
{
    *out = r->sizes;
    out->file = r->offset;
    out->commands = r->commands;
    out->frames = r->frames.count;
    out->contents = r->contents;
}
