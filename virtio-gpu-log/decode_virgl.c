/* The commands inside a SUBMIT_3D: the walk, and the check that stands before the renderer. */
#include <string.h>

#include "virtio-gpu-log/decode_internal.h"

void virgl_walk_start(struct virgl_walk *w, const void *buffer, u32 bytes)
{
    *w = (struct virgl_walk){.data = buffer, .dwords = bytes / 4, .odd = bytes % 4 != 0};
}

/* Values that rows limit. Rows that repeat have none of these. */
static const char *value_problems(const struct virgl_command *c)
{
    const struct gpu_row *r = c->desc->rows, *end = r + c->desc->nrows;
    for (u32 at = 1; r < end && at <= c->length && r->kind != GPU_EACH && r->kind != GPU_TIMES;
         at += gpu_row_dwords(r++)) {
        if (r->key && r->argument && virgl_word(c, at) >= r->argument)
            return "a slot that does not exist";
        if (r->names == GPU_ENUM_shader && !gpu_value_name(GPU_ENUM_shader, virgl_word(c, at)))
            return "a shader stage that does not exist";
        if (r->names == GPU_ENUM_direction &&
            !gpu_value_name(GPU_ENUM_direction, virgl_word(c, at)))
            return "a direction that does not exist";
    }
    return NULL;
}

static const char *element_problems(const struct virgl_command *c)
{
    struct gpu_fields it;
    struct gpu_field f;
    virgl_fields(c, &it);
    while (gpu_field_next(&it, &f))
        if (!strcmp(f.name, "vertex_buffer_index") && f.value >= VIRGL_SLOTS)
            return "a slot that does not exist";
    return NULL;
}

/* What the table's rows do not say, of objects that are made. */
static const char *object_problems(const struct virgl_command *c)
{
    struct virgl_shader_info s;
    if (!virgl_word(c, 1))
        return "handle 0";
    if (c->object == VIRGL_OBJECT_SHADER && !virgl_shader(c, &s))
        return "more stream outputs than its length has";
    return c->object == VIRGL_OBJECT_VERTEX_ELEMENTS ? element_problems(c) : NULL;
}

/* ... and of other commands. */
static const char *more_problems(const struct virgl_command *c)
{
    switch (c->id) {
    case VIRGL_CCMD_CREATE_OBJECT: return object_problems(c);
    case VIRGL_CCMD_SET_FRAMEBUFFER_STATE:
        return virgl_word(c, 1) != c->length - 2
                   ? "a number of surfaces that does not fit its length"
                   : NULL;
    case VIRGL_CCMD_BIND_OBJECT:
        return c->object != VIRGL_OBJECT_BLEND && c->object != VIRGL_OBJECT_RASTERIZER &&
                       c->object != VIRGL_OBJECT_DSA && c->object != VIRGL_OBJECT_VERTEX_ELEMENTS
                   ? "an object that cannot be bound"
                   : NULL;
    case VIRGL_CCMD_SEND_STRING_MARKER:
        return virgl_word(c, 1) > (c->length - 1) * 4 ? "a text longer than the command" : NULL;
    default: return NULL;
    }
}

static const char *slot_problems(const struct virgl_command *c)
{
    enum gpu_effect effect = virgl_effect(c);
    struct virgl_set set;
    u32 limit = 0;
    if (effect != GPU_SLOTS && effect != GPU_LIST)
        return NULL;
    for (u32 i = 0; i < c->desc->nrows; i++)
        if (c->desc->rows[i].kind == GPU_EACH)
            limit = c->desc->rows[i].argument;
    virgl_sets(c, &set);
    return set.slot > limit || set.count > limit - set.slot ? "slots that do not exist" : NULL;
}

static const char *problems(const struct virgl_command *c)
{
    const char *text = more_problems(c);
    text = text ? text : value_problems(c);
    return text ? text : slot_problems(c);
}

bool virgl_next(struct virgl_walk *w, struct virgl_command *out)
{
    if (w->at >= w->dwords) {
        if (!w->odd)
            return false;
        w->odd = false;
        *out = (struct virgl_command){
            .at = w->at, .words = (const u8 *)"\0\0\0", .problem = "bytes after the last dword"};
        return true;
    }
    const u8 *p = w->data + (size_t)w->at * 4;
    u32 header = gpu_u32(p), left = w->dwords - w->at - 1;
    *out = (struct virgl_command){.at = w->at,
                                  .id = header & 0xff,
                                  .object = header >> 8 & 0xff,
                                  .length = header >> 16,
                                  .words = p};
    out->desc = virgl_desc(out->id, out->object);
    if (out->length > left) {
        out->length = left;
        out->problem = "longer than the buffer";
        w->at = w->dwords;
        w->odd = false;
        return true;
    }
    w->at += out->length + 1;
    u32 least;
    if (!out->desc)
        out->problem =
            out->id == VIRGL_CCMD_CREATE_OBJECT ? "unknown object type" : "unknown command";
    else if (!gpu_length_fits(out->desc, out->length, &least))
        out->problem = out->length < least ? "shorter than its fields"
                                           : "a length that its fields cannot have";
    else
        out->problem = problems(out);
    return true;
}

bool virgl_check(const void *buffer, u32 bytes, struct virgl_problem *problem)
{
    struct virgl_walk w;
    struct virgl_command c;
    virgl_walk_start(&w, buffer, bytes);
    while (virgl_next(&w, &c)) {
        const char *text = c.problem;
        if (!text && c.desc->treatment == GPU_REFUSE)
            text = "part of a feature that is not offered";
        if (!text)
            continue;
        if (problem)
            *problem = (struct virgl_problem){.at = c.at, .command = c, .text = text};
        return false;
    }
    return true;
}

