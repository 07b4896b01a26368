/*
 * One entry into the guest as the engine counts it (counter.h): start() says how many branches
 * there may be, stop() how many there were.
 */
#ifndef REPRISE_CPU_KVM_PMU_WINDOW_H
#define REPRISE_CPU_KVM_PMU_WINDOW_H

#include "cpu/kvm/pmu_event.h"
#include "cpu/kvm/pmu_host.h"

struct pmu_window {
    const struct pmu_host_ops *ops; /* count, arm and core are used */
    void *host;
    const struct pmu_event *event;
    unsigned core;
    u64 at, limit; /* since start() */
    u64 armed;     /* when it overflows */
    bool free;     /* start() said COUNTER_FREE */
};

void pmu_window_init(struct pmu_window *w, const struct pmu_host_ops *ops, void *host,
                     const struct pmu_event *event);
/* COUNTER_FREE or COUNTER_STEP (counter.h); or <0. */
int pmu_window_start(struct pmu_window *w, u64 events, struct err *err);
/* -EOVERFLOW: more than start() allowed, or all of it while running freely; the text has the skid.
 * -ENODATA, -EXDEV: the counter was somebody else's, or on another kind of core. */
int pmu_window_stop(struct pmu_window *w, u64 *events, struct err *err);

#endif
