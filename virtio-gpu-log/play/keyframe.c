/* See keyframe.h. */
#include "virtio-gpu-log/play/keyframe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "virtio-gpu-log/play/grow.h"

/* Dwords of a SUBMIT_3D after which the next one begins. */
#define WORDS_FULL 32768u
/* Buffers whose contents are the guest's memory alone: BIND_CUSTOM, BIND_STAGING. */
#define BIND_HAS_NO_COPY (1u << 17 | 1u << 19)

struct maker {
    struct gpu_keyframe *k;
    struct gpu_track *t;
    struct gpu_drive *d;
    bool observe;
    u64 *bytes;
    struct track_context *context; /* whose submit is being made */
    u32 *words;
    u32 used, room;
    bool no_memory;
};

/* NULL: there is no memory, so that there is no keyframe; what is left to do goes on without. */
static void *more(struct maker *m, void *list, u32 count, size_t *room, size_t each)
{
    void *p = list_grow(list, count, room, each);
    m->no_memory = m->no_memory || !p;
    return p;
}

static void *get(struct maker *m, size_t size)
{
    void *p = calloc(1, size);
    m->no_memory = m->no_memory || !p;
    return p;
}

void keyframe_forget(struct keyframe_contents *c)
{
    if (!c || --c->references)
        return;
    *c->shared -= c->size;
    free(c->data);
    free(c);
}

/* --- Commands --- */

static struct keyframe_command *add(struct maker *m, const void *bytes, u32 size, u32 queue)
{
    struct gpu_keyframe *k = m->k;
    struct keyframe_command *list = more(m, k->list, k->count, &k->room, sizeof(*list));
    if (!list)
        return NULL;
    k->list = list;
    u8 *copy = get(m, size);
    if (!copy)
        return NULL;
    memcpy(copy, bytes, size);
    list[k->count] = (struct keyframe_command){.bytes = copy, .size = size, .queue = queue};
    return &list[k->count++];
}

static void add_bytes(struct maker *m, const struct track_bytes *b, u32 queue)
{
    if (b->size)
        add(m, b->data, b->size, queue);
}

/* A command of a header and one id. */
static void add_id(struct maker *m, u32 type, u32 context, u32 id)
{
    struct virtio_gpu_ctx_resource c = {.hdr = {.type = type, .ctx_id = context},
                                        .resource_id = id};
    add(m, &c, sizeof(c), GPU_QUEUE_control);
}

static void add_backing(struct maker *m, u32 id, u64 size)
{
    struct {
        struct virtio_gpu_resource_attach_backing head;
        struct virtio_gpu_mem_entry entry[64];
    } c = {.head = {.hdr = {.type = VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING}, .resource_id = id}};
    u32 n = 0;
    for (; size && n < ARRAY_SIZE(c.entry); n++) {
        u32 part = (u32)MIN(size, (u64)UINT32_MAX);
        c.entry[n].length = part;
        size -= part;
    }
    c.head.nr_entries = n;
    add(m, &c, (u32)(sizeof(c.head) + n * sizeof(c.entry[0])), GPU_QUEUE_control);
}

static void flush_words(struct maker *m)
{
    if (!m->used)
        return;
    struct virtio_gpu_cmd_submit s = {
        .hdr = {.type = VIRTIO_GPU_CMD_SUBMIT_3D, .ctx_id = m->context->id}, .size = m->used * 4};
    u8 *bytes = get(m, sizeof(s) + m->used * 4);
    if (bytes) {
        memcpy(bytes, &s, sizeof(s));
        memcpy(bytes + sizeof(s), m->words, (size_t)m->used * 4);
        add(m, bytes, (u32)sizeof(s) + m->used * 4, GPU_QUEUE_control);
    }
    free(bytes);
    m->used = 0;
}

/* Room for a virgl command in the submit; NULL: there is no memory. */
static u32 *add_words(struct maker *m, u32 dwords)
{
    if (m->used + dwords > WORDS_FULL)
        flush_words(m);
    if (m->used + dwords > m->room) {
        u32 room = MAX(WORDS_FULL, dwords), *words = realloc(m->words, (size_t)room * 4);
        m->no_memory = m->no_memory || !words;
        if (!words)
            return NULL;
        m->words = words;
        m->room = room;
    }
    m->used += dwords;
    return m->words + m->used - dwords;
}

static void add_one(struct maker *m, u32 id, u32 argument)
{
    u32 *w = add_words(m, 2);
    if (!w)
        return;
    w[0] = id | 1u << 16;
    w[1] = argument;
}

