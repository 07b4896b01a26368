/*
 * The reader of gpu.log. Whatever the bytes are, it hands out the records of all chunks up to the
 * first bad one and then says which that is, where it starts and what is wrong with it. Memory is
 * bounded by the file: a chunk may not claim more than LZ4 can pack into it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file_io.h"
#include "virtio-gpu-log/log_format.h"

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
    struct chunk_reader file;
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

void gpu_log_rewind(struct gpu_log_reader *r)
{
    struct gpu_record first;
    chunks_rewind(&r->file);
    r->left = 0;
    r->previous = (struct gpu_log_base){0, 0};
    r->ended = false;
    r->commands = 0;
    memset(&r->frames, 0, sizeof(r->frames));
    r->contents = 0;
    r->nchunks = 0;
    r->loaded_chunk = 0;
    memset(&r->sizes, 0, sizeof(r->sizes));
    gpu_log_next(r, &first); /* the start record, seen by gpu_log_open */
}

/* Where the next chunk starts, with what came before it. */
static void mark_chunk(const struct gpu_log_reader *r, struct gpu_log_mark *out)
{
    *out = (struct gpu_log_mark){.offset = r->file.offset,
                                 .seed = r->file.seed,
                                 .contents = r->contents,
                                 .previous_position = r->previous.position,
                                 .previous_time = r->previous.time,
                                 .commands = r->commands,
                                 .frames = r->frames,
                                 .sizes = r->sizes,
                                 .sequence = r->file.sequence,
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
    r->file.offset = mark->offset;
    r->file.seed = mark->seed;
    r->file.sequence = mark->sequence;
    r->left = 0;
    r->previous = (struct gpu_log_base){mark->previous_position, mark->previous_time};
    r->ended = mark->ended;
    r->commands = mark->commands;
    r->frames = mark->frames;
    r->contents = mark->contents;
    r->nchunks = mark->chunks;
    r->loaded_chunk = 0;
    r->sizes = mark->sizes;
    memset(&r->file.damage, 0, sizeof(r->file.damage));
    for (u32 i = 0; i < mark->skip && gpu_log_next(r, &rec); i++)
        ;
}

int gpu_log_open(struct gpu_log_reader **out, int fd, struct err *err)
{
    return gpu_log_open_blob(out, blob_of(fd), err);
}

int gpu_log_open_blob(struct gpu_log_reader **out, struct blob blob, struct err *err)
{
    struct gpu_record first;
    struct gpu_log_reader *r = calloc(1, sizeof(*r));
    if (!r) {
        blob_close(&blob);
        return err_set(err, -ENOMEM, "no memory to read the GPU log");
    }
    r->file.blob = blob;
    struct chunk_file_header h;
    int code = chunks_open(&r->file, &gpu_log_format, blob, &h, err);
    if (!code) {
        if (!gpu_log_next(r, &first))
            code = err_set(err, -EINVAL, "the GPU log has no start: %s", r->file.damage.text);
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
    blob_close(&r->file.blob);
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

const struct chunk_damage *gpu_log_damage(const struct gpu_log_reader *r)
{
    return &r->file.damage;
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
            return chunks_stop(&r->file, CHUNKS_DAMAGED, "record %u: %s", i, why);
        if (i == 0 && (base.position < r->previous.position || base.time < r->previous.time))
            return chunks_stop(&r->file, CHUNKS_DAMAGED,
                               "it starts before the chunk ahead of it ends");
        if ((rec.type == GPU_REC_START) != (r->file.sequence == 0 && i == 0))
            return chunks_stop(&r->file, CHUNKS_DAMAGED,
                               "record %u: the start record is not where it belongs", i);
        if (rec.type == GPU_REC_END && i + 1 != r->h.entries)
            return chunks_stop(&r->file, CHUNKS_DAMAGED, "record %u ends the log, but more follow",
                               i);
        if (rec.type == GPU_REC_COMMAND)
            commands++;
        if (rec.type == GPU_REC_REPLY && rec.reply.back >= commands)
            return chunks_stop(&r->file, CHUNKS_DAMAGED,
                               "record %u answers a command that there is not", i);
        at += n;
    }
    if (at != r->h.raw_size)
        return chunks_stop(&r->file, CHUNKS_DAMAGED, "its records do not agree with its header");
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
        return chunks_stop(&r->file, CHUNKS_DAMAGED, "no memory for its %u pieces", r->h.entries);
    r->places_room = have;
    have = r->chunks_room;
    if (r->nchunks == have && !room(&r->chunks, &have, MAX(64, have * 2), sizeof(*r->chunks)))
        return chunks_stop(&r->file, CHUNKS_DAMAGED, "no memory for its place");
    r->chunks_room = (u32)have;
    for (u32 i = 0; i < r->h.entries; i++) {
        const u8 *hash = cursor_get(&c, sizeof(XXH128_canonical_t));
        u64 size = cursor_get_varint(&c);
        size_t at = c.at;
        const u8 *data = cursor_get(&c, size);
        if (!hash || !data || !size || size > GPU_PIECE)
            return chunks_stop(&r->file, CHUNKS_DAMAGED, "piece %u does not fit it", i);
        XXH128_canonical_t want;
        memcpy(&want, hash, sizeof(want));
        if (!XXH128_isEqual(XXH3_128bits(data, size), XXH128_hashFromCanonical(&want)))
            return chunks_stop(&r->file, CHUNKS_DAMAGED, "piece %u is not what its hash says", i);
        r->places[r->contents + i] = (struct place){r->nchunks, (u32)at, (u32)size};
        r->sizes.kept += size;
    }
    if (c.at != c.end)
        return chunks_stop(&r->file, CHUNKS_DAMAGED, "its pieces do not agree with its header");
    r->chunks[r->nchunks++] =
        (struct contents_chunk){r->file.offset + sizeof(r->h), r->h.packed_size, r->h.raw_size,
                                XXH3_64bits(r->packed, r->h.packed_size)};
    r->contents += r->h.entries;
    return true;
}

/* The next chunk, of either kind, checked. */
static bool load_chunk(struct gpu_log_reader *r)
{
    struct gpu_chunk_header *h = &r->h;
    u64 rest = r->file.file_size - r->file.offset;
    if (!rest && r->ended) {
        r->file.damage.state = CHUNKS_COMPLETE;
        return false;
    }
    if (!rest)
        return chunks_stop(&r->file, CHUNKS_KILLED,
                           "not there: the recorder was killed, or could not write");
    if (r->ended)
        return chunks_stop(&r->file, CHUNKS_DAMAGED, "%" PRIu64 " bytes follow the end of the log",
                           rest);
    if (!chunks_header(&r->file, h))
        return false;
    if (!room(&r->packed, &r->packed_room, h->packed_size, 1) ||
        !room(&r->raw, &r->raw_room, h->raw_size, 1))
        return chunks_stop(&r->file, CHUNKS_DAMAGED, "no memory for its %u bytes", h->raw_size);
    if (!chunks_payload(&r->file, h, r->packed))
        return false;
    if (!chunk_unpack(r->packed, h->packed_size, r->raw, h->raw_size))
        return chunks_stop(&r->file, CHUNKS_DAMAGED, "cannot be decompressed");
    if (h->kind == GPU_CHUNK_RECORDS ? !check_records(r) : !check_contents(r))
        return false;
    chunks_past(&r->file, h);
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
    if (r->file.damage.state != CHUNKS_READING)
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
    if (!blob_read_at(&r->file.blob, r->packed, c->packed_size, c->offset) ||
        XXH3_64bits(r->packed, c->packed_size) != c->hash ||
        !chunk_unpack(r->packed, c->packed_size, r->loaded, c->raw_size))
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
    out->file = r->file.offset;
    out->commands = r->commands;
    out->frames = r->frames.count;
    out->contents = r->contents;
}
