/*
 * Hits of debug points that their owner's condition leaves out. Forwards it is decided where the
 * machine would stop. A search backwards meets an access once it is done and would stop in front of
 * it, where memory is as it was: the hits of a piece are noted first, then the piece is run once
 * more, with a stop in front of each.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "replay/timeline_internal.h"

void skip_forget(struct timeline *t)
{
    if (t->npoints)
        memset(t->skipped, 0, t->npoints * sizeof(*t->skipped));
    t->open.n = 0;
}

void skip_note(struct timeline *t, const struct debug_hit *hit, struct instant at)
{
    if (hit->point < t->npoints)
        t->skipped[hit->point] = (struct timeline_skip){true, at, hit->address};
}

bool timeline_skipped(const struct timeline *t, unsigned point, struct instant *at, u64 *address)
{
    if (point >= t->npoints || !t->skipped[point].any)
        return false;
    *at = t->skipped[point].at;
    *address = t->skipped[point].address;
    return true;
}

int skip_open(struct timeline *t, const struct debug_hit *hit, struct err *err)
{
    if (t->open.n == t->open.room) {
        size_t room = t->open.room ? 2 * t->open.room : 1024;
        struct debug_hit *bigger = realloc(t->open.list, room * sizeof(*bigger));
        if (!bigger)
            return err_set(err, -ENOMEM, "no memory for the hits of a watchpoint");
        t->open.list = bigger;
        t->open.room = room;
    }
    t->open.list[t->open.n++] = *hit;
    return 0;
}

/* Runs to in front of each of them from the i-th on. */
static int visit_all(struct timeline *t, size_t i, struct debug_hit *last, bool *found, bool *cut,
                     struct err *err)
{
    enum timeline_stop stop = TIMELINE_REACHED;
    int code = 0;
    for (; !code && !*cut && i < t->open.n; i++) {
        const struct debug_hit *h = &t->open.list[i];
        code = run_to(t, (struct instant){h->position, 0}, &stop, err);
        *cut = stop == TIMELINE_INTERRUPTED || move_interrupted(t);
        if (code || stop != TIMELINE_REACHED)
            break;
        if (t->config.holds(t->config.opaque, h->point, TIMELINE_THERE) == TIMELINE_COUNTS) {
            *last = *h;
            *found = true;
        }
    }
    return code;
}

int skip_decide(struct timeline *t, struct instant start, struct debug_hit *last, bool *found,
                bool *cut, struct err *err)
{
    size_t first = 0;
    *cut = false;
    while (*found && first < t->open.n && t->open.list[first].position <= last->position)
        first++;
    if (first == t->open.n)
        return 0;
    int code = return_to(t, start, err);
    t->direct = true;
    if (!code)
        code = visit_all(t, first, last, found, cut, err);
    t->direct = false;
    for (size_t i = t->open.n; !code && !*cut && i-- > first;) { /* the nearest to it stays */
        const struct debug_hit *h = &t->open.list[i];
        if (*found && h->position <= last->position)
            break;
        skip_note(t, h, (struct instant){h->position, 0});
    }
    return code;
}
