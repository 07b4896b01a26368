/*
 * Commands of virtio-gpu and of virgl in bytes that a guest sent: any bytes are safe, nothing is
 * allocated, nothing is kept. What is known of a command is declared in virtio_gpu.def and
 * virgl.def; both kinds share one description and one walk over their fields.
 *
 * The device asks: is this command whole, what does it carry, may it reach the renderer. The
 * inspector asks for names and values.
 */
#ifndef REPRISE_GPU_DECODE_H
#define REPRISE_GPU_DECODE_H

#include <linux/virtio_gpu.h>

#include "base/types.h"
#include "virtio-gpu-log/names.h"

/* Rows of the tables. */
enum gpu_kind {
    GPU_NUM,
    GPU_SIGNED,
    GPU_HEX,
    GPU_BOOL,
    GPU_NUM64,
    GPU_HEX64,
    GPU_FLOAT,
    GPU_DOUBLE,
    GPU_NAMED, /* a value of an enum of enums.def */
    GPU_FORMAT,
    GPU_RESOURCE,
    GPU_OBJECT, /* handle in the context's object table */
    GPU_SLOT,
    GPU_NAME, /* 64 bytes of text, NUL-padded */
    GPU_PAD,
    /* Tails: the rest of the command. */
    GPU_DATA,
    GPU_TEXT,
    GPU_FLOATS,
    GPU_SHADER,   /* stream outputs, then TGSI text */
    GPU_COMMANDS, /* virgl */
    /* Rows that are no fields. */
    GPU_WORD,
    GPU_MORE,
    GPU_EACH,
    GPU_TIMES,
};

struct gpu_row {
    const char *name;
    u8 kind;  /* enum gpu_kind */
    u8 names; /* enum gpu_enum */
    u8 shift, bits;
    u8 is_tail, argument; /* EACH, TIMES: how often; KEY: limit; tail: at least so many dwords */
    bool written, key;
};

enum gpu_treatment { GPU_PASS, GPU_IGNORE, GPU_ANSWER, GPU_REFUSE };
/* See virgl.def. From GPU_DRAWS on they may change what resources hold. */
enum gpu_effect {
    GPU_NO_EFFECT,
    GPU_SETS,
    GPU_BINDS,
    GPU_SLOTS,
    GPU_LIST,
    GPU_DRAWS,
    GPU_CLEARS,
    GPU_WRITES,
    GPU_TRANSFERS,
    GPU_EFFECTS
};
enum gpu_feature { GPU_FEATURE_none, GPU_FEATURE_virgl, GPU_FEATURE_edid, GPU_FEATURE_unsupported };
enum gpu_queue { GPU_QUEUE_control, GPU_QUEUE_cursor };

struct gpu_desc {
    u32 number; /* VIRTIO_GPU_CMD_*, VIRGL_CCMD_* or VIRGL_OBJECT_* */
    const char *name;
    const char *doc;
    u8 treatment; /* enum gpu_treatment (virgl) */
    u8 effect;    /* enum gpu_effect (virgl) */
    u8 queue;     /* enum gpu_queue (virtio-gpu) */
    u8 feature;   /* enum gpu_feature (virtio-gpu) */
    u32 response; /* of success (virtio-gpu) */
    const struct gpu_row *rows;
    u32 nrows;
};

/* clang-format off */
enum virgl_ccmd {
    VIRGL_CCMD_CREATE_OBJECT = 1,
#define CCMD(NAME, number, treatment, effect, doc) VIRGL_CCMD_##NAME = number,
#define OBJECT(NAME, type, doc)
#define W(kind, name)
#define WRITTEN(kind, name)
#define KEY(name, limit)
#define WE(names, name)
#define WORD
#define B(name, shift, bits)
#define BE(names, name, shift, bits)
#define BF(name, shift, bits)
#define MORE
#define EACH(max)
#define TIMES(n)
#define TAIL(kind, name, least)
#define END(NAME)
#include "virtio-gpu-log/virgl.def"
#undef CCMD
#undef OBJECT
};
enum virgl_object {
#define CCMD(NAME, number, treatment, effect, doc)
#define OBJECT(NAME, type, doc) VIRGL_OBJECT_##NAME = type,
#include "virtio-gpu-log/virgl.def"
#undef CCMD
#undef OBJECT
#undef W
#undef WRITTEN
#undef KEY
#undef WE
#undef WORD
#undef B
#undef BE
#undef BF
#undef MORE
#undef EACH
#undef TIMES
#undef TAIL
#undef END
    VIRGL_OBJECT_TYPES = 12,
};
/* clang-format on */
#define VIRGL_SHADERS     6  /* stages */
#define VIRGL_SLOTS       32 /* of vertex buffers, views, samplers, ... at most */
#define GPU_RESOURCES_MAX 40 /* that one command may name */

