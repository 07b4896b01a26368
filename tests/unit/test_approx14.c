/*
 * VRCP14 and VRSQRT14 against two models. Values: mpfr's, rounded to 14 bits (with AVX-512 the
 * host's, too, which may be as far away as the manual lets both). What is zero, infinite, no number
 * or too small: the host's CPU, where it has the instructions, and the manual's tables.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <mpfr.h>

#include "cpu/x86/avx512.h"
#include "tests/splitmix.h"

static u64 seed = 20261126;

static double number(bool wide, u64 x)
{
    double v;
    float f;
    u32 low = (u32)x;
    memcpy(&v, &x, 8);
    memcpy(&f, &low, 4);
    return wide ? v : (double)f;
}

/* The fraction of x without what the rule does not look at. */
static u64 cut(bool root, bool wide, u64 x)
{
    return wide ? x & ~((1ull << (root ? 24 : 21)) - 1) : x;
}

static double exact(bool root, double x)
{
    mpfr_t v;
    mpfr_init2(v, 200);
    mpfr_set_d(v, x, MPFR_RNDN);
    if (root)
        mpfr_rec_sqrt(v, v, MPFR_RNDN);
    else
        mpfr_ui_div(v, 1, v, MPFR_RNDN);
    mpfr_prec_round(v, 15, MPFR_RNDN);
    double r = mpfr_get_d(v, MPFR_RNDN);
    mpfr_clear(v);
    return r;
}

static u64 draw(bool wide, bool root)
{
    u64 x = splitmix64(&seed);
    unsigned e =
        wide ? 900 + (unsigned)(splitmix64(&seed) % 240) : 30 + (unsigned)(splitmix64(&seed) % 190);
    if (!(splitmix64(&seed) % 4)) /* near a power of two */
        x = splitmix64(&seed) % 2 ? splitmix64(&seed) % 64 : ~(splitmix64(&seed) % 64);
    u64 bits = wide ? (u64)e << 52 | x >> 12 : (u64)e << 23 | (x & 0x7fffff);
    if (!root && splitmix64(&seed) % 2)
        bits |= wide ? 1ull << 63 : 1u << 31;
    return bits;
}

static void values(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 400000; i++) {
        bool wide = i & 1, root = i & 2;
        u64 x = draw(wide, root), got = approx14(root, wide, x, i & 4, i & 8);
        double want = exact(root, number(wide, cut(root, wide, x)));
        if (number(wide, got) != want)
            fail_msg("%s of %llx (%s): %a, not %a", root ? "VRSQRT14" : "VRCP14",
                     (unsigned long long)x, wide ? "double" : "single", number(wide, got), want);
        double y = number(wide, got), v = number(wide, x);
        double error = root ? (y * y * v - 1) / 2 : y * v - 1;
        assert_true(fabs(error) < 0x1p-14);
    }
}

