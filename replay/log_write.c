/*
 * The log's writer. Records gather in a buffer, and in the tail; a chunk is header, compressed
 * payload and seal in one write(). When the host cannot write (full disk, I/O error), the file is
 * cut back to its last whole chunk, and a small chunk with a cut record is tried: it usually fits
 * in what was just freed.
 */
#include "base/check.h"
#include "base/file_io.h"
#include "replay/log_format.h"
#include "replay/log_room.h"

#include <errno.h>
#include <fcntl.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A chunk is closed once it holds this much: a reader unpacks it in well under a millisecond. */
#define CHUNK_FULL (64u << 10)

struct log_writer {
    int fd;
    u64 good; /* bytes in the file: all whole chunks */
    u32 sequence;
    u64 seed;
    struct record_base before;      /* where the chunk before ended */
    struct record_base first, base; /* before the chunk's first record; after its last */
    u32 records;
    u64 index;                  /* records ever added */
    u64 before_type, last_type; /* of the last record of the chunk before; of the last one */
    size_t raw_size;
    struct log_room room;
    struct sha256 seal; /* of all chunks in the file */
    struct sha256_stream *sha;
    struct log_tail tail;             /* fd -1: none */
    struct record_base kept, reached; /* of its last record; how far it says that the machine is */
    int (*ready)(void *opaque, struct err *err); /* NULL: records name nothing elsewhere */
    void *opaque;
    struct err failed; /* code 0: none */
    u8 raw[LOG_CHUNK_MAX];
    /* A chunk as it is in the file, or all of it for the tail. */
    u8 out[sizeof(struct log_chunk_header) + LZ4_COMPRESSBOUND(LOG_CHUNK_MAX) +
           sizeof(struct sha256)];
};

_Static_assert(sizeof(struct log_tail_header) + 2 * sizeof(struct log_tail_batch) + LOG_TAIL_ROOM <
                   LZ4_COMPRESSBOUND(LOG_CHUNK_MAX) - LOG_CHUNK_MAX,
               "the tail's part fits");

_Static_assert(CHUNK_FULL + RECORD_MAX + 64 <= LOG_CHUNK_MAX, "a full chunk takes one more record");

static bool plausible(const void *header)
{
    const struct log_chunk_header *h = header;
    return h->raw_size >= 1 && h->raw_size <= LOG_CHUNK_MAX && h->packed_size >= 1 &&
           h->packed_size <= h->raw_size && h->records >= 1 &&
           h->first_position <= h->last_position &&
           !(h->flags & ~(LOG_CHUNK_LAST | LOG_CHUNK_SEALED));
}

static u64 chunk_size(const void *header)
{
    struct log_chunk_header h;
    memcpy(&h, header, sizeof(h));
    return sizeof(h) + h.packed_size + (h.flags & LOG_CHUNK_SEALED ? sizeof(struct sha256) : 0);
}

const struct chunk_format log_format = {
    .magic = LOG_MAGIC,
    .version = LOG_VERSION,
    .chunk_magic = LOG_CHUNK_MAGIC,
    .header = sizeof(struct log_chunk_header),
    .raw_at = offsetof(struct log_chunk_header, raw_size),
    .packed_at = offsetof(struct log_chunk_header, packed_size),
    .name = "the log",
    .one = "a Reprise log",
    .empty = "its recorder was killed at the start",
    .plausible = plausible,
    .size = chunk_size,
};

struct sha256 log_file_seal(struct sha256_stream *s, const struct chunk_file_header *h)
{
    sha256_begin(s);
    sha256_add(s, h, sizeof(*h));
    return sha256_end(s);
}

struct sha256 log_chunk_seal(struct sha256_stream *s, const struct sha256 *before,
                             const struct log_chunk_header *h, const void *payload)
{
    sha256_begin(s);
    sha256_add(s, before, sizeof(*before));
    sha256_add(s, h, sizeof(*h));
    sha256_add(s, payload, h->packed_size);
    return sha256_end(s);
}

struct sha256 log_part_seal(const struct sha256 *before, u64 position, u64 time, const u8 *raw,
                            size_t size)
{
    struct {
        struct sha256 before, records;
        u64 position, time;
    } part = {*before, sha256_bytes(raw, size), position, time};
    return size ? sha256_bytes(&part, sizeof(part)) : *before;
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
    if (!w->failed.code)
        err_errno(&w->failed, "cannot write the log; it ends at its last whole chunk");
    if (ftruncate(w->fd, (off_t)w->good))
        err_errno(&w->failed, "cannot write the log, nor cut it back to its last whole chunk");
    *err = w->failed;
    return err->code;
}

