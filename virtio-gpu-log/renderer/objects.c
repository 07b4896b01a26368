/* See objects.h. */
#include "virtio-gpu-log/renderer/objects.h"

#include <stdlib.h>

/* What a guest gets unless the client says otherwise. */
#define CONTEXTS      256u
#define RESOURCES     16384u
#define TEXTURE_BYTES (1ull << 30)
#define BACKING_BYTES (1ull << 30)

/* What no OpenGL implementation exceeds, so that products stay small. */
#define EDGE_MAX   16384u
#define LAYERS_MAX 2048u
#define LEVELS_MAX 15u
#define SAMPLES    32u
#define BUFFER_MAX (1u << 30)

void objects_init(struct objects *o, const struct wire_hello *budget)
{
    struct wire_hello *b = &o->budget;
    *b = *budget;
    b->contexts = b->contexts ? b->contexts : CONTEXTS;
    b->resources = b->resources ? b->resources : RESOURCES;
    b->texture_bytes = b->texture_bytes ? b->texture_bytes : TEXTURE_BYTES;
    b->backing_bytes = b->backing_bytes ? b->backing_bytes : BACKING_BYTES;
}

struct context *objects_context(const struct objects *o, u32 id)
{
    for (struct context *c = o->contexts; c && c->id <= id; c = c->next)
        if (c->id == id)
            return c;
    return NULL;
}

u32 objects_add_context(struct objects *o, u32 id)
{
    if (!id)
        return WIRE_R_INVALID;
    if (objects_context(o, id))
        return WIRE_R_EXISTS;
    struct context *c = o->context_count < o->budget.contexts ? calloc(1, sizeof(*c)) : NULL;
    if (!c)
        return WIRE_R_BUDGET;
    c->id = id;
    struct context **at = &o->contexts;
    while (*at && (*at)->id < id)
        at = &(*at)->next;
    c->next = *at;
    *at = c;
    o->context_count++;
    return WIRE_R_OK;
}

void objects_remove_context(struct objects *o, u32 id)
{
    struct context **at = &o->contexts;
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    if (!*at)
        return;
    struct context *c = *at;
    *at = c->next;
    free(c);
    o->context_count--;
}

struct resource *objects_resource(const struct objects *o, u32 id)
{
    struct resource *r = o->buckets[id % RESOURCE_BUCKETS];
    while (r && r->args.resource != id)
        r = r->next;
    return r;
}

static u64 blocks(u32 pixels, u32 block)
{
    return ((u64)pixels + block - 1) / block;
}

/* The texture memory of one: mip levels together take at most as much again as the first. */
static u64 estimate(const struct wire_resource_create *a, const struct format_block *b)
{
    if (a->target == TARGET_BUFFER)
        return a->width;
    u64 bytes = blocks(a->width, b->w) * blocks(a->height, b->h) * b->bytes;
    bytes *= (u64)a->depth * a->array_size * MAX(a->nr_samples, 1u);
    return a->last_level ? bytes * 2 : bytes;
}

static bool sensible(const struct wire_resource_create *a)
{
    if (!a->resource || a->target > TARGET_MAX || !a->width || !a->height || !a->depth ||
        !a->array_size || a->nr_samples > SAMPLES || a->last_level >= LEVELS_MAX)
        return false;
    if (a->target == TARGET_BUFFER)
        return a->width <= BUFFER_MAX && a->height == 1 && a->depth == 1 && a->array_size == 1 &&
               !a->last_level && a->nr_samples <= 1;
    u32 edge = MAX(a->width, MAX(a->height, a->depth));
    return a->width <= EDGE_MAX && a->height <= EDGE_MAX && a->depth <= LAYERS_MAX &&
           a->array_size <= LAYERS_MAX && !(a->depth > 1 && a->target != TARGET_3D) &&
           (!a->last_level || edge >> a->last_level);
}

u32 objects_add_resource(struct objects *o, const struct wire_resource_create *args)
{
    struct format_block block;
    if (!sensible(args) || !format_block(args->format, &block))
        return WIRE_R_INVALID;
    if (objects_resource(o, args->resource))
        return WIRE_R_EXISTS;
    u64 bytes = estimate(args, &block);
    if (o->resource_count >= o->budget.resources ||
        bytes > o->budget.texture_bytes - o->texture_bytes)
        return WIRE_R_BUDGET;
    struct resource *r = calloc(1, sizeof(*r));
    if (!r)
        return WIRE_R_BUDGET;
    r->args = *args;
    r->block = block;
    r->bytes = bytes;
    struct resource **at = &o->buckets[args->resource % RESOURCE_BUCKETS];
    r->next = *at;
    *at = r;
    o->resource_count++;
    o->texture_bytes += bytes;
    return WIRE_R_OK;
}

void objects_remove_resource(struct objects *o, u32 id)
{
    struct resource **at = &o->buckets[id % RESOURCE_BUCKETS];
    while (*at && (*at)->args.resource != id)
        at = &(*at)->next;
    if (!*at)
        return;
    struct resource *r = *at;
    *at = r->next;
    o->resource_count--;
    o->texture_bytes -= r->bytes;
    free(r);
}

u32 objects_attach(struct objects *o, struct resource *r, u64 size)
{
    if (r->shadow)
        return WIRE_R_EXISTS;
    if (!size)
        return WIRE_R_INVALID;
    if (size > o->budget.backing_bytes - o->backing_bytes)
        return WIRE_R_BUDGET;
    r->shadow = shadow_create(size);
    if (!r->shadow)
        return WIRE_R_BUDGET;
    o->backing_bytes += size;
    return WIRE_R_OK;
}

void objects_detach(struct objects *o, struct resource *r)
{
    if (!r->shadow)
        return;
    o->backing_bytes -= r->shadow->size;
    shadow_destroy(r->shadow);
    r->shadow = NULL;
}

void resource_level(const struct resource *r, u32 level, struct wire_box *box)
{
    const struct wire_resource_create *a = &r->args;
    *box = (struct wire_box){.w = MAX(a->width >> level, 1u), .h = MAX(a->height >> level, 1u)};
    box->d = a->target == TARGET_3D ? MAX(a->depth >> level, 1u) : a->array_size;
}

static bool within(u32 at, u32 size, u32 whole, u32 block)
{
    u64 end = (u64)at + size;
    /* Compressed: whole blocks, except at the level's edge. */
    return size && end <= whole && at % block == 0 && (end % block == 0 || end == whole);
}

bool resource_layout(const struct resource *r, u32 level, const struct wire_box *box, u32 stride,
                     u32 layer_stride, struct layout *l)
{
    struct format_block b =
        r->args.target == TARGET_BUFFER ? (struct format_block){1, 1, 1} : r->block;
    struct wire_box whole;
    if (level > r->args.last_level)
        return false;
    resource_level(r, level, &whole);
    if (!within(box->x, box->w, whole.w, b.w) || !within(box->y, box->h, whole.h, b.h) ||
        !within(box->z, box->d, whole.d, 1))
        return false;
    l->row_bytes = blocks(box->w, b.w) * b.bytes;
    l->rows = (u32)blocks(box->h, b.h);
    l->layers = box->d;
    l->stride = stride ? stride : blocks(whole.w, b.w) * b.bytes;
    l->layer_stride = layer_stride ? layer_stride : l->stride * blocks(whole.h, b.h);
    u64 layer = (l->rows - 1) * l->stride + l->row_bytes;
    if (l->stride < l->row_bytes || (l->layers > 1 && l->layer_stride < layer))
        return false;
    l->span = (l->layers - 1) * l->layer_stride + layer;
    return true;
}
