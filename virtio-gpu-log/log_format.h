/* The bytes of gpu.log, shared by writer, reader and their tests only. Little-endian. */
#ifndef REPRISE_GPU_LOG_FORMAT_H
#define REPRISE_GPU_LOG_FORMAT_H

#include "base/cursor.h"
#include "virtio-gpu-log/log.h"

/* High bit, CR LF, ^Z and LF: what careless transfers change is noticed in the first 8 bytes. */
#define GPU_LOG_MAGIC   "\x89RPG\r\n\x1a\n"
#define GPU_CHUNK_MAGIC 0x4b484347u /* "GCHK" */

/* A chunk is closed once it holds this much. LZ4 looks back 64 KiB: longer chunks gain little, and
 * a killed recorder loses what its last chunk held. */
#define GPU_WORDS_FULL    (64u << 10)
#define GPU_CONTENTS_FULL (256u << 10)
#define GPU_RECORD_MAX    (GPU_COMMAND_MAX + (4u << 20))
#define GPU_CHUNK_MAX     (GPU_RECORD_MAX + GPU_CONTENTS_FULL + GPU_PIECE)

enum gpu_chunk_kind { GPU_CHUNK_RECORDS, GPU_CHUNK_CONTENTS };
struct gpu_chunk_header {
    u32 magic;
    u32 sequence; /* from 0 */
    u32 kind;
    u32 raw_size;
    u32 packed_size; /* bytes that follow; equal to raw_size: not compressed */
    u32 entries;     /* records or pieces, at least 1 */
    u64 header_check, check;
};
_Static_assert(sizeof(struct gpu_chunk_header) == 40, "part of the format");

extern const struct chunk_format gpu_log_format;

enum gpu_field_kind {
    GPU_LOG_FIELD_num,
    GPU_LOG_FIELD_text,
    GPU_LOG_FIELD_bytes,
    GPU_LOG_FIELD_blob,
    GPU_LOG_FIELD_ranges,
};
struct gpu_log_field {
    const char *name;
    enum gpu_field_kind kind;
    u32 offset; /* in struct gpu_record */
    const char *doc;
};
struct gpu_log_record_desc {
    u64 id;
    const char *name;
    const char *doc;
    const struct gpu_log_field *fields;
    size_t nfields;
};
extern const struct gpu_log_record_desc gpu_log_table[];
extern const size_t gpu_log_table_size;

struct gpu_log_base {
    pos_t position;
    vns_t time;
};
/* A record: varint id, varint length of what follows, varint position (difference to the record
 * before it in the chunk; of the first: to 0), varint time (that difference less the one of the
 * position, 0 -1 1 -2 ... as 0 1 2 3), its fields. */

/* Gives the number of a piece, keeping it if it is new. */
typedef u64 gpu_piece_fn(void *opaque, const u8 *data, u32 size);
/* Appends to out[0..cap); returns its bytes, or 0 when it does not fit. Moves *base on. */
size_t gpu_record_encode(const struct gpu_record *rec, struct gpu_log_base *base, u8 *out,
                         size_t cap, gpu_piece_fn *piece, void *opaque);
/* Decodes the record at in[0..len); `contents`: pieces that there are. Returns its bytes, or 0 with
 * a reason. Any bytes are safe. */
size_t gpu_record_decode(struct gpu_record *rec, struct gpu_log_base *base, const u8 *in,
                         size_t len, u64 contents, const char **why);

#endif
