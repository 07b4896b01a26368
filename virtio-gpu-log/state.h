/*
 * What a stream has set up: resources, contexts, sub-contexts, their objects, and what is bound in
 * them, rebuilt from the commands of a log one by one. For reading: it decides nothing. Memory is
 * in proportion to the stream, contents of resources within a budget.
 *
 * Contents are what the guest uploaded; what the GPU drew is not known here.
 */
#ifndef REPRISE_GPU_STATE_H
#define REPRISE_GPU_STATE_H

#include "virtio-gpu-log/log.h"

/* Where in the stream something was said: command, and dword in its buffer (GPU_NO_DWORD: the
 * command itself). */
struct gpu_origin {
    u64 number;
    u32 at;
};
#define GPU_NO_DWORD UINT32_MAX

struct gpu_stream_resource {
    u32 id;
    struct gpu_shape shape;
    struct gpu_origin created, written; /* written: last upload; number NEVER: none */
    u64 backing;                        /* bytes attached */
    u8 *contents; /* of a buffer, or of level 0, layer 0 without gaps between rows; NULL: unknown */
    u64 contents_size;
    struct gpu_stream_resource *next;
};

struct gpu_object {
    u32 handle, type; /* VIRGL_OBJECT_* */
    struct gpu_origin created;
    struct virgl_command command; /* that created it; its words are kept here */
    char *text;                   /* of a shader, all parts, NUL-terminated */
    u32 text_size;                /* that it should have, without NUL */
    struct gpu_object *next;
};

/* One thing that is bound or set: what a SET_ or BIND_ command said of one slot. */
struct gpu_bound {
    u32 id;    /* VIRGL_CCMD_* */
    u32 stage; /* shader stage; of BIND_OBJECT: type of object */
    u32 slot;
    struct gpu_origin origin;
    struct virgl_command command; /* with only this slot's group; its words are kept here */
};

#define GPU_BUCKETS 256
struct gpu_sub {
    u32 id;
    struct gpu_object *objects[GPU_BUCKETS];
    struct gpu_bound *bound; /* in the order of id, stage, slot */
    u32 count, room;
    struct gpu_sub *next;
};

struct gpu_stream_context {
    u32 id;
    char name[65];                  /* printable */
    struct gpu_sub *subs, *current; /* sub-context 0 is always there */
    struct gpu_stream_context *next;
};

struct gpu_state {
    struct gpu_stream_resource *resources[GPU_BUCKETS];
    struct gpu_stream_context *contexts;
    u32 shown[VIRTIO_GPU_MAX_SCANOUTS];
    u64 contents; /* bytes held */
    u32 resource_count, context_count, sub_count;
};

struct gpu_state *gpu_state_create(void); /* NULL: no memory */
void gpu_state_destroy(struct gpu_state *s);

/* Applies a record. Of a SUBMIT_3D only the commands up to the one at dword `last`, itself included
 * (GPU_NO_DWORD: all). <0 when the log is damaged or memory is short. */
int gpu_state_step(struct gpu_state *s, struct gpu_log_reader *r, const struct gpu_record *rec,
                   u32 last, struct err *err);

/* Applies what came back of the transfers of a command: contents of resources, as they were then.
 */
int gpu_state_readback(struct gpu_state *s, struct gpu_log_reader *r, const struct gpu_command *c,
                       const struct gpu_record *reply, struct err *err);

struct gpu_stream_context *gpu_state_context(const struct gpu_state *s, u32 id);
struct gpu_stream_resource *gpu_state_resource(const struct gpu_state *s, u32 id);
struct gpu_object *gpu_state_object(const struct gpu_sub *sub, u32 handle);
/* What is bound; NULL: nothing. */
struct gpu_bound *gpu_state_bound(const struct gpu_sub *sub, u32 id, u32 stage, u32 slot);

#endif
