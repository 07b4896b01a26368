/* See pmu_kvm.h. */
#define _GNU_SOURCE /* gettid, SIGEV_THREAD_ID */
#include "cpu/kvm/pmu_kvm.h"

#include <errno.h>
#include <linux/kvm.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/phase.h"
#include "host/clock.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

#define MSR_IA32_TSC 0x10

static int signal_mask(struct pmu_kvm *k, struct err *err)
{
    struct {
        struct kvm_signal_mask head;
        u8 set[8]; /* the kernel's sigset_t */
    } mask = {.head = {.len = 8}};
    sigset_t open = k->before, ours;
    sigdelset(&open, k->signal);
    memcpy(mask.head.sigset, &open, 8);
    sigemptyset(&ours);
    sigaddset(&ours, k->signal);
    if (pthread_sigmask(SIG_BLOCK, &ours, NULL))
        return err_errno(err, "cannot block a signal");
    k->masked = true;
    if (ioctl(k->vcpu, KVM_SET_SIGNAL_MASK, &mask))
        return err_errno(err, "KVM_SET_SIGNAL_MASK");
    return 0;
}

int pmu_kvm_open(struct pmu_kvm *k, int vcpu, struct kvm_run *run, int signal,
                 const struct pmu_cpu *cpu, struct err *err)
{
    *k = (struct pmu_kvm){
        .vcpu = vcpu, .run = run, .signal = signal, .hybrid = cpu->hybrid, .perf = {-1}};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = signal};
    event.sigev_notify_thread_id = gettid();
    if (pthread_sigmask(SIG_BLOCK, NULL, &k->before))
        return err_errno(err, "cannot read the signal mask");
    if (signal_mask(k, err))
        return err->code;
    if (timer_create(CLOCK_MONOTONIC, &event, &k->timer))
        return err_errno(err, "cannot make a timer");
    k->has_timer = true;
    return 0;
}

int pmu_kvm_follow_mask(struct pmu_kvm *k, struct err *err)
{
    sigset_t now;
    if (pthread_sigmask(SIG_BLOCK, NULL, &now))
        return err_errno(err, "cannot read the signal mask");
    sigdelset(&now, k->signal);
    if (!memcmp(&now, &k->before, 8)) /* what the kernel has of it */
        return 0;
    k->before = now;
    return signal_mask(k, err);
}

/* Takes signals that are pending: they have done their work. */
static void drain(const struct pmu_kvm *k)
{
    static const struct timespec now = {0};
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, k->signal);
    while (sigtimedwait(&ours, NULL, &now) > 0)
        ;
}

void pmu_kvm_close(struct pmu_kvm *k)
{
    pmu_perf_close(&k->perf);
    if (k->has_timer)
        timer_delete(k->timer);
    k->has_timer = false;
    if (!k->masked)
        return;
    drain(k);
    pthread_sigmask(SIG_SETMASK, &k->before, NULL);
    k->masked = false;
}

static int count(void *host, u64 *branches, struct err *err)
{
    const struct pmu_kvm *k = host;
    return pmu_perf_count(&k->perf, branches, err);
}

static int arm(void *host, u64 branches, struct err *err)
{
    const struct pmu_kvm *k = host;
    return pmu_perf_arm(&k->perf, branches, err);
}

static int debug(void *host, bool step, const u64 *breakpoint, struct err *err)
{
    const struct pmu_kvm *k = host;
    struct kvm_guest_debug d = {0};
    if (step || breakpoint)
        d.control = KVM_GUESTDBG_ENABLE;
    if (step)
        d.control |= KVM_GUESTDBG_SINGLESTEP;
    if (breakpoint) {
        d.control |= KVM_GUESTDBG_USE_HW_BP;
        d.arch.debugreg[0] = *breakpoint;
        d.arch.debugreg[7] = 0x402; /* DR0 enabled, global; bit 10 is always set */
    }
    if (ioctl(k->vcpu, KVM_SET_GUEST_DEBUG, &d))
        return err_errno(err, "KVM_SET_GUEST_DEBUG");
    return 0;
}

static int run(void *host, struct err *err)
{
    const struct pmu_kvm *k = host;
    enum phase before = phase_enter(PHASE_KVM);
    int r = ioctl(k->vcpu, KVM_RUN, 0);
    phase_leave(before);
    if (r) {
        if (errno != EINTR && errno != EAGAIN)
            return err_errno(err, "KVM_RUN");
        drain(k);
        return PMU_STOP_SIGNAL;
    }
    switch (k->run->exit_reason) {
    case KVM_EXIT_DEBUG: return PMU_STOP_DEBUG;
    case KVM_EXIT_INTR: return PMU_STOP_SIGNAL;
    default: return PMU_STOP_EXIT;
    }
}

static void kick_at(void *host, u64 ns)
{
    const struct pmu_kvm *k = host;
    struct itimerspec when = {0}; /* zero: off */
    if (ns != NEVER) {
        when.it_value.tv_sec = (time_t)(ns / 1000000000);
        when.it_value.tv_nsec = (long)(ns % 1000000000);
    }
    timer_settime(k->timer, TIMER_ABSTIME, &when, NULL);
}

static u64 now(void *host)
{
    return host_ns();
}

static u64 asleep(void *host)
{
    return host_clock_read(CLOCK_BOOTTIME) - host_clock_read(CLOCK_MONOTONIC);
}

static unsigned core(void *host)
{
    const struct pmu_kvm *k = host;
    struct pmu_cpu cpu;
    if (!k->hybrid)
        return PMU_CORE_ANY;
    pmu_cpu_read(&cpu);
    return cpu.core;
}

static int tsc(void *host, u64 *value, struct err *err)
{
    const struct pmu_kvm *k = host;
    struct {
        struct kvm_msrs head;
        struct kvm_msr_entry entry;
    } m = {.head = {.nmsrs = 1}, .entry = {.index = MSR_IA32_TSC}};
    if (ioctl(k->vcpu, KVM_GET_MSRS, &m) != 1)
        return err_errno(err, "cannot read the guest's TSC");
    *value = m.entry.data;
    return 0;
}

static int tsc_offset(void *host, u64 offset, struct err *err)
{
    const struct pmu_kvm *k = host;
    struct kvm_device_attr attr = {
        .group = KVM_VCPU_TSC_CTRL, .attr = KVM_VCPU_TSC_OFFSET, .addr = (u64)&offset};
    if (ioctl(k->vcpu, KVM_SET_DEVICE_ATTR, &attr))
        return err_errno(err, "cannot set the offset of the guest's TSC (KVM_VCPU_TSC_OFFSET)");
    return 0;
}

const struct pmu_host_ops pmu_kvm_ops = {
    .count = count,
    .arm = arm,
    .debug = debug,
    .run = run,
    .kick_at = kick_at,
    .now = now,
    .asleep = asleep,
    .core = core,
    .tsc = tsc,
    .tsc_offset = tsc_offset,
};
