/*
 * The run loop of a guest that runs freely in KVM (free.h), and its engine functions. A run goes
 * up to the counter's margin before the position; from there the core executes by hand: exact, and
 * without a trap flag that a guest could see. It also runs whatever somebody watches.
 */
#include "cpu/kvm/free.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "cpu/x86/except.h"
#include "cpu/x86/run.h"
#include "cpu/x86/tlb.h"

/* Where positions count branches, a signal that nobody else uses. */
#define SIGNAL (SIGRTMIN + 7)

/* ---- running ---- */

/* The last part of the way, or all of it where somebody looks at each step. */
static int by_core(struct kvm *k, pos_t stop_at)
{
    struct core *d = k->core;
    if (free_pull(k, true, &d->err))
        return ENGINE_FAILED;
    free_changed(k, true);
    return (int)core_run(&d->base, stop_at, &d->err);
}

static u64 watch(const struct kvm *k)
{
    return core_waited_for(k->core) ? MIN(k->free->watch, PMU_WATCH_TURN_NS) : k->free->watch;
}

/* How the run ended: enum pmu_stop, or <0. */
static int enter(struct kvm *k, struct err *err)
{
    struct kvm_free *f = k->free;
    struct core *d = k->core;
    struct kvm_run *run = k->h.run;
    u64 until = pmu_kvm_ops.now(&f->host) + watch(k), tick = NEVER;
    run->request_interrupt_window = d->want_int;
    run->cr8 = f->cr8 = d->env->get_cr8(d->env->cpu);
    if (f->still) {
        pmu_tsc_set(&f->tsc, d->env->now(d->env->cpu) + d->cpu.tsc_adjust);
        int r = pmu_tsc_enter(&f->tsc, &tick, err);
        if (r)
            return r;
    }
    pmu_kvm_ops.kick_at(&f->host, MIN(until, tick));
    int stop = pmu_kvm_ops.run(&f->host, err);
    pmu_kvm_ops.kick_at(&f->host, NEVER);
    f->core_general = f->core_fpu = false;
    f->entries++;
    k->exits++;
    if (stop > 0 && f->still) {
        int r = pmu_tsc_left(&f->tsc, err);
        if (r)
            return r;
    }
    return stop;
}

static int by_kvm(struct kvm *k)
{
    struct kvm_free *f = k->free;
    struct core *d = k->core;
    u64 branches = 0, began = pmu_kvm_ops.now(&f->host);
    int stop = enter(k, &d->err);
    struct err ignored;
    int r = f->ops->stop(f->counter, &branches, stop < 0 ? &ignored : &d->err);
    if (stop < 0 || r)
        return ENGINE_FAILED;
    d->branches += branches;
    free_take_cr8(k);
    f->idle =
        branches || stop != PMU_STOP_SIGNAL ? 0 : f->idle + (pmu_kvm_ops.now(&f->host) - began);
    if (f->idle >= watch(k))
        return ENGINE_BETWEEN;
    return stop == PMU_STOP_SIGNAL ? 0 : free_exit(k);
}

static bool watched(const struct core *d)
{
    return d->debug.nexec || d->debug.nwatch || d->debug.to_user || d->debug.from_user ||
           d->debug.mark || d->trace.before || d->want_nmi;
}

/* Whether KVM may run the guest. While it does, memory changes behind the core's back. */
static bool may_run(struct kvm *k)
{
    struct core *d = k->core;
    bool may = k->free->still || d->cpu.guest_tsc;
    if (may != d->by_hand) {
        d->by_hand = may;
        translations_flush(d);
        mmu_flush_all(d);
        mmu_mode_changed(d);
    }
    return may;
}

/* 0: go on; else enum engine_exit. */
static int turn(struct kvm *k, pos_t stop_at)
{
    struct kvm_free *f = k->free;
    struct core *d = k->core;
    if (unit_position(d) >= stop_at || d->kicked)
        return ENGINE_STOP;
    if (d->want) {
        if (free_pull(k, false, &d->err))
            return ENGINE_FAILED;
        if (core_takes_wanted(d))
            return ENGINE_WINDOW;
    }
    if (!may_run(k) || watched(d))
        return by_core(k, stop_at);
    /* Before the counter begins: the state goes in by system calls, which may be slow. */
    if (free_push(k, &d->err))
        return ENGINE_FAILED;
    int r = f->ops->start(f->counter, stop_at - unit_position(d), &d->err);
    if (r == COUNTER_STEP)
        return by_core(k, stop_at);
    return r < 0 ? ENGINE_FAILED : by_kvm(k);
}

