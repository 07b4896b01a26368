/*
 * The log's reader. Whatever the bytes are, it hands out the records of all chunks up to the first
 * bad one and then says which that is, where it starts and what is wrong with it.
 */
#include "base/file_io.h"
#include "replay/log_format.h"

#include <errno.h>
#include <inttypes.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct log_reader {
    struct chunk_reader file;
    struct blob tail; /* closed: none */
    bool in_tail;     /* the current chunk is the tail */
    int sealed;       /* the chunks have seals: 1, 0, or not known yet: -1 */
    struct sha256 start_seal, seal;
    struct sha256 seal_before; /* the current chunk */
    struct sha256_stream *sha;
    u64 raw_total;
    bool last_seen;              /* a chunk with LOG_CHUNK_LAST */
    u64 last_type;               /* of the last record of the last chunk */
    struct record_base previous; /* end of the chunk before */
    struct log_chunk_header h;
    struct log_place chunk; /* where the current chunk is; taken is not kept up */
    u32 left;               /* records of this chunk not handed out yet */
    size_t at;
    struct record_base base;
    u64 index;
    u8 raw[LOG_CHUNK_MAX];
    u8 packed[LZ4_COMPRESSBOUND(LOG_CHUNK_MAX)];
};

int log_reader_open(struct log_reader **out, struct blob blob, struct err *err)
{
    struct log_reader *r = calloc(1, sizeof(*r));
    if (!r) {
        blob_close(&blob);
        return err_set(err, -ENOMEM, "no memory to read the log");
    }
    r->file.blob = blob;
    r->tail = (struct blob)BLOB_CLOSED;
    r->sha = sha256_create();
    struct chunk_file_header h;
    int code = r->sha ? chunks_open(&r->file, &log_format, blob, &h, err)
                      : err_set(err, -ENOMEM, "no memory to read the log");
    if (code) {
        log_reader_destroy(r);
        return code;
    }
    r->start_seal = log_file_seal(r->sha, &h);
    log_rewind(r);
    *out = r;
    return 0;
}

int log_reader_create(struct log_reader **out, int fd, struct err *err)
{
    return log_reader_open(out, blob_of(fd), err);
}

void log_reader_tail(struct log_reader *r, struct blob tail)
{
    blob_close(&r->tail);
    r->tail = tail;
}

bool log_seal(const struct log_reader *r, struct sha256 *out)
{
    *out = r->seal;
    return r->sealed > 0;
}

void log_rewind(struct log_reader *r)
{
    r->in_tail = false;
    r->sealed = -1;
    r->seal = r->start_seal;
    chunks_rewind(&r->file);
    r->raw_total = 0;
    r->last_seen = false;
    r->last_type = 0;
    r->previous = (struct record_base){0, 0};
    r->left = 0;
    r->index = 0;
}

void log_reader_destroy(struct log_reader *r)
{
    if (!r)
        return;
    blob_close(&r->file.blob);
    blob_close(&r->tail);
    sha256_destroy(r->sha);
    free(r);
}

const struct chunk_damage *log_damage(const struct log_reader *r)
{
    return &r->file.damage;
}

/* The file ends at a chunk's border. */
static bool stop_at_border(struct log_reader *r)
{
    if (r->last_type == REC_END) {
        r->file.damage.state = CHUNKS_COMPLETE;
        return false;
    }
    if (r->last_type == REC_CUT)
        return chunks_stop(&r->file, CHUNKS_CUT, "the recorder could not write any further");
    return chunks_stop(&r->file, CHUNKS_KILLED,
                       "%s: the recorder was killed before it ended the log",
                       r->in_tail ? "only in the tail" : "not there");
}

/* All records of the chunk must decode, and agree with its header. */
static bool check_records(struct log_reader *r)
{
    const struct log_chunk_header *h = &r->h;
    struct record_base base = {h->first_position, h->first_time};
    struct record rec;
    const char *why;
    size_t at = 0;
    if (base.position < r->previous.position || base.time < r->previous.time)
        return chunks_stop(&r->file, CHUNKS_DAMAGED, "it starts before the chunk ahead of it ends");
    for (u32 i = 0; i < h->records; i++) {
        size_t n = record_decode(&rec, &base, r->raw + at, h->raw_size - at, &why);
        if (!n)
            return chunks_stop(&r->file, CHUNKS_DAMAGED, "record %u: %s", i, why);
        bool ends = rec.type == REC_END || rec.type == REC_CUT;
        if (ends && i + 1 != h->records)
            return chunks_stop(&r->file, CHUNKS_DAMAGED, "record %u ends the log, but more follow",
                               i);
        if ((rec.type == REC_START) != (r->file.sequence == 0 && i == 0))
            return chunks_stop(&r->file, CHUNKS_DAMAGED,
                               "record %u: the start record is not where it belongs", i);
        at += n;
    }
    if (at != h->raw_size || (!r->in_tail && base.position != h->last_position))
        return chunks_stop(&r->file, CHUNKS_DAMAGED, "its records do not agree with its header");
    r->last_type = rec.type;
    r->previous = base;
    return true;
}

