/* KVM_RUN: what it takes from struct kvm_run, the way in and out, signals, events. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "imitation.h"

enum { GO_ON, LEAVE };

static bool signal_pending(const struct im_vcpu *v, const sigset_t *before)
{
    sigset_t pending;
    u64 waits, closed;
    sigpending(&pending);
    memcpy(&waits, &pending, sizeof(waits));
    memcpy(&closed, v->masked ? (const void *)&v->mask : before, sizeof(closed));
    return waits & ~closed;
}

static int leave(struct im_vcpu *v, u32 reason)
{
    v->run->exit_reason = reason;
    return LEAVE;
}

static int internal_error(struct im_vcpu *v, u32 suberror)
{
    v->run->internal.suberror = suberror;
    v->run->internal.ndata = suberror == KVM_INTERNAL_ERROR_EMULATION ? 0 : 2;
    v->run->internal.data[0] = 0x8000030e;
    v->run->internal.data[1] = 0xabcd;
    return leave(v, KVM_EXIT_INTERNAL_ERROR);
}

static int debug_exit(struct im_vcpu *v, u64 dr6)
{
    memset(&v->run->debug, 0, sizeof(v->run->debug));
    v->run->debug.arch.exception = EXC_DB;
    v->run->debug.arch.pc = v->hw->cpu.rip;
    v->run->debug.arch.dr6 = dr6 | 0xffff0ff0;
    v->run->debug.arch.dr7 = v->debugreg[7];
    return leave(v, KVM_EXIT_DEBUG);
}

/* The register of the nth point that set_points() (state.c) made. */
static unsigned register_of(const struct im_vcpu *v, unsigned nth)
{
    unsigned i = 0;
    for (; i < 3; i++)
        if ((v->debugreg[7] >> 2 * i & 3) && !nth--)
            break;
    return i;
}

/* After the hardware: has it anything for the program? The order is KVM's: a single step is lost
 * where there is something else. */
static int look(struct im_vcpu *v)
{
    struct debug_hit hit;
    if (v->mid)
        return LEAVE;
    bool debugged = v->debugged, halted = v->halted, tpr = v->set_tpr;
    v->debugged = v->halted = v->set_tpr = false;
    v->hw->cpu.halted = 0;
    if (im_hw_write_exit(v))
        return LEAVE;
    if (tpr)
        return leave(v, KVM_EXIT_SET_TPR);
    if (halted)
        return leave(v, KVM_EXIT_HLT);
    if (debugged)
        return debug_exit(v, v->dr6);
    switch (v->result) {
    case ENGINE_SHUTDOWN: return leave(v, KVM_EXIT_SHUTDOWN);
    case ENGINE_DEBUG:
        return core_ops.debug_hit(&v->hw->base, &hit)
                   ? debug_exit(v, 1ull << register_of(v, hit.point))
                   : GO_ON;
    case ENGINE_UNSUPPORTED:
    case ENGINE_FAILED: return internal_error(v, KVM_INTERNAL_ERROR_EMULATION);
    default: return GO_ON;
    }
}

static int fail_entry(struct im_vcpu *v)
{
    v->run->fail_entry.hardware_entry_failure_reason = 0x80000021; /* invalid guest state */
    v->run->fail_entry.cpu = 0;
    return leave(v, KVM_EXIT_FAIL_ENTRY);
}

static int delivered(struct im_vcpu *v, int r)
{
    v->result = r == ENGINE_SHUTDOWN ? ENGINE_SHUTDOWN : r ? ENGINE_UNSUPPORTED : ENGINE_STOP;
    return look(v);
}

/* What waits to be delivered at the entry. */
static int inject(struct im_vcpu *v)
{
    struct core *d = v->hw;
    struct im_event *e = &v->exception;
    if (e->injected || e->pending) {
        d->fault = (struct fault){
            .vector = e->vector, .has_error = e->has_error, .error = e->error, .cr2 = d->cpu.cr2};
        e->injected = e->pending = false;
        int r = deliver_fault(d);
        return delivered(v, r == DONE            ? 0
                            : r == STOP_SHUTDOWN ? (int)ENGINE_SHUTDOWN
                                                 : (int)ENGINE_UNSUPPORTED);
    }
    if (v->irq) {
        if (!core_can_interrupt(&d->base))
            return fail_entry(v);
        v->irq = false;
        return delivered(v, core_interrupt(&d->base, v->irq_vector));
    }
    if (v->nmi && core_can_nmi(&d->base)) {
        v->nmi = false;
        return delivered(v, core_nmi(&d->base));
    }
    return GO_ON;
}

static bool window_open(const struct im_vcpu *v)
{
    return core_can_interrupt(&v->hw->base) && !v->irq && !v->exception.injected &&
           !v->exception.pending;
}

/* What is pending is looked at so often: positions of translated code, and cycles of other. */
#define LOOK_EVERY  20000u
#define LOOK_CYCLES 30000u

