/*
 * Records to bytes and back, driven by records.def. Decoding is the first reader of bytes that
 * anybody may have changed: every length is checked against what is left before it is used, and
 * nothing is allocated.
 *
 * A record: varint id, varint length of what follows, varint position and varint time (both as
 * difference to the record before it in the chunk), then its fields in the order of the table.
 * A varint is little-endian base 128 with the high bit set on all bytes but the last.
 */
#include "replay/record.h"

#include "base/cursor.h"

#include <string.h>

/* clang-format off */
#define RECORD(NAME, id, rname, doc) static const struct record_field rname##_fields[] = {
#define FIELD(rname, kind, fname, doc) {#fname, FIELD_##kind, (u32)offsetof(struct record, rname.fname), doc},
#define END(name) };
#include "records.def"
#undef RECORD
#undef FIELD
#undef END

#define RECORD(NAME, id, name, doc) {id, #name, doc, name##_fields, ARRAY_SIZE(name##_fields)},
#define FIELD(rname, kind, name, doc)
#define END(name)
const struct record_desc record_table[] = {
#include "records.def"
};
#undef RECORD
#undef FIELD
#undef END
/* clang-format on */
const size_t record_table_size = ARRAY_SIZE(record_table);

const struct record_desc *record_desc(u64 id)
{
    for (size_t i = 0; i < record_table_size; i++)
        if (record_table[i].id == id)
            return &record_table[i];
    return NULL;
}

static void put_field(struct cursor *c, enum field_kind kind, const void *value)
{
    switch (kind) {
    case FIELD_num:
    case FIELD_quit:
    case FIELD_reason: cursor_put_varint(c, *(const u64 *)value); break;
    case FIELD_hex: cursor_put(c, value, 8); break;
    case FIELD_hash: cursor_put(c, value, 16); break;
    case FIELD_bytes:
    case FIELD_text: {
        const struct log_bytes *b = value;
        cursor_put_varint(c, b->len);
        cursor_put(c, b->data, b->len);
        break;
    }
    case FIELD_digests: {
        const struct log_digests *d = value;
        cursor_put_varint(c, d->count);
        cursor_put(c, d->data, (size_t)d->count * 8);
        break;
    }
    case FIELD_runs: {
        const struct log_runs *r = value;
        cursor_put_varint(c, r->count);
        cursor_put(c, r->data, r->size);
        break;
    }
    }
}

static void get_field(struct cursor *c, enum field_kind kind, void *value)
{
    switch (kind) {
    case FIELD_num:
    case FIELD_quit:
    case FIELD_reason: *(u64 *)value = cursor_get_varint(c); break;
    case FIELD_hex: *(u64 *)value = cursor_get_u64(c); break;
    case FIELD_hash: {
        struct hash128 *h = value;
        h->hi = cursor_get_u64(c);
        h->lo = cursor_get_u64(c);
        break;
    }
    case FIELD_bytes:
    case FIELD_text: {
        struct log_bytes *b = value;
        u64 len = cursor_get_varint(c);
        b->data = cursor_get(c, len);
        b->len = c->bad ? 0 : (u32)len;
        break;
    }
    case FIELD_digests: {
        struct log_digests *d = value;
        u64 count = cursor_get_varint(c);
        if (count > RECORD_MAX / 8)
            c->bad = true;
        d->data = cursor_get(c, count * 8);
        d->count = c->bad ? 0 : (u32)count;
        break;
    }
    case FIELD_runs: {
        struct log_runs *r = value;
        u64 count = cursor_get_varint(c);
        size_t start = c->at;
        for (u64 i = 0; i < count && !c->bad; i++) {
            cursor_get_varint(c);
            cursor_get(c, 8);
        }
        r->data = c->in + start;
        r->count = c->bad ? 0 : (u32)count;
        r->size = c->bad ? 0 : (u32)(c->at - start);
        break;
    }
    }
}

