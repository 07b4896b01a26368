/*
 * The system calls that the linker brings here (mk/imitation.mk). Those for descriptors of ours are
 * answered, all others are the kernel's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "imitation.h"

#define FDS 1024

int __real_open(const char *path, int flags, ...);
int __real_ioctl(int fd, unsigned long request, ...);
int __real_close(int fd);
ssize_t __real_read(int fd, void *buf, size_t size);
int __real_fcntl(int fd, int command, ...);
long __real_syscall(long number, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_close(int fd);
ssize_t __wrap_read(int fd, void *buf, size_t size);
int __wrap_fcntl(int fd, int command, ...);
long __wrap_syscall(long number, ...);

static struct {
    enum im_kind kind;
    void *object;
} fds[FDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int im_fd_new(enum im_kind kind, void *object)
{
    static const char *const names[] = {
        [IM_DEVICE] = "kvm", [IM_VM] = "kvm-vm", [IM_VCPU] = "kvm-vcpu", [IM_PERF] = "perf-event"};
    int fd = memfd_create(names[kind], MFD_CLOEXEC);
    if (fd >= FDS) {
        __real_close(fd);
        errno = EMFILE;
        fd = -1;
    }
    if (fd < 0)
        return -1;
    pthread_mutex_lock(&lock);
    fds[fd].object = object;
    fds[fd].kind = kind;
    pthread_mutex_unlock(&lock);
    return fd;
}

int im_refuse(int error, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("imitation: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    errno = error;
    return -1;
}

static enum im_kind kind_of(int fd)
{
    return fd >= 0 && fd < FDS ? fds[fd].kind : IM_NONE;
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, int) : 0;
    va_end(ap);
    if (strcmp(path, "/dev/kvm"))
        return __real_open(path, flags, mode);
    return im_fd_new(IM_DEVICE, NULL);
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
    va_list ap;
    va_start(ap, request);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    enum im_kind kind = kind_of(fd);
    if (kind != IM_NONE && im_fails(request))
        return -1;
    switch (kind) {
    case IM_DEVICE: return im_device_ioctl(request, arg);
    case IM_VM: return im_vm_ioctl(fds[fd].object, request, arg);
    case IM_VCPU: return im_vcpu_ioctl(fds[fd].object, request, arg);
    case IM_PERF: return im_perf_ioctl(fds[fd].object, request, arg);
    default: return __real_ioctl(fd, request, arg);
    }
}

int __wrap_close(int fd)
{
    enum im_kind kind = kind_of(fd);
    if (kind == IM_NONE)
        return __real_close(fd);
    pthread_mutex_lock(&lock);
    void *object = fds[fd].object;
    fds[fd].kind = IM_NONE;
    fds[fd].object = NULL;
    pthread_mutex_unlock(&lock);
    if (kind == IM_VCPU)
        im_vcpu_free(object);
    if (kind == IM_VM)
        im_vm_release(object);
    if (kind == IM_PERF)
        im_perf_close(object);
    return __real_close(fd);
}

ssize_t __wrap_read(int fd, void *buf, size_t size)
{
    if (kind_of(fd) != IM_PERF)
        return __real_read(fd, buf, size);
    return im_fails(IM_PERF_READ) ? -1 : im_perf_read(fds[fd].object, buf, size);
}

int __wrap_fcntl(int fd, int command, ...)
{
    va_list ap;
    va_start(ap, command);
    long arg = va_arg(ap, long);
    va_end(ap);
    bool ours = false;
    if (kind_of(fd) == IM_PERF) {
        int r = im_perf_fcntl(fds[fd].object, command, arg, &ours);
        if (ours)
            return r;
    }
    return __real_fcntl(fd, command, arg);
}

long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list ap;
    va_start(ap, number);
    for (unsigned i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if (number == SYS_perf_event_open)
        return im_perf_open((const void *)a[0], (pid_t)a[1], (int)a[2], (int)a[3],
                            (unsigned long)a[4]);
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
