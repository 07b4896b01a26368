/* See file_io.h. */
#include "base/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

bool file_read_at(int fd, void *out, size_t len, u64 offset)
{
    u8 *p = out;
    while (len) {
        ssize_t n = pread(fd, p, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (n == 0)
                errno = 0;
            return false;
        }
        p += n;
        offset += (u64)n;
        len -= (size_t)n;
    }
    return true;
}

bool file_write_at(int fd, const void *data, size_t len, u64 offset)
{
    const u8 *p = data;
    while (len) {
        ssize_t n = pwrite(fd, p, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (n == 0)
                errno = ENOSPC;
            return false;
        }
        p += n;
        offset += (u64)n;
        len -= (size_t)n;
    }
    return true;
}

/* May the call that failed be made again? */
static bool again(int fd, short events)
{
    struct pollfd ready = {.fd = fd, .events = events};
    if (errno != EINTR && errno != EAGAIN)
        return false;
    if (errno == EAGAIN)
        poll(&ready, 1, -1);
    return true;
}

bool file_read_on(int fd, void *out, size_t len)
{
    for (u8 *p = out; len;) {
        ssize_t n = read(fd, p, len);
        if (n < 0 && again(fd, POLLIN))
            continue;
        if (n <= 0) {
            if (n == 0)
                errno = 0;
            return false;
        }
        p += n;
        len -= (size_t)n;
    }
    return true;
}

bool file_write_on(int fd, const void *data, size_t len)
{
    for (const u8 *p = data; len;) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && again(fd, POLLOUT))
            continue;
        if (n <= 0) {
            if (n == 0)
                errno = ENOSPC;
            return false;
        }
        p += n;
        len -= (size_t)n;
    }
    return true;
}

int file_open_regular(int dir, const char *name, u64 max, u64 *size, struct err *err)
{
    struct stat st;
    /* Looked at first: opening a device may do something. Then again, of what was opened. */
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
        return err_errno(err, "cannot open %s", name);
    int fd = -1;
    if (S_ISREG(st.st_mode)) {
        fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st)) {
            int code = err_errno(err, "cannot open %s", name);
            if (fd >= 0)
                close(fd);
            return code;
        }
    }
    int code = 0;
    if (!S_ISREG(st.st_mode))
        code = err_set(err, -EINVAL, "%s is not a regular file%s", name,
                       S_ISLNK(st.st_mode) ? " but a link" : "");
    else if ((u64)st.st_size > max)
        code = err_set(err, -EFBIG, "%s has %lld bytes, more than %llu", name,
                       (long long)st.st_size, (unsigned long long)max);
    if (code) {
        if (fd >= 0)
            close(fd);
        return code;
    }
    if (size)
        *size = (u64)st.st_size;
    return fd;
}

int file_create_at(int dir, const char *name)
{
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(dir, name, flags, FILE_PRIVATE);
    if (fd >= 0 || errno != EEXIST || unlinkat(dir, name, 0))
        return fd;
    return openat(dir, name, flags, FILE_PRIVATE);
}
