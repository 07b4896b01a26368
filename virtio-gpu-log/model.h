/*
 * What a stream's commands make, by their names: resources, contexts, sub-contexts, objects. The
 * one place that knows which command makes, replaces and destroys what. Who follows a stream
 * (stream.h to show it, play/track.h to stand in for it) has structs of its own that begin with
 * these heads, and is told what happens to them.
 *
 * Nothing here trusts a stream.
 */
#ifndef REPRISE_GPU_MODEL_H
#define REPRISE_GPU_MODEL_H

#include "virtio-gpu-log/decode.h"

#define GPU_BUCKETS 256u

/* Heads: the first fields of a follower's struct; `self` is the struct's name. */
#define GPU_RESOURCE_HEAD(self)                                                                    \
    u32 id;                                                                                        \
    struct gpu_shape shape;                                                                        \
    bool attached; /* it has a backing, of so many bytes */                                        \
    u64 backing;                                                                                   \
    struct self *next
#define GPU_OBJECT_HEAD(self)                                                                      \
    u32 handle, type; /* VIRGL_OBJECT_* */                                                         \
    struct self *next
#define GPU_SUB_HEAD(self, object)                                                                 \
    u32 id;                                                                                        \
    struct object *objects[GPU_BUCKETS];                                                           \
    struct self *next
#define GPU_CONTEXT_HEAD(self, sub)                                                                \
    u32 id;                                                                                        \
    bool dead;                  /* its commands do nothing any more */                             \
    struct sub *subs, *current; /* sub-context 0 is always there */                                \
    struct self *next
#define GPU_MODEL_HEAD(resource, context)                                                          \
    const struct gpu_model_ops *ops;                                                               \
    struct resource *resources[GPU_BUCKETS];                                                       \
    struct context *contexts;                                                                      \
    u32 resource_count, context_count, sub_count;                                                  \
    bool no_memory /* a command could not be followed */

struct model_resource {
    GPU_RESOURCE_HEAD(model_resource);
};
struct model_object {
    GPU_OBJECT_HEAD(model_object);
};
struct model_sub {
    GPU_SUB_HEAD(model_sub, model_object);
};
struct model_context {
    GPU_CONTEXT_HEAD(model_context, model_sub);
};
struct gpu_model {
    GPU_MODEL_HEAD(model_resource, model_context);
};

enum model_destroy {
    MODEL_GOES,  /* it is freed */
    MODEL_KEPT,  /* the follower has it now; the handle is free */
    MODEL_STAYS, /* nothing happens, for want of memory */
};

/*
 * All are given the follower's own structs. `made`: the head is filled in; false: there shall be
 * none (the follower has freed what it got for it). `gone`: what the follower holds in it is to be
 * freed; the model frees the struct.
 */
struct gpu_model_ops {
    size_t resource_size, object_size, sub_size, context_size;
    bool (*resource_made)(void *m, void *resource, const struct gpu_command *c);
    void (*resource_gone)(void *m, void *resource);
    bool (*context_made)(void *m, void *context, const struct gpu_command *c);
    void (*context_gone)(void *m, void *context); /* its subs are gone; NULL: it holds nothing */
    bool (*sub_made)(void *m, void *sub);
    void (*sub_gone)(void *m, void *sub); /* its objects are still there */
    bool (*object_made)(void *m, void *sub, void *object, const struct virgl_command *c);
    /* The rest of a shader that was too long for one buffer. */
    void (*object_more)(void *m, void *object, const struct virgl_command *c);
    /* Destroyed by command c; NULL: replaced. Without this operation it goes. */
    enum model_destroy (*object_destroyed)(void *m, void *sub, void *object,
                                           const struct virgl_command *c);
    void (*object_gone)(void *m, void *object);
    void (*set)(void *m, void *sub, const struct virgl_command *c, const struct virgl_set *set);
    /* Any other command, of a context; and of the device. */
    void (*inner)(void *m, void *context, const struct virgl_command *c);
    void (*outer)(void *m, const struct gpu_command *c);
};

/* Follows a command, of a SUBMIT_3D the virgl commands that start at dwords from <= D < to. */
void gpu_model_command(void *model, const struct gpu_command *c, u32 from, u32 to);
/* All is gone, as after a reset of the device. */
void gpu_model_reset(void *model);

/* NULL: there is none. */
void *gpu_model_resource(const void *model, u32 id);
void *gpu_model_context(const void *model, u32 id);
void *gpu_model_object(const void *sub, u32 handle);

#endif