static struct log_place border(const struct log_reader *r)
{
    return (struct log_place){.offset = r->file.offset,
                              .seed = r->file.seed,
                              .index = r->index,
                              .position = r->previous.position,
                              .time = r->previous.time,
                              .sequence = r->file.sequence,
                              .last_type = (u32)r->last_type,
                              .last_seen = r->last_seen};
}

void log_tell(const struct log_reader *r, struct log_place *out)
{
    if (!r->left && !r->in_tail) {
        *out = border(r);
        return;
    }
    *out = r->chunk; /* the tail's end is no place of the log: a chunk could follow there */
    out->taken = r->h.records - r->left;
}

bool log_place_equal(const struct log_place *a, const struct log_place *b)
{
    return a->offset == b->offset && a->taken == b->taken && a->seed == b->seed &&
           a->index == b->index && a->position == b->position && a->time == b->time &&
           a->sequence == b->sequence && a->last_type == b->last_type;
}

struct sha256 log_before(const struct log_reader *r)
{
    if (!r->left && !r->in_tail)
        return r->seal;
    return log_part_seal(&r->seal_before, r->h.first_position, r->h.first_time, r->raw, r->at);
}

void log_prefix(const struct log_reader *r, struct log_prefix *out)
{
    bool within = r->left || r->in_tail;
    *out = (struct log_prefix){.blob = &r->file.blob,
                               .sealed = r->sealed != 0,
                               .chunk = within ? r->chunk : border(r),
                               .seal = within ? r->seal_before : r->seal};
    if (!within)
        return;
    out->first = (struct record_base){r->h.first_position, r->h.first_time};
    out->base = r->base;
    out->raw = r->raw;
    out->raw_size = r->at;
    out->records = r->h.records - r->left;
}

int log_seek(struct log_reader *r, const struct log_place *place, struct err *err)
{
    struct record rec;
    log_rewind(r);
    if (place->offset < r->file.start || place->offset > r->file.file_size)
        return err_set(err, -EINVAL, "the log has no offset %" PRIu64, place->offset);
    r->file.offset = place->offset;
    r->file.seed = place->seed;
    r->index = place->index;
    r->previous = (struct record_base){place->position, place->time};
    r->file.sequence = place->sequence;
    r->last_type = place->last_type;
    r->last_seen = place->last_seen;
    /* The seal before stands right there. That the first one follows from the file's start only a
     * pass over all of it can say (log_seal). */
    if (place->sequence && place->offset - r->file.start >= sizeof(r->seal) &&
        !blob_read_at(&r->file.blob, &r->seal, sizeof(r->seal), place->offset - sizeof(r->seal)))
        return err_set(err, -EINVAL, "the log cannot be read before offset %" PRIu64,
                       place->offset);
    for (u32 i = 0; i < place->taken; i++)
        if ((i && !r->left) || !log_next(r, &rec)) {
            int code = err_set(err, -EINVAL, "the log is not the one that belongs to it (%s)",
                               r->file.damage.text[0] ? r->file.damage.text
                                                      : "too few records in a chunk");
            log_rewind(r);
            return code;
        }
    return 0;
}

/* The seal after the payload; all chunks have one, or none. */
static bool check_seal(struct log_reader *r)
{
    struct sha256 seal, is;
    bool sealed = r->h.flags & LOG_CHUNK_SEALED;
    if (r->sealed >= 0 && sealed != r->sealed)
        return chunks_stop(&r->file, CHUNKS_DAMAGED, "%s",
                           sealed ? "it is sealed, those before are not"
                                  : "it is not sealed, those before are");
    r->sealed = sealed;
    is = log_chunk_seal(r->sha, &r->seal, &r->h, r->packed);
    if (!sealed) { /* for log_before(), as if it were there */
        r->seal = is;
        return true;
    }
    if (!blob_read_at(&r->file.blob, &seal, sizeof(seal),
                      r->file.offset + sizeof(r->h) + r->h.packed_size))
        return chunks_stop(&r->file, CHUNKS_DAMAGED, "cannot be read: %s", blob_why(&r->file.blob));
    if (!sha256_equal(&seal, &is))
        return chunks_stop(&r->file, CHUNKS_DAMAGED, "wrong seal");
    r->seal = seal;
    return true;
}

