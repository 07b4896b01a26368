/* AVX-512: XCR0, state images, masks that leave out what would fault, gathers and scatters,
 * approximations. */
#include "tiny.h"

static u8 area[4096] __attribute__((aligned(64))), bytes[256] __attribute__((aligned(64)));
static u32 numbers[64] __attribute__((aligned(64)));

enum { OPMASK = 1088, HIGH = 1152, ABOVE = 1664, ALL = 0xe7 }; /* as Intel's CPUs have them */

#define EDGE 0x6000000000ull /* a page is here, and none behind it */

static u64 mask_of(unsigned k)
{
    u64 v;

    if (k == 1)
        __asm__ volatile("kmovq %%k1, %0" : "=r"(v));
    else
        __asm__ volatile("kmovq %%k2, %0" : "=r"(v));
    return v;
}

static void set_k1(u64 v)
{
    __asm__ volatile("kmovq %0, %%k1" : : "r"(v));
}

static void set_xcr0(u64 v)
{
    __asm__ volatile("xsetbv" : : "c"(0), "a"((u32)v), "d"(0));
}

static void cpuid_says(void)
{
    static const struct {
        u32 component, size, at;
    } rows[] = {{2, 256, 576}, {5, 64, OPMASK}, {6, 512, HIGH}, {7, 1024, ABOVE}};
    u32 r[4];

    for (unsigned i = 0; i < COUNT(rows); i++) {
        cpuid(0xd, rows[i].component, r);
        check_eq(r[0], rows[i].size, "a component's size");
        check_eq(r[1], rows[i].at, "its place");
    }
    cpuid(0xd, 0, r);
    check_eq(r[0], ALL, "what XCR0 may have");
    check_eq(r[1], 576, "the area of what it has");
    check_eq(r[2], 2688, "the whole area");
}

static void enabled(void)
{
    static const u32 wrong[] = {0x27, 0x67, 0xe3, 0xe1, 0xa7, 0x40, 0x1e7};

    TRY("kmovq %%rax, %%k1", "a"(1));
    check_trap(6, 0, 0, "UD for masks without OSXSAVE");
    WRITE_REG(cr4, READ_REG(cr4) | 1 << 18);
    for (unsigned i = 0; i < COUNT(wrong); i++) {
        TRY("xsetbv", "c"(0), "a"(wrong[i]), "d"(0));
        check_trap(13, 0, 0, "XCR0 with a part of AVX-512, or without AVX");
    }
    set_xcr0(7);
    TRY("vaddps %%zmm0, %%zmm0, %%zmm0", "a"(0));
    check_trap(6, 0, 0, "UD for EVEX");
    TRY("kmovq %%rax, %%k1", "a"(1));
    check_trap(6, 0, 0, "UD for masks");
    TRY("xsetbv", "c"(0), "a"(ALL), "d"(0));
    check_trap(-1, 0, 0, "XCR0");
    TRY("vaddps %%zmm0, %%zmm0, %%zmm0", "a"(0));
    check_trap(-1, 0, 0, "EVEX");
    WRITE_REG(cr0, READ_REG(cr0) | 8);
    TRY("vaddps %%zmm0, %%zmm0, %%zmm0", "a"(0));
    check_trap(7, 0, 0, "NM for EVEX");
    TRY("kmovq %%rax, %%k1", "a"(1));
    check_trap(7, 0, 0, "NM for masks");
    WRITE_REG(cr0, READ_REG(cr0) & ~8ull);
    set_k1(0x123456789abcdef0);
    set_xcr0(7);
    TRY("kmovq %%k1, %%rax", "a"(1));
    check_trap(6, 0, 0, "UD again");
    set_xcr0(ALL);
    check_eq(mask_of(1), 0x123456789abcdef0, "masks stay while they are off");
}

