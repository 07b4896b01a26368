/* The input of a fuzz target as a program: its bytes are taken one after the other, as numbers. */
#ifndef REPRISE_FUZZ_PROGRAM_H
#define REPRISE_FUZZ_PROGRAM_H

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

#endif
