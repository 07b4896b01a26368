/*
 * Which performance event counts retired conditional branches exactly, by CPU family, and how far
 * beyond an overflow the CPU may run before it stops (the skid margin). A CPU that is not listed
 * has no such event that anybody has shown to be exact: it gets no guess.
 */
#ifndef REPRISE_CPU_KVM_PMU_EVENT_H
#define REPRISE_CPU_KVM_PMU_EVENT_H

#include "base/types.h"

/* Kinds of cores of a hybrid CPU (CPUID leaf 0x1a, EAX bits 31 to 24); PMU_CORE_ANY elsewhere. */
enum { PMU_CORE_ANY = 0, PMU_CORE_ATOM = 0x20, PMU_CORE_CORE = 0x40 };

struct pmu_cpu {
    char vendor[13];
    unsigned family, model, stepping; /* display family and model: the extended fields are in it */
    bool hypervisor;                  /* we are a guest ourselves */
    bool hybrid;
    unsigned core; /* PMU_CORE_*: the kind this thread ran on */
};

struct pmu_event {
    const char *family; /* "Intel Ice Lake to Rocket Lake" */
    u64 config;         /* perf_event_attr.config of PERF_TYPE_RAW */
    u32 margin;         /* branches between the overflow asked for and the target */
    bool unbounded;     /* the margin is what was seen, no limit is known */
    u64 must_stay_zero; /* an event that makes `config` miscount wherever it counts; 0: none */
};

/* The CPU this thread runs on at the moment. */
void pmu_cpu_read(struct pmu_cpu *out);
/* NULL: no event is known for it. */
const struct pmu_event *pmu_event_find(const struct pmu_cpu *cpu);

#endif
