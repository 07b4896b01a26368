/*
 * The progress counter `pmu`: retired conditional branches of the guest, counted by the CPU, and
 * stops at exact positions. An overflow is asked for so early that the CPU, which goes on for some
 * branches (the skid), cannot pass the target; from there a breakpoint at the target's RIP and
 * single steps find the one instant with the target's count, RIP, RCX, RSP and registers.
 *
 * What is not exact is an error, never a stop somewhere else: too much skid (with its size), an
 * overflow that did not come, a counter that was taken away, another kind of core. The vCPU is then
 * beyond its last position, and only a checkpoint brings it back.
 */
#ifndef REPRISE_CPU_KVM_PMU_H
#define REPRISE_CPU_KVM_PMU_H

#include "cpu/kvm/pmu_event.h"
#include "cpu/kvm/pmu_host.h"
#include "cpu/kvm/pmu_tsc.h"

enum pmu_where {
    PMU_ANYWHERE, /* soon behind `branches` */
    PMU_FIRST,    /* directly behind the branch that makes the count `branches` */
    PMU_EXACT,    /* at `place`, and with `hash` */
};

struct pmu_target {
    enum pmu_where where;
    u64 branches;
    struct pmu_place place;
    u64 hash;
};

enum pmu_result {
    PMU_AT = 1, /* the target is reached */
    PMU_EXIT,   /* the vCPU left the guest for the engine, which finishes it and calls again */
    PMU_KICKED, /* pmu_kick() */
};

struct pmu_stats {
    u64 runs, steps, breakpoints; /* entries into the guest; single steps and breakpoints of them */
    u64 overflows;
    u64 early; /* signals before the overflow */
    u64 skid;  /* the largest seen, in branches */
};

struct pmu {
    const struct pmu_host_ops *ops;
    void *host;
    const struct pmu_event *event;
    struct pmu_tsc *tsc; /* NULL: nothing keeps the TSC still */
    unsigned core;
    bool kicked; /* atomic */
    bool debug;  /* stepping or a breakpoint is set */
    u64 count;   /* as last read */
    struct pmu_stats stats;
};

/* `tsc` may be NULL; event, host and tsc stay the caller's. */
int pmu_init(struct pmu *p, const struct pmu_host_ops *ops, void *host,
             const struct pmu_event *event, struct pmu_tsc *tsc, struct err *err);

/*
 * Runs until the target (NULL: until something else ends it). A target lies at or behind where the
 * vCPU is. enum pmu_result, or:
 * -EOVERFLOW  the CPU ran beyond the target; the text has the size
 * -ESRCH      the guest passed the target's count and never was at its place: it is another run
 * -ENODATA    the counter did not count all the time
 * -EXDEV      the thread ran on another kind of core
 * -ETIME      a slice ran over a tick of the TSC (pmu_tsc.h)
 */
int pmu_run(struct pmu *p, const struct pmu_target *target, struct err *err);

/* From a signal handler or another thread: pmu_run() returns PMU_KICKED soon. The caller also sees
 * to it that the run of the vCPU ends. */
void pmu_kick(struct pmu *p);

/* Where the vCPU is: an exact target for another run of the same. */
int pmu_position(struct pmu *p, struct pmu_target *out, struct err *err);

#endif
