/* See watch.h. */
#include "cmd/watch.h"

#include <errno.h>
#include <stdlib.h>

static bool is_data(const struct gdb_point *p)
{
    return p->kind >= GDB_WATCH_WRITE;
}

static bool is_same(const struct gdb_point *a, const struct gdb_point *b)
{
    return a->kind == b->kind && a->address == b->address && a->length == b->length &&
           a->physical == b->physical;
}

/* They share bytes, as far as can be told: gdb looks at both where one is hit. */
static bool overlap(const struct gdb_point *a, const struct gdb_point *b)
{
    const struct gdb_point *low = a->address < b->address ? a : b, *high = low == a ? b : a;
    return a->physical != b->physical || high->address - low->address < low->length;
}

void watch_begin(struct watch *w, bool on)
{
    w->on = on;
}

bool watch_decides(const struct watch *w, const struct gdb_point *points, size_t n, size_t i)
{
    if (!w->on || !is_data(&points[i]) || !points[i].conditions)
        return false;
    for (size_t k = 0; k < n; k++)
        if (k != i && is_data(&points[k]) && overlap(&points[i], &points[k]))
            return false;
    return true;
}

static struct watch_missed *find(struct watch *w, const struct gdb_point *point)
{
    for (size_t i = 0; i < w->n; i++)
        if (is_same(&w->list[i].point, point))
            return &w->list[i];
    return NULL;
}

bool watch_take(struct watch *w, const struct gdb_point *point, u64 *address)
{
    struct watch_missed *m = find(w, point);
    if (!m)
        return false;
    *address = m->address;
    *m = w->list[--w->n];
    return true;
}

int watch_miss(struct watch *w, const struct gdb_point *point, u64 address, struct err *err)
{
    struct watch_missed *m = find(w, point);
    if (!m && w->n == w->room) {
        size_t room = w->room ? 2 * w->room : 8;
        struct watch_missed *bigger = realloc(w->list, room * sizeof(*bigger));
        if (!bigger)
            return err_set(err, -ENOMEM, "no memory for watchpoints");
        w->list = bigger;
        w->room = room;
    }
    if (!m)
        m = &w->list[w->n++];
    *m = (struct watch_missed){*point, address};
    m->point.conditions = NULL;
    return 0;
}

void watch_seen(struct watch *w)
{
    w->n = 0;
}

void watch_free(struct watch *w)
{
    free(w->list);
    *w = (struct watch){0};
}
