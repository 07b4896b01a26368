/*
 * Breakpoints and watchpoints: packets Z and z. gdb inserts all of them before a run and removes
 * them after it, and may insert one again with other conditions.
 */
#include <stdlib.h>
#include <string.h>

#include "replay/gdb/agent.h"
#include "replay/gdb/server.h"

#define MAX_POINTS 4096

/* "XLEN,BYTES" one after the other, ';' before or between; stops at what it does not know. */
static bool parse_conditions(const char **at, struct gdb_condition **list)
{
    struct gdb_condition **end = list;
    const char *text = *at;
    while (parse_char(&text, ';') || *text == 'X') {
        u64 len;
        if (!parse_char(&text, 'X'))
            continue;
        if (!parse_hex(&text, &len) || !parse_char(&text, ',') || len > strlen(text) / 2)
            return false;
        struct gdb_condition *c = malloc(sizeof(*c) + len);
        if (!c)
            return false;
        c->next = NULL;
        c->len = len;
        *end = c;
        end = &c->next;
        if (!parse_bytes(text, c->code, len))
            return false;
        text += 2 * len;
    }
    *at = text;
    return true;
}

static bool copy_conditions(const struct gdb_condition *from, const struct gdb_condition **to)
{
    struct gdb_condition *list = NULL, **end = &list;
    for (; from; from = from->next) {
        *end = malloc(sizeof(**end) + from->len);
        if (!*end) {
            gdb_conditions_free(list);
            return false;
        }
        (*end)->next = NULL;
        (*end)->len = from->len;
        memcpy((*end)->code, from->code, from->len);
        end = &(*end)->next;
    }
    *to = list;
    return true;
}

static bool parse_point(const char **text, struct gdb_point *p)
{
    u64 kind;
    if (!parse_hex(text, &kind) || kind > GDB_WATCH_ACCESS || !parse_char(text, ',') ||
        !parse_hex(text, &p->address) || !parse_char(text, ',') || !parse_hex(text, &p->length))
        return false;
    p->kind = (enum gdb_point_kind)kind;
    return true;
}

static bool is_watch(const struct gdb_point *p)
{
    return p->kind >= GDB_WATCH_WRITE;
}

/* The point like `p`; one made in the other memory mode only if there is no better. */
static struct gdb_point *find(struct gdb_point *list, size_t count, const struct gdb_point *p,
                              bool any_mode)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].kind == p->kind && list[i].address == p->address &&
            list[i].length == p->length && list[i].physical == p->physical)
            return &list[i];
    if (!any_mode)
        return NULL;
    struct gdb_point other = *p;
    other.physical = !p->physical;
    return find(list, count, &other, false);
}

static void free_conditions(const struct gdb_condition *list)
{
    gdb_conditions_free((struct gdb_condition *)(uintptr_t)list);
}

/* Makes `list` the points in force, or refuses; it is then freed. */
static bool replace(struct gdb_server *s, struct gdb_point *list, size_t count)
{
    struct err err = {0};
    if (s->target.set_points && s->target.set_points(s->target.opaque, list, count, &err) < 0) {
        free(list);
        reply_error(&s->reply, err.text);
        return false;
    }
    free(s->points);
    s->points = list;
    s->npoints = count;
    reply_text(&s->reply, "OK");
    return true;
}

static void insert(struct gdb_server *s, const struct gdb_point *p)
{
    struct gdb_point *list = malloc((s->npoints + 1) * sizeof(*list));
    size_t count = s->npoints;
    const struct gdb_condition *old = NULL;
    if (!list || count >= MAX_POINTS) {
        free(list);
        free_conditions(p->conditions);
        reply_error(&s->reply, "too many breakpoints");
        return;
    }
    if (count)
        memcpy(list, s->points, count * sizeof(*list));
    struct gdb_point *same = find(list, count, p, false);
    if (same)
        old = same->conditions;
    else
        same = &list[count++];
    *same = *p;
    free_conditions(replace(s, list, count) ? old : p->conditions);
}

static void take_out(struct gdb_server *s, const struct gdb_point *p)
{
    struct gdb_point *there = find(s->points, s->npoints, p, true);
    if (!there) {
        reply_text(&s->reply, "OK");
        return;
    }
    struct gdb_point *list = malloc(s->npoints * sizeof(*list));
    if (!list) {
        reply_error(&s->reply, "out of memory");
        return;
    }
    size_t at = (size_t)(there - s->points), after = s->npoints - at - 1;
    const struct gdb_condition *old = there->conditions;
    memcpy(list, s->points, at * sizeof(*list));
    memcpy(list + at, there + 1, after * sizeof(*list));
    if (replace(s, list, s->npoints - 1))
        free_conditions(old);
}