static bool free_lost(const struct engine *e, struct err *err)
{
    const struct err *lost = &kvm_of(e)->free->lost;
    if (lost->code)
        *err = *lost;
    return lost->code;
}

static enum engine_exit free_run(struct engine *e, pos_t stop_at, struct err *err)
{
    struct kvm *k = kvm_of(e);
    struct core *d = k->core;
    int r = 0;
    if (free_lost(e, err))
        return ENGINE_LOST;
    d->attention = false;
    k->free->idle = 0;
    if (pmu_kvm_follow_mask(&k->free->host, &d->err))
        r = ENGINE_FAILED;
    while (!r)
        r = turn(k, stop_at);
    d->kicked = 0;
    if (r != ENGINE_FAILED && r != ENGINE_UNSUPPORTED)
        return (enum engine_exit)r;
    *err = d->err;
    return ENGINE_LOST;
}

/* ---- the rest of the engine interface: with the state in the core ---- */

/*
 * The core with the state in it. Where KVM does not give it, a function that cannot say so goes on
 * with an old one, and free_lost() is true until another state is set: NULL.
 */
static struct core *present(const struct engine *e, bool fpu)
{
    struct kvm *k = kvm_of(e);
    struct err *lost = &k->free->lost;
    return lost->code || free_pull(k, fpu, lost) ? NULL : k->core;
}

static void free_sync(struct engine *e)
{
    if (present(e, true))
        core_ops.sync(e);
}

static void free_set(struct engine *e)
{
    struct kvm *k = kvm_of(e);
    core_changed(e);
    k->free->lost.code = 0;
    k->free->core_general = k->free->core_fpu = true;
    k->free->kvm_msrs = false;
    free_changed(k, true);
}

static void free_place(struct engine *e, struct engine_place *out)
{
    present(e, false);
    core_place(e, out);
}

static int free_reach(struct engine *e, const struct engine_place *to, struct err *err)
{
    if (!present(e, true)) {
        *err = kvm_of(e)->free->lost;
        return err->code;
    }
    free_changed(kvm_of(e), true);
    return core_reach(e, to, err);
}

static bool free_can_interrupt(const struct engine *e)
{
    return present(e, false) && core_can_interrupt(e);
}

static bool free_can_nmi(const struct engine *e)
{
    return present(e, false) && core_can_nmi(e);
}

static int free_interrupt(struct engine *e, u8 vector)
{
    if (!present(e, false))
        return 0;
    free_changed(kvm_of(e), false);
    return core_interrupt(e, vector);
}

static int free_nmi(struct engine *e)
{
    if (!present(e, false))
        return 0;
    free_changed(kvm_of(e), false);
    return core_nmi(e);
}

static bool free_linear_to_physical(struct engine *e, gva_t va, gpa_t *gpa)
{
    return present(e, false) && core_ops.linear_to_physical(e, va, gpa);
}

static bool free_peek(struct engine *e, gva_t va, void *out, size_t len)
{
    return present(e, false) && core_ops.peek(e, va, out, len);
}

/* ---- pages that were written ---- */

static u64 slot_pages(const struct kvm *k, u32 slot)
{
    return k->slot[slot].size / PAGE_SIZE;
}

/* What KVM's log has, into the core's: all pages, where KVM does not say. */
static void collect(struct kvm *k)
{
    struct kvm_free *f = k->free;
    struct core *d = k->core;
    for (u32 i = 0; i < k->nslots; i++) {
        if (k->slot[i].readonly)
            continue;
        struct kvm_dirty_log log = {.slot = i, .dirty_bitmap = f->bitmap};
        u64 pages = slot_pages(k, i), words = (pages + 63) / 64;
        if (ioctl(k->h.vm, KVM_GET_DIRTY_LOG, &log))
            memset(f->bitmap, 0xff, words * sizeof(*f->bitmap));
        u64 first = ram_page_index(d->ram, k->slot[i].gpa);
        for (u64 w = 0; w < words; w++)
            for (u64 bits = f->bitmap[w]; bits; bits &= bits - 1) {
                u64 page = 64 * w + (u64)__builtin_ctzll(bits);
                if (page < pages)
                    note_written(d, &d->shared->pages[first + page], first + page);
            }
    }
    f->dirty_at = f->entries;
}

/* Each vCPU has a KVM of its own, and what is written is the machine's. */
static const u32 *free_written(const struct engine *e, size_t *n)
{
    EACH_CPU (c, kvm_of(e)->core) {
        struct kvm *k = c->stepper_opaque;
        if (k->free->logs_dirty && k->free->dirty_at != k->free->entries)
            collect(k);
    }
    return core_ops.written(e, n);
}

