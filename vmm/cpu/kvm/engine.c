/*
 * The KVM engine, as cpu/engine.h has it. Its vCPU, page walks, debug points and bookkeeping of
 * written pages are the core's (cpu/x86): a machine is the same whichever engine runs it. What it
 * adds is who executes the instructions.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "cpu/kvm/free.h"

#include "cpu/x86/run.h"
#include "cpu/x86/tlb.h"

static void kvm_destroy(struct engine *e)
{
    struct kvm *k = kvm_of(e);
    core_destroy(e);
    free_close(k);
    kvm_close(&k->h);
    free(k->undo);
    free(k->image);
    free(k);
}

static void kvm_stats(const struct engine *e, struct machine_stats *out)
{
    const struct kvm *k = kvm_of(e);
    core_ops.stats(e, out);
    out->kvm_steps = k->steps;
    out->kvm_exits = k->exits;
    out->kvm_refused = k->refused;
    out->kvm_entries = k->free ? k->free->entries : 0;
}

static void steps_changed(struct engine *e)
{
    kvm_undo_listen(kvm_of(e));
    core_ops.changed(e);
}

/* What it translates is no code of the guest's. */
static int no_code_log(struct engine *e, const struct engine_code_log *log)
{
    (void)e;
    (void)log;
    return -ENOTSUP;
}

/* Guest-physical memory as board/ram.h maps it. */
static int add_ram(struct kvm *k, const struct ram *ram, struct err *err)
{
    const struct kvm_slot parts[] = {
        {0, ROM_BASE, NULL, false},
        {ROM_BASE, ROM_END - ROM_BASE, NULL, true},
        {ROM_END, ram->low_size - ROM_END, NULL, false},
        {0x100000000ull, ram->size - ram->low_size, NULL, false},
    };
    for (u32 i = 0; i < ARRAY_SIZE(parts); i++) {
        struct kvm_slot *s = &k->slot[k->nslots];
        if (!parts[i].size)
            continue;
        *s = parts[i];
        s->host = ram_ptr(ram, s->gpa, s->size);
        int r = kvm_add_memory(&k->h, k->nslots, s->gpa, s->size, s->host,
                               s->readonly ? KVM_MEM_READONLY : 0, err);
        if (r)
            return r;
        k->nslots++;
    }
    return 0;
}

static int prove_rings(struct kvm *k, struct err *err)
{
    int r = kvm_prove_step(k->stop, &k->keeps, err);
    for (unsigned cpl = 0; cpl < ARRAY_SIZE(k->stop) && !r; cpl++)
        if (k->stop[cpl] != KVM_STOP_NONE)
            return 0;
    if (r)
        return r;
    return err_set(err, -ENOTSUP,
                   "KVM's single step stops in no ring of this host, so the counter `step` cannot "
                   "count (--engine=dbt needs no KVM)");
}

static int start(struct kvm *k, const struct engine_config *config, struct err *err)
{
    int r = kvm_open(&k->h, err);
    if (!r)
        r = add_ram(k, config->ram, err);
    if (!r)
        r = kvm_create_vcpu(&k->h, k->free, err);
    if (!r)
        r = kvm_set_cpuid(&k->h, config->model, k->core, err);
    if (!r)
        r = k->free ? free_open(k, config->guest_tsc, err) : prove_rings(k, err);
    return r;
}

int engine_kvm_create(struct engine **out, const struct engine_config *config, core_maker *make,
                      struct err *err)
{
    if (cpu_words_have(config->words ? config->words : cpu_model_words(config->model),
                       FEAT_AVX512F))
        return err_set(err, -ENOTSUP,
                       "AVX-512's registers are not taken out of KVM: --engine=dbt executes it, or "
                       "--cpu without it");
    struct kvm *k = calloc(1, sizeof(*k));
    if (k)
        k->image = calloc(1, sizeof(*k->image));
    if (k && config->unit == UNIT_BRANCH)
        k->free = calloc(1, sizeof(*k->free));
    if (!k || !k->image || (config->unit == UNIT_BRANCH && !k->free)) {
        if (k)
            free(k->image);
        free(k);
        return err_set(err, -ENOMEM, "out of memory");
    }
    k->h = (struct kvm_vm){-1, -1, -1, NULL, 0};
    int r = make(&k->core, config, err);
    if (!r)
        r = k->free ? 0 : kvm_undo_create(k, err);
    if (!r)
        r = start(k, config, err);
    if (r) {
        if (k->core)
            core_destroy(&k->core->base);
        free_close(k);
        kvm_close(&k->h);
        free(k->undo);
        free(k->image);
        free(k);
        return r;
    }
    k->ops = core_ops;
    k->ops.destroy = kvm_destroy;
    k->ops.stats = kvm_stats;
    k->ops.set_code_log = no_code_log;
    k->core->base.ops = &k->ops;
    k->ops.run = kvm_run_steps;
    k->ops.changed = steps_changed;
    if (k->free)
        free_engine_ops(&k->ops);
    k->core->stepper = k->free ? NULL : kvm_step;
    k->core->stepper_opaque = k;
    mmu_mode_changed(k->core);
    *out = &k->core->base;
    return 0;
}

int engine_kvm_exact(struct err *err)
{
    struct kvm k = {.h = {-1, -1, -1, NULL, 0}, .free = calloc(1, sizeof(*k.free))};
    if (!k.free)
        return err_set(err, -ENOMEM, "out of memory");
    int r = kvm_open(&k.h, err);
    if (!r)
        r = kvm_create_vcpu(&k.h, true, err);
    if (!r)
        r = free_open(&k, false, err);
    free_close(&k);
    kvm_close(&k.h);
    return r;
}