void points_change(struct gdb_server *s, const char *text, bool add)
{
    struct gdb_point p = {0};
    struct gdb_condition *conditions = NULL;
    if (*text > '4' && *text <= '9') /* kinds of a protocol newer than this */
        return;
    if (!parse_point(&text, &p)) {
        reply_text(&s->reply, "E01");
        return;
    }
    p.physical = is_watch(&p) && s->physical;
    if (is_watch(&p) && (!p.length || p.address + (p.length - 1) < p.address)) {
        reply_error(&s->reply, "a watchpoint of that length does not exist");
        return;
    }
    if (!add && threads_of_other(s)) {
        reply_text(&s->reply, "OK");
        return;
    }
    if (!add) {
        take_out(s, &p);
        return;
    }
    if (!parse_conditions(&text, &conditions) || *text) {
        gdb_conditions_free(conditions);
        reply_error(&s->reply, "malformed condition");
        return;
    }
    p.conditions = conditions;
    const struct gdb_point *bound = conditions ? NULL : find(s->bound, s->nbound, &p, false);
    if (bound)
        copy_conditions(bound->conditions, &p.conditions);
    insert(s, &p);
}

static void unbind(struct gdb_server *s)
{
    for (size_t i = 0; i < s->nbound; i++)
        free_conditions(s->bound[i].conditions);
    free(s->bound);
    s->bound = NULL;
    s->nbound = 0;
}

/* One more at the end of the list; false: malformed, or there is no memory. */
static bool bind_one(struct gdb_server *s, const char **text)
{
    struct gdb_point p = {0};
    struct gdb_condition *list = NULL;
    struct gdb_point *bigger = realloc(s->bound, (s->nbound + 1) * sizeof(*bigger));
    if (!bigger)
        return false;
    s->bound = bigger;
    bool good = s->nbound < MAX_POINTS && parse_point(text, &p) && is_watch(&p) &&
                parse_conditions(text, &list) && list;
    p.conditions = list;
    if (good)
        s->bound[s->nbound++] = p;
    else
        gdb_conditions_free(list);
    return good;
}

void points_bind(struct gdb_server *s, const char *text)
{
    unbind(s);
    while (*text)
        if (!bind_one(s, &text) || (*text && !parse_char(&text, '/'))) {
            unbind(s);
            reply_error(&s->reply, "malformed condition");
            return;
        }
    reply_text(&s->reply, "OK");
}

/* One part of the instructions. */
static bool parse_insns(const char **text, u64 *at, struct gdb_code *code)
{
    u64 group, digit;
    if (parse_char(text, '-'))
        return parse_char(text, ',') && parse_hex(text, &digit) && (*at += digit, true);
    if (!parse_hex(text, &group) || group > UINT32_MAX || !parse_char(text, ','))
        return false;
    for (; **text && **text != ';' && **text != '/'; (*text)++) {
        const char one[2] = {**text, 0}, *end = one;
        if (!parse_hex(&end, &digit) || !digit)
            return false;
        code->insns[code->ninsns++] = (struct gdb_insn){*at, (u32)group};
        *at += digit;
    }
    return true;
}

static bool parse_entry(const char **text, u64 base, struct gdb_code *code)
{
    u64 group, offset;
    if (!parse_hex(text, &group) || group > UINT32_MAX || !parse_char(text, ',') ||
        !parse_hex(text, &offset))
        return false;
    code->entries[code->nentries++] = (struct gdb_insn){base + offset, (u32)group};
    return true;
}

/* Both lists have room for as many as there are characters. */
static bool parse_code(const char *text, struct gdb_code *code)
{
    u64 base;
    bool good = parse_hex(&text, &base);
    u64 at = base;
    while (good && parse_char(&text, ';'))
        good = parse_insns(&text, &at, code);
    if (good && parse_char(&text, '/') && *text)
        do
            good = parse_entry(&text, base, code);
        while (good && parse_char(&text, ';'));
    for (size_t i = 1; good && i < code->ninsns; i++)
        good = code->insns[i].address > code->insns[i - 1].address;
    return good && !*text;
}

static void set_back(struct gdb_server *s, struct gdb_code *code)
{
    if (s->target.back)
        s->target.back(s->target.opaque, code);
    free(s->back.insns);
    free(s->back.entries);
    s->back = *code;
}

void points_back(struct gdb_server *s, const char *text)
{
    struct gdb_code code = {0}, none = {0};
    if (*text) {
        code.insns = calloc(strlen(text), sizeof(*code.insns));
        code.entries = calloc(strlen(text), sizeof(*code.entries));
    }
    if (*text && (!code.insns || !code.entries || !parse_code(text, &code))) {
        free(code.insns);
        free(code.entries);
        set_back(s, &none);
        reply_error(&s->reply, "malformed list of instructions");
        return;
    }
    set_back(s, &code);
    reply_text(&s->reply, "OK");
}

void points_clear(struct gdb_server *s)
{
    struct err err;
    struct gdb_code none = {0};
    set_back(s, &none);
    if (s->npoints && s->target.set_points)
        s->target.set_points(s->target.opaque, NULL, 0, &err);
    for (size_t i = 0; i < s->npoints; i++)
        free_conditions(s->points[i].conditions);
    free(s->points);
    s->points = NULL;
    s->npoints = 0;
    unbind(s);
}
