/*
 * Does the event count a guest's conditional branches, all of them and nothing else? Tried with
 * known loops before anything is recorded: CPUs, kernels and hypervisors have miscounted in several
 * ways. How the guest is run is the caller's: probe_pmu.c has the real one, tests one that
 * miscounts.
 */
#ifndef REPRISE_CPU_KVM_PMU_CHECK_H
#define REPRISE_CPU_KVM_PMU_CHECK_H

#include "cpu/kvm/pmu_event.h"
#include "cpu/kvm/pmu_host.h"

/* Guest code that executes a known number of conditional branches and ends in an exit. */
enum pmu_check_code {
    PMU_CODE_LOOP,  /* n times DEC, JNZ: n */
    PMU_CODE_INSNS, /* n times JRCXZ, LOOP: 2 n */
    PMU_CODE_REP,   /* n iterations of REP STOSB: 0 */
    PMU_CODE_EXITS, /* n times an exit, DEC, JNZ: n, and the exit at the end */
    PMU_CODE_LOCKS, /* n times LOCK INC, DEC, JNZ: n */
};

struct pmu_check_host {
    const struct pmu_host_ops *ops;
    void *host; /* of ops */
    int (*load)(void *host, enum pmu_check_code code, unsigned ring, u64 n, struct err *err);
    /* Counts of event->must_stay_zero since it was opened; NULL where there is none. */
    int (*must_stay_zero)(void *host, u64 *count, struct err *err);
};

enum pmu_check_kind {
    PMU_CHECK_EXACT,     /* a loop, a thousand times */
    PMU_CHECK_INSNS,     /* LOOP and JRCXZ are conditional branches */
    PMU_CHECK_REP,       /* iterations of REP strings are none */
    PMU_CHECK_EXITS,     /* exits to the host and back count nothing */
    PMU_CHECK_OVERFLOWS, /* overflows come, and do not disturb the count */
    PMU_CHECK_SKID,      /* they stop the guest within the margin */
    PMU_CHECK_LOCKS,     /* and locked instructions do not disturb it */
    PMU_CHECKS
};

#define PMU_CHECK_TRIES 1000u

struct pmu_check {
    bool good[PMU_CHECKS], tried[PMU_CHECKS];
    char text[PMU_CHECKS][200]; /* what was seen */
    u64 skid;                   /* the largest, in branches */
};

/* "exact", "insns" ...: for keys. */
const char *pmu_check_name(enum pmu_check_kind kind);

/* All checks in one ring. <0 when the guest cannot be run; what a check finds is no error. */
int pmu_check_ring(const struct pmu_check_host *h, const struct pmu_event *event, unsigned ring,
                   struct pmu_check *out, struct err *err);

/* 0 if all are good; else the first that is not, as an error: -EPROTO. */
int pmu_check_verdict(const struct pmu_check *c, const struct pmu_event *event, unsigned ring,
                      struct err *err);

#endif
