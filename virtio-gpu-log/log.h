/*
 * gpu.log: the stream of GPU commands of a recording, with all bytes that crossed between guest and
 * GPU; it stands alone, without the machine. docs/gpu-log.md describes the bytes.
 *
 * Chunks of records and chunks of contents: what was uploaded or read back is cut in pieces of 64
 * KiB, each kept once, by its XXH3-128. The file is a function of what is added and of nothing else
 * (no clock, no flush by the clock), so a log written while recording equals one that a replay
 * writes later.
 *
 * Writing is the device's (through whoever owns the recording); reading is everybody's, and safe
 * for any bytes.
 */
#ifndef REPRISE_GPU_LOG_H
#define REPRISE_GPU_LOG_H

#include "base/chunks.h"
#include "base/err.h"
#include "base/room.h"
#include "base/types.h"
#include "virtio-gpu-log/frames.h"

#define GPU_LOG_VERSION 1u
#define GPU_LOG_NAME    "gpu.log"     /* in a recording */
#define GPU_PIECE       (64u << 10)   /* bytes of a content, the last of a blob excepted */
#define GPU_COMMAND_MAX (4u << 20)    /* bytes kept of one command */
#define GPU_BLOB_MAX    (1024u << 20) /* bytes of one upload, read-back or answer */

/* Bytes. Writing: data. Reading: gpu_log_read. */
struct gpu_blob {
    u64 size;
    const u8 *data;
    const u8 *refs; /* of a record that was read: numbers of pieces */
    u32 refs_size;
};
struct gpu_range {
    u32 at;       /* dword of the virgl command in the buffer; 0: the command itself */
    u32 resource; /* whose backing */
    u64 offset;   /* in the backing */
    struct gpu_blob bytes;
};
struct gpu_ranges {
    u32 count;
    const struct gpu_range *list; /* writing */
    const u8 *refs;               /* reading: gpu_ranges_next */
    u32 refs_size;
};
struct gpu_bytes {
    u32 len;
    const u8 *data;
};

#define GPU_FIELD_num    u64
#define GPU_FIELD_text   struct gpu_bytes
#define GPU_FIELD_bytes  struct gpu_bytes
#define GPU_FIELD_blob   struct gpu_blob
#define GPU_FIELD_ranges struct gpu_ranges

/* clang-format off */
#define RECORD(NAME, id, name, doc) GPU_REC_##NAME = id,
#define FIELD(rname, kind, name, doc)
#define END(name)
enum gpu_record_type {
#include "virtio-gpu-log/log.def"
};
#undef RECORD
#undef FIELD
#undef END
#define RECORD(NAME, id, name, doc) struct gpu_rec_##name {
#define FIELD(rname, kind, name, doc) GPU_FIELD_##kind name;
#define END(name) };
#include "virtio-gpu-log/log.def"
#undef RECORD
#undef FIELD
#undef END

struct gpu_record {
    u64 type;
    pos_t position;
    vns_t time;
    /* Set by the reader: */
    u64 number;  /* command: its number; reply: of the command it answers */
    u64 frame;   /* command: the frame that it completes, from 1; 0: none */
    union {
#define RECORD(NAME, id, name, doc) struct gpu_rec_##name name;
#define FIELD(rname, kind, name, doc)
#define END(name)
#include "virtio-gpu-log/log.def"
#undef RECORD
#undef FIELD
#undef END
    };
};
/* clang-format on */

/* --- Writing --- */

struct gpu_log_writer;

/* Writes the head to `fd`, an empty file; the writer owns it from now on, also on error. `capset`
 * is copied. */
int gpu_log_create(struct gpu_log_writer **out, int fd, const struct gpu_rec_start *start,
                   struct err *err);
/* What it may take of the host; where that ends it ends, as with a full disk. Without this call:
 * all there is. */
void gpu_log_room(struct gpu_log_writer *w, const struct room *room);
/* Adds a command as the device takes it. `words`: all bytes that the guest gave to be read. The
 * ranges are the guest memory it reads, at this position; their bytes are copied. refused: what the
 * device answers without carrying it out; 0: it does. Positions and times never go back. After an
 * error (the file ends at its last whole chunk) every further call fails with the same text. */
