/*
 * The log's reader. Whatever the bytes are, it hands out the records of all chunks up to the first
 * bad one and then says which that is, where it starts and what is wrong with it.
 */
#include "base/file_io.h"
#include "replay/log_format.h"

#include <errno.h>
#include <inttypes.h>
#include <lz4.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct log_reader {
    int fd;
    u64 file_size;
    u64 offset; /* of the next chunk */
    u64 start, start_seed;
    u32 sequence;
    u64 seed;
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
    struct log_damage damage;
    u8 raw[LOG_CHUNK_MAX];
    u8 packed[LZ4_COMPRESSBOUND(LOG_CHUNK_MAX)];
};

static int read_file_header(struct log_reader *r, struct err *err)
{
    struct log_file_header h;
    struct stat st;
    if (fstat(r->fd, &st))
        return err_errno(err, "cannot stat the log");
    if (!S_ISREG(st.st_mode))
        return err_set(err, -EINVAL, "the log is not a regular file");
    r->file_size = (u64)st.st_size;
    if (r->file_size < sizeof(h))
        return err_set(err, -EINVAL, "the log has %" PRIu64 " bytes, less than its header: %s",
                       r->file_size,
                       r->file_size ? "it was cut short" : "its recorder was killed at the start");
    if (!file_read_at(r->fd, &h, sizeof(h), 0))
        return err_errno(err, "cannot read the log");
    if (memcmp(h.magic, LOG_MAGIC, sizeof(h.magic)))
        return err_set(err, -EINVAL, "not a Reprise log: it does not start as one");
    if (h.check != log_file_check(&h)) {
        /* An unknown version may check its header otherwise, but a flipped bit is likelier. */
        return err_set(err, -EINVAL, "the log's file header (offset 0) is damaged: wrong checksum");
    }
    if (h.version != LOG_VERSION)
        return err_set(err, -EPROTO, "the log has format version %u; this program reads version %u",
                       h.version, LOG_VERSION);
    if (h.flags || h.size < sizeof(h) || h.size > r->file_size)
        return err_set(err, -EPROTO, "the log uses features that this program does not know");
    r->start = h.size;
    r->start_seed = h.check;
    return 0;
}

int log_reader_create(struct log_reader **out, int fd, struct err *err)
{
    struct log_reader *r = calloc(1, sizeof(*r));
    if (!r) {
        close(fd);
        return err_set(err, -ENOMEM, "no memory to read the log");
    }
    r->fd = fd;
    int code = read_file_header(r, err);
    if (code) {
        log_reader_destroy(r);
        return code;
    }
    log_rewind(r);
    *out = r;
    return 0;
}

void log_rewind(struct log_reader *r)
{
    r->offset = r->start;
    r->seed = r->start_seed;
    r->sequence = 0;
    r->raw_total = 0;
    r->last_seen = false;
    r->last_type = 0;
    r->previous = (struct record_base){0, 0};
    r->left = 0;
    r->index = 0;
    memset(&r->damage, 0, sizeof(r->damage));
}

void log_reader_destroy(struct log_reader *r)
{
    if (!r)
        return;
    close(r->fd);
    free(r);
}

const struct log_damage *log_damage(const struct log_reader *r)
{
    return &r->damage;
}

static PRINTF(3, 4) bool stop(struct log_reader *r, enum log_state state, const char *fmt, ...)
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

/* The file ends at a chunk's border. */
static bool stop_at_border(struct log_reader *r)
{
    if (r->last_type == REC_END) {
        r->damage.state = LOG_COMPLETE;
        return false;
    }
    if (r->last_type == REC_CUT)
        return stop(r, LOG_CUT, "the recorder could not write any further");
    return stop(r, LOG_KILLED, "not there: the recorder was killed before it ended the log");
}

static bool header_plausible(const struct log_chunk_header *h)
{
    return h->raw_size >= 1 && h->raw_size <= LOG_CHUNK_MAX && h->packed_size >= 1 &&
           h->packed_size <= h->raw_size && h->records >= 1 &&
           h->first_position <= h->last_position && !(h->flags & ~LOG_CHUNK_LAST);
}

/* Only zero bytes to the end of the file: what a crashed host's file system leaves. */
static bool rest_is_zero(struct log_reader *r)
{
    for (u64 at = r->offset; at < r->file_size;) {
        size_t n = (size_t)MIN(r->file_size - at, (u64)sizeof(r->packed));
        if (!file_read_at(r->fd, r->packed, n, at))
            return false;
        for (size_t i = 0; i < n; i++)
            if (r->packed[i])
                return false;
        at += n;
    }
    return true;
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
        return stop(r, LOG_DAMAGED, "it starts before the chunk ahead of it ends");
    for (u32 i = 0; i < h->records; i++) {
        size_t n = record_decode(&rec, &base, r->raw + at, h->raw_size - at, &why);
        if (!n)
            return stop(r, LOG_DAMAGED, "record %u: %s", i, why);
        bool ends = rec.type == REC_END || rec.type == REC_CUT;
        if (ends && i + 1 != h->records)
            return stop(r, LOG_DAMAGED, "record %u ends the log, but more follow", i);
        if ((rec.type == REC_START) != (r->sequence == 0 && i == 0))
            return stop(r, LOG_DAMAGED, "record %u: the start record is not where it belongs", i);
        at += n;
    }
    if (at != h->raw_size || base.position != h->last_position)
        return stop(r, LOG_DAMAGED, "its records do not agree with its header");
    r->last_type = rec.type;
    r->previous = base;
    return true;
}

