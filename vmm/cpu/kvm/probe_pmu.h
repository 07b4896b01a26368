/* The start-up test of the counter `pmu` on this host, in a throw-away machine. */
#ifndef REPRISE_CPU_KVM_PROBE_PMU_H
#define REPRISE_CPU_KVM_PROBE_PMU_H

#include "cpu/kvm/pmu_check.h"
#include "cpu/kvm/probe_vm.h"

/* A machine, this CPU's event counting it, and what must stay zero. */
struct pmu_bench {
    struct probe_vm vm;
    struct pmu_cpu cpu;
    const struct pmu_event *event;
    struct pmu_perf zero; /* fd -1 where there is none */
};

/* -ENOTSUP: no event is known for this CPU. Pins the thread on a hybrid one. */
int pmu_bench_open(struct pmu_bench *b, struct err *err);
void pmu_bench_close(struct pmu_bench *b);

int pmu_bench_check(struct pmu_bench *b, unsigned ring, struct pmu_check *out, struct err *err);

#endif