/* Descriptions; NULL: not declared. */
const struct gpu_desc *gpu_command_desc(u32 type);
const struct gpu_desc *virgl_desc(u32 id, u32 object); /* `object` only for CREATE_OBJECT */
/* All of them, for tests and documentation. */
extern const struct gpu_desc gpu_command_table[], virgl_table[], virgl_object_table[];
extern const u32 gpu_command_table_size, virgl_table_size, virgl_object_table_size;

/* Names of a command and of a response ("OK_NODATA"); "unknown", never NULL. */
const char *gpu_command_name(u32 type);
const char *gpu_response_name(u32 type);

static inline u32 gpu_u32(const void *p)
{
    u32 v;
    __builtin_memcpy(&v, p, 4);
    return v;
}
static inline u64 gpu_u64(const void *p)
{
    u64 v;
    __builtin_memcpy(&v, p, 8);
    return v;
}

/* --- Commands of the two queues --- */

#define GPU_HEADER 24 /* struct virtio_gpu_ctrl_hdr */

struct gpu_command {
    const struct gpu_desc *desc; /* NULL: unknown type */
    u32 type, flags, ctx;
    u64 fence;
    u8 ring;
    const u8 *bytes; /* all of it */
    u32 size;
    const u8 *payload; /* SUBMIT_3D: the buffer; ATTACH_BACKING: the entries */
    u32 payload_size;
    /* 0: whole and known, so bytes hold the struct of linux/virtio_gpu.h; else
     * VIRTIO_GPU_RESP_ERR_* to answer, and `problem` says why. Bytes after a whole command mean
     * nothing. */
    u32 response;
    const char *problem; /* NULL when there is none */
};

/* Decodes `size` bytes, all that the guest gave to be read. Fills *out in every case; returns
 * out->response. Whether features are negotiated and ids exist is the device's to check. */
u32 gpu_command_decode(enum gpu_queue queue, const void *bytes, u32 size, struct gpu_command *out);

/* --- Commands inside a SUBMIT_3D --- */

struct virgl_command {
    u32 at;                      /* dword of its header in the buffer */
    u32 id;                      /* VIRGL_CCMD_* */
    u32 object;                  /* VIRGL_OBJECT_* in the header */
    u32 length;                  /* dwords after the header */
    const u8 *words;             /* the header; then `length` dwords, not aligned */
    const struct gpu_desc *desc; /* NULL: unknown */
    const char *problem;         /* NULL: well-formed */
};

struct virgl_walk {
    const u8 *data;
    u32 dwords, at;
    bool odd; /* bytes after the last dword */
};

void virgl_walk_start(struct virgl_walk *w, const void *buffer, u32 bytes);
/* The next command. One whose length does not fit is returned last, cut to what is there. false: no
 * more. */
bool virgl_next(struct virgl_walk *w, struct virgl_command *out);
/* Dword 1 to length of a command (0: its header); 0 beyond. */
static inline u32 virgl_word(const struct virgl_command *c, u32 index)
{
    return index <= c->length ? gpu_u32(c->words + (size_t)index * 4) : 0;
}

static inline enum gpu_effect virgl_effect(const struct virgl_command *c)
{
    return c->desc ? (enum gpu_effect)c->desc->effect : GPU_NO_EFFECT;
}
/* Is it from or to what is set? */
static inline bool virgl_draws(const struct virgl_command *c)
{
    return virgl_effect(c) == GPU_DRAWS || virgl_effect(c) == GPU_CLEARS;
}
/* May it change what resources hold? */
static inline bool virgl_changes(const struct virgl_command *c)
{
    return virgl_effect(c) >= GPU_DRAWS;
}

/* What a command of effect sets, binds, slots or list sets: the thing (id, stage, slot) or slots of
 * (id, stage). */
struct virgl_set {
    u32 stage; /* of shaders; of BIND_OBJECT: the type of object */
    u32 slot;  /* the first, or the KEY */
    u32 count; /* slots; 1 for what has none */
    u32 head;  /* dwords in front of the first slot's; after the header */
    u32 group; /* dwords of a slot; 0: it has none, and all is the head */
};
/* false: it sets nothing. The command must be a whole one (virgl_check). */
bool virgl_sets(const struct virgl_command *c, struct virgl_set *out);