static void tables(void **state)
{
    static const struct {
        bool root, wide;
        u64 x;
        bool daz, ftz;
        u64 want;
    } rows[] = {
        {0, 0, 0x00000000, 0, 0, 0x7f800000},
        {0, 0, 0x80000000, 0, 0, 0xff800000},
        {0, 0, 0x00200000, 0, 0, 0x7f800000}, /* 2^-128 */
        {0, 0, 0x00200001, 0, 0, 0x7f7ffe00},
        {0, 0, 0x00400000, 0, 0, 0x7f000000}, /* 2^-127 */
        {0, 0, 0x00400000, 1, 0, 0x7f800000},
        {0, 0, 0x80400000, 1, 0, 0xff800000},
        {0, 0, 0x7f000000, 0, 0, 0x00400000}, /* 2^127: the result is denormal */
        {0, 0, 0x7f000000, 0, 1, 0x00000000},
        {0, 0, 0xff000000, 0, 1, 0x80000000},
        {0, 0, 0x7e800000, 0, 1, 0x00800000},
        {0, 0, 0x7f800000, 0, 0, 0x00000000},
        {0, 0, 0xff800000, 0, 0, 0x80000000},
        {0, 0, 0x7f812345, 0, 0, 0x7fc12345},
        {0, 0, 0xffc12345, 0, 0, 0xffc12345},
        {0, 1, 0x0000000000000000, 0, 0, 0x7ff0000000000000},
        {0, 1, 0x0004000000000000, 0, 0, 0x7ff0000000000000}, /* 2^-1024 */
        {0, 1, 0x0008000000000000, 0, 0, 0x7fe0000000000000},
        {0, 1, 0x7fe0000000000000, 0, 0, 0x0008000000000000},
        {0, 1, 0x7fe0000000000000, 0, 1, 0x0000000000000000},
        {0, 1, 0xfff0000000000001, 0, 0, 0xfff8000000000001},
        {1, 0, 0x00000000, 0, 0, 0x7f800000},
        {1, 0, 0x80000000, 0, 0, 0xff800000},
        {1, 0, 0x00000001, 0, 0, 0x64b50400}, /* 2^-149: 2^74.5 */
        {1, 0, 0x00000001, 1, 0, 0x7f800000},
        {1, 0, 0x80000001, 1, 0, 0xff800000},
        {1, 0, 0x80000001, 0, 0, 0xffc00000},
        {1, 0, 0xbf800000, 0, 0, 0xffc00000},
        {1, 0, 0x7f800000, 0, 0, 0x00000000},
        {1, 0, 0xff800000, 0, 0, 0xffc00000},
        {1, 0, 0xff812345, 0, 0, 0xffc12345},
        {1, 0, 0x3e800000, 0, 0, 0x40000000},
        {1, 1, 0x0000000000000001, 0, 0, 0x6180000000000000}, /* 2^-1074: 2^537 */
        {1, 1, 0xbff0000000000000, 0, 0, 0xfff8000000000000},
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
        u64 got = approx14(rows[i].root, rows[i].wide, rows[i].x, rows[i].daz, rows[i].ftz);
        if (got != rows[i].want)
            fail_msg("row %u: %llx, not %llx", i, (unsigned long long)got,
                     (unsigned long long)rows[i].want);
    }
}

#define HOSTS(insn, x)                                                                             \
    __asm__ volatile("vmovq %0, %%xmm0; " insn " %%xmm0, %%xmm0, %%xmm0; vmovq %%xmm0, %0"         \
                     : "+r"(x)                                                                     \
                     :                                                                             \
                     : "xmm0")
__attribute__((target("avx512f"))) static u64 hosts(bool root, bool wide, u64 x, u32 mxcsr)
{
    u64 out = x;
    u32 usual = 0x1f80;
    __asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
    if (wide && root)
        HOSTS("vrsqrt14sd", out);
    else if (wide)
        HOSTS("vrcp14sd", out);
    else if (root)
        HOSTS("vrsqrt14ss", out);
    else
        HOSTS("vrcp14ss", out);
    __asm__ volatile("ldmxcsr %0" : : "m"(usual));
    return wide ? out : (u32)out;
}

/* Any bits at all: the same kind of number, and near. */
static void host(void **state)
{
    (void)state;
    if (!__builtin_cpu_supports("avx512f"))
        skip();
    for (unsigned i = 0; i < 2000000; i++) {
        bool wide = i & 1, root = i & 2, daz = i & 4, ftz = i & 8;
        u64 x = splitmix64(&seed);
        if (!(splitmix64(&seed) % 4)) /* large and small ones */
            x &= wide ? 0x801fffffffffffff : 0x80ffffff;
        else if (!(splitmix64(&seed) % 3))
            x |= wide ? 0x7fc0000000000000 : 0x7e000000;
        if (!wide)
            x = (u32)x;
        u64 got = approx14(root, wide, x, daz, ftz);
        u64 want = hosts(root, wide, x, 0x1f80 | (daz ? 0x40 : 0) | (ftz ? 0x8000 : 0));
        double a = number(wide, got), b = number(wide, want);
        bool near =
            got == want ||
            (isfinite(a) && isfinite(b) && signbit(a) == signbit(b) &&
             (fabs(a - b) <= fabs(b) * 0x1p-13 || fabs(a - b) <= (wide ? 0x1p-1072 : 0x1p-147)));
        if (!near)
            fail_msg("%s of %llx (%s, DAZ %d, FTZ %d): %llx (%a), not as %llx (%a)",
                     root ? "VRSQRT14" : "VRCP14", (unsigned long long)x,
                     wide ? "double" : "single", daz, ftz, (unsigned long long)got, a,
                     (unsigned long long)want, b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(values), cmocka_unit_test(tables),
                                       cmocka_unit_test(host)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
