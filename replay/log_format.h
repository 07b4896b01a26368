/* Constants of the log's bytes, shared by writer and reader only. */
#ifndef REPRISE_LOG_FORMAT_H
#define REPRISE_LOG_FORMAT_H

#include "replay/log.h"

/* High bit, CR LF, ^Z and LF: what careless transfers change is noticed in the first 8 bytes. */
#define LOG_MAGIC       "\x89RPR\r\n\x1a\n"
#define LOG_CHUNK_MAGIC 0x4b4e4843u /* "CHNK" */

#define LOG_TAIL_MAGIC "\x89RPRtail"

/* The tail: a header, then batches of records, each with a check that starts from the one before;
 * what does not follow is what an earlier chunk left, or was being written. */
struct log_tail_header {
    u8 magic[8];
    u64 offset, seed; /* the chunk that these records will be in (struct log_place) */
    u64 position;     /* where the first record's deltas count from */
    u64 time;
    u64 check; /* XXH3-64 of the bytes before */
};
struct log_tail_batch {
    u32 size; /* bytes of the records that follow */
    u32 records;
    u64 check; /* XXH3-64 of the 8 bytes before, seeded with that of the records, seeded with the
                  check before (at first: the header's) */
};
_Static_assert(sizeof(struct log_tail_header) == 48, "part of the format");
_Static_assert(sizeof(struct log_tail_batch) == 16, "part of the format");

/* Bytes after the last batch that the file has room for: the record that ends the tail always fits,
 * whatever becomes of the host's disk. */
#define LOG_TAIL_ROOM 128u

/* What the writer knows of the tail. */
struct log_tail {
    int dir, fd;
    bool started; /* the header of this chunk is in the file */
    u64 at;       /* where the next batch goes */
    u64 check;
    size_t done; /* bytes and records of the chunk that are in it */
    u32 records;
};
/* Writes the records of raw[0..size) that are not in the tail yet, and after them the encoded
 * record `mark`, over which the next ones go. `scratch` has room for all of it. false: errno. */
bool log_tail_put(struct log_tail *t, const struct log_tail_header *h, const u8 *raw, size_t size,
                  u32 records, const u8 *mark, size_t mark_size, u8 *scratch);
/* Puts `last` in the place of the mark: the log ends there. false: errno. */
bool log_tail_end(struct log_tail *t, const u8 *last, size_t size, u8 *scratch);
/* Reads the tail for the chunk at `offset` with `seed` into raw (LOG_CHUNK_MAX bytes) and fills
 * what its header can know in *h. false: there is none. */
bool log_tail_get(const struct blob *tail, u64 offset, u64 seed, struct log_chunk_header *h,
                  u8 *raw);
/* For tests: makes the checks of any bytes right, as far as batches can be found. */
void log_tail_repair(u8 *data, size_t size, u64 offset, u64 seed);

_Static_assert(sizeof(struct log_chunk_header) == 64, "part of the format");
extern const struct chunk_format log_format;

/* What a writer has to know to go on where a reader is (log_writer_follow). */
struct log_prefix {
    const struct blob *blob;        /* the reader's */
    bool sealed;                    /* else the chunks cannot be taken over */
    struct log_place chunk;         /* what comes next, or what the records below are part of */
    struct sha256 seal;             /* of the chunks before it */
    struct record_base first, base; /* before the first of the records; after the last one */
    const u8 *raw;
    size_t raw_size;
    u32 records;
};
void log_prefix(const struct log_reader *r, struct log_prefix *out);

/* The seal before the first chunk, and that of a chunk. */
struct sha256 log_file_seal(struct sha256_stream *s, const struct chunk_file_header *h);
struct sha256 log_chunk_seal(struct sha256_stream *s, const struct sha256 *before,
                             const struct log_chunk_header *h, const void *payload);
/* Of all records up to one in the middle of a chunk: the seal before the chunk, where its deltas
 * count from, and those of its records. */
struct sha256 log_part_seal(const struct sha256 *before, u64 position, u64 time, const u8 *raw,
                            size_t size);
#endif
