/* See pmu_perf.h. */
#define _GNU_SOURCE /* F_SETSIG, sched_setaffinity */
#include "cpu/kvm/pmu_perf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/kvm/pmu_host.h"

/* The name of a hybrid CPU's part, as sysfs has it. */
static const char *part(const struct pmu_cpu *cpu)
{
    return cpu->core == PMU_CORE_ATOM ? "cpu_atom" : "cpu_core";
}

/* A line of a file of sysfs; false: there is none. */
static bool sysfs(const char *device, const char *file, char *out, size_t size)
{
    char path[128];
    snprintf(path, sizeof(path), "/sys/bus/event_source/devices/%s/%s", device, file);
    FILE *f = fopen(path, "re");
    bool got = f && fgets(out, (int)size, f);
    if (f)
        fclose(f);
    return got;
}

static u32 event_type(const struct pmu_cpu *cpu)
{
    char line[32];
    if (cpu->hybrid && sysfs(part(cpu), "type", line, sizeof(line)))
        return (u32)strtoul(line, NULL, 10);
    return PERF_TYPE_RAW;
}

static int paranoid(void)
{
    int level = -1;
    FILE *f = fopen("/proc/sys/kernel/perf_event_paranoid", "re");
    if (f && fscanf(f, "%d", &level) != 1)
        level = -1;
    if (f)
        fclose(f);
    return level;
}

static int refused(u64 config, struct err *err)
{
    int why = errno;
    switch (why) {
    case EACCES:
    case EPERM:
        return err_set(
            err, -EACCES,
            "the host does not allow to count events of a guest's kernel "
            "(kernel.perf_event_paranoid is %d): sysctl kernel.perf_event_paranoid=1, or "
            "a seccomp filter forbids perf_event_open",
            paranoid());
    case ENOENT:
    case EOPNOTSUPP:
    case ENODEV:
        return err_set(err, -ENOENT,
                       "this host has no hardware counter for event 0x%" PRIx64
                       " (in a virtual machine: its hypervisor shows it no PMU)",
                       config);
    case ENOSYS:
        return err_set(err, -ENOSYS,
                       "there is no perf_event_open here: the kernel has none, or a seccomp filter "
                       "of a container forbids it");
    case EBUSY:
        return err_set(err, -EBUSY,
                       "the counters are somebody else's (NMI watchdog, another perf user): sysctl "
                       "kernel.nmi_watchdog=0");
    default: return err_errno(err, "cannot count event 0x%" PRIx64, config);
    }
}

int pmu_perf_open(struct pmu_perf *p, const struct pmu_cpu *cpu, u64 config, pid_t thread,
                  int signal, struct err *err)
{
    struct perf_event_attr attr = {
        .size = sizeof(attr),
        .type = event_type(cpu),
        .config = config,
        .sample_period = PMU_PERIOD_MAX,
        .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
        .pinned = 1,
        .exclude_host = 1,
    };
    p->fd = (int)syscall(SYS_perf_event_open, &attr, thread, -1, -1, PERF_FLAG_FD_CLOEXEC);
    if (p->fd < 0)
        return refused(config, err);
    /* To the process, not to a thread: which one F_SETOWN_EX names lies in memory, where a filter
     * of system calls does not see that it is ours. */
    if (signal && (fcntl(p->fd, F_SETOWN, getpid()) || fcntl(p->fd, F_SETSIG, signal) ||
                   fcntl(p->fd, F_SETFL, O_ASYNC | O_NONBLOCK))) {
        err_errno(err, "cannot have a signal from the counter");
        pmu_perf_close(p);
        return err->code;
    }
    return 0;
}

void pmu_perf_close(struct pmu_perf *p)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
}

int pmu_perf_count(const struct pmu_perf *p, u64 *count, struct err *err)
{
    struct {
        u64 count, enabled, running;
    } now = {0};
    ssize_t n = read(p->fd, &now, sizeof(now));
    if (n < 0)
        return err_errno(err, "cannot read the counter");
    if (n != sizeof(now) || now.running != now.enabled)
        return err_set(
            err, -ENODATA,
            "the counter was taken away%s: the NMI watchdog or another user of perf needs "
            "it too (sysctl kernel.nmi_watchdog=0)",
            n ? " for a while" : "");
    *count = now.count;
    return 0;
}

int pmu_perf_arm(const struct pmu_perf *p, u64 events, struct err *err)
{
    u64 period = events == PMU_NO_PERIOD ? PMU_PERIOD_MAX : events;
    if (ioctl(p->fd, PERF_EVENT_IOC_PERIOD, &period))
        return err_errno(err, "cannot program the counter");
    return 0;
}

/* "0-7,16": into the set. */
static void parse_cpus(const char *list, cpu_set_t *set)
{
    CPU_ZERO(set);
    for (const char *at = list; *at >= '0' && *at <= '9';) {
        char *end;
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long i = first; i <= last && i < CPU_SETSIZE; i++)
            CPU_SET(i, set);
        at = *end == ',' ? end + 1 : end;
    }
}

int pmu_pin(const struct pmu_cpu *cpu, pid_t thread, struct err *err)
{
    char line[256];
    cpu_set_t kind, may;
    if (!cpu->hybrid)
        return 0;
    if (!sysfs(part(cpu), "cpus", line, sizeof(line)))
        return err_set(err, -ENOENT, "the host does not say which of its cores are %s", part(cpu));
    parse_cpus(line, &kind);
    if (sched_getaffinity(thread, sizeof(may), &may))
        return err_errno(err, "cannot ask which cores the vCPU's thread may run on");
    CPU_AND(&may, &may, &kind);
    if (!CPU_COUNT(&may))
        return err_set(err, -EXDEV, "the vCPU's thread may run on no core of the kind %s",
                       part(cpu));
    if (sched_setaffinity(thread, sizeof(may), &may))
        return err_errno(err, "cannot pin the vCPU's thread to cores of one kind");
    return 0;
}
