/*
 * One record of the event log: the structs made from records.def, their encoding in a chunk, and
 * how they print. Reads and writes memory only; log.h puts chunks of records into a file.
 */
#ifndef REPRISE_RECORD_H
#define REPRISE_RECORD_H

#include <stdio.h>

#include "base/err.h"
#include "base/json.h"
#include "base/types.h"
#include "machine/machine.h"

#define RECORD_MAX       (64u << 10) /* bytes of one encoded record; readers refuse longer ones */
#define RECORD_REMARKS   64          /* ids from here on may be skipped by a reader */
#define RAM_RECORD_SLOTS 4096 /* regions in one ram record at most: keeps it below RECORD_MAX */

struct hash128 {
    u64 hi, lo;
};

/* Point into the buffer that was decoded; of the length that was checked. */
struct log_bytes {
    u32 len;
    const u8 *data;
};
struct log_digests {
    u32 count;
    const u8 *data; /* count little-endian u64, unaligned */
};
struct log_runs {
    u32 count; /* runs, not elements */
    u32 size;  /* bytes */
    const u8 *data;
};

enum field_kind {
    FIELD_num,
    FIELD_hex,
    FIELD_hash,
    FIELD_bytes,
    FIELD_text,
    FIELD_digests,
    FIELD_runs,
    FIELD_quit,
    FIELD_reason,
};

#define FIELD_TYPE_num     u64
#define FIELD_TYPE_hex     u64
#define FIELD_TYPE_hash    struct hash128
#define FIELD_TYPE_bytes   struct log_bytes
#define FIELD_TYPE_text    struct log_bytes
#define FIELD_TYPE_digests struct log_digests
#define FIELD_TYPE_runs    struct log_runs
#define FIELD_TYPE_quit    u64
#define FIELD_TYPE_reason  u64

/* clang-format off */
#define RECORD(NAME, id, name, doc) REC_##NAME = id,
#define FIELD(rname, kind, name, doc)
#define END(name)
enum record_type {
#include "records.def"
};
#undef RECORD
#undef FIELD
#undef END

#define RECORD(NAME, id, name, doc) struct rec_##name {
#define FIELD(rname, kind, name, doc) FIELD_TYPE_##kind name;
#define END(name) };
#include "records.def"
#undef RECORD
#undef FIELD
#undef END

struct record {
    u64 type; /* enum record_type, or a remark this version does not know */
    pos_t position;
    vns_t time;
    u64 index; /* from 0, over the whole log; set by the reader */
    union {
#define RECORD(NAME, id, name, doc) struct rec_##name name;
#define FIELD(rname, kind, name, doc)
#define END(name)
#include "records.def"
#undef RECORD
#undef FIELD
#undef END
    };
};
/* clang-format on */

struct record_field {
    const char *name;
    enum field_kind kind;
    u32 offset; /* in struct record */
    const char *doc;
};

struct record_desc {
    u64 id;
    const char *name;
    const char *doc;
    const struct record_field *fields;
    size_t nfields;
};

/* The table, for printing and documentation; NULL for an id that is not in it. */
const struct record_desc *record_desc(u64 id);
extern const struct record_desc record_table[];
extern const size_t record_table_size;

/* Position and time that the next record's deltas count from. */
struct record_base {
    pos_t position;
    vns_t time;
};

/* Appends `rec` to out[0..cap); returns its bytes, or 0 when it does not fit or would be longer
 * than RECORD_MAX. Moves *base on. */
size_t record_encode(const struct record *rec, struct record_base *base, u8 *out, size_t cap);

/* Decodes the record at in[0..len); returns its bytes, or 0 with a reason in *why. Any bytes are
 * safe. Moves *base on. */
size_t record_decode(struct record *rec, struct record_base *base, const u8 *in, size_t len,
                     const char **why);

/* Is it something that enters the machine? Then fills *in (not when NULL), whose bytes are the
 * record's. */
bool record_input(const struct record *rec, struct input *in);
/* Of such a record: the digest of the first component just before. */
u64 record_input_cpu(const struct record *rec);
/* Its bytes; NULL: it has none. */
struct log_bytes *record_input_bytes(struct record *rec);
/* The hash of contents that are not in the log (contents.h), `arg` bytes; NULL: it has none. */
struct hash128 *record_input_hash(struct record *rec);
/* The record of an input; bytes stay where they are. */
void record_from_input(struct record *rec, const struct input *in, u64 cpu);

u64 digest_at(const struct log_digests *list, u32 index);
/* Walks runs: start with *at = 0 and call until false. */
bool runs_next(const struct log_runs *runs, u32 *at, u64 *length, u64 *digest);

/* Writes one run (at most 18 bytes); returns its bytes. */
u32 runs_add(u8 *out, u64 length, u64 digest);

/* Same type, position, time and fields? On false *field names what differs first. */
bool record_equal(const struct record *a, const struct record *b, const char **field);

/* One line without newline; `components` (names joined by commas, may be NULL) labels digests. */
void record_print(FILE *out, const struct record *rec, bool all_digests);
void record_print_json(FILE *out, const struct record *rec);

const char *quit_reason_name(u64 reason); /* never NULL */
const char *run_reason_name(u64 reason);  /* never NULL */

#endif
