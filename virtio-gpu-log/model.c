/* See model.h. */
#include "virtio-gpu-log/model.h"

#include <stdlib.h>

static void *get(struct gpu_model *m, size_t size)
{
    void *p = calloc(1, size);
    m->no_memory = m->no_memory || !p;
    return p;
}

/* --- Resources --- */

static struct model_resource **resource_link(struct gpu_model *m, u32 id)
{
    struct model_resource **link = &m->resources[id % GPU_BUCKETS];
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    return link;
}

void *gpu_model_resource(const void *model, u32 id)
{
    const struct gpu_model *m = model;
    struct model_resource *r = m->resources[id % GPU_BUCKETS];
    while (r && r->id != id)
        r = r->next;
    return r;
}

/* The device answers with an error if the id is 0 or in use. */
static void resource_create(struct gpu_model *m, u32 id, const struct gpu_shape *shape,
                            const struct gpu_command *c)
{
    struct model_resource **link = resource_link(m, id), *r;
    if (!id || *link || !(r = get(m, m->ops->resource_size)))
        return;
    r->id = id;
    r->shape = *shape;
    if (!m->ops->resource_made(m, r, c)) {
        free(r);
        return;
    }
    *link = r;
    m->resource_count++;
}

static void resource_free(struct gpu_model *m, struct model_resource *r)
{
    m->resource_count--;
    m->ops->resource_gone(m, r);
    free(r);
}

static void resource_unref(struct gpu_model *m, u32 id)
{
    struct model_resource **link = resource_link(m, id), *r = *link;
    if (!r)
        return;
    *link = r->next;
    resource_free(m, r);
}

static void set_backing(struct gpu_model *m, const struct gpu_command *c, u32 id)
{
    struct model_resource *r = gpu_model_resource(m, id);
    if (!r || r->attached == (c->type == VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING))
        return;
    r->attached = !r->attached;
    r->backing = r->attached ? gpu_command_backing(c) : 0;
}

/* --- Objects --- */

static struct model_object **object_link(struct model_sub *s, u32 handle)
{
    struct model_object **link = &s->objects[handle % GPU_BUCKETS];
    while (*link && (*link)->handle != handle)
        link = &(*link)->next;
    return link;
}

void *gpu_model_object(const void *sub, u32 handle)
{
    const struct model_sub *s = sub;
    struct model_object *o = s->objects[handle % GPU_BUCKETS];
    while (o && o->handle != handle)
        o = o->next;
    return o;
}

static void object_free(struct gpu_model *m, struct model_object *o)
{
    m->ops->object_gone(m, o);
    free(o);
}

static void object_destroy(struct gpu_model *m, struct model_sub *s, u32 handle,
                           const struct virgl_command *c)
{
    struct model_object **link = object_link(s, handle), *o = *link;
    if (!o)
        return;
    struct model_object *next = o->next;
    enum model_destroy how =
        m->ops->object_destroyed ? m->ops->object_destroyed(m, s, o, c) : MODEL_GOES;
    if (how == MODEL_STAYS)
        return;
    *link = next;
    if (how == MODEL_GOES)
        object_free(m, o);
}

static void object_create(struct gpu_model *m, struct model_sub *s, const struct virgl_command *c)
{
    struct virgl_shader_info part;
    u32 handle = virgl_word(c, 1);
    struct model_object *o = *object_link(s, handle);
    if (virgl_shader(c, &part) && part.continued) {
        if (o)
            m->ops->object_more(m, o, c);
        return;
    }
    object_destroy(m, s, handle, NULL); /* the renderer replaces it */
    if (m->no_memory || !(o = get(m, m->ops->object_size)))
        return;
    o->handle = handle;
    o->type = c->object;
    if (!m->ops->object_made(m, s, o, c)) {
        free(o);
        return;
    }
    *object_link(s, handle) = o;
}

/* --- Contexts --- */

static struct model_sub *sub_find(const struct model_context *c, u32 id)
{
    struct model_sub *s = c->subs;
    while (s && s->id != id)
        s = s->next;
    return s;
}

static void sub_create(struct gpu_model *m, struct model_context *c, u32 id)
{
    struct model_sub *s;
    if (sub_find(c, id) || !(s = get(m, m->ops->sub_size)))
        return;
    s->id = id;
    if (!m->ops->sub_made(m, s)) {
        free(s);
        return;
    }
    m->sub_count++;
    s->next = c->subs;
    c->subs = s;
}

static void sub_free(struct gpu_model *m, struct model_sub *s)
{
    m->sub_count--;
    m->ops->sub_gone(m, s);
    for (u32 i = 0; i < GPU_BUCKETS; i++)
        while (s->objects[i]) {
            struct model_object *o = s->objects[i];
            s->objects[i] = o->next;
            object_free(m, o);
        }
    free(s);
}

