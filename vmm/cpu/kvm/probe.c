/* See probe.h. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "cpu/kvm/probe.h"

#include <asm/prctl.h>
#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "cpu/kvm/pmu_event.h"
#include "host/clock.h"

struct fact *fact_add(struct facts *f, const char *key, enum fact_state state, const char *fmt, ...)
{
    va_list ap;
    CHECK(f->n < FACTS_MAX && strlen(key) < sizeof(f->fact[0].key) && !fact_find(f, key),
          "fact %u, %s", f->n, key);
    struct fact *fact = &f->fact[f->n];
    *fact = (struct fact){.state = state};
    snprintf(fact->key, sizeof(fact->key), "%s", key);
    va_start(ap, fmt);
    vsnprintf(fact->value, sizeof(fact->value), fmt, ap);
    va_end(ap);
    f->n++;
    return fact;
}

void fact_note(struct fact *fact, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(fact->note, sizeof(fact->note), fmt, ap);
    va_end(ap);
}

void fact_number(struct fact *fact, double number)
{
    fact->has_number = true;
    fact->number = number;
}

const struct fact *fact_find(const struct facts *f, const char *key)
{
    for (u32 i = 0; i < f->n; i++)
        if (!strcmp(f->fact[i].key, key))
            return &f->fact[i];
    return NULL;
}

bool fact_yes(const struct facts *f, const char *key)
{
    const struct fact *fact = fact_find(f, key);
    return fact && fact->state == FACT_YES;
}

/* How it ended: 0 well; else `why` says it. A child that cannot be killed (it is deep in the
 * kernel) is not waited for. */
static int watch(pid_t child, unsigned seconds, char *why, size_t size)
{
    const struct timespec nap = {.tv_nsec = 2000000};
    u64 until = host_ns() + seconds * 1000000000ull;
    int status = 0;
    bool late = false;
    for (;;) {
        pid_t got = waitpid(child, &status, WNOHANG);
        if (got == child || (got < 0 && errno != EINTR))
            break;
        if (host_ns() >= until) {
            if (late)
                break;
            late = true;
            until += 1000000000;
            kill(child, SIGKILL);
        }
        nanosleep(&nap, NULL);
    }
    if (late)
        snprintf(why, size, "no end after %u s", seconds);
    else if (WIFSIGNALED(status))
        snprintf(why, size, "the test was ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status))
        snprintf(why, size, "the test ended with status %d", WEXITSTATUS(status));
    else
        return 0;
    return -EIO;
}

void probe_isolated(struct facts *f, const char *key, unsigned seconds,
                    void (*probe)(struct facts *f))
{
    char why[120];
    pid_t parent = getpid();
    struct facts *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        fact_note(fact_add(f, key, FACT_UNTESTED, "not tested"), "no memory for the test");
        return;
    }
    *shared = *f;
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        probe(shared);
        _exit(0);
    }
    int code = child < 0 ? -errno : watch(child, seconds, why, sizeof(why));
    if (child < 0)
        snprintf(why, sizeof(why), "cannot start a process: %s", strerror(-code));
    for (u32 i = f->n; i < MIN(shared->n, FACTS_MAX); i++)
        f->fact[i] = shared->fact[i];
    f->n = MIN(MAX(f->n, shared->n), FACTS_MAX);
    munmap(shared, sizeof(*shared));
    if (code && f->n < FACTS_MAX && !fact_find(f, key))
        fact_note(fact_add(f, key, FACT_UNTESTED, "not tested"), "%s", why);
}

#define CAP(number, name, needed, what)                                                            \
    {                                                                                              \
        KVM_CAP_##number, name, needed, what                                                       \
    }
/* What the engine needs of KVM, or is better with. */
static const struct {
    int cap;
    const char *name;
    bool needed;
    const char *what;
} caps[] = {
    CAP(USER_MEMORY, "user_memory", true, "guest RAM"),
    CAP(READONLY_MEM, "readonly_mem", true, "the guest's ROM"),
    CAP(SET_TSS_ADDR, "set_tss_addr", true, "real mode on older Intel CPUs"),
    CAP(EXT_CPUID, "ext_cpuid", true, "CPUID of the recording's CPU model"),
    CAP(IMMEDIATE_EXIT, "immediate_exit", true, "finishing an instruction without running on"),
    CAP(SET_GUEST_DEBUG, "set_guest_debug", true, "single steps and breakpoints"),
    CAP(X86_USER_SPACE_MSR, "user_space_msr", true, "RDMSR and WRMSR of the recording's CPU model"),
    CAP(X86_MSR_FILTER, "msr_filter", true, "RDMSR and WRMSR of the recording's CPU model"),
    CAP(XSAVE, "xsave", true, "vector registers in checkpoints"),
    CAP(XCRS, "xcrs", true, "vector registers in checkpoints"),
    CAP(VCPU_EVENTS, "vcpu_events", true, "pending exceptions in checkpoints"),
    CAP(DEBUGREGS, "debugregs", false, "debug registers in checkpoints"),
    CAP(USER_NMI, "user_nmi", false, "non-maskable interrupts"),
    CAP(EXIT_ON_EMULATION_FAILURE, "emulation_failure", false, "naming what KVM cannot emulate"),
    CAP(SREGS2, "sregs2", false, "page-directory pointers in checkpoints"),
    CAP(MANUAL_DIRTY_LOG_PROTECT2, "dirty_log", false, "quicker checkpoints"),
    CAP(DIRTY_LOG_RING, "dirty_ring", false, "quicker checkpoints"),
    CAP(SYNC_REGS, "sync_regs", false, "quicker exits"),
    CAP(PMU_CAPABILITY, "pmu_capability", false, "hiding the CPU's counters from the guest"),
    CAP(TSC_CONTROL, "tsc_control", false, "a TSC that stands still: counter pmu"),
    CAP(VM_TSC_CONTROL, "vm_tsc_control", false, "a TSC that stands still: counter pmu"),
};

