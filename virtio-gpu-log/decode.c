/*
 * The tables, the walk over fields, and the commands of the two queues. decode_virgl.c has those
 * inside SUBMIT_3D.
 */
#include "virtio-gpu-log/decode.h"

#include <string.h>

#include "virtio-gpu-log/decode_internal.h"

/* clang-format off */
#define W(k, n) {.name = #n, .kind = GPU_##k},
#define WRITTEN(k, n) {.name = #n, .kind = GPU_##k, .written = true},
#define KEY(n, limit) {.name = #n, .kind = GPU_NUM, .key = true, .argument = limit},
#define WE(e, n) {.name = #n, .kind = GPU_NAMED, .names = GPU_ENUM_##e},
#define WORD {.kind = GPU_WORD},
#define B(n, s, b) {.name = #n, .kind = GPU_NUM, .shift = s, .bits = b},
#define BE(e, n, s, b) {.name = #n, .kind = GPU_NAMED, .names = GPU_ENUM_##e, .shift = s, .bits = b},
#define BF(n, s, b) {.name = #n, .kind = GPU_FORMAT, .shift = s, .bits = b},
#define MORE {.kind = GPU_MORE},
#define EACH(n) {.kind = GPU_EACH, .argument = n},
#define TIMES(n) {.kind = GPU_TIMES, .argument = n},
#define TAIL(k, n, least) {.name = #n, .kind = GPU_##k, .is_tail = 1, .argument = least},
/* Some commands have no rows: the first of each list is never looked at. */
#define COMMAND(NAME, queue, response, feature, doc) \
    static const struct gpu_row command_##NAME[] = {{.kind = GPU_MORE},
#define CCMD(NAME, number, treatment, effect, doc) \
    static const struct gpu_row ccmd_##NAME[] = {{.kind = GPU_MORE},
#define OBJECT(NAME, type, doc) static const struct gpu_row object_##NAME[] = {{.kind = GPU_MORE},
#define END(NAME) };
#include "virtio-gpu-log/virgl.def"
#include "virtio-gpu-log/virtio_gpu.def"
#undef W
#undef WRITTEN
#undef KEY
#undef WE
#undef WORD
#undef B
#undef BE
#undef BF
#undef MORE
#undef EACH
#undef TIMES
#undef TAIL
#undef COMMAND
#undef CCMD
#undef OBJECT
#undef END

