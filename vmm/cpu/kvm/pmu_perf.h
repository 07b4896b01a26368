/*
 * One hardware event of one thread, counted while its vCPU is in the guest (perf_event_open(2)):
 * exclude_host, both rings, pinned to a counter of its own. The kernel counts in 64 bits.
 */
#ifndef REPRISE_CPU_KVM_PMU_PERF_H
#define REPRISE_CPU_KVM_PMU_PERF_H

#include <sys/types.h>

#include "base/err.h"
#include "cpu/kvm/pmu_event.h"

struct pmu_perf {
    int fd; /* -1: none */
};

/*
 * `config` is the event (PERF_TYPE_RAW) on cores of the kind cpu->core; `thread` 0 is the caller.
 * `signal` is sent to the process at each overflow, for its only thread that does not block it: the
 * one that runs the vCPU, while it does; 0: none. The text of an error says what to
 * change: -EACCES (perf_event_paranoid), -ENOENT (no such counter here), -ENOSYS (no perf, or
 * forbidden).
 */
int pmu_perf_open(struct pmu_perf *p, const struct pmu_cpu *cpu, u64 config, pid_t thread,
                  int signal, struct err *err);
void pmu_perf_close(struct pmu_perf *p);

/* -ENODATA: it has not counted all the time: the counter was somebody else's for a while. */
int pmu_perf_count(const struct pmu_perf *p, u64 *count, struct err *err);
/* An overflow after that many more; 0: none. */
int pmu_perf_arm(const struct pmu_perf *p, u64 events, struct err *err);

/*
 * On a hybrid CPU: confines the thread (0: the caller) to the cores of the kind that `cpu` names.
 * -EXDEV: it may run on none of them.
 */
int pmu_pin(const struct pmu_cpu *cpu, pid_t thread, struct err *err);

#endif
