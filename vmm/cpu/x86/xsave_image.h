/* Bytes of an XSAVE image in standard format (SDM vol. 1, 13.4). */
#ifndef REPRISE_X86_XSAVE_IMAGE_H
#define REPRISE_X86_XSAVE_IMAGE_H

#include "base/bytes.h"
#include "cpu/model.h"
#include "cpu/vcpu.h"

#define XF_X87 1u
#define XF_SSE 2u
#define XF_AVX 4u
/* AVX-512: masks, upper halves of ZMM0 to ZMM15, ZMM16 to ZMM31. */
#define XF_MASK  0x20u
#define XF_HIGH  0x40u
#define XF_ABOVE 0x80u
#define XF_512   (XF_MASK | XF_HIGH | XF_ABOVE)

static inline void zero(u8 *p, unsigned n)
{
    for (unsigned i = 0; i < n; i += 8)
        put64(p + i, 0);
}

static inline void copy64(u8 *to, const u8 *from, unsigned n)
{
    for (unsigned i = 0; i < n; i += 8)
        put64(to + i, get64(from + i));
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

/* Where a vCPU's state has component 5, 6 or 7. */
static inline u8 *avx512_part(struct vcpu *c, unsigned component)
{
    return (u8 *)vcpu_avx512_part(c, component);
}

/* XSTATE_BV from contents; of AVX-512's components those of `wide`. */
static inline u64 in_use(struct vcpu *c, u64 wide)
{
    const u8 *x = c->xsave;
    u64 bv = 0;
    for (unsigned i = 5; UNLIKELY(wide & XF_512) && i < 8; i++)
        if (!all_zero(avx512_part(c, i), cpu_xsave_part(i).size))
            bv |= 1ull << i;
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