int log_writer_create(struct log_writer **out, int fd, struct err *err)
{
    struct log_writer *w = calloc(1, sizeof(*w));
    if (!w || !(w->sha = sha256_create())) {
        close(fd);
        free(w);
        return err_set(err, -ENOMEM, "no memory for the log's buffers");
    }
    w->fd = fd;
    w->tail = (struct log_tail){.dir = -1, .fd = -1};
    const struct chunk_file_header h = chunk_file_begin(&log_format);
    w->seed = h.check;
    w->seal = log_file_seal(w->sha, &h);
    if (write_all(w, &h, sizeof(h))) {
        int code = fail(w, err);
        close(fd);
        sha256_destroy(w->sha);
        free(w);
        return code;
    }
    log_room_open(&w->room, fd, w->good);
    *out = w;
    return 0;
}

static int copy_bytes(struct log_writer *w, const struct blob *from, u64 size)
{
    static const size_t piece = sizeof(w->out);
    for (u64 at = 0, n; at < size; at += n) {
        n = MIN(size - at, (u64)piece);
        if (!blob_read_at(from, w->out, n, at) || !file_write_at(w->fd, w->out, n, at))
            return -1;
    }
    return 0;
}

/* The writer becomes what it was, or would have been, when it had written that. */
static int take_over(struct log_writer *w, const struct log_prefix *p, u64 last_type)
{
    if (copy_bytes(w, p->blob, p->chunk.offset))
        return -1;
    w->good = p->chunk.offset;
    w->sequence = p->chunk.sequence;
    w->seed = p->chunk.seed;
    w->seal = p->seal;
    w->index = p->chunk.index + p->records;
    w->before = (struct record_base){p->chunk.position, p->chunk.time};
    w->first = p->records ? p->first : w->before;
    w->base = p->records ? p->base : w->before;
    w->before_type = p->chunk.last_type;
    w->last_type = last_type;
    w->records = p->records;
    w->raw_size = p->raw_size;
    if (p->raw_size)
        memcpy(w->raw, p->raw, p->raw_size);
    log_room_grow(&w->room, w->fd, w->good);
    return 0;
}

struct follow {
    const struct log_place *place;
    struct record_base at; /* the instant there */
    u64 last_type, host_ns;
    bool sealed;
};

/* Reads up to the place and past the marks there; with `to` adds what it reads. */
static int read_to(struct log_reader *from, struct follow *f, struct log_writer *to,
                   struct err *err)
{
    struct log_place here, good;
    struct log_prefix p;
    struct record rec;
    bool there = false, more;
    log_rewind(from);
    for (;;) {
        log_tell(from, &here);
        there = there || log_place_equal(&here, f->place);
        if (there)
            good = here;
        more = log_next(from, &rec);
        if (!there && !more)
            return err_set(err, -EINVAL, "the log cannot be read up to there: %s",
                           log_damage(from)->text);
        bool mark = more && rec.type == REC_MARK && rec.position == f->at.position &&
                    rec.time == f->at.time;
        if (there && !mark)
            break;
        if (rec.type == REC_PROGRESS)
            f->host_ns = rec.progress.host_ns;
        int code = to && record_desc(rec.type) ? log_add(to, &rec, err) : 0;
        if (code)
            return code;
        f->last_type = rec.type;
    }
    log_prefix(from, &p);
    f->sealed = p.sealed;
    return log_seek(from, &good, err);
}

int log_writer_follow(struct log_writer **out, int fd, struct log_reader *from,
                      const struct log_place *place, pos_t position, vns_t time, u64 *host_ns,
                      struct err *err)
{
    struct follow f = {.place = place, .at = {position, time}};
    struct log_prefix p;
    struct err ignored;
    int code = log_writer_create(out, fd, err);
    if (code)
        return code;
    code = read_to(from, &f, NULL, err);
    if (!code && !f.sealed)
        code = read_to(from, &f, *out, err);
    log_prefix(from, &p);
    if (!code && f.sealed && take_over(*out, &p, f.last_type))
        code = fail(*out, err);
    *host_ns = f.host_ns;
    if (code)
        log_writer_close(*out, &ignored);
    return code;
}

void log_writer_after(struct log_writer *w, int (*ready)(void *opaque, struct err *err),
                      void *opaque)
{
    w->ready = ready;
    w->opaque = opaque;
}

/* May what was added be written? Where it failed once, what is written after that is its end. */
static bool ready(struct log_writer *w)
{
    return w->failed.code || !w->ready || !w->ready(w->opaque, &w->failed);
}

/* Makes the chunk in w->out and writes it. On failure the state is as before. */
static int write_chunk(struct log_writer *w, bool last)
{
    if (!ready(w))
        return -1;
    struct log_chunk_header h = {
        .magic = LOG_CHUNK_MAGIC,
        .sequence = w->sequence,
        .raw_size = (u32)w->raw_size,
        .first_position = w->first.position,
        .last_position = w->base.position,
        .first_time = w->first.time,
        .records = w->records,
        .flags = LOG_CHUNK_SEALED | (last ? LOG_CHUNK_LAST : 0),
    };
    u8 *payload = w->out + sizeof(h);
    h.packed_size = chunk_pack(w->raw, h.raw_size, payload, 0);
    chunk_put_checks(&log_format, &h, payload, w->seed);
    memcpy(w->out, &h, sizeof(h));
    struct sha256 seal = log_chunk_seal(w->sha, &w->seal, &h, payload);
    memcpy(payload + h.packed_size, &seal, sizeof(seal));
    if (write_all(w, w->out, chunk_size(&h)))
        return -1;
    w->seal = seal;
    w->seed = h.check;
    w->sequence++;
    w->before = w->first = w->base;
    w->before_type = w->last_type;
    w->raw_size = 0;
    w->records = 0;
    log_room_grow(&w->room, w->fd, w->good);
    w->tail.started = false; /* what is in it belongs to this chunk */
    w->tail.done = w->tail.records = 0;
    return 0;
}

