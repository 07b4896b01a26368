/*
 * What must be known of a stream to stand in for its past: which commands still count. Of
 * everything that sets state (objects, what is bound, what is set) the commands themselves are
 * kept, in their order, until others have undone them; of resources, whether their contents may
 * have changed.
 *
 * Nothing here reads a renderer or trusts a stream. What cannot be stood in for makes the tracker
 * say so (`obstacle`).
 */
#ifndef REPRISE_GPU_TRACK_H
#define REPRISE_GPU_TRACK_H

#include "base/err.h"
#include "virtio-gpu-log/model.h"

/* Bytes of a command, as in a log. */
struct track_bytes {
    u8 *data;
    u32 size;
};

struct keyframe_contents;

struct track_resource {
    GPU_RESOURCE_HEAD(track_resource);
    u64 birth;   /* unlike that of any other resource */
    u64 changes; /* grows with every command that may have changed its contents */
    u64 looked;  /* `changes` when somebody last looked: whoever looks sets it */
    struct track_bytes create;
    struct keyframe_contents *contents; /* as last read, by whoever did; see forget_contents */
};

/* A command that still counts. */
struct track_live {
    u64 order; /* among all commands of the stream */
    u32 *words;
    u32 dwords;
    u32 id, stage, index; /* what it sets */
    u32 own, rest;        /* slots, and those that nobody has set since */
    bool none;            /* sets slots to nothing by naming none */
    bool written;         /* draws write to what it names */
    struct track_object **objects;
    u32 object_count;
    struct track_named *named;
    u32 named_count;
    struct track_live *next;
};

/* A resource that a command names, at one of its dwords. */
struct track_named {
    u32 dword, id;
    u64 birth;
};

struct track_object {
    GPU_OBJECT_HEAD(track_object); /* `next` also among those destroyed */
    u32 resource;                  /* that it is of; 0: none */
    u64 birth;
    struct track_live *parts;       /* the commands that made it: more than one for a long shader */
    struct track_live *begin, *end; /* of a query */
    struct track_live *destroy;     /* set: only what is bound keeps it */
    u32 uses;                       /* live commands that name it */
    bool streamed;                  /* vertices may have been written through it */
};

struct track_sub {
    GPU_SUB_HEAD(track_sub, track_object);
    struct track_object *destroyed;
    struct track_live *bound, **last;
};

struct track_context {
    GPU_CONTEXT_HEAD(track_context, track_sub);
    struct track_bytes create;
    u32 *attached; /* resource ids, ascending */
    u32 attached_count;
    size_t attached_room;
};

/* What a stand-in relies on not being looked at before it is set anew. */
struct track_reliance {
    u32 id;
    u64 birth;
    u32 aspects;             /* of a resource: 1 colour or depth, 2 stencil */
    struct track_live *live; /* or: a command without the resources that are gone */
    struct track_sub *sub;
    struct track_object *query; /* or: a result */
    u32 use;                    /* not 0: no reliance, it is only noted in needed[use - 1] */
};
struct track_pending {
    struct track_reliance *list;
    u32 count;
    size_t room;
    bool broken;
    bool *needed; /* what was looked at, of what need not be relied on */
    struct track_pending *next;
};

#define TRACK_SCANOUTS VIRTIO_GPU_MAX_SCANOUTS
struct gpu_track {
    GPU_MODEL_HEAD(track_resource, track_context);
    struct track_bytes scanout[TRACK_SCANOUTS], cursor[TRACK_SCANOUTS], moved[TRACK_SCANOUTS];
    u64 order, births, bytes;
    const char *obstacle; /* for good */
    struct track_pending *pending;
    void (*forget_contents)(struct keyframe_contents *contents);
};

/* NULL: no memory. */
struct gpu_track *gpu_track_create(void (*forget_contents)(struct keyframe_contents *));
void gpu_track_destroy(struct gpu_track *t);
void gpu_track_reset(struct gpu_track *t); /* the device was reset: all is gone */

/* Follows a command, of a SUBMIT_3D the virgl commands that start at dwords from <= D < to.
 * -ENOMEM: it could not, nor any after it until a reset. */
int gpu_track_command(struct gpu_track *t, const struct gpu_command *c, u32 from, u32 to,
                      struct err *err);
/* The context met an error. */
void gpu_track_fault(struct gpu_track *t, u32 context);

struct track_resource *gpu_track_resource(const struct gpu_track *t, u32 id);
struct track_context *gpu_track_context(const struct gpu_track *t, u32 id);
/* Parts of its contents that can be set and looked at by themselves. */
u32 gpu_track_aspects(const struct track_resource *r);
/* May the context use it? */
bool gpu_track_attached(const struct track_context *c, u32 resource);
/* Is the resource still that one? */
bool gpu_track_lives(const struct gpu_track *t, u32 id, u64 birth);
/* The live command that sets this; NULL: none. */
struct track_live *gpu_track_bound(const struct track_sub *s, u32 id, u32 stage);

/* Somebody looks at a resource. */
void gpu_track_look(struct gpu_track *t, u32 id);
/* From now on *p says whether what it relies on was looked at. Removed with gpu_track_drop. */
void gpu_track_watch(struct gpu_track *t, struct track_pending *p);
void gpu_track_drop(struct gpu_track *t, struct track_pending *p);

#endif
