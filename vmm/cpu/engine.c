/* The engine interface: which implementation, and its functions. The one place that knows them all.
 */
#include "cpu/engine_ops.h"

#include <errno.h>
#include <string.h>

static const char *const names[] = {[ENGINE_DBT] = "dbt", [ENGINE_KVM] = "kvm"};

const char *engine_kind_name(enum engine_kind kind)
{
    return names[kind];
}

int engine_kind_find(const char *name)
{
    for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
        if (!strcmp(names[i], name))
            return (int)i;
    return -1;
}

enum engine_kind engine_best(struct err *why)
{
    return engine_kvm_exact(why) ? ENGINE_DBT : ENGINE_KVM;
}

int engine_create(struct engine **out, const struct engine_config *config, struct err *err)
{
    return config->kind == ENGINE_KVM ? engine_kvm_create(out, config, core_create, err)
                                      : engine_dbt_create(out, config, err);
}

void engine_destroy(struct engine *e)
{
    if (e)
        e->ops->destroy(e);
}

struct vcpu *engine_vcpu(struct engine *e)
{
    return e->ops->vcpu(e);
}

void engine_sync(struct engine *e)
{
    e->ops->sync(e);
}

void engine_changed(struct engine *e)
{
    e->ops->changed(e);
}

bool engine_lost(const struct engine *e, struct err *err)
{
    return e->ops->lost && e->ops->lost(e, err);
}

pos_t engine_count(const struct engine *e)
{
    return e->ops->count(e);
}

pos_t engine_branches(const struct engine *e)
{
    return e->ops->branches(e);
}

void engine_set_branches(struct engine *e, pos_t branches)
{
    e->ops->set_branches(e, branches);
}

enum engine_exit engine_run(struct engine *e, u64 budget, struct err *err)
{
    pos_t now = engine_count(e);
    return e->ops->run(e, budget > NEVER - now ? NEVER : now + budget, err);
}

void engine_place(struct engine *e, struct engine_place *out)
{
    e->ops->place(e, out);
}

int engine_settle(struct engine *e, const struct engine_place *to, struct err *err)
{
    return e->ops->settle(e, to, err);
}

void engine_count_event(struct engine *e)
{
    e->ops->count_event(e);
}

void engine_attention(struct engine *e)
{
    e->ops->attention(e);
}

void engine_kick(struct engine *e)
{
    e->ops->kick(e);
}

bool engine_can_interrupt(const struct engine *e)
{
    return e->ops->can_interrupt(e);
}

bool engine_can_nmi(const struct engine *e)
{
    return e->ops->can_nmi(e);
}

void engine_want_window(struct engine *e, bool interrupt, bool nmi)
{
    e->ops->want_window(e, interrupt, nmi);
}

int engine_interrupt(struct engine *e, u8 vector)
{
    return e->ops->interrupt(e, vector);
}

int engine_nmi(struct engine *e)
{
    return e->ops->nmi(e);
}

void engine_ram_written(struct engine *e, gpa_t gpa, u64 len)
{
    e->ops->ram_written(e, gpa, len);
}

int engine_set_trace(struct engine *e, const struct engine_trace *trace)
{
    return e->ops->set_trace(e, trace);
}

const struct engine_accesses *engine_accesses(const struct engine *e)
{
    return e->ops->accesses(e);
}

bool engine_linear_to_physical(struct engine *e, gva_t va, gpa_t *gpa)
{
    return e->ops->linear_to_physical(e, va, gpa);
}

bool engine_peek(struct engine *e, gva_t va, void *out, size_t len)
{
    return e->ops->peek(e, va, out, len);
}

int engine_debug_set(struct engine *e, const struct debug_point *points, unsigned n)
{
    return e->ops->debug_set(e, points, n);
}

bool engine_debug_hit(struct engine *e, struct debug_hit *out)
{
    return e->ops->debug_hit(e, out);
}

void engine_debug_pass(struct engine *e, bool pass)
{
    e->ops->debug_pass(e, pass);
}

const u32 *engine_written(const struct engine *e, size_t *n)
{
    return e->ops->written(e, n);
}

int engine_written_reset(struct engine *e)
{
    return e->ops->written_reset(e);
}

int engine_verify(struct engine *e, struct err *err)
{
    return e->ops->verify ? e->ops->verify(e, err) : 0;
}

void engine_stats(const struct engine *e, struct machine_stats *out)
{
    e->ops->stats(e, out);
}

int engine_set_code_log(struct engine *e, const struct engine_code_log *log)
{
    return e->ops->set_code_log ? e->ops->set_code_log(e, log) : -ENOTSUP;
}
