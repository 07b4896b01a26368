/* What a guest that runs freely comes out for (free.h): answered, completed, or dumped whole. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "cpu/kvm/free.h"

#include "base/phase.h"
#include "cpu/x86/msr.h"
#include "cpu/x86/park.h"
#include "cpu/x86/run.h"

#define MSR_EFER 0xc0000080u

#define WINDOWS_MAX 1000u

static int dump(struct kvm *k, const char *what)
{
    kvm_dump(k, what, &k->core->err);
    return ENGINE_FAILED;
}

/* Through the counter's last part, or what KVM cannot do. */
static int free_by_core(struct kvm *k, u64 n)
{
    struct core *d = k->core;
    if (free_pull(k, true, &d->err))
        return ENGINE_FAILED;
    free_changed(k, true);
    return (int)core_run_insns(d, n, &d->err);
}

/* KVM is to deliver an exception: the core does it, by executing the instruction. */
static int again_by_core(struct kvm *k)
{
    struct core *d = k->core;
    if (kvm_clear_events(k, &d->err))
        return ENGINE_FAILED;
    int r = free_by_core(k, 1);
    return r == ENGINE_STOP ? d->attention ? ENGINE_ATTENTION : 0 : r;
}

/* EFER.LMA follows CR0.PG, which the guest sets without coming out. */
static int know_efer(struct kvm *k)
{
    struct kvm_sregs s;
    if (k->h.run->msr.index != MSR_EFER)
        return 0;
    if (ioctl(k->h.vcpu, KVM_GET_SREGS, &s))
        return err_errno(&k->core->err, "/dev/kvm: KVM_GET_SREGS");
    k->core->cpu.cr0 = s.cr0;
    k->core->cpu.efer = s.efer;
    return 0;
}

static int read_msr(struct kvm *k)
{
    struct core *d = k->core;
    struct kvm_run *run = k->h.run;
    u64 v = 0;
    if (know_efer(k))
        return -1;
    run->msr.error = !msr_read(d, run->msr.index, &v);
    run->msr.data = v;
    return KVM_AGAIN;
}

static int write_msr(struct kvm *k)
{
    struct core *d = k->core;
    struct kvm_run *run = k->h.run;
    if (know_efer(k))
        return -1;
    run->msr.error = !msr_write(d, run->msr.index, run->msr.data);
    k->free->kvm_msrs = false;
    return KVM_AGAIN;
}

/* KVM's exits in the middle of an instruction. <0, KVM_AGAIN: answered, or 0: it is none. */
static int answer(struct kvm *k)
{
    struct core *d = k->core;
    switch (k->h.run->exit_reason) {
    case KVM_EXIT_IO: kvm_port_access(k); return KVM_AGAIN;
    case KVM_EXIT_MMIO: return kvm_memory_access(k, &d->err);
    case KVM_EXIT_X86_RDMSR: return read_msr(k);
    case KVM_EXIT_X86_WRMSR: return write_msr(k);
    default: return 0;
    }
}

/* Has KVM take the answer, and whatever follows in the same instruction; nothing after it. */
static int complete(struct kvm *k)
{
    struct core *d = k->core;
    struct kvm_run *run = k->h.run;
    for (;;) {
        run->immediate_exit = 1;
        enum phase before = phase_enter(PHASE_KVM);
        int r = ioctl(k->h.vcpu, KVM_RUN, 0);
        phase_leave(before);
        run->immediate_exit = 0;
        k->exits++;
        if (r < 0 && (errno == EINTR || errno == EAGAIN))
            return 0;
        if (r < 0) {
            err_errno(&d->err, "/dev/kvm: KVM_RUN");
            return ENGINE_FAILED;
        }
        r = answer(k);
        if (r < 0)
            return ENGINE_FAILED;
        if (r == 0) {
            free_take_cr8(k);
            return free_exit(k);
        }
    }
}

static int in_the_middle(struct kvm *k)
{
    struct core *d = k->core;
    struct kvm_run *run = k->h.run;
    bool write = run->exit_reason == KVM_EXIT_X86_WRMSR;
    bool msr = write || run->exit_reason == KVM_EXIT_X86_RDMSR;
    u32 index = msr ? run->msr.index : 0;
    if (answer(k) < 0)
        return ENGINE_FAILED;
    bool refused = msr && run->msr.error;
    u64 efer = d->cpu.efer;
    int r = complete(k);
    if (r)
        return r;
    if (refused)
        return again_by_core(k);
    if (write && index == MSR_EFER) {
        /* The one that is among the general registers. */
        if (free_pull(k, false, &d->err))
            return ENGINE_FAILED;
        d->cpu.efer = efer;
        free_changed(k, false);
    }
    return d->attention ? ENGINE_ATTENTION : 0;
}

static int halt(struct kvm *k)
{
    struct core *d = k->core;
    if (free_pull(k, false, &d->err))
        return ENGINE_FAILED;
    d->cpu.halted = 1;
    d->shadow_pos = NEVER;
    free_changed(k, false);
    count_events(d, 1);
    return ENGINE_HALT;
}

/* An instruction that KVM's own emulator does not know, before it did anything. */
static int emulate(struct kvm *k)
{
    struct core *d = k->core;
    if (k->h.run->internal.suberror != KVM_INTERNAL_ERROR_EMULATION)
        return dump(k, "an internal error of KVM");
    k->refused++;
    int r = free_by_core(k, 1);
    return r == ENGINE_STOP ? d->attention ? ENGINE_ATTENTION : 0 : r;
}

void free_take_cr8(struct kvm *k)
{
    struct core *d = k->core;
    if (k->h.run->cr8 == k->free->cr8)
        return;
    k->free->cr8 = k->h.run->cr8;
    d->env->set_cr8(d->env->cpu, k->h.run->cr8);
}

int free_exit(struct kvm *k)
{
    struct core *d = k->core;
    struct kvm_run *run = k->h.run;
    u32 reason = run->exit_reason;
    k->free->windows = reason == KVM_EXIT_IRQ_WINDOW_OPEN ? k->free->windows + 1 : 0;
    switch (reason) {
    case KVM_EXIT_IO:
    case KVM_EXIT_MMIO:
    case KVM_EXIT_X86_RDMSR:
    case KVM_EXIT_X86_WRMSR: return in_the_middle(k);
    case KVM_EXIT_SET_TPR: count_events(d, 1); return d->attention ? ENGINE_ATTENTION : 0;
    case KVM_EXIT_HLT: return halt(k);
    case KVM_EXIT_IRQ_WINDOW_OPEN:
        if (k->free->windows < WINDOWS_MAX)
            return 0; /* whether it is one is looked at in any case */
        return dump(k, "KVM says again and again that interrupts can be delivered");
    case KVM_EXIT_SHUTDOWN:
        core_shut_down(d);
        k->free->core_general = k->free->core_fpu = true;
        free_changed(k, true);
        return ENGINE_SHUTDOWN;
    case KVM_EXIT_INTERNAL_ERROR: return emulate(k);
    case KVM_EXIT_FAIL_ENTRY: return dump(k, "the CPU does not take the guest's state");
    default: return dump(k, "KVM came out for a reason that has no answer");
    }
}
