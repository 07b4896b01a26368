/*
 * The real host of the progress counter `pmu`: a vCPU of KVM, a perf event, a timer. Everything
 * that ends a run is one signal, which the thread keeps blocked and KVM lets in while the vCPU runs
 * (KVM_SET_SIGNAL_MASK): none is lost between looking and entering, and no handler is needed.
 */
#ifndef REPRISE_CPU_KVM_PMU_KVM_H
#define REPRISE_CPU_KVM_PMU_KVM_H

#include <signal.h>
#include <sys/types.h>
#include <time.h>

#include "cpu/kvm/pmu_host.h"
#include "cpu/kvm/pmu_perf.h"

struct kvm_run;

struct pmu_kvm {
    int vcpu;            /* the caller's */
    struct kvm_run *run; /* the caller's */
    int signal;
    bool hybrid;
    struct pmu_perf perf; /* fd -1: count() and arm() fail */
    timer_t timer;
    bool has_timer, masked;
    sigset_t before; /* the thread's mask, until close */
};

/* Of the calling thread, which is the one that runs the vCPU. The event is opened by the caller
 * with the same signal. */
int pmu_kvm_open(struct pmu_kvm *k, int vcpu, struct kvm_run *run, int signal,
                 const struct pmu_cpu *cpu, struct err *err);
/* Also closes the event. Safe on a struct that was never opened, but for perf.fd = -1. */
void pmu_kvm_close(struct pmu_kvm *k);

/* The thread has blocked other signals since: the vCPU lets in what it lets in now. */
int pmu_kvm_follow_mask(struct pmu_kvm *k, struct err *err);

extern const struct pmu_host_ops pmu_kvm_ops;

#endif