static void images(void)
{
    __asm__ volatile("vpxord %zmm0, %zmm0, %zmm0; vpternlogd $0xff, %zmm3, %zmm3, %zmm3;"
                     "vpternlogd $0xff, %zmm31, %zmm31, %zmm31; kxorq %k2, %k2, %k2");
    set_k1(0x55);
    memset(area, 0, sizeof area);
    __asm__ volatile("xsave64 (%0)" : : "r"(area), "a"(ALL), "d"(0) : "memory");
    check_eq(area[512] & 0xe4, 0xe4, "XSTATE_BV");
    check_eq(*(u64 *)(area + OPMASK + 8), 0x55, "k1 in the image");
    check_eq(*(u64 *)(area + HIGH + 3 * 32 + 24), ~0ull, "ZMM3's upper half");
    check_eq(*(u64 *)(area + HIGH + 2 * 32 + 32 + 32), 0, "ZMM4's");
    check_eq(*(u64 *)(area + ABOVE + 15 * 64), ~0ull, "ZMM31");
    memset(area + OPMASK, 0x77, 64);
    area[512] &= (u8)~0x80;
    __asm__ volatile("xrstor64 (%0)" : : "r"(area), "a"(ALL), "d"(0) : "memory");
    check_eq(mask_of(2), 0x7777777777777777, "k2 out of the image");
    __asm__ volatile("vmovdqu64 %%zmm31, (%0); vmovdqu64 %%zmm3, 64(%0)" : : "r"(bytes) : "memory");
    check_eq(*(u64 *)bytes, 0, "ZMM31 as it begins");
    check_eq(*(u64 *)(bytes + 64 + 56), ~0ull, "ZMM3 kept");
    /* What VEX writes has nothing above. */
    __asm__ volatile("vpor %%ymm3, %%ymm3, %%ymm3; vmovdqu64 %%zmm3, (%0)" : : "r"(bytes) : "memory");
    check_eq(*(u64 *)(bytes + 24), ~0ull, "YMM3");
    check_eq(*(u64 *)(bytes + 32), 0, "above it");
    /* Only some of it. */
    set_k1(1);
    __asm__ volatile("xsave64 (%0)" : : "r"(area), "a"(0x20), "d"(0) : "memory");
    check_eq(*(u64 *)(area + OPMASK + 8), 1, "masks alone");
    TRY("xrstor64 (%%rcx)", "c"(area + 8), "a"(ALL), "d"(0));
    check_trap(13, 0, 0, "an image that is not aligned");
}

static void masked(void)
{
    u8 *last = (u8 *)EDGE + PAGE - 16;

    map(EDGE, (u64)pt_alloc(), PT_P | PT_W);
    memset(last, 0x11, 16);
    set_k1(0xf);
    TRY("vmovdqu32 (%%rcx), %%zmm1%{%%k1%}%{z%}", "c"(last));
    check_trap(-1, 0, 0, "a load over the edge, masked");
    TRY("vpaddd (%%rcx), %%zmm1, %%zmm2%{%%k1%}", "c"(last));
    check_trap(-1, 0, 0, "an operand, masked");
    __asm__ volatile("vmovdqu32 %%zmm1, (%0)" : : "r"(bytes) : "memory");
    check_eq(*(u64 *)(bytes + 8), 0x1111111111111111, "what was loaded");
    check_eq(*(u64 *)(bytes + 16), 0, "what was not");
    TRY("vmovdqu32 %%zmm2, (%%rcx)%{%%k1%}", "c"(last));
    check_trap(-1, 0, 0, "a store over the edge, masked");
    set_k1(0x1f);
    TRY("vmovdqu32 (%%rcx), %%zmm1%{%%k1%}%{z%}", "c"(last));
    check_trap(14, 0, EDGE + PAGE, "one element too many");
    TRY("vmovdqu32 %%zmm1, (%%rcx)%{%%k1%}", "c"(last));
    check_trap(14, 2, EDGE + PAGE, "... stored");
    set_k1(0xff00);
    TRY("vpcompressd %%zmm1, (%%rcx)%{%%k1%}", "c"(last - 16));
    check_trap(-1, 0, 0, "eight compressed, up to the edge");
    TRY("vpexpandd (%%rcx), %%zmm1%{%%k1%}", "c"(last - 12));
    check_trap(14, 0, EDGE + PAGE, "eight expanded, over it");
    set_k1(0);
    TRY("vmovdqu8 (%%rcx), %%zmm1%{%%k1%}", "c"(EDGE + PAGE));
    check_trap(-1, 0, 0, "nothing of nothing");
    TRY("vmovdqa64 (%%rcx), %%zmm1%{%%k1%}", "c"(EDGE + PAGE + 8));
    check_trap(-1, 0, 0, "which needs no alignment");
    TRY("vaddps (%%rcx)%{1to16%}, %%zmm1, %%zmm1%{%%k1%}", "c"(EDGE + PAGE));
    check_trap(-1, 0, 0, "a broadcast of nothing");
    TRY("vpermd (%%rcx), %%zmm1, %%zmm1%{%%k1%}", "c"(EDGE + PAGE));
    check_trap(14, 0, EDGE + PAGE, "a permutation reads all");
}

