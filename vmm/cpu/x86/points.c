/* Debug points and traces as they are set (cpu/engine.h). */
#include "cpu/x86/points.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/x86/debug.h"
#include "cpu/x86/park.h"
#include "cpu/x86/tlb.h"

void core_debug_free(struct debug *g)
{
    free(g->exec);
    free(g->exec_point);
    free(g->watch);
}

static int by_address(const void *a, const void *b)
{
    const struct debug_point *x = *(const struct debug_point *const *)a,
                             *y = *(const struct debug_point *const *)b;
    return x->address < y->address ? -1 : x->address > y->address;
}

static int debug_build(struct debug *g, const struct debug_point *points, unsigned n)
{
    const struct debug_point **order = calloc(n + 1, sizeof(*order));
    g->exec = calloc(n + 1, sizeof(*g->exec));
    g->exec_point = calloc(n + 1, sizeof(*g->exec_point));
    g->watch = calloc(n + 1, sizeof(*g->watch));
    if (!order || !g->exec || !g->exec_point || !g->watch) {
        free(order);
        return -ENOMEM;
    }
    for (unsigned i = 0; i < n; i++)
        order[i] = &points[i];
    qsort(order, n, sizeof(*order), by_address);
    for (unsigned i = 0; i < n; i++) {
        const struct debug_point *p = order[i];
        u32 point = (u32)(p - points);
        if (p->kind == DEBUG_EXEC) {
            g->exec_point[g->nexec] = point;
            g->exec[g->nexec++] = p->address;
            debug_bloom_add(g, p->address);
        } else if (p->kind == DEBUG_TO_USER) {
            g->to_user = point + 1;
        } else if (p->kind == DEBUG_FROM_USER) {
            g->from_user = point + 1;
        } else if (p->kind == DEBUG_MARK) {
            g->mark = point + 1;
        } else if (p->kind <= DEBUG_ACCESS && p->length) {
            u64 last = p->address + (p->length - 1);
            g->watch[g->nwatch++] = (struct watch){p->address, last < p->address ? ~0ull : last,
                                                   point, (u8)p->kind, p->physical};
        }
    }
    free(order);
    return 0;
}

int core_debug_set(struct engine *e, const struct debug_point *points, unsigned n)
{
    struct core *d = core_of(e);
    struct debug old = d->debug, new_ = {.pass = old.pass};
    int r = debug_build(&new_, points, n);
    if (r) {
        core_debug_free(&new_);
        new_ = (struct debug){.pass = old.pass};
    }
    d->debug = new_;
    core_park(d);
    if (old.nwatch || new_.nwatch)
        mmu_flush_all(d);
    d->translator->points_changed(d, &old);
    core_debug_free(&old);
    d->watching = d->dr_active || d->debug.nwatch;
    mmu_crossing_changed(d);
    return r;
}

bool core_debug_hit(struct engine *e, struct debug_hit *out)
{
    struct core *d = core_of(e);
    if (LIKELY(!d->debug.hit))
        return false;
    *out = d->debug.at;
    d->debug.hit = false;
    return true;
}

void core_debug_pass(struct engine *e, bool pass)
{
    struct core *d = core_of(e);
    d->debug.pass = pass ? position(d) : NEVER;
}

int core_set_trace(struct engine *e, const struct engine_trace *trace)
{
    struct core *d = core_of(e);
    struct engine_range *only = NULL;
    bool ranges = d->trace.n || (trace && trace->n);
    int r = 0;
    if (trace && trace->n) {
        only = calloc(trace->n, sizeof(*only));
        if (only)
            memcpy(only, trace->only, trace->n * sizeof(*only));
        else
            r = -ENOMEM;
    }
    free((void *)d->trace.only);
    d->trace = trace && !r ? *trace : (struct engine_trace){0};
    d->trace.only = only;
    d->accesses.n = d->accesses.lost = 0;
    core_park(d);
    if (ranges)
        d->translator->flush(d); /* blocks run across no instruction that is traced */
    mmu_mode_changed(d);
    return r;
}

const struct engine_accesses *core_accesses(const struct engine *e)
{
    return &core_of_const(e)->accesses;
}
