/* See track.h: what commands look at and change, and who relied on what. */
#include "virtio-gpu-log/play/track_internal.h"

/* --- Reliances --- */

static void rely_end(struct track_pending *p, u32 i)
{
    p->list[i] = p->list[--p->count];
}

void track_live_ends(struct gpu_track *t, const struct track_live *l)
{
    for (struct track_pending *p = t->pending; p; p = p->next)
        for (u32 i = p->count; i-- > 0;)
            if (p->list[i].live == l)
                rely_end(p, i);
}

void track_query_ends(struct gpu_track *t, const struct track_object *o)
{
    for (struct track_pending *p = t->pending; p; p = p->next)
        for (u32 i = p->count; i-- > 0;)
            if (p->list[i].query == o)
                rely_end(p, i);
}

void track_query_seen(struct gpu_track *t, const struct track_object *o)
{
    for (struct track_pending *p = t->pending; p; p = p->next)
        for (u32 i = 0; i < p->count; i++)
            p->broken = p->broken || p->list[i].query == o;
}

static void resource_seen(struct gpu_track *t, u32 id, u64 birth, u32 aspects)
{
    for (struct track_pending *p = t->pending; p; p = p->next)
        for (u32 i = 0; i < p->count; i++) {
            const struct track_reliance *r = &p->list[i];
            if (!(r->aspects & aspects) || r->id != id || r->birth != birth)
                continue;
            if (r->use)
                p->needed[r->use - 1] = true;
            else
                p->broken = true;
        }
}

static void resource_set(struct gpu_track *t, u32 id, u64 birth, u32 aspects)
{
    for (struct track_pending *p = t->pending; p; p = p->next)
        for (u32 i = p->count; i-- > 0;)
            if (p->list[i].aspects && p->list[i].id == id && p->list[i].birth == birth) {
                p->list[i].aspects &= ~aspects;
                if (!p->list[i].aspects)
                    rely_end(p, i);
            }
}

void gpu_track_watch(struct gpu_track *t, struct track_pending *p)
{
    p->next = t->pending;
    t->pending = p;
}

void gpu_track_drop(struct gpu_track *t, struct track_pending *p)
{
    struct track_pending **link = &t->pending;
    while (*link && *link != p)
        link = &(*link)->next;
    if (*link)
        *link = p->next;
}

void track_changed(struct gpu_track *t, u32 id, u64 birth)
{
    struct track_resource *r = gpu_track_resource(t, id);
    if (r && (birth == NEVER || r->birth == birth))
        r->changes++;
}

/* A command names it: it may be read or written. */
void gpu_track_look(struct gpu_track *t, u32 id)
{
    const struct track_resource *r = gpu_track_resource(t, id);
    if (r)
        resource_seen(t, id, r->birth, 3);
}

/* --- What draws --- */

static bool has_stencil(u32 format)
{
    return format == VIRGL_FORMAT_Z24_UNORM_S8_UINT || format == VIRGL_FORMAT_S8_UINT_Z24_UNORM ||
           format == VIRGL_FORMAT_S8_UINT || format == VIRGL_FORMAT_Z32_FLOAT_S8X24_UINT;
}

u32 gpu_track_aspects(const struct track_resource *r)
{
    return has_stencil(r->shape.format) ? 3 : 1;
}

/* Depth and stencil are only looked at where a test is on. */
static u32 depth_aspects(const struct track_sub *s)
{
    const struct track_live *l = gpu_track_bound(s, VIRGL_CCMD_BIND_OBJECT, VIRGL_OBJECT_DSA);
    if (!l || !l->object_count || l->objects[0]->parts->dwords < 5)
        return 3;
    const u32 *w = l->objects[0]->parts->words;
    return (w[2] & 1) | ((w[3] | w[4]) & 1) << 1;
}

static bool is_depth(const struct gpu_track *t, const struct track_object *o)
{
    const struct track_resource *r = gpu_track_resource(t, o->resource);
    return r && r->shape.bind & 1;
}

void track_draws(struct gpu_track *t, struct track_sub *s, const struct virgl_command *c)
{
    bool indexed = c->id != VIRGL_CCMD_DRAW_VBO || virgl_word(c, 4);
    for (struct track_live *l = s->bound; l; l = l->next) {
        if (l->id == VIRGL_CCMD_SET_INDEX_BUFFER && !indexed)
            continue;
        for (struct track_pending *p = t->pending; p; p = p->next)
            for (u32 i = 0; i < p->count; i++)
                p->broken = p->broken || p->list[i].live == l;
        bool target = l->id == VIRGL_CCMD_SET_FRAMEBUFFER_STATE;
        for (u32 i = 0; i < l->object_count; i++) {
            const struct track_object *o = l->objects[i];
            if (!o->resource)
                continue;
            if (t->pending)
                resource_seen(t, o->resource, o->birth,
                              target && is_depth(t, o) ? depth_aspects(s) : 3);
            if (l->written)
                track_changed(t, o->resource, o->birth);
        }
        for (u32 i = 0; i < l->named_count; i++) {
            if (t->pending)
                resource_seen(t, l->named[i].id, l->named[i].birth, 3);
            if (l->written)
                track_changed(t, l->named[i].id, l->named[i].birth);
        }
    }
    u32 ids[GPU_RESOURCES_MAX], n = virgl_resources(c, ids);
    for (u32 i = 0; i < n; i++)
        gpu_track_look(t, ids[i]);
}

/* Does a surface show all of its resource? */
static bool whole(const struct track_resource *r, const struct track_object *o)
{
    const struct track_live *l = o->parts;
    if (o->type != VIRGL_OBJECT_SURFACE || l->dwords < 6 || r->shape.last_level || l->words[4] ||
        r->shape.target == 0)
        return false;
    u32 layers = MAX(r->shape.depth, r->shape.array_size);
    return (l->words[5] & 0xffff) == 0 && (l->words[5] >> 16) + 1 >= layers;
}

void track_clears(struct gpu_track *t, struct track_sub *s, const struct virgl_command *c)
{
    struct track_live *l = gpu_track_bound(s, VIRGL_CCMD_SET_FRAMEBUFFER_STATE, 0);
    u32 mask = virgl_word(c, 1);
    /* It may do nothing. */
    const struct track_live *maybe = gpu_track_bound(s, VIRGL_CCMD_SET_RENDER_CONDITION, 0);
    const struct track_live *rs =
        gpu_track_bound(s, VIRGL_CCMD_BIND_OBJECT, VIRGL_OBJECT_RASTERIZER);
    bool certain = !(maybe && maybe->object_count) &&
                   !(rs && rs->object_count && rs->objects[0]->parts->dwords > 2 &&
                     rs->objects[0]->parts->words[2] & 8 /* discards all */);
    for (u32 i = 2; l && i < l->dwords; i++) {
        struct track_object *o = NULL;
        for (u32 k = 0; k < l->object_count && !o; k++)
            o = l->objects[k]->handle == l->words[i] ? l->objects[k] : NULL;
        /* After the number of colours comes the depth surface, then they. */
        u32 aspects = i == 2 ? mask & 3 : mask >> (i - 1) & 1 ? 3 : 0;
        const struct track_resource *r = o ? gpu_track_resource(t, o->resource) : NULL;
        if (!aspects || !r || r->birth != o->birth)
            continue;
        track_changed(t, o->resource, o->birth);
        if (certain && whole(r, o))
            resource_set(t, r->id, r->birth, aspects);
        else
            resource_seen(t, r->id, r->birth, aspects);
    }
}
