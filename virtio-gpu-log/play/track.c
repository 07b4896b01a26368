/* See track.h; track_look.c has what draws. Memory is in proportion to the commands that count, and
 * has an end. */
#include "virtio-gpu-log/play/track_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "virtio-gpu-log/play/grow.h"

/* Bytes of commands that are kept. A forged log of a few KiB may hold many MiB. */
#define BYTES_MAX (256u << 20)

/* NULL: there is no memory. Whoever gets none leaves all as it is; gpu_track_command says so. */
static void *get(struct gpu_track *t, size_t size)
{
    void *p = calloc(1, size ? size : 1);
    t->no_memory = t->no_memory || !p;
    return p;
}

static void *grow(struct gpu_track *t, void *list, u32 count, size_t *room, size_t each)
{
    void *p = list_grow(list, count, room, each);
    t->no_memory = t->no_memory || !p;
    return p;
}

static bool keep_bytes(struct gpu_track *t, struct track_bytes *b, const void *data, u32 size)
{
    u8 *copy = get(t, size);
    if (!copy)
        return false;
    memcpy(copy, data, size);
    free(b->data);
    *b = (struct track_bytes){copy, size};
    return true;
}

static void count_bytes(struct gpu_track *t, u64 bytes)
{
    t->bytes += bytes;
    if (t->bytes > BYTES_MAX)
        t->obstacle = "it has set up more than can be kept";
}

/* --- Objects and live commands --- */

static struct track_live *live_make(struct gpu_track *t, const struct virgl_command *c)
{
    struct track_live *l = get(t, sizeof(*l));
    u32 dwords = c->length + 1, *words = l ? get(t, (size_t)dwords * 4) : NULL;
    if (!words) {
        free(l);
        return NULL;
    }
    l->order = ++t->order;
    l->dwords = dwords;
    l->words = words;
    memcpy(l->words, c->words, (size_t)l->dwords * 4);
    l->id = c->id;
    count_bytes(t, (u64)l->dwords * 4 + sizeof(*l));
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

static void object_gone(void *m, void *object)
{
    struct gpu_track *t = m;
    struct track_object *o = object;
    track_query_ends(t, o);
    while (o->parts) {
        struct track_live *l = o->parts;
        o->parts = l->next;
        live_free(t, l);
    }
    live_free(t, o->begin);
    live_free(t, o->end);
    live_free(t, o->destroy);
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
        object_gone(t, o);
        free(o);
    }
    live_free(t, l);
}

/* What is bound keeps it. */
static enum model_destroy object_destroyed(void *m, void *sub, void *object,
                                           const struct virgl_command *c)
{
    struct gpu_track *t = m;
    struct track_sub *s = sub;
    struct track_object *o = object;
    if (!o->uses)
        return MODEL_GOES;
    static const u32 destroy[2] = {VIRGL_CCMD_DESTROY_OBJECT | 1u << 16, 0};
    struct virgl_command made = {.id = VIRGL_CCMD_DESTROY_OBJECT, .length = 1};
    if (!c) {
        made.words = (const u8 *)destroy;
        c = &made;
    }
    o->destroy = live_make(t, c);
    if (!o->destroy)
        return MODEL_STAYS;
    o->destroy->words[1] = o->handle;
    o->next = s->destroyed;
    s->destroyed = o;
    return MODEL_KEPT;
}

static u32 object_resource(const struct virgl_command *c)
{
    u32 ids[GPU_RESOURCES_MAX];
    return virgl_resources(c, ids) ? ids[0] : 0;
}

static void object_more(void *m, void *object, const struct virgl_command *c)
{
    struct track_object *o = object;
    struct track_live **last = &o->parts;
    while (*last)
        last = &(*last)->next;
    *last = live_make(m, c);
}

static bool object_made(void *m, void *sub, void *object, const struct virgl_command *c)
{
    struct gpu_track *t = m;
    struct track_object *o = object;
    (void)sub;
    o->parts = live_make(t, c);
    o->resource = object_resource(c);
    const struct track_resource *r = gpu_track_resource(t, o->resource);
    o->birth = r ? r->birth : NEVER;
    return o->parts;
}

/* --- What is bound and set --- */

/* Which slots it sets, bit by bit. */
static u32 own_slots(const struct virgl_command *c, const struct virgl_set *set)
{
    u64 from = ~0ull << MIN(set->slot, 32u), to = ~0ull << MIN(set->slot + set->count, 32u);
    if (!set->group)
        return 1;
    bool to_the_end = !set->count || virgl_effect(c) == GPU_LIST;
    return (u32)(to_the_end ? from : from & ~to) | (set->slot >= 32);
}

