/* The engine interface (cpu/engine.h) for dbt: creation, state in and out, requests. */
#include "dbt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int dbt_create(struct dbt **out, const struct engine_config *config, struct err *err)
{
    const char *lacks = cpu_model_host_lacks(config->model);
    if (lacks)
        return err_set(err, -ENOTSUP, "this host's CPU lacks %s, which CPU model %s needs", lacks,
                       cpu_model_name(config->model));
    struct dbt *d = mmap(NULL, sizeof(*d), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (d == MAP_FAILED)
        return err_set(err, -ENOMEM, "out of memory");
    d->base.ops = &dbt_ops;
    d->memfd = -1;
    d->model = config->model;
    d->ram = config->ram;
    d->env = config->env;
    d->by_branch = config->unit == UNIT_BRANCH;
    d->counts = d->by_branch || config->branches;
    struct cpuid_live live = {0};
    struct cpuid_result r;
    cpu_model_cpuid(d->model, 0x80000008, 0, &live, &r);
    d->phys_mask = (1ull << (r.eax & 0xff)) - 1;
    d->shadow_pos = NEVER;
    d->debug.pass = NEVER;
    vcpu_reset(&d->cpu);
    int ret = host_init(d, err);
    if (ret == 0)
        ret = cache_init(d, err);
    if (ret) {
        dbt_destroy(&d->base);
        return ret;
    }
    fpu_init_image(d);
    dbt_changed(&d->base);
    *out = d;
    return 0;
}

static void debug_free(struct debug *g)
{
    free(g->exec);
    free(g->exec_point);
    free(g->watch);
}

void dbt_destroy(struct engine *e)
{
    struct dbt *d = dbt_of(e);
    if (!d)
        return;
    debug_free(&d->debug);
    if (d->written)
        munmap(d->written, d->npages * sizeof(*d->written));
    cache_fini(d);
    host_fini(d);
    munmap(d, sizeof(*d));
}

static struct vcpu *dbt_vcpu(struct engine *e)
{
    struct dbt *d = dbt_of(e);
    return &d->cpu;
}

/* What CPUs do not have, or each in its own way, and no guest can see. */
static void leave_out(struct vcpu *c)
{
    c->rep_resume = 0; /* only debuggers look at it */
    for (unsigned s = 0; s < SEG_COUNT; s++)
        if (!(c->seg_attr[s] & ATTR_P)) {
            c->seg_attr[s] = 0;
            c->seg_limit[s] = 0;
            c->seg_base[s] = s == SEG_FS || s == SEG_GS ? c->seg_base[s] : 0;
        }
}

void dbt_sync(struct engine *e)
{
    struct dbt *d = dbt_of(e);
    dbt_park(d);
    u64 live = flags_live_at(d, d->cpu.rip);
    d->cpu.position = unit_position(d);
    if (d->counts)
        leave_out(&d->cpu);
    d->cpu.rflags = (d->cpu.rflags & ~(u64)FL_ARITH) | (d->flags & live & FL_ARITH);
    d->cpu.shadow = d->shadow_pos == position(d) ? (d->mov_ss ? 2 : 1) : 0;
}

void dbt_changed(struct engine *e)
{
    struct dbt *d = dbt_of(e);
    struct vcpu *c = &d->cpu;
    if (d->by_branch)
        d->base_pos = c->position - d->branches - d->events;
    d->target_pos = c->position;
    d->budget = 0;
    d->flags = c->rflags & FL_ARITH;
    d->cpl = c->seg_attr[SEG_SS] ? ATTR_DPL(c->seg_attr[SEG_SS]) : c->seg_sel[SEG_CS] & 3;
    d->shadow_pos = c->shadow ? c->position : NEVER;
    d->mov_ss = c->shadow == 2;
    d->parked = true;
    d->fop = (u16)(c->xsave[6] | (c->xsave[7] & 7) << 8);
    memcpy(&d->fip, c->xsave + 8, 8);
    memcpy(&d->fdp, c->xsave + 16, 8);
    mmu_flush_all(d);
    mmu_mode_changed(d);
}

void dbt_shut_down(struct dbt *d)
{
    vcpu_reset(&d->cpu);
    d->cpu.position = unit_position(d);
    dbt_changed(&d->base);
}

static pos_t dbt_position(const struct engine *e)
{
    const struct dbt *d = dbt_of_const(e);
    return unit_position(d);
}

static pos_t dbt_branches(const struct engine *e)
{
    return branch_position(dbt_of_const(e));
}

static void dbt_set_branches(struct engine *e, pos_t branches)
{
    struct dbt *d = dbt_of(e);
    d->base_pos = branches - d->branches - d->events;
}

static void dbt_count_event(struct engine *e)
{
    count_events(dbt_of(e), 1);
}

static void dbt_attention(struct engine *e)
{
    struct dbt *d = dbt_of(e);
    d->attention = true;
}

static void dbt_kick(struct engine *e)
{
    struct dbt *d = dbt_of(e);
    d->kicked = 1;
}

static void dbt_want_window(struct engine *e, bool interrupt, bool nmi)
{
    struct dbt *d = dbt_of(e);
    d->want_int = interrupt;
    d->want_nmi = nmi;
}

static void dbt_set_trace(struct engine *e, void (*fn)(void *opaque), void *opaque)
{
    struct dbt *d = dbt_of(e);
    d->trace = fn;
    d->trace_opaque = opaque;
    mmu_mode_changed(d);
}

static bool dbt_linear_to_physical(struct engine *e, gva_t va, gpa_t *gpa)
{
    struct dbt *d = dbt_of(e);
    return mmu_peek(d, va, gpa);
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
        } else if (p->length) {
            u64 last = p->address + (p->length - 1);
            g->watch[g->nwatch++] = (struct watch){p->address, last < p->address ? ~0ull : last,
                                                   point, (u8)p->kind, p->physical};
        }
    }
    free(order);
    return 0;
}

