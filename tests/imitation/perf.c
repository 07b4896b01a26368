/*
 * Performance counters: retired conditional branches of the guest on the calling thread, with
 * overflows that come late, and whatever else REPRISE_IMITATION asks for.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/kvm/pmu_perf.h"
#include "imitation.h"

#define EVENTS   32
#define TOO_LATE 12000u /* branches: beyond the margin of every CPU */

static struct event {
    bool used, zero; /* zero: it counts what never happens */
    pthread_t thread;
    u64 count, period, left;
    u64 skid; /* branches until the signal; NEVER: none is under way */
    u64 more; /* and instructions after them */
    int signal;
    pid_t owner;
    bool async, stolen;
    u64 enabled, running; /* ns */
} events[EVENTS];

static const struct {
    u64 config;
    bool zero;
} known[] = {
    {0x5101c4, false}, {0x5111c4, false}, {0x517ec4, false}, {0x5100d1, false}, {0x510825, true}};

int im_perf_open(const void *attribute, pid_t thread, int cpu, int group, unsigned long flags)
{
    const struct perf_event_attr *a = attribute;
    struct event *e = NULL;
    if (a->type != PERF_TYPE_RAW || im_options()->nopmu) {
        errno = ENOENT;
        return -1;
    }
    if ((thread && thread != gettid()) || cpu != -1 || group != -1 || !a->exclude_host ||
        !a->pinned || a->disabled ||
        a->read_format != (PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING) ||
        (flags & ~(unsigned long)PERF_FLAG_FD_CLOEXEC))
        return im_refuse(EINVAL, "perf_event_open with other attributes");
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        for (unsigned k = 0; a->config == known[i].config && k < EVENTS && !e; k++)
            if (!events[k].used) {
                e = &events[k];
                *e = (struct event){.used = true, .zero = known[i].zero, .skid = NEVER};
            }
    if (!e)
        return im_refuse(ENOENT, "perf_event_open of event %llx", a->config);
    e->thread = pthread_self();
    e->period = e->left = a->sample_period;
    int fd = im_fd_new(IM_PERF, e);
    e->used = fd >= 0;
    return fd;
}

void im_perf_close(void *event)
{
    struct event *e = event;
    e->used = false;
}

int im_perf_ioctl(void *event, unsigned long request, void *arg)
{
    struct event *e = event;
    if (request != PERF_EVENT_IOC_PERIOD)
        return im_refuse(ENOTTY, "a perf event does not know ioctl %lx", request);
    u64 period = *(const u64 *)arg;
    if (!period || period >> 63) {
        errno = EINVAL;
        return -1;
    }
    e->period = e->left = MAX(period, 2u);
    if (!(period >> 32) && im_happens(im_options()->early)) {
        e->skid = im_random(period);
        e->more = 1;
    }
    return 0;
}

int im_perf_fcntl(void *event, int command, long arg, bool *ours)
{
    struct event *e = event;
    *ours = true;
    switch (command) {
    case F_SETOWN:
        if (arg != getpid())
            return im_refuse(EINVAL, "F_SETOWN of %ld", arg);
        e->owner = (pid_t)arg;
        return 0;
    case F_SETSIG: e->signal = (int)arg; return 0;
    case F_SETFL: e->async = arg & O_ASYNC; return 0;
    default: *ours = false; return 0;
    }
}

ssize_t im_perf_read(void *event, void *buf, size_t size)
{
    const struct event *e = event;
    const u64 out[] = {e->count, e->enabled, e->running};
    if (size < sizeof(out)) {
        errno = ENOSPC;
        return -1;
    }
    memcpy(buf, out, sizeof(out));
    return sizeof(out);
}

static struct event *mine(unsigned i)
{
    struct event *e = &events[i];
    return e->used && e->thread == pthread_self() ? e : NULL;
}

static void raise_signal(struct event *e)
{
    e->skid = NEVER;
    if (e->async)
        kill(e->owner, e->signal ? e->signal : SIGIO);
}

void im_perf_before_branch(void)
{
    for (unsigned i = 0; i < EVENTS; i++) {
        struct event *e = mine(i);
        if (e && e->skid == 0)
            raise_signal(e);
    }
}

static void overflow(struct event *e)
{
    const struct im_options *o = im_options();
    e->left = e->period;
    if (e->skid != NEVER || im_happens(o->lost)) /* one at a time */
        return;
    e->skid = im_happens(o->late) ? TOO_LATE + im_random(1000) : im_skid();
    e->more = 1 + im_random(12);
}

void im_perf_enter(void)
{
    const struct im_options *o = im_options();
    for (unsigned i = 0; i < EVENTS; i++) {
        struct event *e = mine(i);
        if (!e)
            continue;
        e->stolen = im_happens(o->stolen);
        e->count += e->zero ? o->speclock : o->miscount && !im_random(8);
    }
}

u64 im_perf_room(bool *one)
{
    u64 room = NEVER;
    *one = false;
    for (unsigned i = 0; i < EVENTS; i++) {
        const struct event *e = mine(i);
        if (!e || e->zero || e->stolen)
            continue;
        room = MIN(room, e->left);
        if (e->skid == 0)
            *one = true;
        else
            room = MIN(room, e->skid);
    }
    return room;
}

void im_perf_count(u64 branches, bool insn)
{
    for (unsigned i = 0; i < EVENTS; i++) {
        struct event *e = mine(i);
        if (!e || e->zero || e->stolen)
            continue;
        e->count += branches;
        if (e->skid == 0 && insn && !--e->more)
            raise_signal(e);
        if (e->skid != NEVER)
            e->skid -= MIN(e->skid, branches);
        e->left -= branches;
        if (!e->left)
            overflow(e);
    }
}

void im_perf_leave(u64 ns)
{
    for (unsigned i = 0; i < EVENTS; i++) {
        struct event *e = mine(i);
        if (!e)
            continue;
        e->enabled += ns;
        e->running += e->stolen ? 0 : ns;
        if (e->skid != NEVER)
            raise_signal(e);
    }
}

/* ---- which CPU this is ---- */

void __real_pmu_cpu_read(struct pmu_cpu *out);
void __wrap_pmu_cpu_read(struct pmu_cpu *out);
int __real_pmu_pin(const struct pmu_cpu *cpu, pid_t thread, struct err *err);
int __wrap_pmu_pin(const struct pmu_cpu *cpu, pid_t thread, struct err *err);

/* One of ours where no event is known for the host's. */
void __wrap_pmu_cpu_read(struct pmu_cpu *out)
{
    static const struct pmu_cpu cpus[] = {
        {.vendor = "AuthenticAMD", .family = 0x19, .model = 0x11},
        {.vendor = "GenuineIntel", .family = 6, .model = 0x55},
        {.vendor = "GenuineIntel",
         .family = 6,
         .model = 0x97,
         .hybrid = true,
         .core = PMU_CORE_CORE},
    };
    static const char *const names[] = {"zen", "skylake", "alderlake"};
    const char *name = im_options()->cpu;
    __real_pmu_cpu_read(out);
    if (!name && !pmu_event_find(out))
        name = names[0];
    for (unsigned i = 0; name && i < ARRAY_SIZE(names); i++)
        if (!strcmp(name, names[i]))
            *out = cpus[i];
    if (out->hybrid && im_happens(im_options()->core))
        out->core = PMU_CORE_ATOM;
}

int __wrap_pmu_pin(const struct pmu_cpu *cpu, pid_t thread, struct err *err)
{
    return im_options()->cpu ? 0 : __real_pmu_pin(cpu, thread, err);
}
