/* See blob.h. */
#include "base/blob.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"

struct blob blob_of(int fd)
{
    return (struct blob){.fd = fd};
}

bool blob_read_at(const struct blob *p, void *out, size_t len, u64 offset)
{
    if (!p->ops)
        return file_read_at(p->fd, out, len, offset);
    if (offset > p->size || len > p->size - offset) {
        errno = 0;
        return false;
    }
    return p->ops->read_at(p->opaque, out, len, offset);
}

const char *blob_why(const struct blob *p)
{
    int error = errno;
    const char *why = p->ops && p->ops->why ? p->ops->why(p->opaque) : NULL;
    return why ? why : error ? strerror(error) : "it became shorter";
}

u64 blob_size(const struct blob *p)
{
    struct stat st;
    if (p->ops)
        return p->size;
    return fstat(p->fd, &st) || !S_ISREG(st.st_mode) ? 0 : (u64)st.st_size;
}

void blob_close(struct blob *p)
{
    if (p->fd >= 0)
        close(p->fd);
    if (p->ops)
        p->ops->close(p->opaque);
    *p = (struct blob)BLOB_CLOSED;
}
