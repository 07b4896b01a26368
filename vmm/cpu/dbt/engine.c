/* The engine interface (cpu/engine.h) for dbt: creation, state in and out, requests. */
#include "dbt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int engine_dbt_create(struct engine **out, const struct engine_config *config, struct err *err)
{
    const char *lacks = cpu_model_host_lacks(config->model);
    if (lacks)
        return err_set(err, -ENOTSUP, "this host's CPU lacks %s, which CPU model %s needs", lacks,
                       cpu_model_name(config->model));
    struct engine *d = mmap(NULL, sizeof(*d), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (d == MAP_FAILED)
        return err_set(err, -ENOMEM, "out of memory");
    d->memfd = -1;
    d->model = config->model;
    d->ram = config->ram;
    d->env = config->env;
    struct cpuid_live live = {0};
    struct cpuid_result r;
    cpu_model_cpuid(d->model, 0x80000008, 0, &live, &r);
    d->phys_mask = (1ull << (r.eax & 0xff)) - 1;
    d->shadow_pos = NEVER;
    vcpu_reset(&d->cpu);
    int ret = host_init(d, err);
    if (ret == 0)
        ret = cache_init(d, err);
    if (ret) {
        engine_destroy(d);
        return ret;
    }
    fpu_init_image(d);
    engine_changed(d);
    *out = d;
    return 0;
}

void engine_destroy(struct engine *d)
{
    if (!d)
        return;
    cache_fini(d);
    host_fini(d);
    munmap(d, sizeof(*d));
}

struct vcpu *engine_vcpu(struct engine *d)
{
    return &d->cpu;
}

void engine_sync(struct engine *d)
{
    dbt_park(d);
    u64 live = flags_live_at(d, d->cpu.rip);
    d->cpu.position = position(d);
    d->cpu.rflags = (d->cpu.rflags & ~(u64)FL_ARITH) | (d->flags & live & FL_ARITH);
    d->cpu.shadow = d->shadow_pos == position(d) ? (d->mov_ss ? 2 : 1) : 0;
}

void engine_changed(struct engine *d)
{
    struct vcpu *c = &d->cpu;
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

pos_t engine_position(const struct engine *d)
{
    return position(d);
}

void engine_attention(struct engine *d)
{
    d->attention = true;
}

void engine_kick(struct engine *d)
{
    d->kicked = 1;
}

void engine_want_window(struct engine *d, bool interrupt, bool nmi)
{
    d->want_int = interrupt;
    d->want_nmi = nmi;
}

void engine_set_trace(struct engine *d, void (*fn)(void *opaque), void *opaque)
{
    d->trace = fn;
    d->trace_opaque = opaque;
    mmu_mode_changed(d);
}

void engine_stats(const struct engine *d, struct machine_stats *out)
{
    *out = d->st;
}
