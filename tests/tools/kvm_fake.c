/*
 * A preloaded library that makes /dev/kvm of a good host look like a bad one. What KVM_FAKE says:
 *   open=ERRNO     opening it fails
 *   cap=N          KVM_CHECK_EXTENSION of N says 0
 *   api=N          it speaks that version of its interface
 *   nostep         single step is ignored
 *   ioctl=NR,ERRNO,N  the Nth ioctl with that number fails, and so do all later ones
 *   gone=ERRNO,N   the Nth ioctl of any number fails, and so do all later ones
 *   exit=REASON,N  the Nth KVM_RUN that would step comes back for that reason instead
 *   eintr=N        each Nth KVM_RUN is interrupted, before or after the instruction in turns
 *   lose=N         each Nth KVM_RUN loses its step's trap
 *   unknown=N      each Nth KVM_RUN: KVM's emulator does not know the instruction
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#define FDS 64

static struct kvm_run *runs[FDS];
static unsigned long entries;

/* Value `i` of those that KVM_FAKE has for `name`; -1 if it is about something else. */
static long fake(const char *name, unsigned i)
{
    const char *set = getenv("KVM_FAKE");
    size_t n = strlen(name);
    if (!set || strncmp(set, name, n) || (set[n] && set[n] != '='))
        return -1;
    if (!set[n])
        return 1;
    char *at = (char *)set + n;
    long v = 0;
    for (unsigned k = 0; k <= i; k++)
        v = *at ? strtol(at + 1, &at, 0) : 0;
    return v;
}

int open(const char *path, int flags, ...)
{
    static int (*real)(const char *, int, ...);
    va_list ap;
    va_start(ap, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, int) : 0;
    va_end(ap);
    if (!real)
        real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    long why = strcmp(path, "/dev/kvm") ? -1 : fake("open", 0);
    if (why > 0) {
        errno = (int)why;
        return -1;
    }
    return real(path, flags, mode);
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

/* An exit that the kernel did not make. */
static int invent(struct kvm_run *run, long reason, unsigned suberror)
{
    run->exit_reason = (unsigned)reason;
    if (reason == KVM_EXIT_INTERNAL_ERROR) {
        run->internal.suberror = suberror;
        run->internal.ndata = 2;
        run->internal.data[0] = 0xabcd;
        run->internal.data[1] = 0x1234;
    } else if (reason == KVM_EXIT_FAIL_ENTRY) {
        run->fail_entry.hardware_entry_failure_reason = 0x80000021;
    } else if (reason == KVM_EXIT_UNKNOWN) {
        run->hw.hardware_exit_reason = 0x77;
    }
    return 0;
}

typedef int ioctl_fn(int, unsigned long, ...);

static int interrupted(ioctl_fn *real, int fd, bool after)
{
    if (after) {
        int r = real(fd, KVM_RUN, 0);
        /* Only the trap of a step may be lost to a signal, no access of a device. */
        if (r || runs[fd]->exit_reason != KVM_EXIT_DEBUG)
            return r;
    }
    errno = EINTR;
    return -1;
}

static int without_trap(ioctl_fn *real, int fd)
{
    struct kvm_guest_debug off = {0};
    real(fd, KVM_SET_GUEST_DEBUG, &off);
    return real(fd, KVM_RUN, 0);
}

static bool each(const char *name)
{
    long every = fake(name, 0);
    return every > 0 && entries % (unsigned long)every == 0;
}

static int enter(ioctl_fn *real, int fd)
{
    entries++;
    if (fake("exit", 0) >= 0 && entries == (unsigned long)fake("exit", 1))
        return invent(runs[fd], fake("exit", 0), KVM_INTERNAL_ERROR_DELIVERY_EV);
    if (!runs[fd]->immediate_exit) {
        if (each("eintr"))
            return interrupted(real, fd, entries / (unsigned long)fake("eintr", 0) % 2 == 0);
        if (each("lose"))
            return without_trap(real, fd);
        if (each("unknown"))
            return invent(runs[fd], KVM_EXIT_INTERNAL_ERROR, KVM_INTERNAL_ERROR_EMULATION);
    }
    return real(fd, KVM_RUN, 0);
}

/* KVM's ioctls from some point on. */
static bool fails(unsigned long request)
{
    static unsigned long calls;
    bool gone = fake("gone", 0) > 0;
    if (_IOC_TYPE(request) != KVMIO || (!gone && fake("ioctl", 0) != (long)_IOC_NR(request)))
        return false;
    errno = (int)(gone ? fake("gone", 0) : fake("ioctl", 1));
    return ++calls >= (unsigned long)(gone ? fake("gone", 1) : fake("ioctl", 2));
}

int ioctl(int fd, unsigned long request, ...)
{
    static ioctl_fn *real;
    va_list ap;
    va_start(ap, request);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    if (!real)
        real = (ioctl_fn *)dlsym(RTLD_NEXT, "ioctl");
    if (fails(request))
        return -1;
    if (request == KVM_RUN && fd < FDS && runs[fd])
        return enter(real, fd);
    if (request == KVM_GET_API_VERSION && fake("api", 0) > 0)
        return (int)fake("api", 0);
    if (request == KVM_CHECK_EXTENSION && fake("cap", 0) == (long)arg)
        return 0;
    if (request == KVM_SET_GUEST_DEBUG && fake("nostep", 0) > 0)
        return 0;
    return real(fd, request, arg);
}
