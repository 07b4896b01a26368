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

/* A cursor that remembers failure, so that callers check once at the end. */
struct cursor {
    u8 *out;
    const u8 *in;
    size_t at, end;
    bool bad;
};

static void put(struct cursor *c, const void *data, size_t len)
{
    if (c->bad || len > c->end - c->at) {
        c->bad = true;
        return;
    }
    if (len)
        memcpy(c->out + c->at, data, len);
    c->at += len;
}

static void put_varint(struct cursor *c, u64 v)
{
    u8 buf[10];
    size_t n = 0;
    do {
        buf[n++] = (u8)(v & 0x7f) | (v > 0x7f ? 0x80 : 0);
        v >>= 7;
    } while (v);
    put(c, buf, n);
}

static const u8 *get(struct cursor *c, size_t len)
{
    if (c->bad || len > c->end - c->at) {
        c->bad = true;
        return NULL;
    }
    const u8 *p = c->in + c->at;
    c->at += len;
    return p;
}

static u64 get_varint(struct cursor *c)
{
    u64 v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        const u8 *p = get(c, 1);
        if (!p)
            return 0;
        u64 bits = *p & 0x7f;
        if (shift == 63 && bits > 1)
            break;
        v |= bits << shift;
        if (!(*p & 0x80))
            return v;
    }
    c->bad = true;
    return 0;
}

static u64 get_u64(struct cursor *c)
{
    u64 v = 0;
    const u8 *p = get(c, 8);
    if (p)
        memcpy(&v, p, 8);
    return v;
}

static void put_field(struct cursor *c, enum field_kind kind, const void *value)
{
    switch (kind) {
    case FIELD_num:
    case FIELD_quit:
    case FIELD_reason: put_varint(c, *(const u64 *)value); break;
    case FIELD_hex: put(c, value, 8); break;
    case FIELD_hash: put(c, value, 16); break;
    case FIELD_bytes:
    case FIELD_text: {
        const struct log_bytes *b = value;
        put_varint(c, b->len);
        put(c, b->data, b->len);
        break;
    }
    case FIELD_digests: {
        const struct log_digests *d = value;
        put_varint(c, d->count);
        put(c, d->data, (size_t)d->count * 8);
        break;
    }
    case FIELD_runs: {
        const struct log_runs *r = value;
        put_varint(c, r->count);
        put(c, r->data, r->size);
        break;
    }
    }
}

static void get_field(struct cursor *c, enum field_kind kind, void *value)
{
    switch (kind) {
    case FIELD_num:
    case FIELD_quit:
    case FIELD_reason: *(u64 *)value = get_varint(c); break;
    case FIELD_hex: *(u64 *)value = get_u64(c); break;
    case FIELD_hash: {
        struct hash128 *h = value;
        h->hi = get_u64(c);
        h->lo = get_u64(c);
        break;
    }
    case FIELD_bytes:
    case FIELD_text: {
        struct log_bytes *b = value;
        u64 len = get_varint(c);
        b->data = get(c, len);
        b->len = c->bad ? 0 : (u32)len;
        break;
    }
    case FIELD_digests: {
        struct log_digests *d = value;
        u64 count = get_varint(c);
        if (count > RECORD_MAX / 8)
            c->bad = true;
        d->data = get(c, count * 8);
        d->count = c->bad ? 0 : (u32)count;
        break;
    }
    case FIELD_runs: {
        struct log_runs *r = value;
        u64 count = get_varint(c);
        size_t start = c->at;
        for (u64 i = 0; i < count && !c->bad; i++) {
            get_varint(c);
            get(c, 8);
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
    put_varint(&body, rec->position - base->position);
    put_varint(&body, rec->time - base->time);
    for (size_t i = 0; i < desc->nfields; i++)
        put_field(&body, desc->fields[i].kind, (const u8 *)rec + desc->fields[i].offset);
    if (body.bad)
        return 0;
    size_t len = body.at - HEAD;
    struct cursor head = {.out = out, .end = HEAD};
    put_varint(&head, rec->type);
    put_varint(&head, len);
    memmove(out + head.at, out + HEAD, len);
    base->position = rec->position;
    base->time = rec->time;
    return head.at + len;
}

/* What the table cannot say: limits that the machine relies on. */
static bool record_valid(const struct record *rec)
{
    switch (rec->type) {
    case REC_CONSOLE: return rec->console.data.len >= 1 && rec->console.data.len <= 64;
    case REC_QUIT: return rec->quit.why >= QUIT_USER && rec->quit.why <= QUIT_IDLE;
    case REC_END: return rec->end.reason >= RUN_POWEROFF && rec->end.reason <= RUN_ERROR;
    default: return true;
    }
}

size_t record_decode(struct record *rec, struct record_base *base, const u8 *in, size_t len,
                     const char **why)
{
    memset(rec, 0, sizeof(*rec));
    struct cursor head = {.in = in, .end = len};
    rec->type = get_varint(&head);
    u64 size = get_varint(&head);
    const u8 *start = get(&head, size);
    if (!start || size > RECORD_MAX) {
        *why = "a record is longer than its chunk";
        return 0;
    }
    struct cursor body = {.in = start, .end = size};
    u64 dposition = get_varint(&body);
    u64 dtime = get_varint(&body);
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
    struct input tmp = {0};
    switch (rec->type) {
    case REC_CONSOLE:
        tmp.kind = INPUT_CONSOLE;
        tmp.len = (u16)rec->console.data.len;
        memcpy(tmp.data, rec->console.data.data, tmp.len);
        break;
    case REC_LINE_BREAK: tmp.kind = INPUT_BREAK; break;
    case REC_NMI: tmp.kind = INPUT_NMI; break;
    case REC_POWER_BUTTON: tmp.kind = INPUT_POWER_BUTTON; break;
    case REC_QUIT:
        tmp.kind = INPUT_QUIT;
        tmp.arg = (u32)rec->quit.why;
        break;
    default: return false;
    }
    if (in)
        *in = tmp;
    return true;
}

void record_from_input(struct record *rec, const struct input *in, u64 cpu)
{
    switch (in->kind) {
    case INPUT_CONSOLE:
        rec->type = REC_CONSOLE;
        rec->console.data = (struct log_bytes){in->len, in->data};
        rec->console.cpu = cpu;
        break;
    case INPUT_BREAK:
        rec->type = REC_LINE_BREAK;
        rec->line_break.cpu = cpu;
        break;
    case INPUT_NMI:
        rec->type = REC_NMI;
        rec->nmi.cpu = cpu;
        break;
    case INPUT_POWER_BUTTON:
        rec->type = REC_POWER_BUTTON;
        rec->power_button.cpu = cpu;
        break;
    case INPUT_QUIT:
        rec->type = REC_QUIT;
        rec->quit.cpu = cpu;
        rec->quit.why = in->arg;
        break;
    }
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
    *length = get_varint(&c);
    *digest = get_u64(&c);
    *at = (u32)c.at;
    return !c.bad;
}

u32 runs_add(u8 *out, u64 length, u64 digest)
{
    struct cursor c = {.out = out, .end = 18};
    put_varint(&c, length);
    put(&c, &digest, 8);
    return (u32)c.at;
}
