/* See lives_file.h. */
#include "inspect/lives_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"

#define HEAD      "reprise lives 3\n"
#define BEFORE    0x80u
#define EVENT_MAX 160u /* bytes of one without its texts */
#define TEXT_MAX  4096u

enum { FLAG_PASS = 1, FLAG_CUT = 2, FLAGS = 3 };

/* ---- writing ---- */

static void put_text(struct cursor *c, const char *text, size_t len)
{
    cursor_put_varint(c, len);
    cursor_put(c, text, len);
}

static void put_event(struct cursor *c, const struct lives *l, const struct life_event *e,
                      struct life_time *last)
{
    u16 has = life_event_fields[e->kind];
    bool before = e->at.position == NEVER;
    u8 first = (u8)(e->kind | (before ? BEFORE : 0)), kernel = e->kernel;
    cursor_put(c, &first, 1);
    if (!before) {
        cursor_put_varint(c, e->at.position - last->position);
        cursor_put_varint(c, e->at.time - last->time);
        *last = e->at;
    }
    if (has & F_WHO)
        cursor_put_varint(c, (u32)(e->who + 1));
    if (has & F_TASK)
        cursor_put(c, &e->task, sizeof(e->task));
    if (has & F_BY)
        cursor_put_varint(c, (u32)(e->by + 1));
    if (has & F_NUMBERS) {
        cursor_put_varint(c, (u32)e->pid);
        cursor_put_varint(c, (u32)e->tgid);
    }
    if (has & F_PARENT)
        cursor_put_varint(c, (u32)e->parent);
    if (has & F_KERNEL)
        cursor_put(c, &kernel, 1);
    if (has & F_COMM)
        put_text(c, e->comm, strlen(e->comm));
    if (has & F_COMMAND) {
        put_text(c, lives_text(l, e->command), strlen(lives_text(l, e->command)));
        cursor_put_varint(c, e->first);
    }
    if (has & F_PROGRAM)
        put_text(c, lives_text(l, e->program), strlen(lives_text(l, e->program)));
    if (has & F_CODE)
        cursor_put_varint(c, e->code);
}

u8 *lives_pack(const struct lives_head *h, const struct lives *l, size_t *size)
{
    size_t room = 1024 + (size_t)l->nevents * EVENT_MAX + l->texts_size;
    u8 *data = room > LIVES_FILE_MAX * 4ull ? NULL : malloc(room);
    if (!data)
        return NULL;
    struct cursor c = {.out = data, .end = room - SHA256_SIZE};
    struct life_time last = {0, 0};
    cursor_put(&c, HEAD, strlen(HEAD));
    cursor_put(&c, &h->key, sizeof(h->key));
    cursor_put_varint(&c, h->upto.position);
    cursor_put_varint(&c, h->upto.time);
    cursor_put_varint(&c, (h->pass ? FLAG_PASS : 0) | (l->cut ? FLAG_CUT : 0));
    cursor_put_varint(&c, h->end);
    put_text(&c, l->lacks, strlen(l->lacks));
    cursor_put_varint(&c, l->nevents);
    for (u32 i = 0; i < l->nevents; i++)
        put_event(&c, l, &l->events[i], &last);
    if (c.bad || c.at > LIVES_FILE_MAX - SHA256_SIZE) {
        free(data);
        return NULL;
    }
    struct sha256 sum = sha256_bytes(data, c.at);
    memcpy(data + c.at, &sum, sizeof(sum));
    *size = c.at + sizeof(sum);
    return data;
}

/* ---- reading ---- */

static bool is_printable(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] < ' ' || text[i] > '~')
            return false;
    return true;
}

/* NULL: none that it may be. */
static const char *get_text(struct cursor *c, size_t max, size_t *len)
{
    u64 n = cursor_get_varint(c);
    const char *text = n <= max ? (const char *)cursor_get(c, (size_t)n) : NULL;
    if (!text || !is_printable(text, (size_t)n)) {
        c->bad = true;
        *len = 0;
        return NULL;
    }
    *len = (size_t)n;
    return text;
}

/* A number up to `max`. */
static u64 get_number(struct cursor *c, u64 max)
{
    u64 v = cursor_get_varint(c);
    if (v > max)
        c->bad = true;
    return c->bad ? 0 : v;
}

/* A life that is there, or none: 0. */
static u32 get_life(struct cursor *c, const struct lives *l)
{
    return (u32)get_number(c, l->count) - 1;
}

static u8 get_byte(struct cursor *c)
{
    const u8 *p = cursor_get(c, 1);
    return p ? *p : 0;
}

