/* Bytes of an XSAVE image in standard format (SDM vol. 1, 13.4). */
#ifndef REPRISE_X86_XSAVE_IMAGE_H
#define REPRISE_X86_XSAVE_IMAGE_H

#include "base/types.h"

#define XF_X87 1u
#define XF_SSE 2u
#define XF_AVX 4u

static inline void put16(u8 *p, u16 v)
{
    *(u16 *)p = v;
}

static inline void put32(u8 *p, u32 v)
{
    *(u32 *)p = v;
}

static inline u64 get64(const u8 *p)
{
    return *(const u64 *)p;
}

static inline void put64(u8 *p, u64 v)
{
    *(u64 *)p = v;
}

static inline void zero(u8 *p, unsigned n)
{
    for (unsigned i = 0; i < n; i += 8)
        put64(p + i, 0);
}

static inline bool all_zero(const u8 *p, unsigned n)
{
    u64 v = 0;
    for (unsigned i = 0; i < n; i += 8)
        v |= get64(p + i);
    return v == 0;
}

static inline void init_x87(u8 *x)
{
    put64(x, 0x037f); /* FCW 037f, FSW 0, FTW empty, FOP 0 */
    put64(x + 8, 0);
    put64(x + 16, 0);
    zero(x + 32, 128);
}

/* XSTATE_BV from contents. */
static inline u64 in_use(const u8 *x)
{
    u64 bv = 0;
    if ((get64(x) & 0xffffffffffffull) != 0x037f || get64(x + 8) || get64(x + 16) ||
        (*(const u16 *)(x + 6)) || !all_zero(x + 32, 128))
        bv |= XF_X87;
    if (!all_zero(x + 160, 256))
        bv |= XF_SSE;
    if (!all_zero(x + 576, 256))
        bv |= XF_AVX;
    return bv;
}

#endif