void virgl_for_renderer(void *buffer, u32 bytes)
{
    struct virgl_walk w;
    struct virgl_command c;
    u8 *data = buffer;
    virgl_walk_start(&w, buffer, bytes);
    while (virgl_next(&w, &c))
        if (!c.problem && (c.desc->treatment == GPU_IGNORE || c.desc->treatment == GPU_ANSWER)) {
            u32 header = VIRGL_CCMD_NOP | c.length << 16;
            memcpy(data + (size_t)c.at * 4, &header, 4);
        }
}

void virgl_fields(const struct virgl_command *c, struct gpu_fields *it)
{
    gpu_fields_start(it, c->desc, c->words + 4, c->length);
}

bool virgl_sets(const struct virgl_command *c, struct virgl_set *out)
{
    enum gpu_effect effect = virgl_effect(c);
    u32 at = 0;
    *out = (struct virgl_set){
        .stage = effect == GPU_BINDS ? c->object : 0, .count = 1, .head = c->length};
    if (effect == GPU_NO_EFFECT || effect >= GPU_DRAWS)
        return false;
    for (u32 i = 0; i < c->desc->nrows; i++) {
        const struct gpu_row *r = &c->desc->rows[i];
        if (r->kind == GPU_TIMES || (r->kind == GPU_EACH && effect == GPU_SETS))
            break; /* all of them are one thing */
        if (r->kind == GPU_EACH) {
            while (++i < c->desc->nrows)
                out->group += gpu_row_dwords(&c->desc->rows[i]);
            out->head = at;
            out->count = (c->length - at) / out->group;
            break;
        }
        if (r->names == GPU_ENUM_shader)
            out->stage = virgl_word(c, 1 + at);
        else if (r->key || r->kind == GPU_SLOT)
            out->slot = virgl_word(c, 1 + at);
        at += gpu_row_dwords(r);
    }
    return true;
}

u32 virgl_resources(const struct virgl_command *c, u32 out[GPU_RESOURCES_MAX])
{
    struct gpu_fields it;
    struct gpu_field f;
    u32 n = 0;
    virgl_fields(c, &it);
    while (n < GPU_RESOURCES_MAX && gpu_field_next(&it, &f))
        if (f.kind == GPU_RESOURCE && f.value)
            out[n++] = (u32)f.value;
    return n;
}

bool virgl_query(const struct virgl_command *c, struct virgl_query_info *out)
{
    if (c->problem || c->id != VIRGL_CCMD_CREATE_OBJECT || c->object != VIRGL_OBJECT_QUERY)
        return false;
    u32 word = virgl_word(c, 2);
    *out = (struct virgl_query_info){.handle = virgl_word(c, 1),
                                     .type = word & 0xffff,
                                     .index = word >> 16,
                                     .offset = virgl_word(c, 3),
                                     .resource = virgl_word(c, 4)};
    return true;
}

bool virgl_shader(const struct virgl_command *c, struct virgl_shader_info *out)
{
    enum { FIXED = 5, COMPUTE = 5, MOST_OUTPUTS = 64 };
    memset(out, 0, sizeof(*out));
    if (c->id != VIRGL_CCMD_CREATE_OBJECT || c->object != VIRGL_OBJECT_SHADER || c->length < FIXED)
        return false;
    u32 offset = virgl_word(c, 3), skip = FIXED;
    out->handle = virgl_word(c, 1);
    out->stage = virgl_word(c, 2);
    out->continued = offset >> 31;
    *(out->continued ? &out->offset : &out->total) = offset & 0x7fffffff;
    /* A compute shader has its local memory there. */
    if (out->stage != COMPUTE && virgl_word(c, 5)) {
        out->outputs = virgl_word(c, 5);
        if (out->outputs > MOST_OUTPUTS || c->length < FIXED + 4 + 2 * out->outputs) {
            out->outputs = 0;
            return false;
        }
        out->output = c->words + 4 * (1 + FIXED);
        skip += 4 + 2 * out->outputs;
    }
    out->text = c->words + (size_t)(1 + skip) * 4;
    out->size = (c->length - skip) * 4;
    const u8 *nul = out->size ? memchr(out->text, 0, out->size) : NULL;
    if (nul)
        out->size = (u32)(nul - out->text);
    return true;
}

bool virgl_transfer(const struct virgl_command *c, struct gpu_transfer *out)
{
    enum { READ_FROM_HOST = 2, TO_HOST = 1 };
    memset(out, 0, sizeof(*out));
    bool copy = c->id == VIRGL_CCMD_COPY_TRANSFER3D;
    if (c->problem || (!copy && c->id != VIRGL_CCMD_TRANSFER3D))
        return false;
    *out = (struct gpu_transfer){.resource = virgl_word(c, 1),
                                 .level = virgl_word(c, 2),
                                 .stride = virgl_word(c, 4),
                                 .layer_stride = virgl_word(c, 5),
                                 .box = {virgl_word(c, 6), virgl_word(c, 7), virgl_word(c, 8),
                                         virgl_word(c, 9), virgl_word(c, 10), virgl_word(c, 11)},
                                 .offset = virgl_word(c, copy ? 13 : 12)};
    out->backing = copy ? virgl_word(c, 12) : out->resource;
    out->to_host = copy ? !(virgl_word(c, 14) & READ_FROM_HOST) : virgl_word(c, 13) == TO_HOST;
    return true;
}
