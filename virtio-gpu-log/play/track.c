/* See track.h; track_look.c has what draws. Memory is in proportion to the commands that count, and
 * has an end. */
#include "virtio-gpu-log/play/track_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* Bytes of commands that are kept. A forged log of a few KiB may hold many MiB. */
#define BYTES_MAX (256u << 20)

static void *get(size_t size)
{
    void *p = calloc(1, size ? size : 1);
    CHECK(p, "out of memory");
    return p;
}

static void keep_bytes(struct gpu_track *t, struct track_bytes *b, const void *data, u32 size)
{
    free(b->data);
    b->data = get(size);
    memcpy(b->data, data, size);
    b->size = size;
}

/* --- Objects and live commands --- */

static struct track_live *live_make(struct gpu_track *t, const struct virgl_command *c)
{
    struct track_live *l = get(sizeof(*l));
    l->order = ++t->order;
    l->dwords = c->length + 1;
    l->words = get((size_t)l->dwords * 4);
    memcpy(l->words, c->words, (size_t)l->dwords * 4);
    l->id = c->id;
    t->bytes += (u64)l->dwords * 4 + sizeof(*l);
    if (t->bytes > BYTES_MAX)
        t->obstacle = "it has set up more than can be kept";
    return l;
}

static void live_free(struct gpu_track *t, struct track_live *l)
{
    if (!l)
        return;
    track_live_ends(t, l);
    t->bytes -= (u64)l->dwords * 4 + sizeof(*l);
    free(l->words);
    free(l->objects);
    free(l->named);
    free(l);
}

static void object_free(struct gpu_track *t, struct track_object *o)
{
    track_query_ends(t, o);
    while (o->parts) {
        struct track_live *l = o->parts;
        o->parts = l->next;
        live_free(t, l);
    }
    live_free(t, o->begin);
    live_free(t, o->end);
    live_free(t, o->destroy);
    free(o);
}

static struct track_object **object_link(struct track_sub *s, u32 handle)
{
    struct track_object **link = &s->objects[handle % TRACK_BUCKETS];
    while (*link && (*link)->handle != handle)
        link = &(*link)->next;
    return link;
}

/* A command no longer counts: nor do objects that only it kept. */
static void unbind(struct gpu_track *t, struct track_sub *s, struct track_live *l)
{
    for (u32 i = 0; i < l->object_count; i++) {
        struct track_object *o = l->objects[i];
        if (--o->uses || !o->destroy)
            continue;
        struct track_object **link = &s->destroyed;
        while (*link != o)
            link = &(*link)->next;
        *link = o->next;
        object_free(t, o);
    }
    live_free(t, l);
}

/* `c`: the command that does it; NULL: a new one of that handle. */
static void object_destroy(struct gpu_track *t, struct track_sub *s, u32 handle,
                           const struct virgl_command *c)
{
    struct track_object **link = object_link(s, handle), *o = *link;
    if (!o)
        return;
    *link = o->next;
    if (!o->uses) {
        object_free(t, o);
        return;
    }
    static const u32 destroy[2] = {VIRGL_CCMD_DESTROY_OBJECT | 1u << 16, 0};
    struct virgl_command made = {.id = VIRGL_CCMD_DESTROY_OBJECT, .length = 1};
    if (!c) {
        made.words = (const u8 *)destroy;
        c = &made;
    }
    o->destroy = live_make(t, c);
    o->destroy->words[1] = handle;
    o->next = s->destroyed;
    s->destroyed = o;
}

static u32 object_resource(const struct virgl_command *c)
{
    switch (c->object) {
    case VIRGL_OBJECT_SAMPLER_VIEW:
    case VIRGL_OBJECT_SURFACE:
    case VIRGL_OBJECT_MSAA_SURFACE:
    case VIRGL_OBJECT_STREAMOUT_TARGET: return virgl_word(c, 2);
    case VIRGL_OBJECT_QUERY: return virgl_word(c, 4);
    default: return 0;
    }
}

