/* x87, SSE, AVX and XSAVE: values, CR0.TS and EM, unmasked exceptions, state images. */
#include "tiny.h"

static u8 area[1024] __attribute__((aligned(64))), area2[1024] __attribute__((aligned(64)));

static void values(void)
{
    double d = 2.0, r;
    u64 bits;

    __asm__ volatile("fninit; fldl %1; fsqrt; fstpl %0" : "=m"(r) : "m"(d));
    memcpy(&bits, &r, 8);
    check_eq(bits, 0x3ff6a09e667f3bcd, "FSQRT of 2");
    __asm__ volatile("sqrtsd %1, %%xmm0; movsd %%xmm0, %0" : "=m"(r) : "m"(d));
    memcpy(&bits, &r, 8);
    check_eq(bits, 0x3ff6a09e667f3bcd, "SQRTSD of 2");
    __asm__ volatile("fldpi; fstpt %0" : "=m"(area));
    check_eq(*(u64 *)area, 0xc90fdaa22168c235, "pi");
    __asm__ volatile("movd %0, %%mm0; paddb %%mm0, %%mm0; movd %%mm0, %%eax; mov %%eax, %1; emms"
                     :
                     : "r"(0x01020304), "m"(*(u32 *)area)
                     : "eax", "memory");
    check_eq(*(u32 *)area, 0x02040608, "MMX");
}

static void task_switched(void)
{
    WRITE_REG(cr0, READ_REG(cr0) | 8);
    TRY("fninit", "a"(0));
    check_trap(7, 0, 0, "NM for x87");
    TRY("movaps %%xmm0, %%xmm1", "a"(0));
    check_trap(7, 0, 0, "NM for SSE");
    TRY("fwait", "a"(0));
    check_trap(7, 0, 0, "NM for FWAIT with MP");
    TRY("fxsave (%%rcx)", "c"(area));
    check_trap(7, 0, 0, "NM for FXSAVE");
    TRY("ldmxcsr (%%rcx)", "c"(area));
    check_trap(7, 0, 0, "NM for LDMXCSR");
    TRY("clts", "a"(0));
    check_trap(-1, 0, 0, "CLTS");
    TRY("fninit", "a"(0));
    check_trap(-1, 0, 0, "after CLTS");
    WRITE_REG(cr0, (READ_REG(cr0) | 4) & ~2ull);
    TRY("fninit", "a"(0));
    check_trap(7, 0, 0, "EM: NM for x87");
    TRY("movaps %%xmm0, %%xmm1", "a"(0));
    check_trap(6, 0, 0, "EM: UD for SSE");
    WRITE_REG(cr0, (READ_REG(cr0) & ~4ull) | 2);
    WRITE_REG(cr4, READ_REG(cr4) & ~0x200ull);
    TRY("movaps %%xmm0, %%xmm1", "a"(0));
    check_trap(6, 0, 0, "UD without OSFXSR");
    WRITE_REG(cr4, READ_REG(cr4) | 0x200);
}

static void unmasked(void)
{
    u16 cw = 0x37f & ~4; /* zero divide */
    u32 mx = 0x1f80 & ~0x200u;

    __asm__ volatile("fninit; fldcw %0; fld1; fldz; fdivrp %%st, %%st(1)" : : "m"(cw));
    TRY("fwait", "a"(0));
    check_trap(16, 0, 0, "MF");
    TRY("fnstsw %%ax", "a"(0));
    check_trap(-1, 0, 0, "FNSTSW does not wait");
    TRY("fld1", "a"(0));
    INEXACT(check_trap(16, 0, 0, "MF again"));
    __asm__ volatile("fnclex; fninit");
    TRY("fld1", "a"(0));
    check_trap(-1, 0, 0, "after FNCLEX");
    __asm__ volatile(
        "ldmxcsr %0; xorps %%xmm1, %%xmm1; pcmpeqd %%xmm0, %%xmm0; cvtdq2ps %%xmm0, %%xmm0"
        :
        : "m"(mx));
    TRY("divps %%xmm1, %%xmm0", "a"(0));
    INEXACT(check_trap(19, 0, 0, "XM"));
    WRITE_REG(cr4, READ_REG(cr4) & ~0x400ull);
    TRY("divps %%xmm1, %%xmm0", "a"(0));
    INEXACT(check_trap(6, 0, 0, "UD without OSXMMEXCPT"));
    WRITE_REG(cr4, READ_REG(cr4) | 0x400);
    mx = 0x1f80;
    __asm__ volatile("ldmxcsr %0" : : "m"(mx));
    *(u32 *)area = 0x11f80;
    TRY("ldmxcsr (%%rcx)", "c"(area));
    INEXACT(check_trap(13, 0, 0, "reserved bits of MXCSR"));
    __asm__ volatile("ldmxcsr %0" : : "m"(mx));
}