size_t record_encode(const struct record *rec, struct record_base *base, u8 *out, size_t cap)
{
    const struct record_desc *desc = record_desc(rec->type);
    if (!desc || rec->position < base->position || rec->time < base->time)
        return 0;
    /* The body goes after the longest possible head and is moved up once its length is known. */
    enum { HEAD = 20 };
    if (cap <= HEAD)
        return 0;
    struct cursor body = {.out = out, .at = HEAD, .end = MIN(cap, (size_t)RECORD_MAX)};
    cursor_put_varint(&body, rec->position - base->position);
    cursor_put_varint(&body, rec->time - base->time);
    for (size_t i = 0; i < desc->nfields; i++)
        put_field(&body, desc->fields[i].kind, (const u8 *)rec + desc->fields[i].offset);
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

/* ---- inputs ---- */

/* What dev/inputs.def says of an input whose record has the same name. */
struct input_row {
    enum input_kind kind;
    u64 type;
    u64 arg_first, arg_last;
    u32 least, most, multiple; /* bytes */
};

static const struct input_row input_rows[] = {
#define INPUT(NAME, device, unit, first, last, least, most, multiple)                              \
    {INPUT_##NAME, REC_##NAME, first, last, least, most, multiple},
#include "dev/inputs.def"
#undef INPUT
};

static const struct input_row *row_of(u64 type)
{
    for (size_t i = 0; i < ARRAY_SIZE(input_rows); i++)
        if (input_rows[i].type == type)
            return &input_rows[i];
    return NULL;
}

/* The parts of an input in its record, NULL where it has none. `cpu` is always the first field, and
 * so at the same place in all of them. */
struct parts {
    u64 *unit, *arg;
    struct log_bytes *data;
    struct hash128 *hash; /* of contents that are kept elsewhere */
};

static struct parts parts_of(struct record *rec)
{
    const struct record_desc *desc = record_desc(rec->type);
    struct parts p = {0};
    for (size_t i = 1; i < desc->nfields; i++) {
        const struct record_field *f = &desc->fields[i];
        void *at = (u8 *)rec + f->offset;
        if (f->kind == FIELD_bytes)
            p.data = at;
        else if (f->kind == FIELD_hash)
            p.hash = at;
        else if (!strcmp(f->name, "unit"))
            p.unit = at;
        else
            p.arg = at;
    }
    return p;
}

/* Limits that the machine relies on. */
static bool input_valid(struct record *rec, const struct input_row *r)
{
    struct parts p = parts_of(rec);
    if (p.unit && *p.unit > UINT32_MAX)
        return false;
    if (p.arg && (*p.arg < r->arg_first || *p.arg > r->arg_last))
        return false;
    return !p.data ||
           (p.data->len >= r->least && p.data->len <= r->most && p.data->len % r->multiple == 0);
}

bool record_input(const struct record *rec, struct input *in)
{
    const struct input_row *r = row_of(rec->type);
    if (!r || !in)
        return r;
    struct record copy = *rec;
    struct parts p = parts_of(&copy);
    *in = (struct input){.kind = r->kind,
                         .unit = p.unit ? (u32)*p.unit : 0,
                         .arg = p.arg ? (u32)*p.arg : 0,
                         .len = p.data ? p.data->len : 0,
                         .data = p.data ? p.data->data : NULL};
    return true;
}

u64 record_input_cpu(const struct record *rec)
{
    return rec->quit.cpu;
}

struct log_bytes *record_input_bytes(struct record *rec)
{
    return row_of(rec->type) ? parts_of(rec).data : NULL;
}

struct hash128 *record_input_hash(struct record *rec)
{
    return row_of(rec->type) ? parts_of(rec).hash : NULL;
}

void record_from_input(struct record *rec, const struct input *in, u64 cpu)
{
    const struct input_row *r = input_rows;
    while (r->kind != in->kind)
        r++;
    rec->type = r->type;
    rec->quit.cpu = cpu;
    struct parts p = parts_of(rec);
    if (p.unit)
        *p.unit = in->unit;
    if (p.arg)
        *p.arg = in->arg;
    if (p.data)
        *p.data = (struct log_bytes){in->len, in->data};
}

size_t record_decode(struct record *rec, struct record_base *base, const u8 *in, size_t len,
                     const char **why)
{
    memset(rec, 0, sizeof(*rec));
    struct cursor head = {.in = in, .end = len};
    rec->type = cursor_get_varint(&head);
    u64 size = cursor_get_varint(&head);
    const u8 *start = cursor_get(&head, size);
    if (!start || size > RECORD_MAX) {
        *why = "a record is longer than its chunk";
        return 0;
    }
    struct cursor body = {.in = start, .end = size};
    u64 dposition = cursor_get_varint(&body);
    u64 dtime = cursor_get_varint(&body);
    if (body.bad || base->position + dposition < dposition || base->time + dtime < dtime) {
        *why = "a record has no valid position and time";
        return 0;
    }
    base->position = rec->position = base->position + dposition;
    base->time = rec->time = base->time + dtime;
    const struct record_desc *desc = record_desc(rec->type);
    if (!desc) {
        *why = "a record type that this version does not know";
        return rec->type >= RECORD_REMARKS ? head.at : 0;
    }
    /* A record of an older version ends before the fields appended since: they stay zero. */
    for (size_t i = 0; i < desc->nfields && body.at < body.end; i++)
        get_field(&body, desc->fields[i].kind, (u8 *)rec + desc->fields[i].offset);
    const struct input_row *input = row_of(rec->type);
    if (body.bad || (input && !input_valid(rec, input)) ||
        (rec->type == REC_END && (rec->end.reason < RUN_POWEROFF || rec->end.reason > RUN_ERROR))) {
        *why = "a record's fields do not fit its length or range";
        return 0;
    }
    return head.at;
}

u64 digest_at(const struct log_digests *list, u32 index)
{
    u64 v;
    memcpy(&v, list->data + (size_t)index * 8, 8);
    return v;
}

bool runs_next(const struct log_runs *runs, u32 *at, u64 *length, u64 *digest)
{
    struct cursor c = {.in = runs->data, .at = *at, .end = runs->size};
    if (c.at >= c.end)
        return false;
    *length = cursor_get_varint(&c);
    *digest = cursor_get_u64(&c);
    *at = (u32)c.at;
    return !c.bad;
}

u32 runs_add(u8 *out, u64 length, u64 digest)
{
    struct cursor c = {.out = out, .end = 18};
    cursor_put_varint(&c, length);
    cursor_put(&c, &digest, 8);
    return (u32)c.at;
}
