/*
 * A preloaded library that says where a recording under KVM spends its time: for each step, from
 * one KVM_GET_REGS to the next, what it came out for and how long its calls took. Written as JSON
 * to the file that KVM_CALLS names.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/kvm.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>

#define FDS 64

/* Kinds of steps. A step that a device was asked in counts as such whatever else it had. */
enum kind { PLAIN, SHUTDOWN, SENT, DEVICE, KINDS };
static const char *const names[KINDS] = {"plain", "shutdown", "sent", "device"};

struct sum {
    unsigned long steps, runs, all_ns, run_ns, get_ns, set_ns;
};

static struct kvm_run *runs[FDS];
static struct sum sum[KINDS], now; /* `now`: of the step under way */
static enum kind kind;
static unsigned long began;

static unsigned long clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned long)t.tv_sec * 1000000000ul + (unsigned long)t.tv_nsec;
}

static void step_ended(unsigned long at)
{
    struct sum *s = &sum[kind];
    if (began && now.runs) {
        s->steps++;
        s->runs += now.runs;
        s->all_ns += at - began;
        s->run_ns += now.run_ns;
        s->get_ns += now.get_ns;
        s->set_ns += now.set_ns;
    }
    now = (struct sum){0};
    kind = PLAIN;
    began = at;
}

static void account(int fd, unsigned long request, unsigned long ns)
{
    switch (request) {
    case KVM_RUN:
        now.runs++;
        now.run_ns += ns;
        if (fd >= FDS || !runs[fd])
            break;
        if (runs[fd]->exit_reason == KVM_EXIT_IO || runs[fd]->exit_reason == KVM_EXIT_MMIO)
            kind = DEVICE;
        else if (runs[fd]->exit_reason == KVM_EXIT_SHUTDOWN && kind == PLAIN)
            kind = SHUTDOWN;
        break;
    case KVM_GET_REGS: now.get_ns += ns; break;
    case KVM_SET_REGS:
    case KVM_SET_SREGS:
        now.set_ns += ns;
        if (kind == PLAIN)
            kind = SENT;
        break;
    default: now.set_ns += ns;
    }
}

int ioctl(int fd, unsigned long request, ...)
{
    static int (*real)(int, unsigned long, ...);
    va_list ap;
    va_start(ap, request);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    if (!real)
        real = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
    if (_IOC_TYPE(request) != KVMIO)
        return real(fd, request, arg);
    unsigned long from = clock_ns();
    int r = real(fd, request, arg);
    unsigned long to = clock_ns();
    account(fd, request, to - from);
    if (request == KVM_GET_REGS)
        step_ended(to);
    return r;
}

void *mmap(void *at, size_t size, int prot, int flags, int fd, off_t off)
{
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (!real)
        real = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
    void *p = real(at, size, prot, flags, fd, off);
    if (fd >= 0 && fd < FDS && (flags & MAP_SHARED))
        runs[fd] = p;
    return p;
}

__attribute__((destructor)) static void write_sums(void)
{
    FILE *out = getenv("KVM_CALLS") ? fopen(getenv("KVM_CALLS"), "w") : NULL;
    if (!out)
        return;
    for (unsigned i = 0; i < KINDS; i++)
        fprintf(out,
                "%s\"%s\":{\"steps\":%lu,\"runs\":%lu,\"all\":%lu,\"run\":%lu,\"get\":%lu,"
                "\"set\":%lu}",
                i ? "," : "{", names[i], sum[i].steps, sum[i].runs, sum[i].all_ns, sum[i].run_ns,
                sum[i].get_ns, sum[i].set_ns);
    fputs("}\n", out);
    fclose(out);
}