static void images(void)
{
    memset(area, 0x5a, sizeof area);
    __asm__ volatile("fninit; fld1; fxsave64 %0" : "=m"(area) : : "memory");
    check_eq(*(u16 *)area, 0x37f, "FXSAVE: FCW");
    check_eq(area[4], 0x80, "FXSAVE: tag");
    check_eq(*(u64 *)(area + 8) < (1ull << 32), 1, "FXSAVE: FIP is an address of ours");
    area[160] = 0x77;
    __asm__ volatile("fxrstor64 %0; movaps %%xmm0, %1" : : "m"(area), "m"(area2) : "memory");
    check_eq(area2[0], 0x77, "FXRSTOR");
    area[27] = 0xff;
    TRY("fxrstor64 (%%rcx)", "c"(area));
    INEXACT(check_trap(13, 0, 0, "FXRSTOR with a bad MXCSR"));
    TRY("fxsave64 8(%%rcx)", "c"(area));
    INEXACT(check_trap(13, 0, 0, "FXSAVE misaligned"));
}

static void xsave(void)
{
    bool avx = cpu_has(1, 2, 28);
    u64 mask = avx ? 7 : 3;

    if (!cpu_has(1, 2, 26))
        return;
    TRY("xgetbv", "c"(0), "a"(0), "d"(0));
    check_trap(6, 0, 0, "XGETBV without OSXSAVE");
    check(!cpu_has(1, 2, 27), "OSXSAVE clear in CPUID");
    WRITE_REG(cr4, READ_REG(cr4) | 1 << 18);
    check(cpu_has(1, 2, 27), "OSXSAVE set in CPUID");
    TRY("xsetbv", "c"(0), "a"(2), "d"(0));
    check_trap(13, 0, 0, "XCR0 without x87");
    TRY("xsetbv", "c"(0), "a"(5), "d"(0));
    check_trap(13, 0, 0, "AVX without SSE");
    TRY("xsetbv", "c"(1), "a"(3), "d"(0));
    INEXACT(check_trap(13, 0, 0, "XCR1"));
    TRY("xsetbv", "c"(0), "a"(mask), "d"(0));
    check_trap(-1, 0, 0, "XCR0");
    memset(area, 0, sizeof area);
    __asm__ volatile("pcmpeqd %%xmm3, %%xmm3; xsave64 (%0)"
                     :
                     : "r"(area), "a"(7), "d"(0)
                     : "memory");
    check_eq(area[512] & 2, 2, "XSTATE_BV");
    check_eq(area[160 + 3 * 16], 0xff, "XMM3 in the image");
    area[512] = 0;
    __asm__ volatile("xrstor64 (%0); movaps %%xmm3, (%1)"
                     :
                     : "r"(area), "r"(area2), "a"(7), "d"(0)
                     : "memory");
    check_eq(area2[0], 0, "XRSTOR to the initial state");
    *(u64 *)(area + 520) = 1;
    TRY("xrstor64 (%%rcx)", "c"(area), "a"(7), "d"(0));
    check_trap(13, 0, 0, "XCOMP_BV must be zero");
    if (avx) {
        TRY(".byte 0xc5,0xfc,0x58,0xc0", "a"(0)); /* vaddps ymm0, ymm0, ymm0 */
        check_trap(-1, 0, 0, "AVX");
        TRY("xsetbv", "c"(0), "a"(3), "d"(0));
        TRY(".byte 0xc5,0xfc,0x58,0xc0", "a"(0));
        check_trap(6, 0, 0, "AVX switched off in XCR0");
        TRY("xsetbv", "c"(0), "a"(mask), "d"(0));
        WRITE_REG(cr0, READ_REG(cr0) | 8);
        TRY(".byte 0xc5,0xfc,0x58,0xc0", "a"(0));
        check_trap(7, 0, 0, "NM for AVX");
        WRITE_REG(cr0, READ_REG(cr0) & ~8ull);
    }
    WRITE_REG(cr4, READ_REG(cr4) & ~(1ull << 18));
    TRY("xsave64 (%%rcx)", "c"(area), "a"(7), "d"(0));
    check_trap(6, 0, 0, "XSAVE without OSXSAVE");
}

void guest_main(void)
{
    values();
    task_switched();
    unmasked();
    images();
    xsave();
}
