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

#include <assert.h>
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
    /* The body goes behind the longest possible head and is moved up once its length is known. */
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

/* Which inputs are which records, and where their parts are: `cpu` is the first field of each. */
struct input_row {
    enum input_kind kind;
    u64 type;
    u32 unit, arg, data; /* offsets in struct record; 0: it has none */
    u32 least, most;     /* bytes */
};

#define AT(name, field)   (u32) offsetof(struct record, name.field)
#define BYTES(name, a, z) .data = AT(name, data), .least = (a), .most = (z)
#define CPU_FIRST(name)   static_assert(AT(name, cpu) == AT(quit, cpu), "cpu is the first field")
static const struct input_row input_rows[] = {
    {INPUT_CONSOLE, REC_CONSOLE, BYTES(console, 1, INPUT_CONSOLE_MAX)},
    {INPUT_BREAK, REC_LINE_BREAK, .unit = 0},
    {INPUT_NMI, REC_NMI, .unit = 0},
    {INPUT_POWER_BUTTON, REC_POWER_BUTTON, .unit = 0},
    {INPUT_QUIT, REC_QUIT, .arg = AT(quit, why)},
    {INPUT_PACKET, REC_PACKET, .unit = AT(packet, unit), BYTES(packet, 14, INPUT_MAX)},
    {INPUT_LINK, REC_LINK, .unit = AT(link, unit), .arg = AT(link, up)},
    {INPUT_PORT, REC_PORT, .unit = AT(port, unit), BYTES(port, 1, INPUT_MAX)},
    {INPUT_PORT_OPEN, REC_PORT_OPEN, .unit = AT(port_open, unit), .arg = AT(port_open, open)},
    {INPUT_EVENTS, REC_EVENTS, .unit = AT(events, unit),
     BYTES(events, INPUT_EVENT_SIZE, INPUT_MAX)},
    {INPUT_DISK_ERROR, REC_DISK_ERROR, .unit = AT(disk_error, unit),
     .arg = AT(disk_error, request)},
    {INPUT_GPU, REC_GPU, .unit = 0, BYTES(gpu, 1, INPUT_MAX)},
    {INPUT_PLACE, REC_PLACE, .arg = AT(place, ns),
     BYTES(place, sizeof(struct engine_place), sizeof(struct engine_place))},
};
CPU_FIRST(console);
CPU_FIRST(line_break);
CPU_FIRST(nmi);
CPU_FIRST(power_button);
CPU_FIRST(packet);
CPU_FIRST(link);
CPU_FIRST(port);
CPU_FIRST(port_open);
CPU_FIRST(events);
CPU_FIRST(disk_error);

static const struct input_row *row_of(u64 type)
{
    for (size_t i = 0; i < ARRAY_SIZE(input_rows); i++)
        if (input_rows[i].type == type)
            return &input_rows[i];
    return NULL;
}

static const u64 *number_at(const struct record *rec, u32 offset)
{
    return (const u64 *)(const void *)((const u8 *)rec + offset);
}

static const struct log_bytes *bytes_at(const struct record *rec, u32 offset)
{
    return (const struct log_bytes *)(const void *)((const u8 *)rec + offset);
}

/* What the table cannot say: limits that the machine relies on. */
static bool record_valid(const struct record *rec)
{
    const struct input_row *r = row_of(rec->type);
    if (r && r->data) {
        u32 len = bytes_at(rec, r->data)->len;
        if (len < r->least || len > r->most)
            return false;
    }
    if (r && ((r->unit && *number_at(rec, r->unit) > UINT32_MAX) ||
              (r->arg && *number_at(rec, r->arg) > UINT32_MAX)))
        return false;
    switch (rec->type) {
    case REC_LINK: return rec->link.up <= 1;
    case REC_PORT_OPEN: return rec->port_open.open <= 1;
    case REC_EVENTS: return rec->events.data.len % INPUT_EVENT_SIZE == 0;
    case REC_QUIT: return rec->quit.why >= QUIT_USER && rec->quit.why <= QUIT_ENGINE;
    case REC_END: return rec->end.reason >= RUN_POWEROFF && rec->end.reason <= RUN_ERROR;
    default: return true;
    }
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
    if (body.bad || !record_valid(rec)) {
        *why = "a record's fields do not fit its length or range";
        return 0;
    }
    return head.at;
}

bool record_input(const struct record *rec, struct input *in)
{
    const struct input_row *r = row_of(rec->type);
    if (!r || !in)
        return r;
    *in = (struct input){.kind = r->kind};
    if (r->unit)
        in->unit = (u32)*number_at(rec, r->unit);
    if (r->arg)
        in->arg = (u32)*number_at(rec, r->arg);
    if (r->data) {
        in->len = bytes_at(rec, r->data)->len;
        in->data = bytes_at(rec, r->data)->data;
    }
    return true;
}

u64 record_input_cpu(const struct record *rec)
{
    return rec->quit.cpu;
}

struct log_bytes *record_input_bytes(struct record *rec)
{
    const struct input_row *r = row_of(rec->type);
    return r && r->data ? (struct log_bytes *)(void *)((u8 *)rec + r->data) : NULL;
}

void record_from_input(struct record *rec, const struct input *in, u64 cpu)
{
    const struct input_row *r = input_rows;
    while (r->kind != in->kind)
        r++;
    u8 *bytes = (u8 *)rec;
    u64 unit = in->unit, arg = in->arg;
    struct log_bytes data = {in->len, in->data};
    rec->type = r->type;
    rec->quit.cpu = cpu;
    if (r->unit)
        memcpy(bytes + r->unit, &unit, sizeof(unit));
    if (r->arg)
        memcpy(bytes + r->arg, &arg, sizeof(arg));
    if (r->data)
        memcpy(bytes + r->data, &data, sizeof(data));
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