#define W(k, n)
#define WRITTEN(k, n)
#define KEY(n, limit)
#define WE(e, n)
#define WORD
#define B(n, s, b)
#define BE(e, n, s, b)
#define BF(n, s, b)
#define MORE
#define EACH(n)
#define TIMES(n)
#define TAIL(k, n, least)
#define END(NAME)
#define ROWS(list) .rows = list + 1, .nrows = ARRAY_SIZE(list) - 1
#define TREAT_pass GPU_PASS
#define TREAT_ignore GPU_IGNORE
#define TREAT_answer GPU_ANSWER
#define TREAT_refuse GPU_REFUSE
#define EFFECT_none GPU_NO_EFFECT
#define EFFECT_sets GPU_SETS
#define EFFECT_binds GPU_BINDS
#define EFFECT_slots GPU_SLOTS
#define EFFECT_list GPU_LIST
#define EFFECT_draws GPU_DRAWS
#define EFFECT_clears GPU_CLEARS
#define EFFECT_writes GPU_WRITES
#define EFFECT_transfers GPU_TRANSFERS
#define COMMAND(NAME, q, r, f, d) \
    {.number = VIRTIO_GPU_CMD_##NAME, .name = #NAME, .doc = d, .queue = GPU_QUEUE_##q, \
     .response = VIRTIO_GPU_RESP_##r, .feature = GPU_FEATURE_##f, ROWS(command_##NAME)},
const struct gpu_desc gpu_command_table[] = {
#include "virtio-gpu-log/virtio_gpu.def"
};
#define CCMD(NAME, n, t, e, d) \
    {.number = n, .name = #NAME, .doc = d, .treatment = TREAT_##t, .effect = EFFECT_##e, \
     ROWS(ccmd_##NAME)},
#define OBJECT(NAME, n, d)
const struct gpu_desc virgl_table[] = {
#include "virtio-gpu-log/virgl.def"
};
#undef CCMD
#undef OBJECT
#define CCMD(NAME, n, t, e, d)
#define OBJECT(NAME, n, d) \
    {.number = n, .name = #NAME, .doc = d, .treatment = GPU_PASS, ROWS(object_##NAME)},
const struct gpu_desc virgl_object_table[] = {
#include "virtio-gpu-log/virgl.def"
};
/* clang-format on */
const u32 gpu_command_table_size = ARRAY_SIZE(gpu_command_table);
const u32 virgl_table_size = ARRAY_SIZE(virgl_table);
const u32 virgl_object_table_size = ARRAY_SIZE(virgl_object_table);

/* Everything is in the order of its numbers, so the first guess is nearly always right. */
static const struct gpu_desc *find(const struct gpu_desc *table, u32 size, u32 number, u32 guess)
{
    if (guess < size && table[guess].number == number)
        return &table[guess];
    for (u32 i = 0; i < size; i++)
        if (table[i].number == number)
            return &table[i];
    return NULL;
}

const struct gpu_desc *gpu_command_desc(u32 type)
{
    return find(gpu_command_table, gpu_command_table_size, type, 0);
}

const struct gpu_desc *virgl_desc(u32 id, u32 object)
{
    if (id == VIRGL_CCMD_CREATE_OBJECT)
        return find(virgl_object_table, virgl_object_table_size, object, object - 1);
    return find(virgl_table, virgl_table_size, id, id ? id - 1 : 0);
}

const char *gpu_command_name(u32 type)
{
    const struct gpu_desc *d = gpu_command_desc(type);
    return d ? d->name : "unknown";
}

const char *gpu_response_name(u32 type)
{
    switch (type) {
    case VIRTIO_GPU_RESP_OK_NODATA: return "OK_NODATA";
    case VIRTIO_GPU_RESP_OK_DISPLAY_INFO: return "OK_DISPLAY_INFO";
    case VIRTIO_GPU_RESP_OK_CAPSET_INFO: return "OK_CAPSET_INFO";
    case VIRTIO_GPU_RESP_OK_CAPSET: return "OK_CAPSET";
    case VIRTIO_GPU_RESP_OK_EDID: return "OK_EDID";
    case VIRTIO_GPU_RESP_OK_RESOURCE_UUID: return "OK_RESOURCE_UUID";
    case VIRTIO_GPU_RESP_OK_MAP_INFO: return "OK_MAP_INFO";
    case VIRTIO_GPU_RESP_ERR_UNSPEC: return "ERR_UNSPEC";
    case VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY: return "ERR_OUT_OF_MEMORY";
    case VIRTIO_GPU_RESP_ERR_INVALID_SCANOUT_ID: return "ERR_INVALID_SCANOUT_ID";
    case VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID: return "ERR_INVALID_RESOURCE_ID";
    case VIRTIO_GPU_RESP_ERR_INVALID_CONTEXT_ID: return "ERR_INVALID_CONTEXT_ID";
    case VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER: return "ERR_INVALID_PARAMETER";
    default: return "unknown";
    }
}

bool gpu_length_fits(const struct gpu_desc *desc, u32 dwords, u32 *least)
{
    u32 fixed = 0;
    *least = 0;
    for (u32 i = 0; i < desc->nrows; i++) {
        const struct gpu_row *r = &desc->rows[i];
        if (r->is_tail) {
            *least = *least ? *least : fixed + r->argument;
            return dwords >= fixed + r->argument;
        }
        if (r->kind == GPU_MORE) {
            *least = *least ? *least : fixed;
            if (dwords == fixed)
                return true;
        } else if (r->kind == GPU_EACH || r->kind == GPU_TIMES) {
            u32 group = 0;
            for (u32 k = i + 1; k < desc->nrows; k++)
                group += gpu_row_dwords(&desc->rows[k]);
            *least = fixed + (r->kind == GPU_TIMES ? group * r->argument : 0);
            if (dwords < *least || (dwords - fixed) % group)
                return false;
            u32 times = (dwords - fixed) / group;
            return r->kind == GPU_TIMES ? times == r->argument
                                        : !r->argument || times <= r->argument;
        }
        fixed += gpu_row_dwords(r);
    }
    *least = *least ? *least : fixed;
    return dwords == fixed;
}

void gpu_fields_start(struct gpu_fields *it, const struct gpu_desc *desc, const void *body,
                      u32 dwords)
{
    *it =
        (struct gpu_fields){.desc = desc, .body = body, .dwords = dwords, .each = GPU_NOT_REPEATED};
}

/* The row after the last: back to the first repeated one while there is anything left. */
static bool wrap(struct gpu_fields *it)
{
    if (it->row < it->desc->nrows)
        return true;
    if (it->each == GPU_NOT_REPEATED || it->at >= it->dwords)
        return false;
    it->row = it->each;
    it->index++;
    return true;
}

bool gpu_field_next(struct gpu_fields *it, struct gpu_field *out)
{
    while (it->desc && wrap(it)) {
        const struct gpu_row *r = &it->desc->rows[it->row++];
        u32 left = it->dwords - it->at, need = gpu_row_dwords(r);
        if (r->kind == GPU_MORE)
            continue;
        if (r->kind == GPU_EACH || r->kind == GPU_TIMES) {
            it->each = it->row;
            if (!left)
                return false;
            continue;
        }
        if (need > left)
            return false;
        const u8 *p = it->body + (size_t)it->at * 4;
        *out = (struct gpu_field){.name = r->name,
                                  .kind = r->kind,
                                  .names = r->names,
                                  .packed = r->bits != 0,
                                  .written = r->written,
                                  .index =
                                      it->each == GPU_NOT_REPEATED ? GPU_NOT_REPEATED : it->index};
        if (r->is_tail) {
            out->data = p;
            out->size = left * 4;
            it->at = it->dwords;
            return true;
        }
        it->at += need;
        if (r->bits) {
            out->value = it->word >> r->shift & (u32)((1ull << r->bits) - 1);
            return true;
        }
        if (need == 1)
            out->value = gpu_u32(p);
        else if (need == 2)
            out->value = gpu_u64(p);
        if (r->kind == GPU_NAME) {
            out->data = p;
            out->size = (u32)strnlen((const char *)p, (size_t)need * 4);
        }
        it->word = (u32)out->value;
        if (r->kind != GPU_WORD && r->kind != GPU_PAD)
            return true;
    }
    return false;
}

static u32 refuse(struct gpu_command *c, u32 response, const char *problem)
{
    c->response = response;
    c->problem = problem;
    return response;
}

u32 gpu_command_decode(enum gpu_queue queue, const void *bytes, u32 size, struct gpu_command *out)
{
    *out = (struct gpu_command){.bytes = bytes, .size = size};
    if (size < GPU_HEADER)
        return refuse(out, VIRTIO_GPU_RESP_ERR_UNSPEC, "shorter than a header");
    struct virtio_gpu_ctrl_hdr h;
    memcpy(&h, bytes, sizeof(h));
    out->type = h.type;
    out->flags = h.flags;
    out->fence = h.fence_id;
    out->ctx = h.ctx_id;
    out->ring = h.ring_idx;
    out->desc = gpu_command_desc(h.type);
    if (!out->desc || out->desc->queue != queue)
        return refuse(out, VIRTIO_GPU_RESP_ERR_UNSPEC,
                      out->desc ? "not a command of this queue" : "unknown command");
    u32 dwords = (size - GPU_HEADER) / 4, least;
    gpu_length_fits(out->desc, dwords, &least);
    if (dwords < least)
        return refuse(out, VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER, "shorter than its fields");
    u32 fixed = GPU_HEADER + least * 4, rest = size - fixed;
    const u8 *body = out->bytes + GPU_HEADER;
    if (h.type == VIRTIO_GPU_CMD_SUBMIT_3D) {
        u32 want = gpu_u32(body);
        out->payload = out->bytes + fixed;
        out->payload_size = MIN(want, rest);
        if (want > rest)
            return refuse(out, VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER,
                          "its buffer is shorter than its size");
    } else if (h.type == VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING) {
        u32 entries = gpu_u32(body + 4), there = rest / sizeof(struct virtio_gpu_mem_entry);
        out->payload = out->bytes + fixed;
        out->payload_size = MIN(entries, there) * (u32)sizeof(struct virtio_gpu_mem_entry);
        if (entries > there)
            return refuse(out, VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER, "fewer entries than it says");
    }
    return 0;
}

void gpu_command_fields(const struct gpu_command *c, struct gpu_fields *it)
{
    u32 body = c->size > GPU_HEADER ? (c->size - GPU_HEADER) / 4 : 0;
    /* What follows a payload of known size is no field. */
    if (c->payload)
        body = MIN(body, (u32)(c->payload - c->bytes - GPU_HEADER + c->payload_size + 3) / 4);
    gpu_fields_start(it, c->desc, c->size > GPU_HEADER ? c->bytes + GPU_HEADER : c->bytes, body);
}

bool gpu_command_transfer(const struct gpu_command *c, struct gpu_transfer *out)
{
    memset(out, 0, sizeof(*out));
    if (c->response)
        return false;
    if (c->type == VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D) {
        struct virtio_gpu_transfer_to_host_2d t;
        memcpy(&t, c->bytes, sizeof(t));
        *out = (struct gpu_transfer){.resource = t.resource_id,
                                     .backing = t.resource_id,
                                     .box = {t.r.x, t.r.y, 0, t.r.width, t.r.height, 1},
                                     .offset = t.offset,
                                     .to_host = true,
                                     .two_d = true};
        return true;
    }
    if (c->type != VIRTIO_GPU_CMD_TRANSFER_TO_HOST_3D &&
        c->type != VIRTIO_GPU_CMD_TRANSFER_FROM_HOST_3D)
        return false;
    struct virtio_gpu_transfer_host_3d t;
    memcpy(&t, c->bytes, sizeof(t));
    *out = (struct gpu_transfer){.resource = t.resource_id,
                                 .backing = t.resource_id,
                                 .level = t.level,
                                 .stride = t.stride,
                                 .layer_stride = t.layer_stride,
                                 .box = {t.box.x, t.box.y, t.box.z, t.box.w, t.box.h, t.box.d},
                                 .offset = t.offset,
                                 .to_host = c->type == VIRTIO_GPU_CMD_TRANSFER_TO_HOST_3D};
    return true;
}

bool gpu_command_shape(const struct gpu_command *c, u32 *resource, struct gpu_shape *out)
{
    memset(out, 0, sizeof(*out));
    if (c->response)
        return false;
    if (c->type == VIRTIO_GPU_CMD_RESOURCE_CREATE_2D) {
        struct virtio_gpu_resource_create_2d r;
        memcpy(&r, c->bytes, sizeof(r));
        *resource = r.resource_id;
        *out = (struct gpu_shape){.target = 2,
                                  .format = r.format,
                                  .bind = 1u << 1,
                                  .width = r.width,
                                  .height = r.height,
                                  .depth = 1,
                                  .array_size = 1};
        return true;
    }
    if (c->type != VIRTIO_GPU_CMD_RESOURCE_CREATE_3D)
        return false;
    struct virtio_gpu_resource_create_3d r;
    memcpy(&r, c->bytes, sizeof(r));
    *resource = r.resource_id;
    *out = (struct gpu_shape){.target = r.target,
                              .format = r.format,
                              .bind = r.bind,
                              .width = r.width,
                              .height = r.height,
                              .depth = r.depth,
                              .array_size = r.array_size,
                              .last_level = r.last_level,
                              .nr_samples = r.nr_samples,
                              .flags = r.flags};
    return true;
}

u64 gpu_command_backing(const struct gpu_command *c)
{
    u64 size = 0;
    for (u32 i = 0; i + sizeof(struct virtio_gpu_mem_entry) <= c->payload_size;
         i += sizeof(struct virtio_gpu_mem_entry))
        size += gpu_u32(c->payload + i + offsetof(struct virtio_gpu_mem_entry, length));
    return size;
}

static u32 minify(u32 size, u32 level)
{
    return MAX(1u, level < 32 ? size >> level : 0);
}

const char *gpu_transfer_extent(const struct gpu_transfer *t, const struct gpu_shape *shape,
                                struct gpu_extent *out)
{
    enum { BUFFER = 0, TEXTURE_1D = 1, TEXTURE_3D = 3, TEXTURE_1D_ARRAY = 6 };
    const struct gpu_box *b = &t->box;
    memset(out, 0, sizeof(*out));
    out->offset = t->offset;
    if (t->level > shape->last_level)
        return "a level that the resource does not have";
    u32 width = minify(shape->width, t->level), height = minify(shape->height, t->level);
    /* Layers, faces and slices all count along z. */
    u32 depth =
        shape->target == TEXTURE_3D ? minify(shape->depth, t->level) : MAX(1u, shape->array_size);
    if (shape->target == BUFFER || shape->target == TEXTURE_1D)
        height = depth = 1;
    if (shape->target == TEXTURE_1D_ARRAY)
        height = 1;
    if ((u64)b->x + b->w > width || (u64)b->y + b->h > height || (u64)b->z + b->d > depth)
        return "a box outside the resource";
    if (!b->w || !b->h || !b->d)
        return NULL;
    const struct gpu_format *f = gpu_format(shape->format);
    if (shape->target == BUFFER) {
        out->row = b->w;
        out->stride = out->layer_stride = b->w;
        out->rows = out->layers = 1;
        out->size = b->w;
    } else {
        if (!f || !f->bytes)
            return "a format that cannot be transferred";
        u64 row = (u64)((b->w + f->block_width - 1) / f->block_width) * f->bytes;
        u64 whole = (u64)((width + f->block_width - 1) / f->block_width) * f->bytes;
        if (row > UINT32_MAX)
            return "a row of more than 4 GiB";
        out->row = (u32)row;
        out->rows = (b->h + f->block_height - 1) / f->block_height;
        out->layers = b->d;
        out->stride = t->stride ? t->stride : whole;
        if (out->rows > 1 && out->stride < row)
            return "a stride shorter than a row";
        u64 layer = out->stride * ((height + f->block_height - 1) / f->block_height);
        out->layer_stride = t->layer_stride ? t->layer_stride : layer;
        if (out->layers > 1 && out->layer_stride < out->stride * out->rows)
            return "a layer stride shorter than a layer";
        /* Each factor is below 2^37 resp. 2^32 only by chance: the sum may overflow. */
        u64 last, rows;
        if (__builtin_mul_overflow(out->layer_stride, (u64)(out->layers - 1), &last) ||
            __builtin_mul_overflow(out->stride, (u64)(out->rows - 1), &rows) ||
            __builtin_add_overflow(last, rows, &last) ||
            __builtin_add_overflow(last, row, &out->size))
            return "more bytes than there are";
    }
    u64 end;
    if (__builtin_add_overflow(out->offset, out->size, &end))
        return "more bytes than there are";
    return NULL;
}
