/*
 * The guest runs freely in KVM, counted by a progress counter (counter.h), in positions of
 * UNIT_BRANCH. The state is in KVM or in the core (cpu/x86) or in both; what the counter's margin
 * leaves of the way to a position, and what KVM cannot do, the core executes by hand.
 */
#ifndef REPRISE_KVM_FREE_H
#define REPRISE_KVM_FREE_H

#include "cpu/kvm/counter.h"
#include "cpu/kvm/kvm.h"
#include "cpu/kvm/pmu_kvm.h"
#include "cpu/kvm/pmu_tsc.h"

struct kvm_free {
    const struct counter_ops *ops;
    struct counter *counter;
    bool borrows; /* it is a sibling's: they run one at a time, and a CPU has few */
    struct pmu_kvm host;
    struct pmu_tsc tsc;
    bool still;  /* tsc is kept still by KVM; else the guest must not look at it (MSR_GUEST_TSC) */
    bool opened; /* host */
    /* Who has the present state. `general` is all but x87, SSE and AVX. */
    bool kvm_general, kvm_fpu, core_general, core_fpu;
    bool kvm_msrs;           /* KVM has those that only we change */
    u64 features_enables;    /* as KVM has it: CPUID faults */
    struct kvm_sregs sregs;  /* as KVM has them */
    struct kvm_debugregs dr; /* as well */
    struct err lost; /* why KVM did not give the state when somebody looked; code 0: it did */
    u64 kernel_gs;
    u64 cr8;      /* as KVM was last told */
    u64 windows;  /* that were none, in a row */
    u64 dirty_at; /* of what KVM has written, `written` was up to date then */
    bool logs_dirty;
    u64 *bitmap; /* of the largest slot */
    u64 entries;
    u64 idle;  /* ns without anything that counts, */
    u64 watch; /* after which it is looked at */
};

/* free_state.c: <0 with a text. The state into the core; and into KVM, whichever parts it lacks. */
int free_pull(struct kvm *k, bool fpu, struct err *err);
int free_push(struct kvm *k, struct err *err);
/* The core's general state (and its FPU) has changed: KVM's is out of date. */
void free_changed(struct kvm *k, bool fpu);

/* free_exit.c: the guest may have raised CR8 without an exit, whatever it came out for. */
void free_take_cr8(struct kvm *k);
/* What KVM came out for. 0: go on; else why the run ends. */
int free_exit(struct kvm *k);

/* free.c */
/* `guest_tsc`: the guest's TSC need not stand still (struct engine_config). k->core NULL: to see
 * whether it can be. */
int free_open(struct kvm *k, bool guest_tsc, struct err *err);
void free_close(struct kvm *k);
/* Replaces in k->ops what differs from the core's. */
void free_engine_ops(struct engine_ops *ops);
#endif
