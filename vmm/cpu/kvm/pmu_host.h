/*
 * What the progress counter `pmu` stands on: a performance counter, a vCPU that runs, and the
 * host's clock. pmu_kvm.h is the real one; tests have one that misbehaves on purpose.
 */
#ifndef REPRISE_CPU_KVM_PMU_HOST_H
#define REPRISE_CPU_KVM_PMU_HOST_H

#include "base/err.h"

/* How a run of the vCPU ended. */
enum pmu_stop {
    PMU_STOP_SIGNAL = 1, /* an overflow or the timer's kick, or a signal of somebody else */
    PMU_STOP_DEBUG,      /* the breakpoint, or after a single step */
    PMU_STOP_EXIT,       /* anything else: it is the engine's, and not finished */
};

/* If nothing was heard of the guest for that long, the count is looked at: overflows may be lost,
 * or the guest waits. */
#define PMU_WATCH_NS 20000000u
/* ... while another vCPU waits for its turn. */
#define PMU_WATCH_TURN_NS 2000000u

#define PMU_NO_PERIOD  0
#define PMU_PERIOD_MAX (1ull << 40) /* counters have 48 bits, the kernel wants one to spare */

struct pmu_host_ops {
    /* Branches that the guest has retired since the counter was opened. -ENODATA: the counter did
     * not count all the time. */
    int (*count)(void *host, u64 *branches, struct err *err);
    /* An overflow after that many branches more, once; PMU_NO_PERIOD: none. */
    int (*arm)(void *host, u64 branches, struct err *err);
    /* The next runs stop after one instruction (`step`), or before the one at *breakpoint. */
    int (*debug)(void *host, bool step, const u64 *breakpoint, struct err *err);
    /* enum pmu_stop, or an error. */
    int (*run)(void *host, struct err *err);
    /* Sends the signal at that host time, also before a run has begun; NEVER: no more. */
    void (*kick_at)(void *host, u64 ns);
    u64 (*now)(void *host);
    /* Host time that the machine has been asleep (suspended) since it was booted. */
    u64 (*asleep)(void *host);
    /* The kind of core (PMU_CORE_*) that the thread is on. */
    unsigned (*core)(void *host);
    /* The guest's TSC as it would read now, and its offset (pmu_tsc.h). */
    int (*tsc)(void *host, u64 *value, struct err *err);
    int (*tsc_offset)(void *host, u64 offset, struct err *err);
};

#endif
