/*
 * Where the guest's x87/SSE/AVX state is. While the engine runs, the host's vector and x87
 * registers hold it; core_park() moves it to cpu.xsave in canonical form, core_unpark() back.
 * Canonical: XSTATE_BV says "differs from init", FIP/FDP/FOP are the guest's own (ours come from
 * translated code), so that nothing of the host or of history shows. SDM vol. 1, chapter 13.
 */
#include "cpu/x86/park.h"

#include "cpu/x86/xsave_image.h"

/* AVX-512's components out of a host's image, */
static void take_avx512(struct core *d, const u8 *image)
{
    for (unsigned i = 5; i < 8; i++) {
        u8 *own = avx512_part(&d->cpu, i);
        unsigned n = cpu_xsave_part(i).size;
        if (get64(image + 512) >> i & 1)
            copy64(own, image + d->xs_at[i - 5], n);
        else
            zero(own, n);
    }
}

/* and into one. */
static void put_avx512(struct core *d, u8 *image)
{
    for (unsigned i = 5; i < 8; i++)
        copy64(image + d->xs_at[i - 5], avx512_part(&d->cpu, i), cpu_xsave_part(i).size);
}

void park_changed(struct core *d)
{
    put64(d->cpu.xsave + 512, in_use(&d->cpu, d->xmask));
}

void park_init_image(struct core *d)
{
    u8 *x = d->cpu.xsave;
    zero(x, XSAVE_SIZE);
    zero(d->cpu.zmm_high, sizeof(d->cpu.zmm_high));
    zero(d->cpu.zmm_above, sizeof(d->cpu.zmm_above));
    zero((u8 *)d->cpu.mask, sizeof(d->cpu.mask));
    init_x87(x);
    put32(x + 24, 0x1f80);
    put32(x + 28, 0xffff);
    d->fip = d->fdp = 0;
    d->fop = 0;
    d->parked = true;
}

void park_take_image(struct core *d, const u8 *h)
{
    u8 *x = d->cpu.xsave;
    u64 bv = get64(h + 512);
    if (bv & XF_X87) {
        for (unsigned i = 0; i < 24; i += 8)
            put64(x + i, get64(h + i));
        for (unsigned i = 32; i < 160; i += 8)
            put64(x + i, get64(h + i));
    } else {
        init_x87(x);
    }
    put32(x + 24, *(const u32 *)(h + 24)); /* MXCSR: saved whenever SSE or AVX is asked for */
    put32(x + 28, 0xffff);
    if (bv & XF_SSE) {
        for (unsigned i = 160; i < 416; i += 8)
            put64(x + i, get64(h + i));
    } else {
        zero(x + 160, 256);
    }
    if (bv & XF_AVX) {
        for (unsigned i = 576; i < 832; i += 8)
            put64(x + i, get64(h + i));
    } else {
        zero(x + 576, 256);
    }
    if (UNLIKELY(d->xmask & XF_512))
        take_avx512(d, h);
    /* The 16-byte slots of ST registers have six reserved bytes. */
    for (unsigned r = 0; r < 8; r++)
        put64(x + 32 + 16 * r + 8, get64(x + 32 + 16 * r + 8) & 0xffff);
    put16(x + 6, d->fop & 0x7ff);
    put64(x + 8, d->fip);
    put64(x + 16, d->fdp);
    park_changed(d);
    d->parked = true;
}

void core_park(struct core *d)
{
    if (d->parked)
        return;
    u8 *h = d->xs_park;
    __asm__ volatile("xsave64 (%0)" : : "r"(h), "a"((u32)d->xmask), "d"(0) : "memory");
    static const u32 mxcsr = 0x1f80;
    __asm__ volatile("fninit; ldmxcsr %0" : : "m"(mxcsr));
    park_take_image(d, h);
}

void core_unpark(struct core *d)
{
    if (!d->parked)
        return;
    u8 *x = d->cpu.xsave, *h = d->xs_park;
    for (unsigned i = 0; i < XSAVE_SIZE; i += 8)
        put64(h + i, get64(x + i));
    if (UNLIKELY(d->xmask & XF_512))
        put_avx512(d, h);
    /* Everything explicit: what is not in use is restored as its init value either way. */
    put64(h + 512, d->xmask);
    put64(h + 520, 0);
    d->fop = *(u16 *)(x + 6);
    d->fip = get64(x + 8);
    d->fdp = get64(x + 16);
    __asm__ volatile("xrstor64 (%0)" : : "r"(h), "a"((u32)d->xmask), "d"(0) : "memory");
    d->parked = false;
}
