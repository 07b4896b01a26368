/* See stream.h. */
#include "virtio-gpu-log/stream.h"

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

struct gpu_stream_context *gpu_stream_context(const struct gpu_stream *s, u32 id)
{
    return gpu_model_context(s, id);
}

struct gpu_stream_resource *gpu_stream_resource(const struct gpu_stream *s, u32 id)
{
    return gpu_model_resource(s, id);
}

struct gpu_object *gpu_stream_object(const struct gpu_sub *sub, u32 handle)
{
    return gpu_model_object(sub, handle);
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

struct gpu_bound *gpu_stream_bound(const struct gpu_sub *sub, u32 id, u32 stage, u32 slot)
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

static bool resource_made(void *m, void *resource, const struct gpu_command *c)
{
    const struct gpu_stream *s = m;
    struct gpu_stream_resource *r = resource;
    (void)c;
    r->created = (struct gpu_origin){s->record->number, GPU_NO_DWORD};
    r->written = (struct gpu_origin){NEVER, 0};
    return s->resource_count < RESOURCES_MAX;
}

static void resource_gone(void *m, void *resource)
{
    struct gpu_stream *s = m;
    struct gpu_stream_resource *r = resource;
    for (u32 i = 0; i < ARRAY_SIZE(s->shown); i++)
        s->shown[i] = s->shown[i] == r->id ? 0 : s->shown[i];
    s->contents -= r->contents ? r->contents_size : 0;
    free(r->contents);
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

static bool contents_ready(struct gpu_stream *s, struct gpu_stream_resource *r)
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
static int contents_write(struct gpu_stream *s, struct gpu_log_reader *log,
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
static int transfer(struct gpu_stream *s, struct gpu_log_reader *log, const struct gpu_transfer *t,
                    const struct gpu_ranges *ranges, u32 at, u64 number, struct err *err)
{
    struct gpu_stream_resource *r = gpu_stream_resource(s, t->resource);
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

static void inline_write(struct gpu_stream *s, const struct virgl_command *c, u64 number)
{
    enum { HEAD = 11 };
    struct gpu_stream_resource *r = gpu_stream_resource(s, virgl_word(c, 1));
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

/* --- Contexts and objects --- */

static bool context_made(void *m, void *context, const struct gpu_command *c)
{
    const struct gpu_stream *s = m;
    struct gpu_stream_context *ctx = context;
    struct virtio_gpu_ctx_create create;
    memcpy(&create, c->bytes, sizeof(create));
    for (u32 i = 0; i < sizeof(create.debug_name) && create.debug_name[i]; i++) {
        u8 b = (u8)create.debug_name[i];
        ctx->name[i] = (char)(b < ' ' || b > '~' ? '?' : b);
    }
    return s->context_count < CONTEXTS_MAX && s->sub_count < SUBS_MAX;
}

static bool sub_made(void *m, void *sub)
{
    const struct gpu_stream *s = m;
    (void)sub;
    return s->sub_count < SUBS_MAX;
}

static void sub_gone(void *m, void *sub)
{
    struct gpu_sub *u = sub;
    (void)m;
    for (u32 i = 0; i < u->count; i++)
        free((void *)u->bound[i].command.words);
    free(u->bound);
}

/* A copy of a command's words. */
static const u8 *keep(const u8 *words, u32 dwords)
{
    u8 *p = malloc((size_t)dwords * 4);
    if (p)
        memcpy(p, words, (size_t)dwords * 4);
    return p;
}

static bool object_made(void *m, void *sub, void *object, const struct virgl_command *c)
{
    struct gpu_stream *s = m;
    struct gpu_object *o = object;
    struct virgl_shader_info part;
    bool shader = virgl_shader(c, &part);
    (void)sub;
    o->created = (struct gpu_origin){s->record->number, c->at};
    o->command = *c;
    o->command.words = keep(c->words, c->length + 1);
    if (shader && o->command.words) {
        o->text_size = part.total ? part.total - 1 : 0;
        o->text = calloc(1, (size_t)part.size + 1);
        if (o->text)
            memcpy(o->text, part.text, part.size);
    }
    if (o->command.words && (!shader || o->text))
        return true;
    free((void *)o->command.words);
    s->no_memory = true;
    return false;
}

static void object_more(void *m, void *object, const struct virgl_command *c)
{
    struct gpu_stream *s = m;
    struct gpu_object *o = object;
    struct virgl_shader_info part;
    virgl_shader(c, &part);
    if (!o->text || part.offset > strlen(o->text))
        return;
    char *text = realloc(o->text, (size_t)part.offset + part.size + 1);
    if (!text) {
        s->no_memory = true;
        return;
    }
    memcpy(text + part.offset, part.text, part.size);
    text[part.offset + part.size] = 0;
    o->text = text;
}

static void object_gone(void *m, void *object)
{
    struct gpu_object *o = object;
    (void)m;
    free((void *)o->command.words);
    free(o->text);
}

/* --- What is bound --- */

/* Sets one slot to the command's first `head` dwords and the group at `from`. */
static bool bind(struct gpu_sub *sub, const struct virgl_command *c, u32 stage, u32 slot, u32 head,
                 u32 from, u32 group, u64 number)
{
    u32 i = bound_index(sub, c->id, stage, slot);
    bool there = i < sub->count && !compare_bound(&sub->bound[i], c->id, stage, slot);
    u8 *words = malloc((size_t)(1 + head + group) * 4);
    if (!words)
        return false;
    memcpy(words, c->words, (size_t)(1 + head) * 4);
    memcpy(words + (size_t)(1 + head) * 4, c->words + (size_t)from * 4, (size_t)group * 4);
    if (!there) {
        if (sub->count == sub->room) {
            u32 room = sub->room ? sub->room * 2 : 64;
            struct gpu_bound *bound = realloc(sub->bound, room * sizeof(*bound));
            if (!bound) {
                free(words);
                return false;
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
    return true;
}

/* From a slot on. */
static void unbind(struct gpu_sub *sub, u32 id, u32 stage, u32 slot)
{
    u32 first = bound_index(sub, id, stage, slot), last = bound_index(sub, id, stage + 1, 0);
    if (first == last)
        return;
    for (u32 i = first; i < last; i++)
        free((void *)sub->bound[i].command.words);
    memmove(&sub->bound[first], &sub->bound[last], (sub->count - last) * sizeof(sub->bound[0]));
    sub->count -= last - first;
}

static void set(void *m, void *sub, const struct virgl_command *c, const struct virgl_set *set)
{
    struct gpu_stream *s = m;
    u64 number = s->record->number;
    bool good = true;
    if (!set->group)
        good = bind(sub, c, set->stage, set->slot, set->head, 0, 0, number);
    for (u32 i = 0; good && set->group && i < set->count; i++)
        good = bind(sub, c, set->stage, set->slot + i, set->head, 1 + set->head + i * set->group,
                    set->group, number);
    if (good && set->group && virgl_effect(c) == GPU_LIST)
        unbind(sub, c->id, set->stage, set->slot + set->count);
    s->no_memory = s->no_memory || !good;
}

/* --- Steps --- */

static void inner(void *m, void *context, const struct virgl_command *c)
{
    struct gpu_stream *s = m;
    struct gpu_transfer t;
    (void)context;
    if (c->id == VIRGL_CCMD_RESOURCE_INLINE_WRITE)
        inline_write(s, c, s->record->number);
    else if (!s->code && virgl_transfer(c, &t) && t.to_host)
        s->code =
            transfer(s, s->log, &t, &s->record->command.uploads, c->at, s->record->number, s->err);
}

static void outer(void *m, const struct gpu_command *c)
{
    struct gpu_stream *s = m;
    struct gpu_transfer t;
    struct virtio_gpu_set_scanout scanout;
    if (gpu_command_transfer(c, &t)) {
        if (t.to_host)
            s->code =
                transfer(s, s->log, &t, &s->record->command.uploads, 0, s->record->number, s->err);
    } else if (c->type == VIRTIO_GPU_CMD_SET_SCANOUT) {
        memcpy(&scanout, c->bytes, sizeof(scanout));
        if (scanout.scanout_id < ARRAY_SIZE(s->shown))
            s->shown[scanout.scanout_id] = scanout.resource_id;
    }
}

static const struct gpu_model_ops ops = {.resource_size = sizeof(struct gpu_stream_resource),
                                         .object_size = sizeof(struct gpu_object),
                                         .sub_size = sizeof(struct gpu_sub),
                                         .context_size = sizeof(struct gpu_stream_context),
                                         .resource_made = resource_made,
                                         .resource_gone = resource_gone,
                                         .context_made = context_made,
                                         .sub_made = sub_made,
                                         .sub_gone = sub_gone,
                                         .object_made = object_made,
                                         .object_more = object_more,
                                         .object_gone = object_gone,
                                         .set = set,
                                         .inner = inner,
                                         .outer = outer};

struct gpu_stream *gpu_stream_create(void)
{
    struct gpu_stream *s = calloc(1, sizeof(*s));
    if (s)
        s->ops = &ops;
    return s;
}

void gpu_stream_destroy(struct gpu_stream *s)
{
    if (!s)
        return;
    gpu_model_reset(s);
    free(s);
}

int gpu_stream_step(struct gpu_stream *s, struct gpu_log_reader *r, const struct gpu_record *rec,
                    u32 last, struct err *err)
{
    struct gpu_command c;
    if (rec->type == GPU_REC_RESET) {
        gpu_model_reset(s);
        memset(s->shown, 0, sizeof(s->shown));
    }
    if (rec->type != GPU_REC_COMMAND || gpu_record_command(rec, &c))
        return 0;
    s->log = r;
    s->record = rec;
    s->err = err;
    s->code = 0;
    gpu_model_command(s, &c, 0, last == GPU_NO_DWORD ? last : last + 1);
    return s->code ? s->code : s->no_memory ? no_memory(err) : 0;
}

int gpu_stream_readback(struct gpu_stream *s, struct gpu_log_reader *r, const struct gpu_command *c,
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
