/*
 * Records of gpu.log to bytes and back, driven by log.def. Decoding is the first reader of bytes
 * that anybody may have changed: every length is checked against what is left before it is used,
 * and nothing is allocated.
 */
#include <string.h>

#include "virtio-gpu-log/log_format.h"

/* clang-format off */
#define RECORD(NAME, id, rname, doc) static const struct gpu_log_field rname##_fields[] = {
#define FIELD(rname, kind, fname, doc) \
    {#fname, GPU_LOG_FIELD_##kind, (u32)offsetof(struct gpu_record, rname.fname), doc},
#define END(name) };
#include "virtio-gpu-log/log.def"
#undef RECORD
#undef FIELD
#undef END

#define RECORD(NAME, id, name, doc) {id, #name, doc, name##_fields, ARRAY_SIZE(name##_fields)},
#define FIELD(rname, kind, name, doc)
#define END(name)
const struct gpu_log_record_desc gpu_log_table[] = {
#include "virtio-gpu-log/log.def"
};
/* clang-format on */
const size_t gpu_log_table_size = ARRAY_SIZE(gpu_log_table);

static const struct gpu_log_record_desc *desc_of(u64 id)
{
    for (size_t i = 0; i < gpu_log_table_size; i++)
        if (gpu_log_table[i].id == id)
            return &gpu_log_table[i];
    return NULL;
}

struct pieces {
    gpu_piece_fn *number;
    void *opaque;
};

static void put_blob(struct cursor *c, const struct gpu_blob *b, const struct pieces *p)
{
    if (b->size > GPU_BLOB_MAX)
        c->bad = true;
    cursor_put_varint(c, b->size);
    for (u64 at = 0; at < b->size && !c->bad; at += GPU_PIECE)
        cursor_put_varint(
            c, p->number(p->opaque, b->data + at, (u32)MIN(b->size - at, (u64)GPU_PIECE)));
}

static void get_blob(struct cursor *c, struct gpu_blob *b, u64 contents)
{
    b->size = cursor_get_varint(c);
    if (b->size > GPU_BLOB_MAX)
        c->bad = true;
    size_t start = c->at;
    for (u64 at = 0; at < b->size && !c->bad; at += GPU_PIECE)
        if (cursor_get_varint(c) >= contents)
            c->bad = true;
    b->refs = c->in + start;
    b->refs_size = (u32)(c->at - start);
    if (c->bad)
        *b = (struct gpu_blob){0};
}

static void put_field(struct cursor *c, enum gpu_field_kind kind, const void *value,
                      const struct pieces *p)
{
    switch (kind) {
    case GPU_LOG_FIELD_num: cursor_put_varint(c, *(const u64 *)value); break;
    case GPU_LOG_FIELD_text:
    case GPU_LOG_FIELD_bytes: {
        const struct gpu_bytes *b = value;
        cursor_put_varint(c, b->len);
        cursor_put(c, b->data, b->len);
        break;
    }
    case GPU_LOG_FIELD_blob: put_blob(c, value, p); break;
    case GPU_LOG_FIELD_ranges: {
        const struct gpu_ranges *r = value;
        cursor_put_varint(c, r->count);
        for (u32 i = 0; i < r->count; i++) {
            cursor_put_varint(c, r->list[i].at);
            cursor_put_varint(c, r->list[i].resource);
            cursor_put_varint(c, r->list[i].offset);
            put_blob(c, &r->list[i].bytes, p);
        }
        break;
    }
    }
}

static void get_range(struct cursor *c, struct gpu_range *out, u64 contents)
{
    u64 at = cursor_get_varint(c), resource = cursor_get_varint(c);
    out->at = (u32)at;
    out->resource = (u32)resource;
    out->offset = cursor_get_varint(c);
    get_blob(c, &out->bytes, contents);
    if (at > UINT32_MAX || resource > UINT32_MAX || out->offset + out->bytes.size < out->offset)
        c->bad = true;
}

static void get_field(struct cursor *c, enum gpu_field_kind kind, void *value, u64 contents)
{
    switch (kind) {
    case GPU_LOG_FIELD_num: *(u64 *)value = cursor_get_varint(c); break;
    case GPU_LOG_FIELD_text:
    case GPU_LOG_FIELD_bytes: {
        struct gpu_bytes *b = value;
        u64 len = cursor_get_varint(c);
        b->data = cursor_get(c, len);
        b->len = c->bad ? 0 : (u32)len;
        break;
    }
    case GPU_LOG_FIELD_blob: get_blob(c, value, contents); break;
    case GPU_LOG_FIELD_ranges: {
        struct gpu_ranges *r = value;
        u64 count = cursor_get_varint(c);
        size_t start = c->at;
        struct gpu_range range;
        for (u64 i = 0; i < count && !c->bad; i++)
            get_range(c, &range, contents);
        *r = (struct gpu_ranges){0};
        if (!c->bad) {
            r->count = (u32)count;
            r->refs = c->in + start;
            r->refs_size = (u32)(c->at - start);
        }
        break;
    }
    }
}

bool gpu_ranges_next(const struct gpu_ranges *ranges, u32 *at, struct gpu_range *out)
{
    struct cursor c = {.in = ranges->refs, .at = *at, .end = ranges->refs_size};
    memset(out, 0, sizeof(*out));
    if (c.at >= c.end)
        return false;
    get_range(&c, out, UINT64_MAX);
    *at = (u32)c.at;
    return !c.bad;
}

/* Differences of either sign, small ones first. Time runs with position unless the guest idles. */
static u64 zigzag(u64 v)
{
    return v << 1 ^ (v >> 63 ? UINT64_MAX : 0);
}

static u64 unzigzag(u64 v)
{
    return v >> 1 ^ (v & 1 ? UINT64_MAX : 0);
}

size_t gpu_record_encode(const struct gpu_record *rec, struct gpu_log_base *base, u8 *out,
                         size_t cap, gpu_piece_fn *piece, void *opaque)
{
    const struct gpu_log_record_desc *desc = desc_of(rec->type);
    const struct pieces p = {piece, opaque};
    if (!desc || rec->position < base->position || rec->time < base->time)
        return 0;
    /* The body goes after the longest possible head and is moved up once its length is known. */
    enum { HEAD = 20 };
    if (cap <= HEAD)
        return 0;
    struct cursor body = {.out = out, .at = HEAD, .end = MIN(cap, (size_t)GPU_RECORD_MAX)};
    cursor_put_varint(&body, rec->position - base->position);
    cursor_put_varint(&body, zigzag((rec->time - base->time) - (rec->position - base->position)));
    for (size_t i = 0; i < desc->nfields; i++)
        put_field(&body, desc->fields[i].kind, (const u8 *)rec + desc->fields[i].offset, &p);
    if (body.bad)
        return 0;
    size_t len = body.at - HEAD;
    struct cursor head = {.out = out, .end = HEAD};
    cursor_put_varint(&head, rec->type);
    cursor_put_varint(&head, len);
    memmove(out + head.at, out + HEAD, len);
    base->position = rec->position;
    base->time = rec->time;
    return head.at + len;
}

/* What the table cannot say. */
static bool valid(const struct gpu_record *rec)
{
    switch (rec->type) {
    case GPU_REC_START:
        return rec->start.virgl <= 1 && rec->start.width <= UINT32_MAX &&
               rec->start.height <= UINT32_MAX && rec->start.hz <= UINT32_MAX &&
               rec->start.capset_id <= UINT32_MAX && rec->start.capset_version <= UINT32_MAX &&
               rec->start.scanouts <= VIRTIO_GPU_MAX_SCANOUTS;
    case GPU_REC_COMMAND:
        return rec->command.queue <= GPU_QUEUE_cursor &&
               rec->command.words.len <= GPU_COMMAND_MAX && rec->command.refused <= UINT32_MAX;
    case GPU_REC_REPLY: return rec->reply.response <= UINT32_MAX;
    case GPU_REC_FAULT: return rec->fault.context <= UINT32_MAX;
    default: return true;
    }
}

size_t gpu_record_decode(struct gpu_record *rec, struct gpu_log_base *base, const u8 *in,
                         size_t len, u64 contents, const char **why)
{
    memset(rec, 0, sizeof(*rec));
    struct cursor head = {.in = in, .end = len};
    rec->type = cursor_get_varint(&head);
    u64 size = cursor_get_varint(&head);
    const u8 *start = cursor_get(&head, size);
    if (!start || size > GPU_RECORD_MAX) {
        *why = "a record is longer than its chunk";
        return 0;
    }
    struct cursor body = {.in = start, .end = size};
    u64 dposition = cursor_get_varint(&body);
    u64 dtime = dposition + unzigzag(cursor_get_varint(&body));
    if (body.bad || base->position + dposition < dposition || base->time + dtime < dtime) {
        *why = "a record has no valid position and time";
        return 0;
    }
    base->position = rec->position = base->position + dposition;
    base->time = rec->time = base->time + dtime;
    const struct gpu_log_record_desc *desc = desc_of(rec->type);
    if (!desc) {
        *why = "a record type that this version does not know";
        return 0;
    }
    for (size_t i = 0; i < desc->nfields && body.at < body.end; i++)
        get_field(&body, desc->fields[i].kind, (u8 *)rec + desc->fields[i].offset, contents);
    if (body.bad || !valid(rec)) {
        *why = "a record's fields do not fit its length or range";
        return 0;
    }
    return head.at;
}

u32 gpu_record_command(const struct gpu_record *rec, struct gpu_command *out)
{
    gpu_command_decode((enum gpu_queue)rec->command.queue, rec->command.words.data,
                       rec->command.words.len, out);
    if (!out->response && rec->command.refused) {
        out->response = (u32)rec->command.refused;
        out->problem = "refused by the device";
    }
    return out->response;
}