static void sub_destroy(struct gpu_model *m, struct model_context *c, u32 id)
{
    struct model_sub **link = &c->subs;
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    struct model_sub *s = *link;
    if (!s || !id)
        return;
    *link = s->next;
    if (c->current == s)
        c->current = sub_find(c, 0);
    sub_free(m, s);
}

void *gpu_model_context(const void *model, u32 id)
{
    const struct gpu_model *m = model;
    struct model_context *c = m->contexts;
    while (c && c->id != id)
        c = c->next;
    return c;
}

static void context_free(struct gpu_model *m, struct model_context *c)
{
    while (c->subs) {
        struct model_sub *s = c->subs;
        c->subs = s->next;
        sub_free(m, s);
    }
    if (m->ops->context_gone)
        m->ops->context_gone(m, c);
    free(c);
}

static void context_create(struct gpu_model *m, const struct gpu_command *c)
{
    struct model_context *ctx;
    if (!c->ctx || gpu_model_context(m, c->ctx) || !(ctx = get(m, m->ops->context_size)))
        return;
    ctx->id = c->ctx;
    if (!m->ops->context_made(m, ctx, c)) {
        free(ctx);
        return;
    }
    sub_create(m, ctx, 0);
    if (!ctx->subs) {
        context_free(m, ctx);
        return;
    }
    ctx->current = ctx->subs;
    ctx->next = m->contexts;
    m->contexts = ctx;
    m->context_count++;
}

static void context_destroy(struct gpu_model *m, u32 id)
{
    struct model_context **link = &m->contexts;
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    struct model_context *c = *link;
    if (!c)
        return;
    *link = c->next;
    m->context_count--;
    context_free(m, c);
}

/* --- Commands --- */

static void inner(struct gpu_model *m, struct model_context *ctx, const struct virgl_command *c)
{
    struct model_sub *s = ctx->current;
    struct virgl_set set;
    if (virgl_sets(c, &set)) {
        m->ops->set(m, s, c, &set);
        return;
    }
    switch (c->id) {
    case VIRGL_CCMD_CREATE_OBJECT: object_create(m, s, c); break;
    case VIRGL_CCMD_DESTROY_OBJECT: object_destroy(m, s, virgl_word(c, 1), c); break;
    case VIRGL_CCMD_CREATE_SUB_CTX: sub_create(m, ctx, virgl_word(c, 1)); break;
    case VIRGL_CCMD_SET_SUB_CTX: ctx->current = sub_find(ctx, virgl_word(c, 1)) ?: s; break;
    case VIRGL_CCMD_DESTROY_SUB_CTX: sub_destroy(m, ctx, virgl_word(c, 1)); break;
    default: m->ops->inner(m, ctx, c); break;
    }
}

static void submit(struct gpu_model *m, const struct gpu_command *c, u32 from, u32 to)
{
    struct model_context *ctx = gpu_model_context(m, c->ctx);
    struct virgl_walk w;
    struct virgl_command v;
    if (!ctx || ctx->dead || !virgl_check(c->payload, c->payload_size, NULL))
        return;
    virgl_walk_start(&w, c->payload, c->payload_size);
    while (virgl_next(&w, &v) && v.at < to)
        if (v.at >= from)
            inner(m, ctx, &v);
}

void gpu_model_command(void *model, const struct gpu_command *c, u32 from, u32 to)
{
    struct gpu_model *m = model;
    struct gpu_shape shape;
    struct gpu_transfer copy;
    u32 id;
    if (gpu_command_shape(c, &id, &shape)) {
        resource_create(m, id, &shape, c);
        return;
    }
    id = c->size >= GPU_HEADER + 4 ? gpu_u32(c->bytes + GPU_HEADER) : 0;
    switch (gpu_command_transfer(c, &copy) ? 0 : c->type) {
    case VIRTIO_GPU_CMD_RESOURCE_UNREF: resource_unref(m, id); break;
    case VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING:
    case VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING: set_backing(m, c, id); break;
    case VIRTIO_GPU_CMD_CTX_CREATE: context_create(m, c); break;
    case VIRTIO_GPU_CMD_CTX_DESTROY: context_destroy(m, c->ctx); break;
    case VIRTIO_GPU_CMD_SUBMIT_3D: submit(m, c, from, to); break;
    default: m->ops->outer(m, c); break;
    }
}

void gpu_model_reset(void *model)
{
    struct gpu_model *m = model;
    while (m->contexts)
        context_destroy(m, m->contexts->id);
    for (u32 i = 0; i < GPU_BUCKETS; i++)
        while (m->resources[i])
            resource_unref(m, m->resources[i]->id);
    m->no_memory = false;
}