static struct record cut_record(struct record_base at, const char *why)
{
    struct record rec = {.type = REC_CUT, .position = at.position, .time = at.time};
    rec.cut.why = (struct log_bytes){(u32)strlen(why), (const u8 *)why};
    return rec;
}

/* The log ends here; says so if that still fits: in the tail, which has what the log has not, else
 * in a small chunk. */
static void cut(struct log_writer *w)
{
    if (w->tail.fd >= 0 && w->tail.started) {
        char why[48];
        u8 bytes[2 * LOG_TAIL_ROOM];
        snprintf(why, sizeof(why), "%s", strerror(-w->failed.code));
        struct record rec = cut_record(w->reached, why);
        size_t n = record_encode(&rec, &w->kept, bytes, sizeof(bytes));
        log_tail_end(&w->tail, bytes, n, w->out); /* else as if the recorder had been killed */
        return;
    }
    w->base = w->first; /* the records that did not reach the disk are given up */
    struct record rec = cut_record(w->base, w->failed.text);
    w->raw_size = record_encode(&rec, &w->base, w->raw, sizeof(w->raw));
    w->records = 1;
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
    cut(w);
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

int log_writer_tail(struct log_writer *w, int dir, struct err *err)
{
    w->tail.dir = fcntl(dir, F_DUPFD_CLOEXEC, 0);
    w->tail.fd =
        openat(dir, LOG_TAIL_NAME, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (w->tail.dir < 0 || w->tail.fd < 0)
        return err_errno(err, "cannot create the log's file \"%s\"", LOG_TAIL_NAME);
    return 0;
}

bool log_pending(const struct log_writer *w)
{
    return w->tail.fd >= 0 && w->records > w->tail.records;
}

/* What is pending, and the record that says how far the machine is. false: errno. */
static bool put_tail(struct log_writer *w, const struct record *reached)
{
    u8 bytes[LOG_TAIL_ROOM];
    if (!ready(w))
        return false;
    struct record_base base = w->records ? w->base : w->first, kept = base;
    struct log_tail_header h = {
        .offset = w->good, .seed = w->seed, .position = w->first.position, .time = w->first.time};
    size_t n = record_encode(reached, &base, bytes, sizeof(bytes));
    CHECK(n, "a record of type %llu ends no tail", (unsigned long long)reached->type);
    if (!log_tail_put(&w->tail, &h, w->raw, w->raw_size, w->records, bytes, n, w->out))
        return false;
    w->kept = kept;
    w->reached = base;
    return true;
}

int log_keep(struct log_writer *w, const struct record *reached, struct err *err)
{
    if (w->failed.code) {
        *err = w->failed;
        return err->code;
    }
    if (w->tail.fd < 0 || put_tail(w, reached))
        return 0;
    /* No room. The chunk takes less, and the tail then starts again. */
    int why = errno;
    if (!w->failed.code && (!w->records || !write_chunk(w, false))) {
        if (put_tail(w, reached))
            return 0;
        if (w->room.end) { /* still takes the end */
            w->room.low = true;
            return 0;
        }
    }
    errno = why;
    int code = fail(w, err);
    cut(w);
    return code;
}

void log_writer_tell(const struct log_writer *w, struct log_place *out)
{
    *out = (struct log_place){.offset = w->good,
                              .seed = w->seed,
                              .index = w->index - w->records,
                              .position = w->before.position,
                              .time = w->before.time,
                              .sequence = w->sequence,
                              .taken = w->records,
                              .last_type = (u32)w->before_type};
}

struct sha256 log_writer_before(const struct log_writer *w)
{
    return log_part_seal(&w->seal, w->first.position, w->first.time, w->raw, w->raw_size);
}

bool log_low(const struct log_writer *w)
{
    return w->room.low;
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
    log_room_close(&w->room, w->fd, w->good);
    if (w->tail.fd >= 0) {
        if (!code) /* else it has what the log has not */
            unlinkat(w->tail.dir, LOG_TAIL_NAME, 0);
        close(w->tail.fd);
    }
    if (w->tail.dir >= 0)
        close(w->tail.dir);
    if (fsync(w->fd) && !code && errno != EINVAL && errno != EROFS)
        code = err_errno(err, "cannot sync the log to disk");
    if (close(w->fd) && !code)
        code = err_errno(err, "cannot close the log");
    sha256_destroy(w->sha);
    free(w);
    return code;
}
