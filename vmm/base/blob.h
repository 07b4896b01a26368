/*
 * Bytes that can be read at any offset: a file of its own, or what somebody else makes of one (a
 * member of a pack: replay/pack.h). Those who read a recording's files read them through this, so
 * that they need not know which it is.
 */
#ifndef REPRISE_BLOB_H
#define REPRISE_BLOB_H

#include "base/err.h"
#include "base/types.h"

struct blob_ops {
    /* As file_read_at(). [offset, offset + len) lies within the part's size. */
    bool (*read_at)(void *opaque, void *out, size_t len, u64 offset);
    /* Why the last read_at() failed, after "cannot read NAME: "; NULL: errno says it. */
    const char *(*why)(void *opaque);
    void (*close)(void *opaque);
};

struct blob {
    int fd; /* a file; -1: `ops` */
    u64 size;
    const struct blob_ops *ops;
    void *opaque;
};
#define BLOB_CLOSED                                                                                \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

static inline bool blob_is_open(const struct blob *p)
{
    return p->fd >= 0 || p->ops;
}

/* A file, which is the part's from now on. `size` is not known: readers of such ask fstat(). */
struct blob blob_of(int fd);
/* Reads exactly `len` bytes. false: an error (errno), or the part ends before (errno 0). */
bool blob_read_at(const struct blob *p, void *out, size_t len, u64 offset);
/* What read_at() had to say, or strerror(). */
const char *blob_why(const struct blob *p);
/* As it is now. */
u64 blob_size(const struct blob *p);
void blob_close(struct blob *p); /* twice is safe */

#endif
