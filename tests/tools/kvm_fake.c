/*
 * A preloaded library that makes /dev/kvm of a good host look like a bad one. What KVM_FAKE says:
 *   open=ERRNO     opening it fails
 *   cap=N          KVM_CHECK_EXTENSION of N says 0
 *   nostep         single step is ignored
 *   refuse=ERRNO   KVM_SET_SREGS fails
 *   exit=REASON,N  the Nth KVM_RUN that would step comes back for that reason instead
 *   eintr=N        each Nth KVM_RUN is interrupted, before or behind the instruction in turns
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#define FDS 64

static struct kvm_run *runs[FDS];
static unsigned long entries;

/* The value of `name` in KVM_FAKE, -1 if it is not there; *second: what follows a comma. */
static long fake(const char *name, long *second)
{
    const char *set = getenv("KVM_FAKE");
    size_t n = strlen(name);
    if (!set || strncmp(set, name, n) || (set[n] && set[n] != '='))
        return -1;
    char *end;
    long v = set[n] ? strtol(set + n + 1, &end, 0) : 1;
    if (second)
        *second = set[n] && *end == ',' ? strtol(end + 1, NULL, 0) : 0;
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
    long why = strcmp(path, "/dev/kvm") ? -1 : fake("open", NULL);
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
static void invent(struct kvm_run *run, long reason)
{
    run->exit_reason = (unsigned)reason;
    if (reason == KVM_EXIT_INTERNAL_ERROR) {
        run->internal.suberror = KVM_INTERNAL_ERROR_DELIVERY_EV;
        run->internal.ndata = 2;
        run->internal.data[0] = 0xabcd;
        run->internal.data[1] = 0x1234;
    } else if (reason == KVM_EXIT_FAIL_ENTRY) {
        run->fail_entry.hardware_entry_failure_reason = 0x80000021;
    }
}

static int enter(int (*real)(int, unsigned long, ...), int fd)
{
    long when = 0, reason = fake("exit", &when), every = fake("eintr", NULL);
    entries++;
    if (reason >= 0 && entries == (unsigned long)when && fd < FDS && runs[fd]) {
        invent(runs[fd], reason);
        return 0;
    }
    if (every > 0 && entries % (unsigned long)every == 0 && !runs[fd]->immediate_exit) {
        if (entries / (unsigned long)every % 2 == 0) {
            int r = real(fd, KVM_RUN, 0);
            /* Only the trap of a step may be lost to a signal, no access of a device. */
            if (r || runs[fd]->exit_reason != KVM_EXIT_DEBUG)
                return r;
        }
        errno = EINTR;
        return -1;
    }
    return real(fd, KVM_RUN, 0);
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
    if (request == KVM_RUN)
        return enter(real, fd);
    if (request == KVM_CHECK_EXTENSION && fake("cap", NULL) == (long)arg)
        return 0;
    if (request == KVM_SET_GUEST_DEBUG && fake("nostep", NULL) > 0)
        return 0;
    if (request == KVM_SET_SREGS && fake("refuse", NULL) > 0) {
        errno = (int)fake("refuse", NULL);
        return -1;
    }
    return real(fd, request, arg);
}