static void probe_caps(struct facts *f, int kvm, int vm)
{
    for (size_t i = 0; i < ARRAY_SIZE(caps); i++) {
        char key[40];
        int value = ioctl(vm >= 0 ? vm : kvm, KVM_CHECK_EXTENSION, caps[i].cap);
        snprintf(key, sizeof(key), "cap.%s", caps[i].name);
        struct fact *fact =
            fact_add(f, key, value > 0 ? FACT_YES : FACT_NO, "%s", value > 0 ? "yes" : "no");
        fact_note(fact, "%s%s", caps[i].what, caps[i].needed ? "" : " (not required)");
        fact_number(fact, MAX(value, 0));
    }
    const char *missing = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(caps) && !missing; i++)
        if (caps[i].needed && ioctl(vm >= 0 ? vm : kvm, KVM_CHECK_EXTENSION, caps[i].cap) <= 0)
            missing = caps[i].name;
    struct fact *all = fact_add(f, "kvm.caps", missing ? FACT_NO : FACT_YES, "%s",
                                missing ? "not all that are required" : "all that are required");
    if (missing)
        fact_note(all, "without %s: the host's kernel is too old", missing);
}

void probe_kvm(struct facts *f)
{
    int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC), why = errno;
    if (kvm < 0) {
        struct fact *no = fact_add(f, "kvm.device", FACT_NO, "%s",
                                   why == EACCES || why == EPERM ? "not permitted" : "absent");
        if (why == EACCES || why == EPERM)
            fact_note(no,
                      "your user may not open /dev/kvm: usermod -aG kvm USER, and log in again");
        else if (why == ENOENT)
            fact_note(no, "no /dev/kvm: modprobe kvm_intel or kvm_amd; the firmware must allow "
                          "virtualization, and a host that is a guest needs it nested");
        else
            fact_note(no, "/dev/kvm: %s", strerror(why));
        return;
    }
    int version = ioctl(kvm, KVM_GET_API_VERSION, 0);
    if (version < 0) {
        fact_note(fact_add(f, "kvm.device", FACT_NO, "not KVM's"), "/dev/kvm is something else: %s",
                  strerror(errno));
        close(kvm);
        return;
    }
    fact_add(f, "kvm.device", FACT_YES, "yes");
    fact_number(
        fact_add(f, "kvm.api", version == KVM_API_VERSION ? FACT_YES : FACT_NO, "%d", version),
        version);
    int vm = ioctl(kvm, KVM_CREATE_VM, 0);
    if (vm < 0)
        fact_note(fact_add(f, "kvm.vm", FACT_NO, "no"),
                  "KVM_CREATE_VM: %s (another hypervisor may own the CPU)", strerror(errno));
    else
        fact_add(f, "kvm.vm", FACT_YES, "yes");
    probe_caps(f, kvm, vm);
    if (vm >= 0)
        close(vm);
    close(kvm);
}

/* Does CPUID fault when asked to? In a child: this one's end is by SIGSEGV. */
static void probe_cpuid_faulting(struct facts *f)
{
    int status = 0;
    struct fact *fact;
    pid_t child = fork();
    if (!child) {
        u32 a, b, c, d;
        signal(SIGSEGV, SIG_DFL);
        if (syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0))
            _exit(1);
        __cpuid(0, a, b, c, d);
        _exit(2 + !(a | b | c | d));
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        fact_add(f, "host.cpuid_faulting", FACT_UNTESTED, "not tested");
        return;
    }
    bool faults = WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
    fact = fact_add(f, "host.cpuid_faulting", FACT_INFO, "%s", faults ? "yes" : "no");
    fact_number(fact, faults);
}

static void brand(char out[64])
{
    u32 r[12], max, b, c, d;
    char text[49] = "";
    __cpuid(0x80000000, max, b, c, d);
    if (max >= 0x80000004)
        for (u32 i = 0; i < 3; i++)
            __cpuid(0x80000002 + i, r[4 * i], r[4 * i + 1], r[4 * i + 2], r[4 * i + 3]);
    if (max >= 0x80000004)
        memcpy(text, r, 48);
    size_t first = strspn(text, " "), end = strlen(text);
    while (end > first && text[end - 1] == ' ')
        text[--end] = 0;
    snprintf(out, 64, "%s", text + first);
}

void probe_host(struct facts *f)
{
    struct utsname name;
    struct pmu_cpu cpu;
    char text[64];
    brand(text);
    pmu_cpu_read(&cpu);
    fact_note(fact_add(f, "host.cpu", FACT_INFO, "%s", text),
              "%s, family %u, model %u, stepping %u%s", cpu.vendor, cpu.family, cpu.model,
              cpu.stepping,
              !cpu.hybrid                 ? ""
              : cpu.core == PMU_CORE_ATOM ? ", hybrid (this is an efficiency core)"
                                          : ", hybrid (this is a performance core)");
    fact_number(fact_add(f, "host.cpus", FACT_INFO, "%ld", sysconf(_SC_NPROCESSORS_ONLN)),
                (double)sysconf(_SC_NPROCESSORS_ONLN));
    fact_add(f, "host.hypervisor", FACT_INFO, "%s",
             cpu.hypervisor ? "yes: this host is a guest itself" : "no");
    if (!uname(&name))
        fact_add(f, "host.kernel", FACT_INFO, "%s %s", name.sysname, name.release);
    probe_cpuid_faulting(f);
}
