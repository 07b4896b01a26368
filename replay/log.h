/*
 * The event log: the file `log` of a recording, chunks (base/chunks.h) of records, each compressed
 * and written with one write(). docs/format.md describes the bytes.
 *
 * Checksums resist accidents; against forgery each chunk ends with its seal, a SHA-256 over it and
 * the seal before, so that the last one stands for the whole log.
 *
 * Records wait for their chunk to be full. So that a kill loses none, they are kept meanwhile in
 * the file `tail` (log_tail.c), which also has how far the machine has come. Writing is the
 * recorder's; reading is the player's and the commands'. The reader trusts nothing: buffers are of
 * fixed size, and a chunk's records are all checked before the first is handed out.
 */
#ifndef REPRISE_LOG_H
#define REPRISE_LOG_H

#include "base/chunks.h"
#include "base/sha256.h"
#include "replay/record.h"

#define LOG_VERSION   1u
#define LOG_CHUNK_MAX (160u << 10) /* raw bytes of a chunk; readers refuse more */

/* On disk, little-endian. */
struct log_chunk_header {
    u32 magic;
    u32 sequence; /* from 0 */
    u32 raw_size;
    u32 packed_size; /* bytes that follow; equal to raw_size: not compressed */
    u64 first_position, last_position;
    u64 first_time; /* deltas of the first record count from first_position and first_time */
    u32 records;
    u32 flags; /* LOG_CHUNK_* */
    u64 header_check, check;
};
#define LOG_CHUNK_LAST   1u /* nothing follows */
#define LOG_CHUNK_SEALED 2u /* the seal (struct sha256) follows the payload */

#define LOG_TAIL_NAME "tail" /* in the recording, while its log is being written */

/* A place in a log: the chunk that holds the next record, and how many of it come before. Kept in
 * checkpoint files, so it is checked when it is used. */
struct log_place {
    u64 offset, seed; /* of the chunk; the checksum of all before it */
    u64 index;        /* of its first record in the log */
    pos_t position;   /* where the chunk before it ended */
    vns_t time;
    u32 sequence;
    u32 taken;     /* records of the chunk that come before */
    u32 last_type; /* of the record before the chunk */
    u32 last_seen; /* the chunk before was marked as the last */
};
struct log_writer;
struct log_reader;

/* Writes the file header to `fd`, an empty file; the writer owns it from now on, also on error. */
int log_writer_create(struct log_writer **out, int fd, struct err *err);
/* The same, and first all that `from` has before `place`, which was reached at that position and
 * time: byte for byte, so that places in it are the same in both. (Of a log of an older version,
 * which has no seals, the records.) Marks that follow at that instant come too. Leaves `from`
 * there. *host_ns: of its last progress record. */
int log_writer_follow(struct log_writer **out, int fd, struct log_reader *from,
                      const struct log_place *place, pos_t position, vns_t time, u64 *host_ns,
                      struct err *err);
/* Adds a record; may write a chunk. After an error every further call fails with the same text. */
int log_add(struct log_writer *w, const struct record *rec, struct err *err);
/* Closes the chunk, if there is anything in it. */
int log_flush(struct log_writer *w, bool last, struct err *err);
/* Before records are written `ready` is called: what they name elsewhere has to be there. Where it
 * fails they are not, and its error is the log's. */
void log_writer_after(struct log_writer *w, int (*ready)(void *opaque, struct err *err),
                      void *opaque);
/* From now on log_keep() keeps what is pending in the file LOG_TAIL_NAME of directory `dir`. */
int log_writer_tail(struct log_writer *w, int dir, struct err *err);
/* Were there records since the last log_keep()? */
bool log_pending(const struct log_writer *w);
/* Whatever happens to this process, all records added so far will be read, and `reached` (a
 * REC_REACHED) after them: one small write to the tail. It is not part of the log. */
int log_keep(struct log_writer *w, const struct record *reached, struct err *err);
/* Where the next record will be. */
void log_writer_tell(const struct log_writer *w, struct log_place *out);
/* A hash against forgers of all records up to there; log_before() has the same of a reader. */
struct sha256 log_writer_before(const struct log_writer *w);
u64 log_bytes(const struct log_writer *w); /* in the file */
/* The host's disk is full; what was reserved of it (log_room.h) still takes the end of a recording.
 */
bool log_low(const struct log_writer *w);
/* Flushes, fsyncs, closes, removes the tail; safe on NULL. After an error the file ends at its last
 * whole chunk. */
int log_writer_close(struct log_writer *w, struct err *err);

/* Takes over `blob`, also on error. <0 when it is no log, of another version, or its file header
 * is damaged. */
int log_reader_open(struct log_reader **out, struct blob blob, struct err *err);
/* The same of a file. */
int log_reader_create(struct log_reader **out, int fd, struct err *err);
/* Takes over `tail`, the log's: when the log was not ended its records follow the last chunk. A
 * tail that belongs to another log, or to a chunk that is there, is nothing. */
void log_reader_tail(struct log_reader *r, struct blob tail);
/* The seal of what was read so far. false: the log has none, it was made by an older version. */
bool log_seal(const struct log_reader *r, struct sha256 *out);
/* 1: the next record, valid until the next call; 0: there are no more, log_damage says why. */
int log_next(struct log_reader *r, struct record *rec);
const struct chunk_damage *log_damage(const struct log_reader *r);
void log_rewind(struct log_reader *r);

/* Where the record is that log_next gives next. */
void log_tell(const struct log_reader *r, struct log_place *out);
/* Of all records before that one; of what was read from the log's start on. */
struct sha256 log_before(const struct log_reader *r);
/* <0: the log has no such place (another log, or it is damaged there); then rewound. */
int log_seek(struct log_reader *r, const struct log_place *place, struct err *err);
void log_reader_destroy(struct log_reader *r);

/* One pass over a log. */
#define LOG_COUNTS 64
struct log_summary {
    struct chunk_damage damage;
    u64 file_bytes, good_bytes, raw_bytes; /* raw: uncompressed */
    u32 chunks;
    u64 tail; /* records that are in the tail only */
    u64 records;
    u64 counts[LOG_COUNTS]; /* by index in record_table */
    u64 remarks;            /* of types that this version does not know */
    pos_t last_position;
    vns_t last_time;
    bool has_end;
    u64 end_reason, end_arg;
    u64 modes;   /* 0: not noted */
    u64 host_ns; /* of the last progress or end record */
};
bool log_place_equal(const struct log_place *a, const struct log_place *b);
/* Reads the rest of `r` and rewinds it. */
void log_summarise(struct log_reader *r, struct log_summary *out);
/* The same, and `each` hears of every record. */
void log_pass(struct log_reader *r, struct log_summary *out,
              void (*each)(void *opaque, const struct record *rec), void *opaque);

#endif
