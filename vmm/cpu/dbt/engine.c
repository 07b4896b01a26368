/* dbt as a core's translator (cpu/x86/core.h): creation, and what debug points change. */
#include "paranoid.h"

#include "cache.h"
#include "tr.h"
#include "translate.h"
#include "code_log.h"
#include "host.h"
#include "run.h"
#include "spaces.h"

#include <errno.h>
#include <sys/mman.h>

#include "cpu/features.h"
#include "cpu/x86/canon.h"
#include "cpu/x86/run.h"

static bool has_point(const struct debug *g, const struct block *b)
{
    u32 lo = 0, hi = g->nexec;
    while (lo < hi) {
        u32 mid = (lo + hi) / 2;
        if (g->exec[mid] < block_first(b))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < g->nexec && g->exec[lo] - block_first(b) < b->size;
}

/* Blocks that run into or across an instruction at which the run now stops. */
static void points_changed(struct core *c, const struct debug *old)
{
    const struct debug *g = &c->debug;
    const struct code *code = dbt_of(c)->code;
    bool grown = false;
    for (u32 i = 0, k = 0; i < g->nexec && !grown; i++) {
        while (k < old->nexec && old->exec[k] < g->exec[i])
            k++;
        grown = k == old->nexec || old->exec[k] != g->exec[i];
    }
    for (unsigned r = 0; grown && r < code->nregions; r++)
        for (u32 i = region_first(code, r); i < region_end(code, r); i++)
            if (!code->blocks[i].dead && has_point(g, &code->blocks[i]))
                cache_invalidate_page(dbt_of(c), ram_page_index(c->ram, code->blocks[i].phys));
}

static void destroy(struct core *c)
{
    struct dbt *d = dbt_of(c);
    cache_fini(d);
    host_fini(d);
    core_fini(c);
    munmap(d, sizeof(*d));
}

static bool live_at(const struct core *c, u64 lin, u32 *live)
{
    const struct dbt *d = (const struct dbt *)(const void *)c;
    u32 bi = jc_find(d, lin);
    if (bi)
        *live = d->code->blocks[bi].live;
    return bi;
}

static const struct translator translator = {.destroy = destroy,
                                             .page_changed = cache_page_changed,
                                             .forget = jc_drop,
                                             .leave = spaces_leave,
                                             .forget_left = spaces_forget,
                                             .flush = cache_flush,
                                             .log_code = code_log_set,
                                             .points_changed = points_changed,
                                             .native = dbt_native,
                                             .live_at = live_at,
                                             .run_insns = dbt_run_insns};

int core_create(struct core **out, const struct engine_config *config, struct err *err)
{
    const char *lacks =
        cpu_host_lacks(config->words ? config->words : cpu_model_words(config->model));
    if (lacks && !config->partly)
        return err_set(err, -ENOTSUP, "this host's CPU lacks %s, which CPU model %s needs", lacks,
                       cpu_model_name(config->model));
    if (config->revision >= 4 && config->unit <= UNIT_INSN) {
        int differs = canon_host_check(err);
        if (differs)
            return differs;
    }
    struct dbt *d = mmap(NULL, sizeof(*d), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (d == MAP_FAILED)
        return err_set(err, -ENOMEM, "out of memory");
    d->c.translator = &translator;
    int ret = core_init(&d->c, config, err);
    if (ret == 0)
        ret = host_init(d, err);
    if (ret == 0)
        ret = cache_init(d, config->code_cache, config->paranoid.on, err);
    if (ret) {
        destroy(&d->c);
        return ret;
    }
    d->self = d;
    approx_slots_fill(d);
    if (d->code->users == 1)
        translate_common(d);
    cache_begin(d);
    core_changed(&d->c.base);
    *out = &d->c;
    return 0;
}

int engine_dbt_create(struct engine **out, const struct engine_config *config, struct err *err)
{
    struct core *c;
    int r = core_create(&c, config, err);
    if (!r && config->paranoid.on && (r = paranoid_create(dbt_of(c), &config->paranoid, err)))
        c->base.ops->destroy(&c->base);
    if (r)
        return r;
    c->may_aside = !config->paranoid.on;
    *out = &c->base;
    return 0;
}