static void rely(struct maker *m, const struct track_reliance *r)
{
    struct track_pending *p = &m->k->pending;
    struct track_reliance *list = more(m, p->list, p->count, &p->room, sizeof(*list));
    if (!list)
        return;
    p->list = list;
    list[p->count++] = *r;
}

/* --- Resources --- */

static u32 minify(u32 size, u32 level)
{
    return MAX(size >> level, 1u);
}

/* Requests all levels; returns the first request. */
static u64 ask(struct maker *m, const struct track_resource *r)
{
    u64 first = 0;
    for (u32 i = 0; i <= r->shape.last_level; i++) {
        u64 seq = renderer_read(gpu_drive_renderer(m->d), r->id, i, NULL, WIRE_RAW);
        first = first ? first : seq;
    }
    return first;
}

/* Takes them; NULL: it cannot be read, or there is no memory. */
static struct keyframe_contents *take(struct maker *m, const struct track_resource *r, u64 seq)
{
    struct keyframe_contents *c = get(m, sizeof(*c));
    bool good = c && r->shape.last_level < ARRAY_SIZE(c->level);
    for (u32 i = 0; i <= r->shape.last_level; i++) {
        struct renderer_reply *p = renderer_wait(gpu_drive_renderer(m->d), seq + i, 0);
        good = good && p && !p->result && p->data_size;
        u8 *data = good ? realloc(c->data, c->size + p->data_size) : NULL;
        m->no_memory = m->no_memory || (good && !data);
        good = data;
        if (good) {
            c->data = data;
            memcpy(c->data + c->size, p->data, p->data_size);
            c->level[i].offset = c->size;
            c->level[i].size = p->data_size;
            c->size += p->data_size;
        }
        free(p);
    }
    if (!good) {
        free(c ? c->data : NULL);
        free(c);
        return NULL;
    }
    c->references = 1;
    c->levels = r->shape.last_level + 1;
    c->changes = r->changes;
    c->shared = m->bytes;
    *m->bytes += c->size;
    return c;
}

static void keep_contents(struct maker *m, struct keyframe_contents *c)
{
    struct gpu_keyframe *k = m->k;
    struct keyframe_contents **list =
        more(m, k->contents, k->contents_count, &k->contents_room, sizeof(*list));
    if (!list)
        return;
    k->contents = list;
    list[k->contents_count++] = c;
    c->references++;
}

static void add_contents(struct maker *m, const struct track_resource *r,
                         struct keyframe_contents *c)
{
    u64 largest = 0;
    for (u32 i = 0; i < c->levels; i++)
        largest = MAX(largest, c->level[i].size);
    keep_contents(m, c);
    u32 first = m->k->count, use = m->k->contents_count;
    add_backing(m, r->id, largest);
    for (u32 i = 0; i < c->levels; i++) {
        const struct gpu_shape *s = &r->shape;
        struct virtio_gpu_transfer_host_3d t = {
            .hdr = {.type = VIRTIO_GPU_CMD_TRANSFER_TO_HOST_3D},
            .resource_id = r->id,
            .level = i,
            .box = {.w = minify(s->width, i),
                    .h = minify(s->height, i),
                    .d = s->target == 3 ? minify(s->depth, i) : MAX(s->array_size, 1u)},
        };
        struct keyframe_command *k = add(m, &t, sizeof(t), GPU_QUEUE_control);
        if (!k)
            return;
        k->has_upload = true;
        k->upload = (struct gpu_range){
            .resource = r->id,
            .bytes = {.size = c->level[i].size, .data = c->data + c->level[i].offset}};
    }
    add_id(m, VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING, 0, r->id);
    for (u32 i = first; i < m->k->count; i++)
        m->k->list[i].use = use;
    if (m->observe)
        rely(m, &(struct track_reliance){
                    .id = r->id, .birth = r->birth, .aspects = gpu_track_aspects(r), .use = use});
}

static bool has_contents(const struct track_resource *r)
{
    return r->changes && !(r->shape.target == 0 && r->shape.bind & BIND_HAS_NO_COPY);
}

static bool known(const struct track_resource *r)
{
    return r->contents && r->contents->changes == r->changes;
}