static int log_anew(struct kvm *k)
{
    struct kvm_free *f = k->free;
    struct err err;
    u64 most = 0;
    for (u32 i = 0; i < k->nslots; i++)
        most = MAX(most, slot_pages(k, i));
    if (!f->bitmap && !(f->bitmap = calloc((most + 63) / 64, sizeof(u64))))
        return -ENOMEM;
    for (u32 i = 0; i < k->nslots && !f->logs_dirty; i++)
        if (kvm_log_dirty(k, i, &err))
            return err.code;
    f->logs_dirty = true;
    collect(k); /* also empties KVM's */
    return 0;
}

static int free_written_reset(struct engine *e)
{
    int r = 0;
    EACH_CPU (c, kvm_of(e)->core)
        r = r ? r : log_anew(c->stepper_opaque);
    return r ? r : core_ops.written_reset(e);
}

void free_engine_ops(struct engine_ops *ops)
{
    ops->sync = free_sync;
    ops->changed = free_set;
    ops->lost = free_lost;
    ops->run = free_run;
    ops->place = free_place;
    ops->reach = free_reach;
    ops->can_interrupt = free_can_interrupt;
    ops->can_nmi = free_can_nmi;
    ops->interrupt = free_interrupt;
    ops->nmi = free_nmi;
    ops->linear_to_physical = free_linear_to_physical;
    ops->peek = free_peek;
    ops->written = free_written;
    ops->written_reset = free_written_reset;
}

/* ---- beginning and end ---- */

/* The guest's TSC stands still (pmu_tsc.h), or it may not be looked at. */
static int hold_tsc(struct kvm *k, struct err *err)
{
    struct kvm_device_attr attr = {.group = KVM_VCPU_TSC_CTRL, .attr = KVM_VCPU_TSC_OFFSET};
    if (ioctl(k->h.vm, KVM_CHECK_EXTENSION, KVM_CAP_TSC_CONTROL) <= 0)
        return err_set(err, -ENOTSUP,
                       "this host's KVM cannot scale the guest's TSC (KVM_CAP_TSC_CONTROL), so a "
                       "guest would see one that nobody can repeat (--guest-tsc and "
                       "the module of guest-agent/tsc, or --counter=step, or --engine=dbt)");
    if (ioctl(k->h.vcpu, KVM_HAS_DEVICE_ATTR, &attr))
        return err_set(err, -ENOTSUP,
                       "this kernel's KVM cannot set the guest's TSC (KVM_VCPU_TSC_OFFSET, Linux "
                       "5.16 and later)");
    if (ioctl(k->h.vcpu, KVM_SET_TSC_KHZ, PMU_TSC_KHZ))
        return err_errno(err, "/dev/kvm: KVM_SET_TSC_KHZ");
    int r = pmu_tsc_init(&k->free->tsc, &pmu_kvm_ops, &k->free->host, err);
    k->free->still = !r;
    return r;
}

/* Those of one machine run in one thread, one at a time. */
static int open_counter(struct kvm *k, struct err *err)
{
    struct kvm_free *f = k->free;
    const struct counter_config config = {.signal = SIGNAL};
    f->ops = &counter_pmu;
    f->borrows = k->core && k->core->sibling != k->core;
    if (!f->borrows)
        return f->ops->open(&f->counter, &config, err);
    const struct kvm *other = k->core->sibling->stepper_opaque;
    f->counter = other->free->counter;
    return 0;
}

int free_open(struct kvm *k, bool guest_tsc, struct err *err)
{
    struct kvm_free *f = k->free;
    struct pmu_cpu cpu;
    const char *watch = getenv("REPRISE_TEST_WATCH"); /* ns: tests want places everywhere */
    f->watch = watch ? strtoull(watch, NULL, 10) : PMU_WATCH_NS;
    f->host.perf.fd = -1;
    int r = open_counter(k, err);
    if (r)
        return r;
    pmu_cpu_read(&cpu);
    f->opened = true; /* also when it comes half way */
    r = pmu_kvm_open(&f->host, k->h.vcpu, k->h.run, SIGNAL, &cpu, err);
    if (!r && guest_tsc)
        return 0;
    return r ? r : hold_tsc(k, err);
}

void free_close(struct kvm *k)
{
    struct kvm_free *f = k->free;
    if (!f)
        return;
    if (f->counter && !f->borrows)
        f->ops->close(f->counter);
    if (f->opened)
        pmu_kvm_close(&f->host);
    free(f->bitmap);
    free(f);
}