static void bind_object(struct gpu_track *t, struct track_live *l, struct track_object *o,
                        size_t *room)
{
    struct track_object **objects = grow(t, l->objects, l->object_count, room, sizeof(*objects));
    if (!objects)
        return;
    l->objects = objects;
    objects[l->object_count++] = o;
    o->uses++;
    o->streamed = o->streamed || o->type == VIRGL_OBJECT_STREAMOUT_TARGET;
    if (o->type == VIRGL_OBJECT_QUERY)
        track_query_seen(t, o);
}

static void name_resource(struct gpu_track *t, struct track_live *l, u32 dword, u32 id,
                          size_t *room)
{
    struct track_named *named = grow(t, l->named, l->named_count, room, sizeof(*named));
    const struct track_resource *r = gpu_track_resource(t, id);
    if (!named)
        return;
    l->named = named;
    named[l->named_count++] = (struct track_named){dword, id, r ? r->birth : NEVER};
}

static void bind(void *m, void *sub, const struct virgl_command *c, const struct virgl_set *set)
{
    struct gpu_track *t = m;
    struct track_sub *s = sub;
    struct track_live *l = live_make(t, c);
    struct gpu_fields it;
    struct gpu_field f;
    size_t objects = 0, names = 0;
    if (!l)
        return;
    l->stage = set->stage;
    l->index = set->group ? 0 : set->slot;
    virgl_fields(c, &it);
    while (gpu_field_next(&it, &f)) {
        struct track_object *o = f.kind == GPU_OBJECT ? gpu_model_object(s, (u32)f.value) : NULL;
        l->written = l->written || f.written;
        if (o)
            bind_object(t, l, o, &objects);
        if (f.kind == GPU_RESOURCE && f.value)
            name_resource(t, l, it.at, (u32)f.value, &names);
    }
    /* Without slots it is not known what it does to others: it covers none. */
    l->none = !set->count && virgl_effect(c) == GPU_SLOTS;
    l->own = own_slots(c, set);
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
    return gpu_model_resource(t, id);
}

bool gpu_track_lives(const struct gpu_track *t, u32 id, u64 birth)
{
    const struct track_resource *r = gpu_track_resource(t, id);
    return r && r->birth == birth;
}

static bool resource_made(void *m, void *resource, const struct gpu_command *c)
{
    struct gpu_track *t = m;
    struct track_resource *r = resource;
    u32 size = c->type == VIRTIO_GPU_CMD_RESOURCE_CREATE_2D
                   ? (u32)sizeof(struct virtio_gpu_resource_create_2d)
                   : (u32)sizeof(struct virtio_gpu_resource_create_3d);
    if (!keep_bytes(t, &r->create, c->bytes, MIN(size, c->size)))
        return false;
    r->birth = ++t->births;
    count_bytes(t, sizeof(*r));
    return true;
}

static void attach(struct gpu_track *t, struct track_context *c, u32 id, bool on);

static void resource_gone(void *m, void *resource)
{
    struct gpu_track *t = m;
    struct track_resource *r = resource;
    for (struct track_context *c = t->contexts; c; c = c->next)
        attach(t, c, r->id, false);
    for (u32 i = 0; i < TRACK_SCANOUTS; i++) {
        struct virtio_gpu_set_scanout s;
        if (!t->scanout[i].size)
            continue;
        memcpy(&s, t->scanout[i].data, sizeof(s));
        if (s.resource_id == r->id)
            t->scanout[i].size = 0;
    }
    t->bytes -= sizeof(*r);
    t->forget_contents(r->contents);
    free(r->create.data);
}

/* --- Commands --- */

static bool sub_made(void *m, void *sub)
{
    (void)sub;
    count_bytes(m, sizeof(struct track_sub));
    return true;
}

static void sub_gone(void *m, void *sub)
{
    struct gpu_track *t = m;
    struct track_sub *s = sub;
    while (s->bound) {
        struct track_live *l = s->bound;
        s->bound = l->next;
        unbind(t, s, l);
    }
    t->bytes -= sizeof(*s);
}

