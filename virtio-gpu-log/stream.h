/*
 * What a stream has set up: resources, contexts, sub-contexts, their objects, and what is bound in
 * them, rebuilt from the commands of a log one by one. For reading: it decides nothing. Memory is
 * in proportion to the stream, contents of resources within a budget.
 *
 * Contents are what the guest uploaded; what the GPU drew is not known here.
 */
#ifndef REPRISE_GPU_STREAM_H
#define REPRISE_GPU_STREAM_H

#include "virtio-gpu-log/log.h"
#include "virtio-gpu-log/model.h"

/* Where in the stream something was said: command, and dword in its buffer (GPU_NO_DWORD: the
 * command itself). */
struct gpu_origin {
    u64 number;
    u32 at;
};
#define GPU_NO_DWORD UINT32_MAX

struct gpu_stream_resource {
    GPU_RESOURCE_HEAD(gpu_stream_resource);
    struct gpu_origin created, written; /* written: last upload; number NEVER: none */
    u8 *contents; /* of a buffer, or of level 0, layer 0 without gaps between rows; NULL: unknown */
    u64 contents_size;
};

struct gpu_object {
    GPU_OBJECT_HEAD(gpu_object);
    struct gpu_origin created;
    struct virgl_command command; /* that created it; its words are kept here */
    char *text;                   /* of a shader, all parts, NUL-terminated */
    u32 text_size;                /* that it should have, without NUL */
};

/* One thing that is bound or set: what a SET_ or BIND_ command said of one slot. */
struct gpu_bound {
    u32 id;    /* VIRGL_CCMD_* */
    u32 stage; /* shader stage; of BIND_OBJECT: type of object */
    u32 slot;
    struct gpu_origin origin;
    struct virgl_command command; /* with only this slot's group; its words are kept here */
};

struct gpu_sub {
    GPU_SUB_HEAD(gpu_sub, gpu_object);
    struct gpu_bound *bound; /* in the order of id, stage, slot */
    u32 count, room;
};

struct gpu_stream_context {
    GPU_CONTEXT_HEAD(gpu_stream_context, gpu_sub);
    char name[65]; /* printable */
};

struct gpu_stream {
    GPU_MODEL_HEAD(gpu_stream_resource, gpu_stream_context);
    u32 shown[VIRTIO_GPU_MAX_SCANOUTS];
    u64 contents; /* bytes held */
    /* Of the step under way. */
    struct gpu_log_reader *log;
    const struct gpu_record *record;
    struct err *err;
    int code;
};

struct gpu_stream *gpu_stream_create(void); /* NULL: no memory */
void gpu_stream_destroy(struct gpu_stream *s);

/* Applies a record. Of a SUBMIT_3D only the commands up to the one at dword `last`, itself included
 * (GPU_NO_DWORD: all). <0 when the log is damaged or memory is short. */
int gpu_stream_step(struct gpu_stream *s, struct gpu_log_reader *r, const struct gpu_record *rec,
                    u32 last, struct err *err);

/* Applies what came back of the transfers of a command: contents of resources, as they were then.
 */
int gpu_stream_readback(struct gpu_stream *s, struct gpu_log_reader *r, const struct gpu_command *c,
                        const struct gpu_record *reply, struct err *err);

struct gpu_stream_context *gpu_stream_context(const struct gpu_stream *s, u32 id);
struct gpu_stream_resource *gpu_stream_resource(const struct gpu_stream *s, u32 id);
struct gpu_object *gpu_stream_object(const struct gpu_sub *sub, u32 handle);
/* What is bound; NULL: nothing. */
struct gpu_bound *gpu_stream_bound(const struct gpu_sub *sub, u32 id, u32 stage, u32 slot);

#endif