static void object_create(struct gpu_track *t, struct track_sub *s, const struct virgl_command *c)
{
    struct virgl_shader_info part;
    u32 handle = virgl_word(c, 1);
    struct track_object *o = *object_link(s, handle);
    if (virgl_shader(c, &part) && part.continued) {
        struct track_live **last = o ? &o->parts : NULL;
        while (last && *last)
            last = &(*last)->next;
        if (last)
            *last = live_make(t, c);
        return;
    }
    object_destroy(t, s, handle, NULL);
    o = get(sizeof(*o));
    o->handle = handle;
    o->type = c->object;
    o->resource = object_resource(c);
    const struct track_resource *r = gpu_track_resource(t, o->resource);
    o->birth = r ? r->birth : NEVER;
    o->parts = live_make(t, c);
    struct track_object **link = object_link(s, handle);
    o->next = *link;
    *link = o;
}

/* --- What is bound and set --- */

/* What a command sets: 0 nothing that stays, 1 one thing, 2 slots. */
static int sets(const struct virgl_command *c)
{
    switch (c->id) {
    case VIRGL_CCMD_SET_VIEWPORT_STATE:
    case VIRGL_CCMD_SET_SCISSOR_STATE:
    case VIRGL_CCMD_SET_SAMPLER_VIEWS:
    case VIRGL_CCMD_BIND_SAMPLER_STATES:
    case VIRGL_CCMD_SET_SHADER_BUFFERS:
    case VIRGL_CCMD_SET_SHADER_IMAGES:
    case VIRGL_CCMD_SET_ATOMIC_BUFFERS: return 2;
    case VIRGL_CCMD_SET_FRAMEBUFFER_STATE:
    case VIRGL_CCMD_SET_VERTEX_BUFFERS:
    case VIRGL_CCMD_SET_INDEX_BUFFER:
    case VIRGL_CCMD_SET_CONSTANT_BUFFER:
    case VIRGL_CCMD_SET_STENCIL_REF:
    case VIRGL_CCMD_SET_BLEND_COLOR:
    case VIRGL_CCMD_SET_POLYGON_STIPPLE:
    case VIRGL_CCMD_SET_CLIP_STATE:
    case VIRGL_CCMD_SET_SAMPLE_MASK:
    case VIRGL_CCMD_SET_STREAMOUT_TARGETS:
    case VIRGL_CCMD_SET_RENDER_CONDITION:
    case VIRGL_CCMD_SET_UNIFORM_BUFFER:
    case VIRGL_CCMD_SET_TESS_STATE:
    case VIRGL_CCMD_SET_MIN_SAMPLES:
    case VIRGL_CCMD_SET_FRAMEBUFFER_STATE_NO_ATTACH:
    case VIRGL_CCMD_SET_TWEAKS:
    case VIRGL_CCMD_BIND_OBJECT:
    case VIRGL_CCMD_BIND_SHADER: return 1;
    default: return 0;
    }
}

