/*
 * A shadow: the renderer's stand-in for the guest memory behind a resource. The client writes into
 * it what the guest has there; the library reads it, and writes to it on its own (results of
 * queries, transfers inside a command buffer) without telling anybody.
 *
 * So that nothing it writes is missed, whoever in the process does it, the library is given a
 * mapping that is write-protected: the first write to a piece keeps a copy of what was there
 * (SIGSEGV), and shadow_changes() compares. What costs is what is written, not what is there.
 */
#ifndef REPRISE_GPU_SHADOW_H
#define REPRISE_GPU_SHADOW_H

#include "base/types.h"

struct shadow {
    u8 *own;    /* ours: always writable */
    u8 *shared; /* the same bytes, as the library sees them */
    u8 *before; /* what the pieces that were written had */
    size_t size, mapped;
    u64 *dirty; /* a bit a piece */
    bool any;
    u32 index; /* in the table of all shadows */
};

/* Installs the signal handler; once, before the first shadow. False: errno says why not. */
bool shadow_init(void);

/* NULL: no memory. size is not 0. */
struct shadow *shadow_create(u64 size);
void shadow_destroy(struct shadow *s); /* NULL is safe */

/* What the client writes; it is no change. The range lies within the shadow. */
void shadow_write(struct shadow *s, u64 offset, const void *bytes, size_t size);

/* May any shadow have changes? */
bool shadow_any(void);

/* Calls found() for each run of bytes that the library changed, in ascending order, and forgets
 * them. */
void shadow_changes(struct shadow *s, void (*found)(void *opaque, u64 offset, size_t size),
                    void *opaque);

#endif
