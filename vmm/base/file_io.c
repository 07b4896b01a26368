/* See file_io.h. */
#include "base/file_io.h"

#include <errno.h>
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