/* A conditional branch: Jcc, LOOPcc, JRCXZ. */
static bool branch_ahead(struct im_vcpu *v)
{
    static const u8 prefixes[] = {0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf2, 0xf3};
    u64 rip = v->hw->cpu.rip;
    u8 byte;
    do {
        if (!core_peek(&v->hw->base, rip++, &byte, 1))
            return false;
    } while (memchr(prefixes, byte, sizeof(prefixes)) || byte >> 4 == 4 /* REX */);
    if (byte != 0x0f)
        return byte >> 4 == 7 || (byte >= 0xe0 && byte <= 0xe3);
    return core_peek(&v->hw->base, rip, &byte, 1) && byte >> 4 == 8;
}

/* An instruction is one branch at most: so many instructions cannot go too far. */
static void some(struct im_vcpu *v)
{
    bool one;
    u64 room = im_perf_room(&one), before = v->hw->branches;
    if (one && branch_ahead(v)) {
        im_perf_before_branch();
        v->result = ENGINE_STOP;
        return;
    }
    core_ops.want_window(&v->hw->base, v->run->request_interrupt_window, v->nmi);
    v->insns = one ? 1 : MIN(room, LOOK_EVERY);
    v->until = im_cycles() + LOOK_CYCLES;
    im_hw_go(v);
    im_perf_count(v->hw->branches - before, one);
    im_clock_tick();
}

static int enter(struct im_vcpu *v, const sigset_t *before)
{
    const struct im_options *o = im_options();
    if (v->mid) {
        u64 branches = v->hw->branches;
        im_hw_go(v);
        im_perf_count(v->hw->branches - branches, true);
        if (look(v) == LEAVE)
            return 0;
    } else if (im_hw_write_exit(v)) {
        return 0;
    }
    if (v->run->immediate_exit)
        return -EINTR;
    if (v->run->cr8 >> 4)
        return -EINVAL;
    v->cr8 = v->run->cr8;
    /* Whoever wrote to memory or to page tables since the last time. A TLB may be empty. */
    mmu_flush_all(v->hw);
    core_debug_pass(&v->hw->base, v->hw->cpu.rflags & FL_RF);
    if (im_happens(o->tick))
        im_sleep_over_tick();
    if (im_happens(o->suspend))
        im_suspend();
    for (;;) {
        if (signal_pending(v, before)) {
            v->run->exit_reason = KVM_EXIT_INTR;
            return -EINTR;
        }
        if (inject(v) == LEAVE)
            return 0;
        if (v->run->request_interrupt_window && window_open(v))
            return leave(v, KVM_EXIT_IRQ_WINDOW_OPEN) - LEAVE;
        if (im_happens(o->unknown))
            return internal_error(v, KVM_INTERNAL_ERROR_EMULATION) - LEAVE;
        if (im_happens(o->internal))
            return internal_error(v, KVM_INTERNAL_ERROR_DELIVERY_EV) - LEAVE;
        some(v);
        if (look(v) == LEAVE)
            return 0;
    }
}

static int take_dirty(struct im_vcpu *v)
{
    struct kvm_run *run = v->run;
    const u64 all = KVM_SYNC_X86_VALID_FIELDS;
    if ((run->kvm_valid_regs | run->kvm_dirty_regs) & ~all)
        return -EINVAL;
    u64 dirty = run->kvm_dirty_regs;
    if (dirty && v->mid) {
        im_refuse(EBUSY, "kvm_dirty_regs while an instruction waits for its answer");
        return -EBUSY;
    }
    if ((dirty & KVM_SYNC_X86_SREGS) && im_set_sregs(v, &run->s.regs.sregs))
        return -EINVAL;
    if (dirty & KVM_SYNC_X86_REGS)
        im_set_regs(v, &run->s.regs.regs);
    if ((dirty & KVM_SYNC_X86_EVENTS) && im_set_events(v, &run->s.regs.events))
        return -EINVAL;
    run->kvm_dirty_regs = 0;
    return 0;
}

static void save(struct im_vcpu *v)
{
    struct kvm_run *run = v->run;
    im_sync(v);
    run->if_flag = !!(v->hw->cpu.rflags & FL_IF);
    run->ready_for_interrupt_injection = !v->mid && window_open(v);
    run->cr8 = v->cr8;
    run->apic_base = v->apic_base;
    run->flags = 0;
    if (run->kvm_valid_regs & KVM_SYNC_X86_REGS)
        im_get_regs(v, &run->s.regs.regs);
    if (run->kvm_valid_regs & KVM_SYNC_X86_SREGS)
        im_get_sregs(v, &run->s.regs.sregs);
    if (run->kvm_valid_regs & KVM_SYNC_X86_EVENTS)
        im_get_events(v, &run->s.regs.events);
}

/* Signals wait until it is over: nobody's handler runs in the middle, and those that KVM would let
 * in are seen as pending. */
int im_run(struct im_vcpu *v)
{
    static const int synchronous[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    sigset_t closed, before;
    sigfillset(&closed);
    for (size_t i = 0; i < ARRAY_SIZE(synchronous); i++)
        sigdelset(&closed, synchronous[i]);
    pthread_sigmask(SIG_SETMASK, &closed, &before);
    u64 began = im_clock_enter();
    im_options_for(v);
    im_perf_enter();
    im_hw_enter(v);
    int r = take_dirty(v);
    if (!r)
        r = enter(v, &before);
    save(v);
    im_hw_left(v);
    im_perf_leave(im_clock_left() - began);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = -r;
    return r ? -1 : 0;
}