static void resources(struct maker *m)
{
    u64 seq = 0, next = 0;
    for (u32 i = 0; i < GPU_BUCKETS; i++)
        for (struct track_resource *r = m->t->resources[i]; r; r = r->next)
            if (has_contents(r) && !known(r)) {
                u64 first = ask(m, r);
                seq = seq ? seq : first;
            }
    next = seq;
    for (u32 i = 0; i < GPU_BUCKETS; i++)
        for (struct track_resource *r = m->t->resources[i]; r; r = r->next) {
            add_bytes(m, &r->create, GPU_QUEUE_control);
            if (has_contents(r) && !known(r)) {
                keyframe_forget(r->contents);
                r->contents = take(m, r, next);
                next += r->shape.last_level + 1;
            }
            if (has_contents(r) && r->contents)
                add_contents(m, r, r->contents);
            else if (has_contents(r))
                rely(m, &(struct track_reliance){
                            .id = r->id, .birth = r->birth, .aspects = gpu_track_aspects(r)});
            if (r->attached)
                add_backing(m, r->id, r->backing);
        }
}

/* --- Contexts --- */

static int by_order(const void *a, const void *b)
{
    const struct track_live *x = *(struct track_live *const *)a,
                            *y = *(struct track_live *const *)b;
    return x->order < y->order ? -1 : x->order > y->order;
}

struct lives {
    struct track_live **list;
    u32 count;
    size_t room;
};

static void gather(struct maker *m, struct lives *l, struct track_live *one)
{
    struct track_live **list = one ? more(m, l->list, l->count, &l->room, sizeof(*list)) : NULL;
    if (!list)
        return;
    l->list = list;
    list[l->count++] = one;
}

static void gather_object(struct maker *m, struct lives *l, const struct track_object *o)
{
    for (struct track_live *p = o->parts; p; p = p->next)
        gather(m, l, p);
    gather(m, l, o->begin);
    gather(m, l, o->end);
    gather(m, l, o->destroy);
    if (o->begin)
        rely(m, &(struct track_reliance){.query = (struct track_object *)(uintptr_t)o});
}

static void sub(struct maker *m, struct track_sub *s)
{
    struct lives l = {0};
    for (u32 i = 0; i < GPU_BUCKETS; i++)
        for (const struct track_object *o = s->objects[i]; o; o = o->next)
            gather_object(m, &l, o);
    for (const struct track_object *o = s->destroyed; o; o = o->next)
        gather_object(m, &l, o);
    for (struct track_live *b = s->bound; b; b = b->next)
        gather(m, &l, b);
    if (l.count)
        qsort(l.list, l.count, sizeof(struct track_live *), by_order);
    if (s->id)
        add_one(m, VIRGL_CCMD_CREATE_SUB_CTX, s->id);
    add_one(m, VIRGL_CCMD_SET_SUB_CTX, s->id);
    for (u32 i = 0; i < l.count; i++) {
        struct track_live *one = l.list[i];
        u32 *w = add_words(m, one->dwords);
        if (!w)
            break;
        memcpy(w, one->words, (size_t)one->dwords * 4);
        for (u32 k = 0; k < one->named_count; k++) {
            const struct track_named *n = &one->named[k];
            if (gpu_track_lives(m->t, n->id, n->birth) || n->dword >= one->dwords)
                continue;
            w[n->dword] = 0;
            rely(m, &(struct track_reliance){.live = one, .sub = s});
        }
    }
    free(l.list);
}

/* Objects were made when their resources were attached, whether they still are or not. */
static void attach_all(struct maker *m, const struct track_context *c, bool undo)
{
    for (u32 i = 0; !undo && i < c->attached_count; i++)
        add_id(m, VIRTIO_GPU_CMD_CTX_ATTACH_RESOURCE, c->id, c->attached[i]);
    for (const struct track_sub *s = c->subs; s; s = s->next)
        for (u32 i = 0; i <= GPU_BUCKETS; i++)
            for (const struct track_object *o = i < GPU_BUCKETS ? s->objects[i] : s->destroyed; o;
                 o = o->next)
                if (o->resource && !gpu_track_attached(c, o->resource))
                    add_id(m,
                           undo ? VIRTIO_GPU_CMD_CTX_DETACH_RESOURCE
                                : VIRTIO_GPU_CMD_CTX_ATTACH_RESOURCE,
                           c->id, o->resource);
    /* ... and what is bound by itself. */
    for (const struct track_sub *s = c->subs; s; s = s->next)
        for (const struct track_live *l = s->bound; l; l = l->next)
            for (u32 i = 0; i < l->named_count; i++)
                if (gpu_track_lives(m->t, l->named[i].id, l->named[i].birth) &&
                    !gpu_track_attached(c, l->named[i].id))
                    add_id(m,
                           undo ? VIRTIO_GPU_CMD_CTX_DETACH_RESOURCE
                                : VIRTIO_GPU_CMD_CTX_ATTACH_RESOURCE,
                           c->id, l->named[i].id);
}

