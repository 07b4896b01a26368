/*
 * The event log: the file `log` of a recording. A file header, then chunks of records; each chunk
 * is compressed, carries a checksum and is written with one write(), so that a log ends well-formed
 * wherever its recorder was killed. docs/format.md describes the bytes.
 *
 * The checksum of a chunk starts from that of the chunk before it: chunks of two logs do not mix.
 * Writing is the recorder's; reading is the player's and the commands'. The reader trusts nothing:
 * buffers are of fixed size, and a chunk's records are all checked before the first is handed out.
 */
#ifndef REPRISE_LOG_H
#define REPRISE_LOG_H

#include "replay/record.h"

#define LOG_VERSION   1u
#define LOG_CHUNK_MAX (160u << 10) /* raw bytes of a chunk; readers refuse more */

/* On disk, little-endian. */
struct log_file_header {
    u8 magic[8];
    u32 version;
    u32 size;  /* of this header: chunks start here */
    u64 flags; /* 0; a reader refuses bits that it does not know */
    u64 check; /* XXH3-64 of the bytes before */
};
struct log_chunk_header {
    u32 magic;
    u32 sequence; /* from 0 */
    u32 raw_size;
    u32 packed_size; /* bytes that follow; equal to raw_size: not compressed */
    u64 first_position, last_position;
    u64 first_time; /* deltas of the first record count from first_position and first_time */
    u32 records;
    u32 flags;        /* bit 0: nothing follows */
    u64 header_check; /* XXH3-64 of the bytes before: is the size to be believed? */
    u64 check;        /* XXH3-64 of the bytes before, seeded with the XXH3-64 of the payload,
                         seeded with the check of the chunk (at first: file header) before */
};
#define LOG_CHUNK_LAST 1u

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

/* Writes the file header to `fd`, an empty file; the writer owns it from now on, also on error. */
int log_writer_create(struct log_writer **out, int fd, struct err *err);
/* Adds a record; may write a chunk. After an error every further call fails with the same text. */
int log_add(struct log_writer *w, const struct record *rec, struct err *err);
/* Closes the chunk, if there is anything in it. */
int log_flush(struct log_writer *w, bool last, struct err *err);
bool log_pending(const struct log_writer *w);
/* Where the next record will be; only when nothing is pending. */
void log_writer_tell(const struct log_writer *w, struct log_place *out);
u64 log_bytes(const struct log_writer *w); /* in the file */
/* Flushes, fsyncs, closes; safe on NULL. After an error the file ends at its last whole chunk. */
int log_writer_close(struct log_writer *w, struct err *err);

enum log_state {
    LOG_READING,
    LOG_COMPLETE,  /* ended with an end record */
    LOG_CUT,       /* ended with a cut record: the host could not write more */
    LOG_KILLED,    /* whole chunks, but no end: the recorder was killed */
    LOG_TRUNCATED, /* the last chunk is incomplete: killed while it wrote, or cut short later */
    LOG_DAMAGED,   /* bytes are not what was written */
};

struct log_damage {
    enum log_state state; /* LOG_READING until log_next has returned 0 */
    u32 chunk;            /* number of the chunk that is bad or missing */
    u64 offset;           /* file offset where it starts */
    char text[200];       /* what is wrong, with chunk and offset; "" when complete */
};

struct log_reader;

/* Takes over `fd`. <0 when it is no log, of another version, or its file header is damaged. */
int log_reader_create(struct log_reader **out, int fd, struct err *err);
/* 1: the next record, valid until the next call; 0: there are no more, log_damage says why. */
int log_next(struct log_reader *r, struct record *rec);
const struct log_damage *log_damage(const struct log_reader *r);
void log_rewind(struct log_reader *r);

/* Where the record is that log_next gives next. */
void log_tell(const struct log_reader *r, struct log_place *out);
/* <0: the log has no such place (another log, or it is damaged there); then rewound. */
int log_seek(struct log_reader *r, const struct log_place *place, struct err *err);
void log_reader_destroy(struct log_reader *r);

/* One pass over a log. */
#define LOG_COUNTS 64
struct log_summary {
    struct log_damage damage;
    u64 file_bytes, good_bytes, raw_bytes; /* raw: uncompressed */
    u32 chunks;
    u64 records;
    u64 counts[LOG_COUNTS]; /* by index in record_table */
    u64 remarks;            /* of types that this version does not know */
    pos_t last_position;
    vns_t last_time;
    bool has_end;
    u64 end_reason, end_arg;
    u64 host_ns; /* of the last progress or end record */
};
/* Reads the rest of `r` and rewinds it. */
void log_summarise(struct log_reader *r, struct log_summary *out);

#endif
