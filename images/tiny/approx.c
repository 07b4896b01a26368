/*
 * RCPPS and RSQRTPS as dense as they come: a block full of the longest forms, with flags that live
 * through it; loops of nothing else; numbers that have no place in a table. (What all operands give:
 * tests/unit/test_approx.c.)
 */
#include "tiny.h"

#ifndef TIMES
#define TIMES 20000
#endif

#define ONE      0x3f800000u
#define ONE_ROOT 0x3f7ff800u

static u32 in[8] __attribute__((aligned(32))), out[8] __attribute__((aligned(32)));

static void fill(u32 a, u32 b)
{
    for (unsigned i = 0; i < COUNT(in); i++)
        in[i] = i & 1 ? b : a;
}

static bool are(unsigned n, u32 a, u32 b)
{
    for (unsigned i = 0; i < n; i++)
        if (out[i] != (i & 1 ? b : a))
            return false;
    return true;
}

static bool enable_avx(void)
{
    u32 a = 1, b, c = 0, d;
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    if (!(c >> 28 & 1))
        return false;
    WRITE_REG(cr4, READ_REG(cr4) | 1 << 18);
    __asm__ volatile("xsetbv" : : "a"(7), "d"(0), "c"(0));
    return true;
}

/* 60 of an instruction, through which CF = 1 lives; then what it left. */
#define DENSE(insn, store)                                                                         \
    ({                                                                                             \
        u32 carry;                                                                                 \
        __asm__ volatile("stc; .rept 60; " insn "; .endr; sbb %0, %0; " store                      \
                         : "=r"(carry), "=m"(out)                                                  \
                         : "m"(in)                                                      \
                         : "memory");                                                              \
        carry == ~0u;                                                                              \
    })

static void dense(bool avx)
{
    wrmsr(0xc0000100, 64);
    fill(ONE, ONE);
    check(DENSE("rsqrtps %%fs:in-64, %%xmm9", "movaps %%xmm9, %1") && are(4, ONE_ROOT, ONE_ROOT),
          "many, of 128 bits");
    if (avx)
        check(DENSE("vrsqrtps %%fs:in-64, %%ymm9", "vmovaps %%ymm9, %1; vzeroupper") &&
                  are(8, ONE_ROOT, ONE_ROOT),
              "many, of 256 bits");
    fill(0, 0xbf800000);
    check(DENSE("rsqrtps %%fs:in-64, %%xmm9", "movaps %%xmm9, %1") && are(4, 0x7f800000, 0xffc00000),
          "many that have no place in the table");
    wrmsr(0xc0000100, 0);
}

static void loop(u32 a, u32 b, const char *name)
{
    fill(a, b);
    for (u64 i = 0; i < TIMES; i++)
        __asm__ volatile("movaps %1, %%xmm0; .rept 8; rsqrtps %%xmm0, %%xmm0; .endr; movaps %%xmm0, %0"
                         : "=m"(out)
                         : "m"(in));
    print("%s: %x %x\n", name, out[0], out[1]);
}

void guest_main(void)
{
    dense(enable_avx());
    loop(ONE, 0x42f00000, "one after the other");
    loop(0x7f800000, 0x42f00000, "zeros and infinities among them");
}
