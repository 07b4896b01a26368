/* Random numbers, and command buffers that draw, mutated: for programs that send a renderer what no
 * guest should. */
#ifndef REPRISE_VIRGL_FUZZ_H
#define REPRISE_VIRGL_FUZZ_H

#include "tests/tools/virgl_words.h"

static u64 fuzz_state;

/* splitmix64 */
static inline u64 bits(void)
{
    u64 z = fuzz_state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static inline u32 below(u32 n)
{
    return (u32)(bits() % n);
}

/* A number as a field of a request: mostly one that may mean something. */
static inline u32 field(void)
{
    static const u32 edges[] = {0,        1,   2,       3,        16,       64,
                                255,      256, 4096,    65535,    65536,    0x7fffffff,
                                1u << 31, ~0u, ~0u - 3, 1u << 17, 1u << 19, 67};
    switch (below(4)) {
    case 0: return edges[below(ARRAY_SIZE(edges))];
    case 1: return (u32)bits();
    default: return below(20);
    }
}

/* Draws resource 1, 64x64, from the vertices in 2; a query whose result goes to 3. */
static inline void full_buffer(struct words *b)
{
    b->n = 0;
    drawing_state(b, 1, 2, 64, 64);
    clear_colour(b, 1, 0.5f, 0.25f);
    command(b, VC_CREATE, VO_QUERY, 4);
    word(b, 50);
    word(b, 0);
    word(b, 0);
    word(b, 3);
    query_command(b, VC_BEGIN_QUERY, 50);
    draw(b, 0, 3);
    query_command(b, VC_END_QUERY, 50);
    query_command(b, VC_GET_QUERY, 50);
}

static inline void mutate(struct words *b)
{
    for (u32 n = 1 + below(4); n; n--) {
        u32 at = below(b->n);
        switch (below(6)) {
        case 0: b->w[at] = field(); break;
        case 1: b->w[at] ^= 1u << below(32); break;
        case 2: b->w[at] = b->w[below(b->n)]; break;
        case 3: b->n = MAX(at, 1u); break;
        case 4: ((u8 *)b->w)[at * 4] = (u8)below(60); break; /* another command */
        default:
            if (b->n + 16 < ARRAY_SIZE(b->w)) {
                memmove(b->w + at + 8, b->w + at, (b->n - at) * sizeof(u32));
                b->n += 8;
            }
        }
    }
}

#endif