int gpu_log_command(struct gpu_log_writer *w, pos_t position, vns_t time, u32 queue,
                    const void *words, u32 size, const struct gpu_range *uploads, u32 count,
                    u32 refused, struct err *err);
/* The number that the next command gets. */
u64 gpu_log_next_number(const struct gpu_log_writer *w);
/* Adds the answer to command `number`, where the guest gets it: the response type, what follows the
 * answer's header, the guest memory that changed besides. */
int gpu_log_reply(struct gpu_log_writer *w, pos_t position, vns_t time, u64 number, u32 response,
                  const void *body, u32 size, const struct gpu_range *readback, u32 count,
                  struct err *err);
int gpu_log_lost(struct gpu_log_writer *w, pos_t position, vns_t time, const char *why,
                 struct err *err);
int gpu_log_reset(struct gpu_log_writer *w, pos_t position, vns_t time, struct err *err);
int gpu_log_fault(struct gpu_log_writer *w, pos_t position, vns_t time, u32 context,
                  const char *why, struct err *err);
/* Adds the end record. */
int gpu_log_end(struct gpu_log_writer *w, pos_t position, vns_t time, struct err *err);
/* Writes what is pending, fsyncs, closes; safe on NULL. */
int gpu_log_close(struct gpu_log_writer *w, struct err *err);

struct gpu_log_sizes {
    u64 file; /* bytes written so far */
    u64 commands, frames;
    u64 words, packed;  /* bytes of records before and after compression */
    u64 carried;        /* bytes of uploads, read-backs, answers as they came */
    u64 contents, kept; /* pieces, their bytes */
};
void gpu_log_writer_sizes(const struct gpu_log_writer *w, struct gpu_log_sizes *out);

/* --- Reading --- */

struct gpu_log_reader;

/* Takes over `fd`, and reads the start record. <0 when it is no gpu.log, of another version, or has
 * no whole first chunk. */
int gpu_log_open(struct gpu_log_reader **out, int fd, struct err *err);
int gpu_log_open_blob(struct gpu_log_reader **out, struct blob blob, struct err *err);
const struct gpu_rec_start *gpu_log_start(const struct gpu_log_reader *r);
/* 1: the next record, valid until the next call; 0: no more, gpu_log_damage says why. The start
 * record is not among them. */
int gpu_log_next(struct gpu_log_reader *r, struct gpu_record *rec);
const struct chunk_damage *gpu_log_damage(const struct gpu_log_reader *r);
/* Decodes a command record: what the device refused has that response. Returns out->response. */
u32 gpu_record_command(const struct gpu_record *rec, struct gpu_command *out);
/* Back to the first record. */
void gpu_log_rewind(struct gpu_log_reader *r);
/* A place between two records, to go on reading there later: on or back. */
struct gpu_log_mark {
    u64 offset, seed, contents;
    u64 previous_position, previous_time;
    u64 commands;
    struct gpu_frames frames;
    struct gpu_log_sizes sizes;
    u32 sequence, chunks, skip;
    bool ended;
};
void gpu_log_mark(const struct gpu_log_reader *r, struct gpu_log_mark *out);
void gpu_log_return(struct gpu_log_reader *r, const struct gpu_log_mark *mark);
/* Walks ranges of a record that was read: start with *at = 0, until false. */
bool gpu_ranges_next(const struct gpu_ranges *ranges, u32 *at, struct gpu_range *out);
/* Copies `size` bytes at `offset` of a blob; <0 with a text when the log is damaged there. Valid as
 * long as the record. */
int gpu_log_read(struct gpu_log_reader *r, const struct gpu_blob *blob, u64 offset, void *out,
                 u64 size, struct err *err);
void gpu_log_reader_sizes(const struct gpu_log_reader *r, struct gpu_log_sizes *out);
void gpu_log_reader_destroy(struct gpu_log_reader *r); /* NULL is safe */

#endif
