/* Random numbers for tests that are repeated by their seed: splitmix64. */
#ifndef REPRISE_TESTS_SPLITMIX_H
#define REPRISE_TESTS_SPLITMIX_H

#include "base/types.h"

static inline u64 splitmix64(u64 *state)
{
    u64 z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

#endif