static void bind(struct gpu_track *t, struct track_sub *s, const struct virgl_command *c, int kind)
{
    struct track_live *l = live_make(t, c);
    struct gpu_fields it;
    struct gpu_field f;
    u32 slot = 0, count = 0, room = 0, names = 0;
    l->stage = c->id == VIRGL_CCMD_BIND_OBJECT ? c->object : 0;
    virgl_fields(c, &it);
    while (gpu_field_next(&it, &f)) {
        if (f.names == GPU_ENUM_shader)
            l->stage = (u32)f.value;
        if (f.kind == GPU_SLOT)
            slot = (u32)f.value;
        if (f.index != GPU_NOT_REPEATED)
            count = f.index + 1;
        struct track_object *o = f.kind == GPU_OBJECT ? *object_link(s, (u32)f.value) : NULL;
        if (o) {
            if (l->object_count == room) {
                room = room ? room * 2 : 8;
                l->objects = realloc(l->objects, room * sizeof(*l->objects));
                CHECK(l->objects, "out of memory");
            }
            l->objects[l->object_count++] = o;
            o->uses++;
            o->streamed = o->streamed || c->id == VIRGL_CCMD_SET_STREAMOUT_TARGETS;
            if (o->type == VIRGL_OBJECT_QUERY)
                track_query_seen(t, o);
        }
        if (f.kind == GPU_RESOURCE && f.value) {
            const struct track_resource *r = gpu_track_resource(t, (u32)f.value);
            if (l->named_count == names) {
                names = names ? names * 2 : 4;
                l->named = realloc(l->named, names * sizeof(*l->named));
                CHECK(l->named, "out of memory");
            }
            l->named[l->named_count++] =
                (struct track_named){it.at, (u32)f.value, r ? r->birth : NEVER};
        }
    }
    if (c->id == VIRGL_CCMD_SET_CONSTANT_BUFFER || c->id == VIRGL_CCMD_SET_UNIFORM_BUFFER)
        l->index = virgl_word(c, 2);
    else if (c->id == VIRGL_CCMD_SET_TWEAKS)
        l->index = virgl_word(c, 1);
    l->own = 1;
    if (kind == 2) {
        u64 from = ~0ull << MIN(slot, 32u), to = ~0ull << MIN(slot + count, 32u);
        l->none = !count;
        l->own = (u32)(count ? from & ~to : from) | (slot >= 32);
    }
    l->rest = l->own;
    for (struct track_live **link = &s->bound; *link;) {
        struct track_live *was = *link;
        if (was->id == l->id && was->stage == l->stage && was->index == l->index &&
            (!l->none || was->none))
            was->rest &= ~l->own;
        if (was->rest) {
            link = &was->next;
            continue;
        }
        *link = was->next;
        unbind(t, s, was);
    }
    s->last = &s->bound;
    while (*s->last)
        s->last = &(*s->last)->next;
    *s->last = l;
}

struct track_live *gpu_track_bound(const struct track_sub *s, u32 id, u32 stage)
{
    struct track_live *found = NULL;
    for (struct track_live *l = s->bound; l; l = l->next)
        if (l->id == id && l->stage == stage)
            found = l;
    return found;
}

/* --- Resources --- */

struct track_resource *gpu_track_resource(const struct gpu_track *t, u32 id)
{
    struct track_resource *r = t->resources[id % TRACK_BUCKETS];
    while (r && r->id != id)
        r = r->next;
    return r;
}

bool gpu_track_lives(const struct gpu_track *t, u32 id, u64 birth)
{
    const struct track_resource *r = gpu_track_resource(t, id);
    return r && r->birth == birth;
}

static void resource_create(struct gpu_track *t, u32 id, const struct gpu_shape *shape,
                            const struct gpu_command *c)
{
    u32 size = c->type == VIRTIO_GPU_CMD_RESOURCE_CREATE_2D
                   ? (u32)sizeof(struct virtio_gpu_resource_create_2d)
                   : (u32)sizeof(struct virtio_gpu_resource_create_3d);
    if (!id || gpu_track_resource(t, id))
        return;
    struct track_resource *r = get(sizeof(*r));
    r->id = id;
    r->birth = ++t->births;
    r->shape = *shape;
    keep_bytes(t, &r->create, c->bytes, MIN(size, c->size));
    r->next = t->resources[id % TRACK_BUCKETS];
    t->resources[id % TRACK_BUCKETS] = r;
    t->bytes += sizeof(*r);
    if (t->bytes > BYTES_MAX)
        t->obstacle = "it has set up more than can be kept";
}

static void resource_free(struct gpu_track *t, struct track_resource *r)
{
    t->bytes -= sizeof(*r);
    t->forget_contents(r->contents);
    free(r->create.data);
    free(r);
}

/* --- Commands --- */

static struct track_sub *sub_find(const struct track_context *c, u32 id)
{
    struct track_sub *s = c->subs;
    while (s && s->id != id)
        s = s->next;
    return s;
}

static void sub_create(struct gpu_track *t, struct track_context *c, u32 id)
{
    if (sub_find(c, id))
        return;
    struct track_sub *s = get(sizeof(*s));
    s->id = id;
    t->bytes += sizeof(*s);
    if (t->bytes > BYTES_MAX)
        t->obstacle = "it has set up more than can be kept";
    s->next = c->subs;
    c->subs = s;
}