static void query(struct gpu_track *t, struct track_sub *s, const struct virgl_command *c)
{
    struct track_object *o = gpu_model_object(s, virgl_word(c, 1));
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

/* What it names is looked at, and its WRITTEN resources have changed. */
static void writes(struct gpu_track *t, struct track_sub *s, const struct virgl_command *c)
{
    struct gpu_transfer copy;
    struct gpu_fields it;
    struct gpu_field f;
    virgl_fields(c, &it);
    while (gpu_field_next(&it, &f)) {
        struct track_object *o = f.kind == GPU_OBJECT ? gpu_model_object(s, (u32)f.value) : NULL;
        if (o)
            track_query_seen(t, o);
        if (f.kind == GPU_RESOURCE)
            gpu_track_look(t, (u32)f.value);
        if (f.written)
            track_changed(t, (u32)f.value, NEVER);
    }
    if (virgl_transfer(c, &copy) && copy.to_host)
        track_changed(t, copy.resource, NEVER);
}

static void inner(void *m, void *context, const struct virgl_command *c)
{
    struct gpu_track *t = m;
    const struct track_context *ctx = context;
    struct track_sub *s = ctx->current;
    switch (virgl_effect(c)) {
    case GPU_DRAWS: track_draws(t, s, c); return;
    case GPU_CLEARS: track_clears(t, s, c); return;
    case GPU_WRITES:
    case GPU_TRANSFERS: writes(t, s, c); return;
    default: break;
    }
    if (c->id == VIRGL_CCMD_BEGIN_QUERY || c->id == VIRGL_CCMD_END_QUERY) {
        query(t, s, c);
        return;
    }
    u32 ids[GPU_RESOURCES_MAX], n = virgl_resources(c, ids);
    for (u32 i = 0; i < n; i++)
        gpu_track_look(t, ids[i]);
}

struct track_context *gpu_track_context(const struct gpu_track *t, u32 id)
{
    return gpu_model_context(t, id);
}

static bool context_made(void *m, void *context, const struct gpu_command *c)
{
    struct track_context *ctx = context;
    u32 size = MIN(c->size, (u32)sizeof(struct virtio_gpu_ctx_create));
    return keep_bytes(m, &ctx->create, c->bytes, size);
}

static void context_gone(void *m, void *context)
{
    struct track_context *c = context;
    (void)m;
    free(c->attached);
    free(c->create.data);
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
        u32 *more = grow(t, c->attached, c->attached_count, &c->attached_room, sizeof(*more));
        if (!more)
            return;
        c->attached = more;
        memmove(c->attached + i + 1, c->attached + i, (c->attached_count - i) * 4);
        c->attached[i] = id;
        c->attached_count++;
    } else if (!on && there) {
        c->attached_count--;
        memmove(c->attached + i, c->attached + i + 1, (c->attached_count - i) * 4);
    }
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

/* Where a RESOURCE_FLUSH has its resource. */
#define FLUSHED offsetof(struct virtio_gpu_resource_flush, resource_id)

static void outer(void *m, const struct gpu_command *c)
{
    struct gpu_track *t = m;
    struct gpu_transfer copy;
    if (gpu_command_transfer(c, &copy)) {
        gpu_track_look(t, copy.resource);
        if (copy.to_host)
            track_changed(t, copy.resource, NEVER);
        return;
    }
    u32 id = c->size >= GPU_HEADER + 4 ? gpu_u32(c->bytes + GPU_HEADER) : 0;
    switch (c->type) {
    case VIRTIO_GPU_CMD_SET_SCANOUT: set_scanout(t, c); break;
    case VIRTIO_GPU_CMD_RESOURCE_FLUSH: gpu_track_look(t, gpu_u32(c->bytes + FLUSHED)); break;
    case VIRTIO_GPU_CMD_UPDATE_CURSOR:
    case VIRTIO_GPU_CMD_MOVE_CURSOR: cursor(t, c); break;
    case VIRTIO_GPU_CMD_CTX_ATTACH_RESOURCE:
        attach(t, gpu_track_context(t, c->ctx), id, true);
        break;
    case VIRTIO_GPU_CMD_CTX_DETACH_RESOURCE:
        attach(t, gpu_track_context(t, c->ctx), id, false);
        break;
    default: break;
    }
}

static const struct gpu_model_ops ops = {.resource_size = sizeof(struct track_resource),
                                         .object_size = sizeof(struct track_object),
                                         .sub_size = sizeof(struct track_sub),
                                         .context_size = sizeof(struct track_context),
                                         .resource_made = resource_made,
                                         .resource_gone = resource_gone,
                                         .context_made = context_made,
                                         .context_gone = context_gone,
                                         .sub_made = sub_made,
                                         .sub_gone = sub_gone,
                                         .object_made = object_made,
                                         .object_more = object_more,
                                         .object_destroyed = object_destroyed,
                                         .object_gone = object_gone,
                                         .set = bind,
                                         .inner = inner,
                                         .outer = outer};

int gpu_track_command(struct gpu_track *t, const struct gpu_command *c, u32 from, u32 to,
                      struct err *err)
{
    if (!t->no_memory && !c->response)
        gpu_model_command(t, c, from, to);
    return t->no_memory ? err_set(err, -ENOMEM, "no memory for what the GPU stream has set up") : 0;
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
    struct gpu_track *t = calloc(1, sizeof(*t));
    if (t) {
        t->ops = &ops;
        t->forget_contents = forget_contents;
    }
    return t;
}

void gpu_track_reset(struct gpu_track *t)
{
    gpu_model_reset(t);
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
