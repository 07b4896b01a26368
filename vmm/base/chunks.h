/*
 * Files of checksummed chunks, little-endian: what the event log and gpu.log share. A file header,
 * then chunks: a header of the file's own kind, and a payload, perhaps compressed. The check of a
 * chunk starts from that of the chunk before it, so that chunks of two files do not mix, and a file
 * is well-formed wherever its writer was killed. What the payloads mean is their owners' business.
 *
 * Reading is safe for any bytes.
 */
#ifndef REPRISE_CHUNKS_H
#define REPRISE_CHUNKS_H

#include "base/err.h"
#include "base/blob.h"
#include "base/types.h"

struct chunk_file_header {
    u8 magic[8];
    u32 version;
    u32 size;  /* of this header: chunks start here */
    u64 flags; /* 0; a reader refuses bits that it does not know */
    u64 check; /* XXH3-64 of the bytes before */
};
_Static_assert(sizeof(struct chunk_file_header) == 32, "part of the formats");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "headers are read as they lie");

/*
 * What files of a kind have of their own. A chunk's header starts with its magic and its sequence
 * number (from 0), u32 each, and ends with two checks, u64 each:
 *   XXH3-64 of the bytes before: is the size to be believed?
 *   XXH3-64 of the bytes before, seeded with the XXH3-64 of the payload, seeded with the check of
 *   the chunk (at first: file header) before
 */
struct chunk_format {
    const char *magic; /* 8 bytes */
    u32 version;
    u32 chunk_magic;
    u32 header;             /* bytes of a chunk's header */
    u32 raw_at, packed_at;  /* where in it the payload's sizes are, u32 each; equal: not packed */
    const char *name, *one; /* for errors: "the log", "a Reprise log" */
    const char *empty;      /* what has happened to a file without a byte */
    /* Can what a header says be? Its checks are right. */
    bool (*plausible)(const void *header);
    /* Of all that belongs to a chunk, its header included. */
    u64 (*size)(const void *header);
};

/* ---- checks and contents ---- */

u64 chunk_file_check(const struct chunk_file_header *h);
struct chunk_file_header chunk_file_begin(const struct chunk_format *f);
u64 chunk_header_check(const struct chunk_format *f, const void *header);
u64 chunk_check(const struct chunk_format *f, const void *header, const void *payload, u64 seed);
/* Puts both checks into the header of a chunk that is otherwise complete; returns the second. */
u64 chunk_put_checks(const struct chunk_format *f, void *header, const void *payload, u64 seed);

/* Packs to `out`, which has room for LZ4_compressBound(size). `effort` 0: fast; else LZ4's level of
 * high compression. Returns the packed size; `size`: copied, as it would not become smaller. */
u32 chunk_pack(const void *raw, u32 size, void *out, int effort);
/* false: it cannot be unpacked to that size. */
bool chunk_unpack(const void *packed, u32 packed_size, void *raw, u32 raw_size);

/* ---- reading ---- */

enum chunk_state {
    CHUNKS_READING,
    CHUNKS_COMPLETE,  /* ended as it should be */
    CHUNKS_CUT,       /* ended, and says so: the host could not write more */
    CHUNKS_KILLED,    /* whole chunks, but no end: the writer was killed, or could not write */
    CHUNKS_TRUNCATED, /* the last chunk is incomplete: killed in the write, or cut short later */
    CHUNKS_DAMAGED,   /* bytes are not what was written */
};
struct chunk_damage {
    enum chunk_state state; /* CHUNKS_READING until there are no more */
    u32 chunk;              /* number of the chunk that is bad or missing */
    u64 offset;             /* file offset where it starts */
    char text[200];         /* what is wrong, with chunk and offset; "" when complete */
};

struct chunk_reader {
    const struct chunk_format *format;
    struct blob blob;
    u64 file_size;
    u64 start, start_seed; /* where the first chunk is, and what its check starts from */
    u64 offset, seed;      /* the same of the next one */
    u32 sequence;          /* of the next one */
    struct chunk_damage damage;
};

/* Reads and checks the file's header, and stands at the first chunk. The blob stays the caller's.
 */
int chunks_open(struct chunk_reader *r, const struct chunk_format *f, struct blob blob,
                struct chunk_file_header *h, struct err *err);
void chunks_rewind(struct chunk_reader *r);
/* Sets the damage: at the next chunk. Always false. */
bool chunks_stop(struct chunk_reader *r, enum chunk_state state, const char *fmt, ...) PRINTF(3, 4);
/* The header of the next chunk, with all of which that can be known without the payload checked.
 * false: stopped. There is at least one byte of it. */
bool chunks_header(struct chunk_reader *r, void *header);
/* Its payload as it is in the file, `packed` having room; checked. false: stopped. */
bool chunks_payload(struct chunk_reader *r, const void *header, void *packed);
/* After that chunk. */
void chunks_past(struct chunk_reader *r, const void *header);

/* For tests: makes the checks of any bytes right, as far as chunks can be found. `each`, which may
 * be NULL, gets every chunk when that is done. */
void chunks_repair(const struct chunk_format *f, u8 *data, size_t size,
                   void (*each)(void *opaque, u8 *chunk), void *opaque);

#endif
