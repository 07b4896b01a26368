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
    d->vectors = VECTORS_PARKED;
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
    d->vectors = VECTORS_PARKED;
}

#define XMM_AT  160
#define YMMH_AT 576

/* What the host's registers have that differs from init, of the guest's components. */
static u64 host_in_use(const struct core *d)
{
    u32 lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(1));
    return lo & d->xmask;
}

/*
 * Mostly there is nothing but XMM and YMM registers, and loads and stores of these take a third of
 * what XSAVE and XRSTOR do. x87 and AVX-512 go their way, also where they are in use by C only.
 */
static bool is_plain(u64 bv)
{
    return !(bv & ~(u64)(XF_SSE | XF_AVX));
}

#define EACH_XMM(X)                                                                                \
    X(0)                                                                                           \
    X(1)                                                                                           \
    X(2)                                                                                           \
    X(3)                                                                                           \
    X(4)                                                                                           \
    X(5)                                                                                           \
    X(6)                                                                                           \
    X(7)                                                                                           \
    X(8)                                                                                           \
    X(9)                                                                                           \
    X(10)                                                                                          \
    X(11)                                                                                          \
    X(12)                                                                                          \
    X(13)                                                                                          \
    X(14)                                                                                          \
    X(15)

static void save_plain(u8 *h, u64 bv)
{
    if (bv & XF_AVX) {
#define X(n) "vextractf128 $1, %%ymm" #n ", 16*" #n "(%0)\n\t"
        __asm__ volatile(EACH_XMM(X) : : "r"(h + YMMH_AT) : "memory");
#undef X
    }
#define X(n) "movaps %%xmm" #n ", 16*" #n "(%0)\n\t"
    __asm__ volatile(EACH_XMM(X) "stmxcsr %1"
                     :
                     : "r"(h + XMM_AT), "m"(*(u32 *)(h + 24))
                     : "memory");
#undef X
    put64(h + 512, bv | XF_SSE);
}

/* `host`: what is in use now. */
static void restore_plain(const u8 *h, u64 bv, u64 host)
{
    if (bv & XF_AVX) {
#define X(n)                                                                                       \
    "vmovaps 16*" #n "(%0), %%xmm" #n "\n\t"                                                       \
    "vinsertf128 $1, 16*" #n "(%1), %%ymm" #n ", %%ymm" #n "\n\t"
        __asm__ volatile(EACH_XMM(X) : : "r"(h + XMM_AT), "r"(h + YMMH_AT) : "memory");
#undef X
    } else {
        if (host & XF_AVX)
            __asm__ volatile("vzeroupper");
#define X(n) "movaps 16*" #n "(%0), %%xmm" #n "\n\t"
        __asm__ volatile(EACH_XMM(X) : : "r"(h + XMM_AT) : "memory");
#undef X
    }
    __asm__ volatile("ldmxcsr %0" : : "m"(*(const u32 *)(h + 24)));
}

/* The image has XMM registers, in use or not: not every maker's XRSTOR loads MXCSR without. C finds
 * the registers that control its arithmetic as it left them. */
static void save(struct core *d)
{
    static const u32 mxcsr = 0x1f80;
    u8 *h = d->xs_park;
    u64 bv = d->has_in_use ? host_in_use(d) : XF_X87;
    if (LIKELY(is_plain(bv)))
        save_plain(h, bv);
    else
        __asm__ volatile("xsave64 (%0)" : : "r"(h), "a"((u32)d->xmask), "d"(0) : "memory");
    if (!(get64(h + 512) & XF_SSE)) {
        zero(h + XMM_AT, 256);
        put64(h + 512, get64(h + 512) | XF_SSE);
    }
    if (get64(h + 512) & XF_X87)
        __asm__ volatile("fninit");
    if (*(const u32 *)(h + 24) != mxcsr)
        __asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
}

void core_park(struct core *d)
{
    if (d->vectors == VECTORS_PARKED)
        return;
    if (d->vectors == VECTORS_LIVE)
        save(d);
    park_take_image(d, d->xs_park);
}

void core_set_aside(struct core *d)
{
    if (!d->may_aside) {
        core_park(d);
    } else if (d->vectors == VECTORS_LIVE) {
        save(d);
        d->vectors = VECTORS_ASIDE;
    }
}

static void restore(struct core *d)
{
    const u8 *h = d->xs_park;
    u64 bv = get64(h + 512), host = d->has_in_use ? host_in_use(d) : XF_X87;
    if (LIKELY(is_plain(bv | host)))
        restore_plain(h, bv, host);
    else
        __asm__ volatile("xrstor64 (%0)" : : "r"(h), "a"((u32)d->xmask), "d"(0) : "memory");
    d->vectors = VECTORS_LIVE;
}

/* The host's image of what is parked. */
static void build_image(struct core *d)
{
    u8 *x = d->cpu.xsave, *h = d->xs_park;
    for (unsigned i = 0; i < XSAVE_SIZE; i += 8)
        put64(h + i, get64(x + i));
    if (UNLIKELY(d->xmask & XF_512))
        put_avx512(d, h);
    put64(h + 512, in_use(&d->cpu, d->xmask) | XF_SSE);
    put64(h + 520, 0);
    d->fop = *(u16 *)(x + 6);
    d->fip = get64(x + 8);
    d->fdp = get64(x + 16);
}

void core_unpark(struct core *d)
{
    if (d->vectors == VECTORS_LIVE)
        return;
    if (d->vectors == VECTORS_PARKED)
        build_image(d);
    restore(d);
}