static void context(struct maker *m, struct track_context *c)
{
    if (c->dead) /* what has no context does nothing either */
        return;
    m->context = c;
    add_bytes(m, &c->create, GPU_QUEUE_control);
    attach_all(m, c, false);
    for (struct track_sub *s = c->subs; s; s = s->next)
        sub(m, s);
    add_one(m, VIRGL_CCMD_SET_SUB_CTX, c->current->id);
    flush_words(m);
    attach_all(m, c, true);
}

static const char *obstacle_of_sub(const struct gpu_track *t, const struct track_sub *s)
{
    const struct track_live *l = gpu_track_bound(s, VIRGL_CCMD_SET_RENDER_CONDITION, 0);
    if (l && l->object_count)
        return "drawing depends on a query";
    for (u32 i = 0; i <= GPU_BUCKETS; i++)
        for (const struct track_object *o = i < GPU_BUCKETS ? s->objects[i] : s->destroyed; o;
             o = o->next) {
            if (o->resource && !gpu_track_lives(t, o->resource, o->birth))
                return "an object is of a resource that is gone";
            if (o->streamed)
                return "how far stream output has come cannot be read";
        }
    return NULL;
}

/* What no commands can bring back. */
static const char *obstacle(const struct gpu_track *t)
{
    if (t->obstacle)
        return t->obstacle;
    for (const struct track_context *c = t->contexts; c; c = c->next)
        for (const struct track_sub *s = c->subs; s && !c->dead; s = s->next) {
            const char *why = obstacle_of_sub(t, s);
            if (why)
                return why;
        }
    return NULL;
}

/* --- Keyframes --- */

/* Cursors are looked at in every frame; what a scanout shows when it is flushed. */
static void see_cursors(struct maker *m)
{
    for (u32 i = 0; i < TRACK_SCANOUTS; i++) {
        struct virtio_gpu_update_cursor c;
        if (m->t->cursor[i].size) {
            memcpy(&c, m->t->cursor[i].data, sizeof(c));
            gpu_track_look(m->t, c.resource_id);
        }
    }
}

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "no memory for a keyframe of the GPU stream");
}

int gpu_keyframe_make(struct gpu_keyframe **out, struct gpu_track *t, struct gpu_drive *d,
                      bool observe, u64 *bytes, const char **why, struct err *err)
{
    *out = NULL;
    *why = obstacle(t);
    if (*why)
        return 0;
    struct maker m = {
        .t = t, .d = d, .observe = observe, .bytes = bytes, .k = calloc(1, sizeof(*m.k))};
    if (!m.k)
        return no_memory(err);
    resources(&m);
    for (struct track_context *c = t->contexts; c; c = c->next)
        context(&m, c);
    for (u32 i = 0; i < TRACK_SCANOUTS; i++) {
        add_bytes(&m, &t->scanout[i], GPU_QUEUE_control);
        add_bytes(&m, &t->cursor[i], GPU_QUEUE_cursor);
        add_bytes(&m, &t->moved[i], GPU_QUEUE_cursor);
    }
    free(m.words);
    m.k->pending.needed = get(&m, (m.k->contents_count + 1) * sizeof(bool));
    if (m.no_memory) {
        gpu_keyframe_destroy(m.k, t);
        return no_memory(err);
    }
    gpu_track_watch(t, &m.k->pending);
    if (observe)
        see_cursors(&m);
    if (renderer_death(gpu_drive_renderer(d))) {
        gpu_keyframe_destroy(m.k, t);
        return err_set(err, -EPIPE, "the renderer died: %s", renderer_death(gpu_drive_renderer(d)));
    }
    *out = m.k;
    return 1;
}

void gpu_keyframe_destroy(struct gpu_keyframe *k, struct gpu_track *t)
{
    if (!k)
        return;
    gpu_track_drop(t, &k->pending);
    for (u32 i = 0; i < k->count; i++)
        free(k->list[i].bytes);
    for (u32 i = 0; i < k->contents_count; i++)
        keyframe_forget(k->contents[i]);
    free(k->list);
    free(k->contents);
    free(k->pending.list);
    free(k->pending.needed);
    free(k);
}

int gpu_keyframe_drive(const struct gpu_keyframe *k, struct gpu_drive *d, struct err *err)
{
    int code = 0;
    for (u32 i = 0; !code && i < k->count; i++) {
        const struct keyframe_command *c = &k->list[i];
        struct gpu_command command;
        struct gpu_driven driven;
        gpu_command_decode((enum gpu_queue)c->queue, c->bytes, c->size, &command);
        code = gpu_drive_command(d, &command, &c->upload, c->has_upload, &driven, err);
    }
    return code;
}
