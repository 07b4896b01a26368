/* The input of a fuzz target as a program: its bytes are taken one after the other, as numbers. */
#ifndef REPRISE_FUZZ_PROGRAM_H
#define REPRISE_FUZZ_PROGRAM_H

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/types.h"

struct program {
    const u8 *p;
    size_t left;
};

/* The next bytes, little-endian; zeros when it is over. */
static inline u64 take(struct program *s, unsigned bytes)
{
    u64 v = 0;
    for (unsigned i = 0; i < bytes && s->left; i++, s->p++, s->left--)
        v |= (u64)*s->p << (8 * i);
    return v;
}

/* For fuzz_sample(): a copy of `size` bytes, the caller's. */
static inline u8 *program_copy(const u8 *bytes, size_t size, size_t *out)
{
    u8 *data = malloc(size);
    memcpy(data, bytes, size);
    *out = size;
    return data;
}

/* Aborts if a target leaves descriptors open, of which it has a handful by itself. */
static inline void program_check_descriptors(void)
{
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(next);
    if (next > 20)
        abort();
}

#endif
