/* See state.h. */
#include "virtio-gpu-log/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A log of a few KiB may name resources of many GiB: contents beyond are not kept. */
#define CONTENTS_MAX (64u << 20)
#define CONTENTS_ALL (512u << 20)
/* Far beyond what a device allows; a forged log shall not make reading it slow. */
#define RESOURCES_MAX 65536u
#define CONTEXTS_MAX  4096u
#define SUBS_MAX      16384u

struct gpu_state *gpu_state_create(void)
{
    return calloc(1, sizeof(struct gpu_state));
}

static void free_objects(struct gpu_sub *sub)
{
    for (u32 i = 0; i < GPU_BUCKETS; i++)
        while (sub->objects[i]) {
            struct gpu_object *o = sub->objects[i];
            sub->objects[i] = o->next;
            free((void *)o->command.words);
            free(o->text);
            free(o);
        }
}

static void free_sub(struct gpu_sub *sub)
{
    free_objects(sub);
    for (u32 i = 0; i < sub->count; i++)
        free((void *)sub->bound[i].command.words);
    free(sub->bound);
    free(sub);
}

static void free_context(struct gpu_state *s, struct gpu_stream_context *c)
{
    s->context_count--;
    while (c->subs) {
        struct gpu_sub *sub = c->subs;
        c->subs = sub->next;
        free_sub(sub);
        s->sub_count--;
    }
    free(c);
}

static void free_resource(struct gpu_state *s, struct gpu_stream_resource *r)
{
    s->contents -= r->contents ? r->contents_size : 0;
    free(r->contents);
    free(r);
}

static void forget(struct gpu_state *s)
{
    while (s->contexts) {
        struct gpu_stream_context *c = s->contexts;
        s->contexts = c->next;
        free_context(s, c);
    }
    for (u32 i = 0; i < GPU_BUCKETS; i++)
        while (s->resources[i]) {
            struct gpu_stream_resource *r = s->resources[i];
            s->resources[i] = r->next;
            free_resource(s, r);
        }
    memset(s->shown, 0, sizeof(s->shown));
}

void gpu_state_destroy(struct gpu_state *s)
{
    if (!s)
        return;
    forget(s);
    free(s);
}

struct gpu_stream_context *gpu_state_context(const struct gpu_state *s, u32 id)
{
    struct gpu_stream_context *c = s->contexts;
    while (c && c->id != id)
        c = c->next;
    return c;
}

static struct gpu_stream_resource **resource_link(struct gpu_state *s, u32 id)
{
    struct gpu_stream_resource **link = &s->resources[id % GPU_BUCKETS];
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    return link;
}

struct gpu_stream_resource *gpu_state_resource(const struct gpu_state *s, u32 id)
{
    struct gpu_stream_resource *r = s->resources[id % GPU_BUCKETS];
    while (r && r->id != id)
        r = r->next;
    return r;
}

static struct gpu_object **object_link(struct gpu_sub *sub, u32 handle)
{
    struct gpu_object **link = &sub->objects[handle % GPU_BUCKETS];
    while (*link && (*link)->handle != handle)
        link = &(*link)->next;
    return link;
}

struct gpu_object *gpu_state_object(const struct gpu_sub *sub, u32 handle)
{
    struct gpu_object *o = sub->objects[handle % GPU_BUCKETS];
    while (o && o->handle != handle)
        o = o->next;
    return o;
}

static int compare_bound(const struct gpu_bound *b, u32 id, u32 stage, u32 slot)
{
    if (b->id != id)
        return b->id < id ? -1 : 1;
    if (b->stage != stage)
        return b->stage < stage ? -1 : 1;
    return b->slot < slot ? -1 : b->slot > slot;
}