static void sub_free(struct gpu_track *t, struct track_sub *s)
{
    while (s->bound) {
        struct track_live *l = s->bound;
        s->bound = l->next;
        unbind(t, s, l);
    }
    for (u32 i = 0; i < TRACK_BUCKETS; i++)
        while (s->objects[i]) {
            struct track_object *o = s->objects[i];
            s->objects[i] = o->next;
            object_free(t, o);
        }
    t->bytes -= sizeof(*s);
    free(s);
}

static void sub_destroy(struct gpu_track *t, struct track_context *c, u32 id)
{
    struct track_sub **link = &c->subs;
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    struct track_sub *s = *link;
    if (!s || !id)
        return;
    *link = s->next;
    if (c->current == s)
        c->current = sub_find(c, 0);
    sub_free(t, s);
}

static void query(struct gpu_track *t, struct track_sub *s, const struct virgl_command *c)
{
    struct track_object *o = *object_link(s, virgl_word(c, 1));
    if (!o || o->type != VIRGL_OBJECT_QUERY)
        return;
    if (c->id == VIRGL_CCMD_BEGIN_QUERY) {
        track_query_ends(t, o); /* counts anew */
        live_free(t, o->begin);
        live_free(t, o->end);
        o->end = NULL;
        o->begin = live_make(t, c);
    } else if (c->id == VIRGL_CCMD_END_QUERY) {
        live_free(t, o->end);
        o->end = live_make(t, c);
    }
}

static void inner(struct gpu_track *t, struct track_context *ctx, const struct virgl_command *c)
{
    struct track_sub *s = ctx->current;
    struct gpu_transfer copy;
    int kind = sets(c);
    if (kind) {
        bind(t, s, c, kind);
        return;
    }
    switch (c->id) {
    case VIRGL_CCMD_CREATE_OBJECT: object_create(t, s, c); return;
    case VIRGL_CCMD_DESTROY_OBJECT: object_destroy(t, s, virgl_word(c, 1), c); return;
    case VIRGL_CCMD_CREATE_SUB_CTX: sub_create(t, ctx, virgl_word(c, 1)); return;
    case VIRGL_CCMD_SET_SUB_CTX: ctx->current = sub_find(ctx, virgl_word(c, 1)) ?: s; return;
    case VIRGL_CCMD_DESTROY_SUB_CTX: sub_destroy(t, ctx, virgl_word(c, 1)); return;
    case VIRGL_CCMD_BEGIN_QUERY:
    case VIRGL_CCMD_END_QUERY: query(t, s, c); return;
    case VIRGL_CCMD_DRAW_VBO:
    case VIRGL_CCMD_LAUNCH_GRID: track_draws(t, s, c); return;
    case VIRGL_CCMD_CLEAR: track_clears(t, s, c); return;
    default: break;
    }
    u32 ids[GPU_RESOURCES_MAX], n = virgl_resources(c, ids);
    for (u32 i = 0; i < n; i++)
        gpu_track_look(t, ids[i]);
    switch (c->id) {
    case VIRGL_CCMD_BLIT: track_changed(t, virgl_word(c, 4), NEVER); break;
    case VIRGL_CCMD_RESOURCE_COPY_REGION:
    case VIRGL_CCMD_CLEAR_TEXTURE:
    case VIRGL_CCMD_RESOURCE_INLINE_WRITE: track_changed(t, virgl_word(c, 1), NEVER); break;
    case VIRGL_CCMD_GET_QUERY_RESULT_QBO: {
        struct track_object *o = *object_link(s, virgl_word(c, 1));
        if (o)
            track_query_seen(t, o);
        track_changed(t, virgl_word(c, 2), NEVER);
        break;
    }
    default:
        if (virgl_transfer(c, &copy) && copy.to_host)
            track_changed(t, copy.resource, NEVER);
    }
}

struct track_context *gpu_track_context(const struct gpu_track *t, u32 id)
{
    struct track_context *c = t->contexts;
    while (c && c->id != id)
        c = c->next;
    return c;
}