/* Blocks that run into or across an instruction at which the run now stops. */
static void drop_blocks(struct dbt *d, const struct debug *old)
{
    const struct debug *g = &d->debug;
    bool grown = false;
    for (u32 i = 0, k = 0; i < g->nexec && !grown; i++) {
        while (k < old->nexec && old->exec[k] < g->exec[i])
            k++;
        grown = k == old->nexec || old->exec[k] != g->exec[i];
    }
    for (u32 i = 1; grown && i < d->nblocks; i++) {
        const struct block *b = &d->blocks[i];
        u32 lo = 0, hi = g->nexec;
        while (lo < hi) {
            u32 mid = (lo + hi) / 2;
            if (g->exec[mid] < b->lin)
                lo = mid + 1;
            else
                hi = mid;
        }
        if (!b->dead && lo < g->nexec && g->exec[lo] - b->lin < b->size)
            cache_invalidate_page(d, &d->pages[ram_page_index(d->ram, b->phys)]);
    }
}

static int dbt_debug_set(struct engine *e, const struct debug_point *points, unsigned n)
{
    struct dbt *d = dbt_of(e);
    struct debug old = d->debug, new_ = {.pass = old.pass};
    int r = debug_build(&new_, points, n);
    if (r) {
        debug_free(&new_);
        new_ = (struct debug){.pass = old.pass};
    }
    d->debug = new_;
    dbt_park(d);
    if (old.nwatch || new_.nwatch)
        mmu_flush_all(d);
    drop_blocks(d, &old);
    debug_free(&old);
    d->watching = d->dr_active || d->debug.nwatch;
    return r;
}

static bool dbt_debug_hit(struct engine *e, struct debug_hit *out)
{
    struct dbt *d = dbt_of(e);
    bool hit = d->debug.hit;
    *out = d->debug.at;
    d->debug.hit = false;
    return hit;
}

void dbt_debug_pass(struct engine *e, bool pass)
{
    struct dbt *d = dbt_of(e);
    d->debug.pass = pass ? position(d) : NEVER;
}

static const u32 *dbt_written(const struct engine *e, size_t *n)
{
    const struct dbt *d = dbt_of_const(e);
    *n = d->nwritten;
    return d->written;
}

static int dbt_written_reset(struct engine *e)
{
    struct dbt *d = dbt_of(e);
    if (!d->written) {
        void *p = mmap(NULL, d->npages * sizeof(*d->written), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
            return -ENOMEM;
        d->written = p;
        for (u64 i = 0; i < d->npages; i++)
            d->pages[i].flags |= PG_CLEAN;
    } else {
        for (u64 i = 0; i < d->nwritten; i++)
            d->pages[d->written[i]].flags |= PG_CLEAN;
    }
    d->nwritten = 0;
    mmu_revoke_all_writes(d);
    return 0;
}

static void dbt_stats(const struct engine *e, struct machine_stats *out)
{
    const struct dbt *d = dbt_of_const(e);
    *out = d->st;
}

const struct engine_ops dbt_ops = {
    .destroy = dbt_destroy,
    .vcpu = dbt_vcpu,
    .sync = dbt_sync,
    .changed = dbt_changed,
    .position = dbt_position,
    .branches = dbt_branches,
    .set_branches = dbt_set_branches,
    .run = dbt_run,
    .place = dbt_place,
    .settle = dbt_settle,
    .count_event = dbt_count_event,
    .attention = dbt_attention,
    .kick = dbt_kick,
    .can_interrupt = dbt_can_interrupt,
    .can_nmi = dbt_can_nmi,
    .want_window = dbt_want_window,
    .interrupt = dbt_interrupt,
    .nmi = dbt_nmi,
    .ram_written = dbt_ram_written,
    .set_trace = dbt_set_trace,
    .linear_to_physical = dbt_linear_to_physical,
    .peek = dbt_peek,
    .debug_set = dbt_debug_set,
    .debug_hit = dbt_debug_hit,
    .debug_pass = dbt_debug_pass,
    .written = dbt_written,
    .written_reset = dbt_written_reset,
    .stats = dbt_stats,
};

int engine_dbt_create(struct engine **out, const struct engine_config *config, struct err *err)
{
    struct dbt *d;
    int r = dbt_create(&d, config, err);
    if (!r)
        *out = &d->base;
    return r;
}