/* Header and payload of the chunk at r->file.offset, all its checks but those of the records. */
static bool read_chunk(struct log_reader *r)
{
    struct log_chunk_header *h = &r->h;
    u64 rest = r->file.file_size - r->file.offset;
    if (!rest)
        return stop_at_border(r);
    if (r->last_seen || r->last_type == REC_END || r->last_type == REC_CUT)
        return chunks_stop(&r->file, CHUNKS_DAMAGED, "%" PRIu64 " bytes follow the end of the log",
                           rest);
    if (!chunks_header(&r->file, h) || !chunks_payload(&r->file, h, r->packed))
        return false;
    if (!check_seal(r))
        return false;
    if (!chunk_unpack(r->packed, h->packed_size, r->raw, h->raw_size))
        return chunks_stop(&r->file, CHUNKS_DAMAGED, "cannot be decompressed");
    return true;
}

/* A log that was not ended goes on in its tail. */
static bool read_tail(struct log_reader *r)
{
    if (!blob_is_open(&r->tail) || r->last_seen || r->last_type == REC_END ||
        r->last_type == REC_CUT ||
        !log_tail_get(&r->tail, r->file.offset, r->file.seed, &r->h, r->raw))
        return false;
    memset(&r->file.damage, 0, sizeof(r->file.damage));
    r->in_tail = true;
    return true;
}

static bool load_chunk(struct log_reader *r)
{
    struct log_chunk_header *h = &r->h;
    struct log_place here = border(r);
    if (r->in_tail)
        return stop_at_border(r);
    r->seal_before = r->seal;
    if (!read_chunk(r) && !read_tail(r))
        return false;
    if (!check_records(r))
        return false;
    r->chunk = here;
    if (!r->in_tail) {
        chunks_past(&r->file, h);
        r->raw_total += h->raw_size;
        r->last_seen = h->flags & LOG_CHUNK_LAST;
    }
    r->left = h->records;
    r->at = 0;
    r->base = (struct record_base){h->first_position, h->first_time};
    return true;
}

int log_next(struct log_reader *r, struct record *rec)
{
    if (r->file.damage.state != CHUNKS_READING || (!r->left && !load_chunk(r)))
        return 0;
    const char *why = "";
    size_t n = record_decode(rec, &r->base, r->raw + r->at, r->h.raw_size - r->at, &why);
    r->at += n; /* cannot fail: check_records has seen it */
    r->left--;
    rec->index = r->index++;
    return 1;
}

void log_summarise(struct log_reader *r, struct log_summary *out)
{
    log_pass(r, out, NULL, NULL);
}

void log_pass(struct log_reader *r, struct log_summary *out,
              void (*each)(void *opaque, const struct record *rec), void *opaque)
{
    struct record rec;
    memset(out, 0, sizeof(*out));
    _Static_assert(LOG_COUNTS >= 32, "room for the types of records.def");
    while (log_next(r, &rec)) {
        if (each)
            each(opaque, &rec);
        out->records++;
        out->tail += r->in_tail;
        out->last_position = rec.position;
        out->last_time = rec.time;
        const struct record_desc *desc = record_desc(rec.type);
        if (desc && (size_t)(desc - record_table) < LOG_COUNTS)
            out->counts[desc - record_table]++;
        else
            out->remarks++;
        if (rec.type == REC_PROGRESS)
            out->host_ns = rec.progress.host_ns;
        if (rec.type == REC_END) {
            out->has_end = true;
            out->end_reason = rec.end.reason;
            out->end_arg = rec.end.arg;
            out->modes = rec.end.modes;
            out->host_ns = rec.end.host_ns;
        }
    }
    out->damage = r->file.damage;
    out->file_bytes = r->file.file_size;
    out->good_bytes = r->file.offset;
    out->raw_bytes = r->raw_total;
    out->chunks = r->file.sequence;
    log_rewind(r);
}