static u32 keep_text(struct cursor *c, struct lives *l, size_t *len)
{
    const char *text = get_text(c, TEXT_MAX, len);
    u32 kept = text ? lives_add_text(l, text, *len) : 0;
    if (*len && !kept)
        c->bad = true;
    return kept;
}

static void get_time(struct cursor *c, struct life_time *last, const struct life_time *upto)
{
    last->position += get_number(c, upto->position - last->position);
    last->time += get_number(c, upto->time - last->time);
}

static void get_fields(struct cursor *c, struct lives *l, struct life_event *e)
{
    u16 has = life_event_fields[e->kind];
    size_t len;
    e->who = e->by = LIVES_NONE;
    if (has & F_WHO)
        e->who = get_life(c, l);
    if (has & F_TASK)
        e->task = cursor_get_u64(c);
    if (has & F_BY)
        e->by = get_life(c, l);
    if (has & F_NUMBERS) {
        e->pid = (i32)get_number(c, UINT32_MAX);
        e->tgid = (i32)get_number(c, UINT32_MAX);
    }
    if (has & F_PARENT)
        e->parent = (i32)get_number(c, UINT32_MAX);
    if (has & F_KERNEL)
        e->kernel = get_byte(c);
    if (has & F_COMM) {
        const char *comm = get_text(c, sizeof(e->comm) - 1, &len);
        if (comm)
            memcpy(e->comm, comm, len);
    }
    if (has & F_COMMAND) {
        e->command = keep_text(c, l, &len);
        e->first = (u32)get_number(c, len);
    }
    if (has & F_PROGRAM)
        e->program = keep_text(c, l, &len);
    if (has & F_CODE)
        e->code = (u32)get_number(c, UINT16_MAX);
}

/* Nobody's event is only what may be nobody's. */
static bool makes_sense(const struct life_event *e)
{
    return e->kind == LIFE_BEGIN || e->kind == LIFE_OOPS || e->kind == LIFE_PANIC ||
           e->kind == LIFE_MARK || e->who != LIVES_NONE;
}

static int get_events(struct cursor *c, struct lives *l, const struct life_time *upto,
                      struct err *err)
{
    struct life_time last = {0, 0};
    bool began = false;
    u64 n = get_number(c, EVENTS_MAX);
    for (u64 i = 0; i < n && !c->bad; i++) {
        u8 first = get_byte(c);
        struct life_event e = {.kind = first & ~BEFORE, .at = {NEVER, 0}};
        if (e.kind >= LIFE_KINDS || (first & BEFORE && (began || e.kind != LIFE_BEGIN))) {
            c->bad = true;
            break;
        }
        if (!(first & BEFORE)) {
            began = true;
            get_time(c, &last, upto);
            e.at = last;
        }
        get_fields(c, l, &e);
        if (!makes_sense(&e))
            c->bad = true;
        if (!c->bad && lives_add(l, &e, err))
            return err->code;
    }
    return 0;
}

int lives_unpack(struct lives_head *h, struct lives *l, const void *data, size_t size,
                 struct err *err)
{
    struct cursor c = {.in = data, .end = size};
    struct sha256 sum;
    size_t len;
    lives_init(l);
    *h = (struct lives_head){.end = LIVES_GOES_ON};
    if (size < strlen(HEAD) + SHA256_SIZE || memcmp(data, HEAD, strlen(HEAD)))
        return err_set(err, -EINVAL, "it is not a list of processes of this version");
    c.end -= SHA256_SIZE;
    sum = sha256_bytes(data, c.end);
    if (memcmp(&sum, (const u8 *)data + c.end, sizeof(sum)))
        return err_set(err, -EINVAL, "it is damaged");
    cursor_get(&c, strlen(HEAD));
    const u8 *key = cursor_get(&c, sizeof(h->key));
    if (key)
        memcpy(&h->key, key, sizeof(h->key));
    h->upto.position = get_number(&c, TIME_END);
    h->upto.time = get_number(&c, TIME_END);
    u64 flags = get_number(&c, FLAGS);
    h->pass = flags & FLAG_PASS;
    h->end = (enum lives_end)get_number(&c, LIVES_ENDINGS - 1);
    const char *lacks = get_text(&c, sizeof(l->lacks) - 1, &len);
    if (lacks)
        memcpy(l->lacks, lacks, len);
    int code = get_events(&c, l, &h->upto, err);
    l->cut = flags & FLAG_CUT;
    if (!code && (c.bad || c.at != c.end))
        code = err_set(err, -EINVAL, "it makes no sense");
    if (code)
        lives_free(l);
    return code;
}
