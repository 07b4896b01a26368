/* The contexts and resources that exist, and what they take: so that the library is never asked for
 * one that does not, and never for more than the budget. */
#ifndef REPRISE_GPU_OBJECTS_H
#define REPRISE_GPU_OBJECTS_H

#include "virtio-gpu-log/renderer/format.h"
#include "virtio-gpu-log/renderer/protocol.h"
#include "virtio-gpu-log/renderer/shadow.h"

struct context {
    u32 id;
    bool latched; /* takes no more commands */
    bool used;    /* since the last fence */
    struct context *next;
};

struct resource {
    struct wire_resource_create args;
    struct format_block block;
    u64 bytes; /* its estimated texture memory */
    struct shadow *shadow;
    struct resource *next;
};

#define RESOURCE_BUCKETS 4096u

struct objects {
    struct context *contexts;                   /* ascending ids */
    struct resource *buckets[RESOURCE_BUCKETS]; /* by id */
    u32 context_count, resource_count;
    u64 texture_bytes, backing_bytes;
    struct wire_hello budget;
};

#define TARGET_BUFFER    0u
#define TARGET_3D        3u
#define TARGET_MAX       8u                    /* an array of cube maps */
#define BIND_HAS_NO_COPY (1u << 17 | 1u << 19) /* custom, staging: memory, not a texture */

/* Fills in what is 0 in the budget. */
void objects_init(struct objects *o, const struct wire_hello *budget);

struct context *objects_context(const struct objects *o, u32 id); /* NULL: none */
u32 objects_add_context(struct objects *o, u32 id);               /* a result code */
void objects_remove_context(struct objects *o, u32 id);

struct resource *objects_resource(const struct objects *o, u32 id); /* NULL: none */
/* Checks everything that can be checked without the library. Returns a result code. */
u32 objects_add_resource(struct objects *o, const struct wire_resource_create *r);
void objects_remove_resource(struct objects *o, u32 id); /* it has no shadow */

u32 objects_attach(struct objects *o, struct resource *r, u64 size);
void objects_detach(struct objects *o, struct resource *r);

/* The size of a level in pixels and layers. */
void resource_level(const struct resource *r, u32 level, struct wire_box *box);

/* A box of a resource in memory: rows of blocks, `rows` rows a layer. */
struct layout {
    u64 row_bytes, stride, layer_stride;
    u32 rows, layers;
    u64 span; /* from the first byte to the end of the last */
};

/* False: the box is not inside the level, or the strides cannot be. */
bool resource_layout(const struct resource *r, u32 level, const struct wire_box *box, u32 stride,
                     u32 layer_stride, struct layout *l);

#endif
