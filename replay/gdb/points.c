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
static bool parse_conditions(const char *text, struct gdb_condition **list)
{
    struct gdb_condition **end = list;
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
    return !*text;
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
    if (!add) {
        take_out(s, &p);
        return;
    }
    if (!parse_conditions(text, &conditions)) {
        gdb_conditions_free(conditions);
        reply_error(&s->reply, "malformed condition");
        return;
    }
    p.conditions = conditions;
    insert(s, &p);
}

void points_clear(struct gdb_server *s)
{
    struct err err;
    if (s->npoints && s->target.set_points)
        s->target.set_points(s->target.opaque, NULL, 0, &err);
    for (size_t i = 0; i < s->npoints; i++)
        free_conditions(s->points[i].conditions);
    free(s->points);
    s->points = NULL;
    s->npoints = 0;
}
