/*
 * A TSC that stands still while the guest runs: it ticks once a millisecond (the slowest scale that
 * KVM has), its value is set at each entry, and the guest is stopped before the next tick. So a
 * guest reads what was set, however often it looks. What is set is virtual time and changes only at
 * positions; the stop in front of a tick is none: the next slice begins with the same value.
 *
 * The offset is in whole ticks, so ticks come at host times of their own. They are found by
 * watching one, and every slice is checked by what counts: whether the TSC moved. Needs
 * KVM_CAP_TSC_CONTROL and KVM_VCPU_TSC_OFFSET.
 */
#ifndef REPRISE_CPU_KVM_PMU_TSC_H
#define REPRISE_CPU_KVM_PMU_TSC_H

#include "cpu/kvm/pmu_host.h"

#define PMU_TSC_KHZ     1u
#define PMU_TSC_TICK_NS 1000000u
/* The guest is stopped that long before a tick: a signal takes 10 to 50 us to stop it. */
#define PMU_TSC_GUARD_NS 60000u
/* A slice shorter than that is not begun: the next tick is waited for. */
#define PMU_TSC_LEAST_NS 100000u

struct pmu_tsc {
    const struct pmu_host_ops *ops;
    void *host;
    u64 value;  /* what the guest reads */
    u64 offset; /* what is added to the host's ticks */
    u64 edge;   /* host time of a tick, seen; at most `slack` too late */
    u64 slack;  /* between the two reads around it */
    u64 asleep; /* at the entry */
    u64 slices, over, waited_ns;
};

/* Watches for a tick. -ETIME: it does not tick as it should (no scaling). */
int pmu_tsc_init(struct pmu_tsc *t, const struct pmu_host_ops *ops, void *host, struct err *err);
/* At a position: what the guest reads from here on. */
void pmu_tsc_set(struct pmu_tsc *t, u64 value);
/* Before a run: waits for the next tick if it is near, sets the offset; *until: host time at which
 * the guest has to be stopped. */
int pmu_tsc_enter(struct pmu_tsc *t, u64 *until, struct err *err);
/* After it. -ETIME: the slice ran over a tick, so the guest may have read another value: back to a
 * checkpoint, or the recording ends here. The text says by how much, and whether the host slept. */
int pmu_tsc_left(struct pmu_tsc *t, struct err *err);

#endif