static struct log_place border(const struct log_reader *r)
{
    return (struct log_place){.offset = r->offset,
                              .seed = r->seed,
                              .index = r->index,
                              .position = r->previous.position,
                              .time = r->previous.time,
                              .sequence = r->sequence,
                              .last_type = (u32)r->last_type,
                              .last_seen = r->last_seen};
}

void log_tell(const struct log_reader *r, struct log_place *out)
{
    if (!r->left) {
        *out = border(r);
        return;
    }
    *out = r->chunk;
    out->taken = r->h.records - r->left;
}

int log_seek(struct log_reader *r, const struct log_place *place, struct err *err)
{
    struct record rec;
    log_rewind(r);
    if (place->offset < r->start || place->offset > r->file_size)
        return err_set(err, -EINVAL, "the log has no offset %" PRIu64, place->offset);
    r->offset = place->offset;
    r->seed = place->seed;
    r->index = place->index;
    r->previous = (struct record_base){place->position, place->time};
    r->sequence = place->sequence;
    r->last_type = place->last_type;
    r->last_seen = place->last_seen;
    for (u32 i = 0; i < place->taken; i++)
        if ((i && !r->left) || !log_next(r, &rec)) {
            int code = err_set(err, -EINVAL, "the log is not the one that belongs to it (%s)",
                               r->damage.text[0] ? r->damage.text : "too few records in a chunk");
            log_rewind(r);
            return code;
        }
    return 0;
}

static bool load_chunk(struct log_reader *r)
{
    struct log_chunk_header *h = &r->h;
    struct log_place here = border(r);
    u64 rest = r->file_size - r->offset;
    if (!rest)
        return stop_at_border(r);
    if (r->last_seen || r->last_type == REC_END || r->last_type == REC_CUT)
        return stop(r, LOG_DAMAGED, "%" PRIu64 " bytes follow the end of the log", rest);
    if (rest < sizeof(*h))
        return stop(r, LOG_TRUNCATED, "only %" PRIu64 " bytes of it are there", rest);
    if (!file_read_at(r->fd, h, sizeof(*h), r->offset))
        return stop(r, LOG_DAMAGED, "cannot be read: %s", strerror(errno));
    if (h->header_check != log_chunk_header_check(h)) {
        if (rest_is_zero(r))
            return stop(r, LOG_TRUNCATED, "only zero bytes from here to the end of the file");
        return stop(r, LOG_DAMAGED, "wrong checksum of its header");
    }
    if (h->magic != LOG_CHUNK_MAGIC || !header_plausible(h))
        return stop(r, LOG_DAMAGED, "its header makes no sense");
    if (h->sequence != r->sequence)
        return stop(r, LOG_DAMAGED, "it is numbered %u", h->sequence);
    if (h->packed_size > rest - sizeof(*h))
        return stop(r, LOG_TRUNCATED, "only %" PRIu64 " of its %" PRIu64 " bytes are there", rest,
                    (u64)h->packed_size + sizeof(*h));
    if (!file_read_at(r->fd, r->packed, h->packed_size, r->offset + sizeof(*h)))
        return stop(r, LOG_DAMAGED, "cannot be read: %s", errno ? strerror(errno) : "file changed");
    if (h->check != log_chunk_check(h, r->packed, r->seed))
        return stop(r, LOG_DAMAGED, "wrong checksum");
    if (h->packed_size == h->raw_size)
        memcpy(r->raw, r->packed, h->raw_size);
    else if (LZ4_decompress_safe((const char *)r->packed, (char *)r->raw, (int)h->packed_size,
                                 (int)h->raw_size) != (int)h->raw_size)
        return stop(r, LOG_DAMAGED, "cannot be decompressed");
    if (!check_records(r))
        return false;
    r->chunk = here;
    r->offset += sizeof(*h) + h->packed_size;
    r->seed = h->check;
    r->sequence++;
    r->raw_total += h->raw_size;
    r->last_seen = h->flags & LOG_CHUNK_LAST;
    r->left = h->records;
    r->at = 0;
    r->base = (struct record_base){h->first_position, h->first_time};
    return true;
}

int log_next(struct log_reader *r, struct record *rec)
{
    if (r->damage.state != LOG_READING || (!r->left && !load_chunk(r)))
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
    struct record rec;
    memset(out, 0, sizeof(*out));
    _Static_assert(LOG_COUNTS >= 32, "room for the types of records.def");
    while (log_next(r, &rec)) {
        out->records++;
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
            out->host_ns = rec.end.host_ns;
        }
    }
    out->damage = r->damage;
    out->file_bytes = r->file_size;
    out->good_bytes = r->offset;
    out->raw_bytes = r->raw_total;
    out->chunks = r->sequence;
    log_rewind(r);
}