struct virgl_problem {
    u32 at; /* dword */
    struct virgl_command command;
    const char *text;
};
/* May the buffer reach the renderer: every command declared, of a right length, not refused? On
 * false *problem (may be NULL) names the first that is not. */
bool virgl_check(const void *buffer, u32 bytes, struct virgl_problem *problem);
/* Of a buffer that virgl_check accepted, makes what the renderer gets: commands that are ignored or
 * answered by the device become NOPs of the same length. */
void virgl_for_renderer(void *buffer, u32 bytes);

/* Resource ids that a command names (0 is none and left out), at most GPU_RESOURCES_MAX; returns
 * how many. The same id may come twice. */
u32 virgl_resources(const struct virgl_command *c, u32 out[GPU_RESOURCES_MAX]);

struct virgl_query_info {
    u32 handle, type, index;
    u32 resource, offset; /* where the renderer puts struct virgl_host_query_state: 16 bytes */
};
/* Is it CREATE_OBJECT of a query? */
bool virgl_query(const struct virgl_command *c, struct virgl_query_info *out);

/* CREATE_OBJECT of a shader: the text of this part, not NUL-terminated. */
struct virgl_shader_info {
    u32 handle, stage;
    u32 total;  /* first part: bytes of the whole text with its NUL */
    u32 offset; /* later parts: where in it this one starts */
    bool continued;
    u32 outputs;      /* stream outputs */
    const u8 *output; /* 4 strides, then two dwords each */
    const u8 *text;
    u32 size;
};
bool virgl_shader(const struct virgl_command *c, struct virgl_shader_info *out);

/* --- Transfers: copies between a resource and guest memory --- */

struct gpu_box {
    u32 x, y, z, w, h, d;
};

struct gpu_transfer {
    u32 resource; /* whose texels */
    u32 backing;  /* whose backing: the same, or the staging resource of COPY_TRANSFER3D */
    u32 level, stride, layer_stride;
    struct gpu_box box;
    u64 offset; /* in the backing */
    bool to_host;
    bool two_d; /* TRANSFER_TO_HOST_2D: rows are as long as the resource's */
};
/* Of TRANSFER_*_2D/3D, of TRANSFER3D and COPY_TRANSFER3D; false: it is none. */
bool gpu_command_transfer(const struct gpu_command *c, struct gpu_transfer *out);
bool virgl_transfer(const struct virgl_command *c, struct gpu_transfer *out);

struct gpu_shape {
    u32 target, format, bind, width, height, depth, array_size, last_level, nr_samples, flags;
};
/* Of RESOURCE_CREATE_2D and _3D; false: it is neither. */
bool gpu_command_shape(const struct gpu_command *c, u32 *resource, struct gpu_shape *out);

/* Of RESOURCE_ATTACH_BACKING: the bytes of its entries together. */
u64 gpu_command_backing(const struct gpu_command *c);

struct gpu_extent {
    u64 offset; /* first byte of the backing that is read or written */
    u64 size;   /* up to the end of the last; 0 for an empty box */
    u32 row;    /* bytes of a row of blocks */
    u64 stride, layer_stride;
    u32 rows, layers;
};
/* Which bytes of the backing a transfer touches. NULL, or what is wrong with it: box outside the
 * resource, level it does not have, strides too short, a format that cannot be transferred. */
const char *gpu_transfer_extent(const struct gpu_transfer *t, const struct gpu_shape *shape,
                                struct gpu_extent *out);

/* --- Fields, for reading --- */

struct gpu_field {
    const char *name;
    enum gpu_kind kind;
    enum gpu_enum names;
    u32 index;   /* among repeated ones; GPU_NOT_REPEATED */
    bool packed; /* part of a dword */
    bool written;
    u64 value;
    const u8 *data; /* tails and GPU_NAME */
    u32 size;       /* bytes of them */
};
#define GPU_NOT_REPEATED UINT32_MAX

struct gpu_fields {
    const struct gpu_desc *desc;
    const u8 *body;
    u32 dwords, at, row, word, each, index;
};
/* Of what is there of a command, whole or not. */
void gpu_command_fields(const struct gpu_command *c, struct gpu_fields *it);
void virgl_fields(const struct virgl_command *c, struct gpu_fields *it);
bool gpu_field_next(struct gpu_fields *it, struct gpu_field *out);

#endif