/* Where it is or belongs. */
static u32 bound_index(const struct gpu_sub *sub, u32 id, u32 stage, u32 slot)
{
    u32 low = 0, high = sub->count;
    while (low < high) {
        u32 mid = (low + high) / 2;
        if (compare_bound(&sub->bound[mid], id, stage, slot) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

struct gpu_bound *gpu_state_bound(const struct gpu_sub *sub, u32 id, u32 stage, u32 slot)
{
    u32 i = bound_index(sub, id, stage, slot);
    return i < sub->count && !compare_bound(&sub->bound[i], id, stage, slot) ? &sub->bound[i]
                                                                             : NULL;
}

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "no memory for the state of the GPU stream");
}

/* --- Resources and their contents --- */

static void resource_create(struct gpu_state *s, u32 id, const struct gpu_shape *shape, u64 number)
{
    struct gpu_stream_resource **link = resource_link(s, id);
    if (!id || *link || s->resource_count == RESOURCES_MAX) /* the device answers with an error */
        return;
    struct gpu_stream_resource *r = calloc(1, sizeof(*r));
    if (!r)
        return;
    r->id = id;
    r->shape = *shape;
    r->created = (struct gpu_origin){number, GPU_NO_DWORD};
    r->written = (struct gpu_origin){NEVER, 0};
    *link = r;
    s->resource_count++;
}

/* Bytes of a row of blocks of level 0, or of a buffer; 0: not kept. */
static u64 row_bytes(const struct gpu_shape *shape, u64 *rows)
{
    const struct gpu_format *f = gpu_format(shape->format);
    *rows = 1;
    if (shape->target == 0)
        return shape->width;
    if (!f || !f->bytes)
        return 0;
    *rows = ((u64)shape->height + f->block_height - 1) / f->block_height;
    return ((u64)shape->width + f->block_width - 1) / f->block_width * f->bytes;
}

static bool contents_ready(struct gpu_state *s, struct gpu_stream_resource *r)
{
    u64 rows, row = row_bytes(&r->shape, &rows);
    if (r->contents)
        return true;
    if (!row || !rows || row > CONTENTS_MAX || rows > CONTENTS_MAX / row ||
        s->contents + row * rows > CONTENTS_ALL)
        return false;
    r->contents = calloc(1, row * rows);
    if (!r->contents)
        return false;
    r->contents_size = row * rows;
    s->contents += r->contents_size;
    return true;
}

/* Where in the contents row `y` of a box begins; false: it is not part of them. */
static bool row_place(const struct gpu_stream_resource *r, const struct gpu_transfer *t, u32 y,
                      u32 row, u64 *at)
{
    const struct gpu_format *f = gpu_format(r->shape.format);
    u64 rows, whole = row_bytes(&r->shape, &rows);
    u64 x = t->box.x, top = t->box.y;
    if (r->shape.target && f) {
        x = x / f->block_width * f->bytes;
        top /= f->block_height;
    }
    if (t->level || t->box.z || top + y >= rows || x + row > whole)
        return false;
    *at = (top + y) * whole + x;
    return true;
}

/* What a transfer moved, of which `range` has bytes of the backing. */
static int contents_write(struct gpu_state *s, struct gpu_log_reader *log,
                          struct gpu_stream_resource *r, const struct gpu_transfer *t,
                          const struct gpu_range *range, struct err *err)
{
    struct gpu_extent e;
    if (gpu_transfer_extent(t, &r->shape, &e) || !e.size || !contents_ready(s, r))
        return 0;
    for (u32 y = 0; y < e.rows; y++) {
        u64 from = e.offset + y * e.stride, at;
        if (from < range->offset || from + e.row > range->offset + range->bytes.size ||
            !row_place(r, t, y, e.row, &at))
            continue;
        int code =
            gpu_log_read(log, &range->bytes, from - range->offset, r->contents + at, e.row, err);
        if (code)
            return code;
    }
    return 0;
}

/* All ranges of a command or reply that belong to the transfer at dword `at`. */
static int transfer(struct gpu_state *s, struct gpu_log_reader *log, const struct gpu_transfer *t,
                    const struct gpu_ranges *ranges, u32 at, u64 number, struct err *err)
{
    struct gpu_stream_resource *r = gpu_state_resource(s, t->resource);
    struct gpu_range range;
    int code = 0;
    if (!r)
        return 0;
    for (u32 i = 0; !code && gpu_ranges_next(ranges, &i, &range);)
        if (range.at == at && range.resource == t->backing) {
            code = contents_write(s, log, r, t, &range, err);
            r->written = (struct gpu_origin){number, at ? at : GPU_NO_DWORD};
        }
    return code;
}

static void inline_write(struct gpu_state *s, const struct virgl_command *c, u64 number)
{
    enum { HEAD = 11 };
    struct gpu_stream_resource *r = gpu_state_resource(s, virgl_word(c, 1));
    struct gpu_transfer t = {.level = virgl_word(c, 2),
                             .stride = virgl_word(c, 4),
                             .layer_stride = virgl_word(c, 5),
                             .box = {virgl_word(c, 6), virgl_word(c, 7), virgl_word(c, 8),
                                     virgl_word(c, 9), virgl_word(c, 10), virgl_word(c, 11)}};
    struct gpu_extent e;
    if (!r || gpu_transfer_extent(&t, &r->shape, &e) || !e.size ||
        e.size > (u64)(c->length - HEAD) * 4 || !contents_ready(s, r))
        return;
    for (u32 y = 0; y < e.rows; y++) {
        u64 at;
        if (row_place(r, &t, y, e.row, &at))
            memcpy(r->contents + at, c->words + 4 * (1 + HEAD) + y * e.stride, e.row);
    }
    r->written = (struct gpu_origin){number, c->at};
}

/* --- Contexts --- */

static struct gpu_sub *sub_find(const struct gpu_stream_context *c, u32 id)
{
    struct gpu_sub *sub = c->subs;
    while (sub && sub->id != id)
        sub = sub->next;
    return sub;
}

static struct gpu_sub *sub_create(struct gpu_state *s, struct gpu_stream_context *c, u32 id)
{
    struct gpu_sub *sub = sub_find(c, id);
    if (sub)
        return sub;
    sub = calloc(1, sizeof(*sub));
    if (!sub)
        return NULL;
    s->sub_count++;
    sub->id = id;
    sub->next = c->subs;
    c->subs = sub;
    return sub;
}

static void sub_destroy(struct gpu_state *s, struct gpu_stream_context *c, u32 id)
{
    struct gpu_sub **link = &c->subs;
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    if (!*link || !id)
        return;
    struct gpu_sub *sub = *link;
    *link = sub->next;
    if (c->current == sub)
        c->current = sub_find(c, 0);
    free_sub(sub);
    s->sub_count--;
}

static int context_create(struct gpu_state *s, const struct gpu_command *c, struct err *err)
{
    struct virtio_gpu_ctx_create create;
    memcpy(&create, c->bytes, sizeof(create));
    if (!c->ctx || gpu_state_context(s, c->ctx) || s->context_count == CONTEXTS_MAX ||
        s->sub_count >= SUBS_MAX)
        return 0;
    struct gpu_stream_context *ctx = calloc(1, sizeof(*ctx));
    if (!ctx || !(ctx->current = sub_create(s, ctx, 0))) {
        free(ctx);
        return no_memory(err);
    }
    ctx->id = c->ctx;
    for (u32 i = 0; i < sizeof(create.debug_name) && create.debug_name[i]; i++) {
        u8 b = (u8)create.debug_name[i];
        ctx->name[i] = (char)(b < ' ' || b > '~' ? '?' : b);
    }
    ctx->next = s->contexts;
    s->contexts = ctx;
    s->context_count++;
    return 0;
}

static void context_destroy(struct gpu_state *s, u32 id)
{
    struct gpu_stream_context **link = &s->contexts;
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    if (*link) {
        struct gpu_stream_context *c = *link;
        *link = c->next;
        free_context(s, c);
    }
}

/* A copy of a command's words. */
static const u8 *keep(const u8 *words, u32 dwords)
{
    u8 *p = malloc((size_t)dwords * 4);
    if (p)
        memcpy(p, words, (size_t)dwords * 4);
    return p;
}

static int object_create(struct gpu_sub *sub, const struct virgl_command *c, u64 number,
                         struct err *err)
{
    struct gpu_object **link = object_link(sub, virgl_word(c, 1)), *o = *link;
    struct virgl_shader_info part;
    bool shader = virgl_shader(c, &part);
    if (shader && part.continued) {
        /* The rest of a shader that was too long for one buffer. */
        u32 have = o && o->text ? (u32)strlen(o->text) : 0;
        if (!o || !o->text || part.offset > have)
            return 0;
        char *text = realloc(o->text, (size_t)part.offset + part.size + 1);
        if (!text)
            return no_memory(err);
        memcpy(text + part.offset, part.text, part.size);
        text[part.offset + part.size] = 0;
        o->text = text;
        return 0;
    }
    if (o) { /* the renderer replaces it */
        *link = o->next;
        free((void *)o->command.words);
        free(o->text);
        free(o);
        link = object_link(sub, virgl_word(c, 1));
    }
    o = calloc(1, sizeof(*o));
    if (!o)
        return no_memory(err);
    o->handle = virgl_word(c, 1);
    o->type = c->object;
    o->created = (struct gpu_origin){number, c->at};
    o->command = *c;
    o->command.words = keep(c->words, c->length + 1);
    if (shader && o->command.words) {
        o->text_size = part.total ? part.total - 1 : 0;
        o->text = calloc(1, (size_t)part.size + 1);
        if (o->text)
            memcpy(o->text, part.text, part.size);
    }
    if (!o->command.words || (shader && !o->text)) {
        free((void *)o->command.words);
        free(o);
        return no_memory(err);
    }
    *link = o;
    return 0;
}

static void object_destroy(struct gpu_sub *sub, u32 handle)
{
    struct gpu_object **link = object_link(sub, handle);
    if (*link) {
        struct gpu_object *o = *link;
        *link = o->next;
        free((void *)o->command.words);
        free(o->text);
        free(o);
    }
}

/* --- What is bound --- */

static bool sets_state(u32 id)
{
    switch (id) {
    case VIRGL_CCMD_SET_VIEWPORT_STATE:
    case VIRGL_CCMD_SET_FRAMEBUFFER_STATE:
    case VIRGL_CCMD_SET_VERTEX_BUFFERS:
    case VIRGL_CCMD_SET_SAMPLER_VIEWS:
    case VIRGL_CCMD_SET_INDEX_BUFFER:
    case VIRGL_CCMD_SET_CONSTANT_BUFFER:
    case VIRGL_CCMD_SET_STENCIL_REF:
    case VIRGL_CCMD_SET_BLEND_COLOR:
    case VIRGL_CCMD_SET_SCISSOR_STATE:
    case VIRGL_CCMD_SET_POLYGON_STIPPLE:
    case VIRGL_CCMD_SET_CLIP_STATE:
    case VIRGL_CCMD_SET_SAMPLE_MASK:
    case VIRGL_CCMD_SET_STREAMOUT_TARGETS:
    case VIRGL_CCMD_SET_RENDER_CONDITION:
    case VIRGL_CCMD_SET_UNIFORM_BUFFER:
    case VIRGL_CCMD_SET_TESS_STATE:
    case VIRGL_CCMD_SET_MIN_SAMPLES:
    case VIRGL_CCMD_SET_SHADER_BUFFERS:
    case VIRGL_CCMD_SET_SHADER_IMAGES:
    case VIRGL_CCMD_SET_FRAMEBUFFER_STATE_NO_ATTACH:
    case VIRGL_CCMD_SET_ATOMIC_BUFFERS:
    case VIRGL_CCMD_BIND_OBJECT:
    case VIRGL_CCMD_BIND_SHADER:
    case VIRGL_CCMD_BIND_SAMPLER_STATES: return true;
    default: return false;
    }
}

/* Sets one slot to the command's first `head` dwords and the group at `from`. */
static int bind(struct gpu_sub *sub, const struct virgl_command *c, u32 stage, u32 slot, u32 head,
                u32 from, u32 group, u64 number, struct err *err)
{
    u32 i = bound_index(sub, c->id, stage, slot);
    bool there = i < sub->count && !compare_bound(&sub->bound[i], c->id, stage, slot);
    u8 *words = malloc((size_t)(1 + head + group) * 4);
    if (!words)
        return no_memory(err);
    memcpy(words, c->words, (size_t)(1 + head) * 4);
    memcpy(words + (size_t)(1 + head) * 4, c->words + (size_t)from * 4, (size_t)group * 4);
    if (!there) {
        if (sub->count == sub->room) {
            u32 room = sub->room ? sub->room * 2 : 64;
            struct gpu_bound *bound = realloc(sub->bound, room * sizeof(*bound));
            if (!bound) {
                free(words);
                return no_memory(err);
            }
            sub->bound = bound;
            sub->room = room;
        }
        memmove(&sub->bound[i + 1], &sub->bound[i], (sub->count - i) * sizeof(sub->bound[0]));
        sub->count++;
    } else {
        free((void *)sub->bound[i].command.words);
    }
    if (group && head) /* the first slot, last of the fields in front of the groups */
        memcpy(words + (size_t)head * 4, &slot, 4);
    struct virgl_command one = *c;
    one.length = head + group;
    one.words = words;
    sub->bound[i] = (struct gpu_bound){
        .id = c->id, .stage = stage, .slot = slot, .origin = {number, c->at}, .command = one};
    return 0;
}

static void unbind_all(struct gpu_sub *sub, u32 id)
{
    u32 first = bound_index(sub, id, 0, 0), last = bound_index(sub, id + 1, 0, 0);
    if (first == last)
        return;
    for (u32 i = first; i < last; i++)
        free((void *)sub->bound[i].command.words);
    memmove(&sub->bound[first], &sub->bound[last], (sub->count - last) * sizeof(sub->bound[0]));
    sub->count -= last - first;
}

static int set_state(struct gpu_sub *sub, const struct virgl_command *c, u64 number,
                     struct err *err)
{
    struct gpu_fields it;
    struct gpu_field f;
    u32 stage = 0, slot = 0, head = 0, group = 0;
    bool each = false, slots = false;
    if (c->id == VIRGL_CCMD_BIND_OBJECT)
        stage = c->object;
    /* The framebuffer is one thing, whatever its parts. */
    if (c->id == VIRGL_CCMD_SET_FRAMEBUFFER_STATE || c->id == VIRGL_CCMD_SET_POLYGON_STIPPLE ||
        c->id == VIRGL_CCMD_SET_CLIP_STATE || c->id == VIRGL_CCMD_SET_STREAMOUT_TARGETS)
        return bind(sub, c, 0, 0, c->length, 0, 0, number, err);
    virgl_fields(c, &it);
    u32 before = 0;
    while (gpu_field_next(&it, &f)) {
        if (f.index == GPU_NOT_REPEATED) {
            head = it.at;
        } else if (f.index == 0) {
            each = true;
            group = it.at - head;
        }
        if (f.names == GPU_ENUM_shader)
            stage = (u32)f.value;
        if (f.kind == GPU_SLOT) {
            slot = (u32)f.value;
            slots = true;
        }
        before = it.at;
    }
    if (c->id == VIRGL_CCMD_SET_UNIFORM_BUFFER)
        slot = virgl_word(c, 2);
    for (u32 i = 0; i < c->desc->nrows; i++)
        each = each || c->desc->rows[i].kind == GPU_EACH;
    if (!each)
        return bind(sub, c, stage, slot, before, 0, 0, number, err);
    if (!slots)
        unbind_all(sub, c->id);
    int code = 0;
    for (u32 at = head, i = 0; !code && group && at + group <= c->length; at += group, i++)
        code = bind(sub, c, stage, slot + i, head, 1 + at, group, number, err);
    return code;
}

/* --- Steps --- */

static int submit(struct gpu_state *s, struct gpu_log_reader *log, const struct gpu_record *rec,
                  const struct gpu_command *c, u32 last, struct err *err)
{
    struct gpu_stream_context *ctx = gpu_state_context(s, c->ctx);
    struct virgl_walk w;
    struct virgl_command v;
    struct gpu_transfer t;
    int code = 0;
    if (!ctx || !virgl_check(c->payload, c->payload_size, NULL))
        return 0;
    virgl_walk_start(&w, c->payload, c->payload_size);
    while (!code && virgl_next(&w, &v) && v.at <= last) {
        struct gpu_sub *sub = ctx->current;
        if (v.id == VIRGL_CCMD_CREATE_OBJECT)
            code = object_create(sub, &v, rec->number, err);
        else if (v.id == VIRGL_CCMD_DESTROY_OBJECT)
            object_destroy(sub, virgl_word(&v, 1));
        else if (v.id == VIRGL_CCMD_CREATE_SUB_CTX)
            code = s->sub_count >= SUBS_MAX || sub_create(s, ctx, virgl_word(&v, 1))
                       ? 0
                       : no_memory(err);
        else if (v.id == VIRGL_CCMD_SET_SUB_CTX)
            ctx->current = sub_find(ctx, virgl_word(&v, 1)) ?: ctx->current;
        else if (v.id == VIRGL_CCMD_DESTROY_SUB_CTX)
            sub_destroy(s, ctx, virgl_word(&v, 1));
        else if (v.id == VIRGL_CCMD_RESOURCE_INLINE_WRITE)
            inline_write(s, &v, rec->number);
        else if (virgl_transfer(&v, &t) && t.to_host)
            code = transfer(s, log, &t, &rec->command.uploads, v.at, rec->number, err);
        else if (sets_state(v.id))
            code = set_state(sub, &v, rec->number, err);
    }
    return code;
}

static void attach(struct gpu_state *s, const struct gpu_command *c)
{
    struct gpu_stream_resource *r = gpu_state_resource(s, gpu_u32(c->bytes + GPU_HEADER));
    if (r)
        r->backing = gpu_command_backing(c);
}

int gpu_state_step(struct gpu_state *s, struct gpu_log_reader *r, const struct gpu_record *rec,
                   u32 last, struct err *err)
{
    struct gpu_command c;
    struct gpu_transfer t;
    struct gpu_shape shape;
    struct gpu_stream_resource **link, *resource;
    u32 id;
    if (rec->type == GPU_REC_RESET)
        forget(s);
    if (rec->type != GPU_REC_COMMAND || gpu_record_command(rec, &c))
        return 0;
    if (gpu_command_shape(&c, &id, &shape)) {
        resource_create(s, id, &shape, rec->number);
        return 0;
    }
    if (gpu_command_transfer(&c, &t))
        return t.to_host ? transfer(s, r, &t, &rec->command.uploads, 0, rec->number, err) : 0;
    switch (c.type) {
    case VIRTIO_GPU_CMD_RESOURCE_UNREF:
        link = resource_link(s, gpu_u32(c.bytes + GPU_HEADER));
        resource = *link;
        if (resource) {
            *link = resource->next;
            s->resource_count--;
            for (u32 i = 0; i < ARRAY_SIZE(s->shown); i++)
                s->shown[i] = s->shown[i] == resource->id ? 0 : s->shown[i];
            free_resource(s, resource);
        }
        return 0;
    case VIRTIO_GPU_CMD_SET_SCANOUT: {
        struct virtio_gpu_set_scanout scanout;
        memcpy(&scanout, c.bytes, sizeof(scanout));
        if (scanout.scanout_id < ARRAY_SIZE(s->shown))
            s->shown[scanout.scanout_id] = scanout.resource_id;
        return 0;
    }
    case VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING: attach(s, &c); return 0;
    case VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING:
        resource = gpu_state_resource(s, gpu_u32(c.bytes + GPU_HEADER));
        if (resource)
            resource->backing = 0;
        return 0;
    case VIRTIO_GPU_CMD_CTX_CREATE: return context_create(s, &c, err);
    case VIRTIO_GPU_CMD_CTX_DESTROY: context_destroy(s, c.ctx); return 0;
    case VIRTIO_GPU_CMD_SUBMIT_3D: return submit(s, r, rec, &c, last, err);
    default: return 0;
    }
}

int gpu_state_readback(struct gpu_state *s, struct gpu_log_reader *r, const struct gpu_command *c,
                       const struct gpu_record *reply, struct err *err)
{
    const struct gpu_ranges *ranges = &reply->reply.readback;
    struct gpu_transfer t;
    struct virgl_walk w;
    struct virgl_command v;
    int code = 0;
    if (gpu_command_transfer(c, &t) && !t.to_host)
        return transfer(s, r, &t, ranges, 0, reply->number, err);
    if (c->type != VIRTIO_GPU_CMD_SUBMIT_3D || c->response)
        return 0;
    virgl_walk_start(&w, c->payload, c->payload_size);
    while (!code && virgl_next(&w, &v))
        if (virgl_transfer(&v, &t) && !t.to_host)
            code = transfer(s, r, &t, ranges, v.at, reply->number, err);
    return code;
}