static void context_create(struct gpu_track *t, const struct gpu_command *c)
{
    if (!c->ctx || gpu_track_context(t, c->ctx))
        return;
    struct track_context *ctx = get(sizeof(*ctx));
    ctx->id = c->ctx;
    keep_bytes(t, &ctx->create, c->bytes, MIN(c->size, (u32)sizeof(struct virtio_gpu_ctx_create)));
    sub_create(t, ctx, 0);
    ctx->current = ctx->subs;
    ctx->next = t->contexts;
    t->contexts = ctx;
}

static void context_free(struct gpu_track *t, struct track_context *c)
{
    while (c->subs) {
        struct track_sub *s = c->subs;
        c->subs = s->next;
        sub_free(t, s);
    }
    free(c->attached);
    free(c->create.data);
    free(c);
}

static void context_destroy(struct gpu_track *t, u32 id)
{
    struct track_context **link = &t->contexts;
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    if (*link) {
        struct track_context *c = *link;
        *link = c->next;
        context_free(t, c);
    }
}

/* Where an id is among those attached, or belongs. */
static u32 attached_at(const struct track_context *c, u32 id)
{
    u32 low = 0, high = c->attached_count;
    while (low < high) {
        u32 mid = (low + high) / 2;
        if (c->attached[mid] < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

bool gpu_track_attached(const struct track_context *c, u32 resource)
{
    u32 i = attached_at(c, resource);
    return i < c->attached_count && c->attached[i] == resource;
}

static void attach(struct gpu_track *t, struct track_context *c, u32 id, bool on)
{
    if (!c || (on && !gpu_track_resource(t, id)))
        return;
    u32 i = attached_at(c, id);
    bool there = i < c->attached_count && c->attached[i] == id;
    if (on && !there) {
        if (c->attached_count == c->attached_room) {
            c->attached_room = c->attached_room ? c->attached_room * 2 : 64;
            c->attached = realloc(c->attached, c->attached_room * sizeof(*c->attached));
            CHECK(c->attached, "out of memory");
        }
        memmove(c->attached + i + 1, c->attached + i, (c->attached_count - i) * 4);
        c->attached[i] = id;
        c->attached_count++;
    } else if (!on && there) {
        c->attached_count--;
        memmove(c->attached + i, c->attached + i + 1, (c->attached_count - i) * 4);
    }
}

static void resource_unref(struct gpu_track *t, u32 id)
{
    struct track_resource **link = &t->resources[id % TRACK_BUCKETS];
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    if (!*link)
        return;
    struct track_resource *r = *link;
    *link = r->next;
    resource_free(t, r);
    for (struct track_context *c = t->contexts; c; c = c->next)
        attach(t, c, id, false);
    for (u32 i = 0; i < TRACK_SCANOUTS; i++) {
        struct virtio_gpu_set_scanout s;
        if (!t->scanout[i].size)
            continue;
        memcpy(&s, t->scanout[i].data, sizeof(s));
        if (s.resource_id == id)
            t->scanout[i].size = 0;
    }
}

static void submit(struct gpu_track *t, const struct gpu_command *c, u32 from, u32 to)
{
    struct track_context *ctx = gpu_track_context(t, c->ctx);
    struct virgl_walk w;
    struct virgl_command v;
    if (!ctx || ctx->dead || !virgl_check(c->payload, c->payload_size, NULL))
        return;
    virgl_walk_start(&w, c->payload, c->payload_size);
    while (virgl_next(&w, &v) && v.at < to)
        if (v.at >= from)
            inner(t, ctx, &v);
}

static void set_scanout(struct gpu_track *t, const struct gpu_command *c)
{
    struct virtio_gpu_set_scanout s;
    memcpy(&s, c->bytes, sizeof(s));
    if (s.scanout_id < TRACK_SCANOUTS)
        keep_bytes(t, &t->scanout[s.scanout_id], c->bytes, sizeof(s));
}

static void cursor(struct gpu_track *t, const struct gpu_command *c)
{
    struct virtio_gpu_update_cursor u;
    memcpy(&u, c->bytes, sizeof(u));
    if (u.pos.scanout_id >= TRACK_SCANOUTS)
        return;
    bool move = c->type == VIRTIO_GPU_CMD_MOVE_CURSOR;
    gpu_track_look(t, u.resource_id);
    keep_bytes(t, (move ? t->moved : t->cursor) + u.pos.scanout_id, c->bytes, sizeof(u));
    if (!move)
        t->moved[u.pos.scanout_id].size = 0;
}

static void backing(struct gpu_track *t, const struct gpu_command *c)
{
    struct track_resource *r = gpu_track_resource(t, gpu_u32(c->bytes + GPU_HEADER));
    if (!r || r->attached == (c->type == VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING))
        return;
    r->attached = !r->attached;
    r->backing = r->attached ? gpu_command_backing(c) : 0;
}

/* Where a RESOURCE_FLUSH has its resource. */
#define FLUSHED offsetof(struct virtio_gpu_resource_flush, resource_id)

void gpu_track_command(struct gpu_track *t, const struct gpu_command *c, u32 from, u32 to)
{
    struct gpu_shape shape;
    struct gpu_transfer copy;
    u32 id;
    if (c->response)
        return;
    if (gpu_command_shape(c, &id, &shape)) {
        resource_create(t, id, &shape, c);
        return;
    }
    if (gpu_command_transfer(c, &copy)) {
        gpu_track_look(t, copy.resource);
        if (copy.to_host)
            track_changed(t, copy.resource, NEVER);
        return;
    }
    id = c->size >= GPU_HEADER + 4 ? gpu_u32(c->bytes + GPU_HEADER) : 0;
    switch (c->type) {
    case VIRTIO_GPU_CMD_RESOURCE_UNREF: resource_unref(t, id); break;
    case VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING:
    case VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING: backing(t, c); break;
    case VIRTIO_GPU_CMD_SET_SCANOUT: set_scanout(t, c); break;
    case VIRTIO_GPU_CMD_RESOURCE_FLUSH: gpu_track_look(t, gpu_u32(c->bytes + FLUSHED)); break;
    case VIRTIO_GPU_CMD_UPDATE_CURSOR:
    case VIRTIO_GPU_CMD_MOVE_CURSOR: cursor(t, c); break;
    case VIRTIO_GPU_CMD_CTX_CREATE: context_create(t, c); break;
    case VIRTIO_GPU_CMD_CTX_DESTROY: context_destroy(t, c->ctx); break;
    case VIRTIO_GPU_CMD_CTX_ATTACH_RESOURCE:
        attach(t, gpu_track_context(t, c->ctx), id, true);
        break;
    case VIRTIO_GPU_CMD_CTX_DETACH_RESOURCE:
        attach(t, gpu_track_context(t, c->ctx), id, false);
        break;
    case VIRTIO_GPU_CMD_SUBMIT_3D: submit(t, c, from, to); break;
    default: break;
    }
}

void gpu_track_fault(struct gpu_track *t, u32 context)
{
    struct track_context *c = gpu_track_context(t, context);
    if (c)
        c->dead = true;
}

/* --- Life --- */

struct gpu_track *gpu_track_create(void (*forget_contents)(struct keyframe_contents *))
{
    struct gpu_track *t = get(sizeof(*t));
    t->forget_contents = forget_contents;
    return t;
}

void gpu_track_reset(struct gpu_track *t)
{
    while (t->contexts) {
        struct track_context *c = t->contexts;
        t->contexts = c->next;
        context_free(t, c);
    }
    for (u32 i = 0; i < TRACK_BUCKETS; i++)
        while (t->resources[i]) {
            struct track_resource *r = t->resources[i];
            t->resources[i] = r->next;
            resource_free(t, r);
        }
    for (u32 i = 0; i < TRACK_SCANOUTS; i++)
        t->scanout[i].size = t->cursor[i].size = t->moved[i].size = 0;
    t->obstacle = NULL;
}

void gpu_track_destroy(struct gpu_track *t)
{
    if (!t)
        return;
    gpu_track_reset(t);
    for (u32 i = 0; i < TRACK_SCANOUTS; i++) {
        free(t->scanout[i].data);
        free(t->cursor[i].data);
        free(t->moved[i].data);
    }
    free(t);
}