static void gathers(void)
{
    u64 at = EDGE + PAGE - 32;

    for (u32 i = 0; i < COUNT(numbers); i++)
        numbers[i] = i;
    memcpy(bytes, numbers, 64);
    for (unsigned i = 0; i < 8; i++)
        ((u32 *)at)[i] = 100 + i;
    __asm__ volatile("vmovdqu32 (%0), %%zmm5" : : "r"(bytes) : "memory");
    set_k1(0xffff);
    TRY("vpgatherdd (%%rcx,%%zmm5,4), %%zmm6%{%%k1%}", "c"(at));
    check_trap(14, 0, EDGE + PAGE, "a gather over the edge");
    check_eq(mask_of(1), 0xff00, "what is left of its mask");
    __asm__ volatile("vmovdqu32 %%zmm6, (%0)" : : "r"(bytes + 64) : "memory");
    check_eq(*(u32 *)(bytes + 64 + 28), 107, "what it has gathered");
    set_k1(0x00f0);
    TRY("vpscatterdd %%zmm5, (%%rcx,%%zmm5,4)%{%%k1%}", "c"(at));
    check_trap(-1, 0, 0, "a scatter");
    check_eq(((u32 *)at)[5], 5, "what it has stored");
    check_eq(((u32 *)at)[3], 103, "what it has not");
    check_eq(mask_of(1), 0, "its mask");
    set_k1(0x0180);
    TRY("vpscatterdd %%zmm5, (%%rcx,%%zmm5,4)%{%%k1%}", "c"(at));
    check_trap(14, 2, EDGE + PAGE, "a scatter over the edge");
    check_eq(mask_of(1), 0x0100, "what is left of it");
    check_eq(((u32 *)at)[7], 7, "... and was stored");
}

/* By a rule of ours, the same on each host (docs/determinism.md). */
static void approximations(void)
{
    static const struct {
        u32 of, rcp, rsqrt;
    } rows[] = {{0x3f800000, 0x3f800000, 0x3f800000}, /* 1 */
                {0x40400000, 0x3eaaaa00, 0x3f13ce00}, /* 3: of 0.33333, 0.57735 */
                {0x40e00000, 0x3e124a00, 0x3ec18400}, /* 7 */
                {0x00000000, 0x7f800000, 0x7f800000}, {0x80000000, 0xff800000, 0xff800000},
                {0x7f800000, 0x00000000, 0x00000000}, {0xff800000, 0x80000000, 0xffc00000},
                {0x7f800001, 0x7fc00001, 0x7fc00001}, {0xbf800000, 0xbf800000, 0xffc00000}};
    u32 got[2];

    for (unsigned i = 0; i < COUNT(rows); i++) {
        __asm__ volatile("vmovd %2, %%xmm0; vrcp14ss %%xmm0, %%xmm0, %%xmm1; vmovd %%xmm1, %0;"
                         "vrsqrt14ss %%xmm0, %%xmm0, %%xmm1; vmovd %%xmm1, %1"
                         : "=r"(got[0]), "=r"(got[1])
                         : "r"(rows[i].of));
        check_eq(got[0], rows[i].rcp, "VRCP14SS");
        check_eq(got[1], rows[i].rsqrt, "VRSQRT14SS");
    }
    memset(bytes, 0, 64);
    *(u32 *)(bytes + 8) = 0x40000000;
    set_k1(4);
    __asm__ volatile("vpternlogd $0xff, %%zmm2, %%zmm2, %%zmm2; vrcp14ps (%0), %%zmm2%{%%k1%};"
                     "vmovdqu32 %%zmm2, 64(%0)"
                     :
                     : "r"(bytes)
                     : "memory");
    check_eq(*(u32 *)(bytes + 64 + 8), 0x3f000000, "VRCP14PS, masked");
    check_eq(*(u32 *)(bytes + 64 + 4), 0xffffffff, "beside it");
    TRY("vrsqrt14pd (%%rcx)%{1to8%}, %%zmm2%{%%k1%}", "c"(EDGE + PAGE));
    check_trap(14, 0, EDGE + PAGE, "VRSQRT14PD of what is not there");
    set_k1(0x100);
    TRY("vrsqrt14pd (%%rcx)%{1to8%}, %%zmm2%{%%k1%}", "c"(EDGE + PAGE));
    check_trap(-1, 0, 0, "... and not asked for");
}

static volatile u64 marked[2];

/* What becomes of accessed and dirty bits where a mask is empty is the CPU's choice; it must be one. */
static void empty(void)
{
    for (unsigned i = 0; i < COUNT(marked); i++) {
        map(EDGE, (u64)pt_alloc(), PT_P | PT_W);
        set_k1(0);
        if (i)
            TRY("vmovdqu32 %%zmm1, (%%rcx)%{%%k1%}", "c"(EDGE));
        else
            TRY("vmovdqu32 (%%rcx), %%zmm1%{%%k1%}", "c"(EDGE));
        check_trap(-1, 0, 0, i ? "a store of nothing" : "a load of nothing");
        marked[i] = *pt_entry(EDGE, 1) & (PT_A | PT_D);
    }
    print("marked %lx %lx\n", marked[0], marked[1]);
}

void guest_main(void)
{
    cpuid_says();
    enabled();
    images();
    masked();
    empty();
    gathers();
    approximations();
}
