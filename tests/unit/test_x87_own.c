/*
 * x87_own.c against two models. Values: the same functions by other formulas (tan = sin/cos, log2 =
 * log/log 2, 2^x - 1 = expm1 of x log 2, atan by a division and quadrants) with 400 bits, then
 * rounded here, in integers. All else (the stack, tags, exceptions, condition codes, remainders):
 * the host's CPU, which has a value at most two units away, but near multiples of pi/2, for which
 * CPUs have too few bits. X87_CASES=N, X87_SEED=S.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <mpfr.h>

#include "cpu/x86/x87_own.h"

#define BITS 400

static u64 seed;

static u64 draw(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static unsigned long cases(void)
{
    const char *n = getenv("X87_CASES"), *s = getenv("X87_SEED");
    seed = s ? strtoull(s, NULL, 0) | 1 : 88172645463325252ull;
    return n ? strtoul(n, NULL, 0) : 30000;
}

static struct x87_value drawn(void)
{
    struct x87_value v = {1ull << 63 | draw(), (u16)(0x3fff + draw() % 8 - 5)};
    switch (draw() % 16) {
    case 0: v = (struct x87_value){0, 0}; break;
    case 1: v = (struct x87_value){1ull << 63, 0x7fff}; break;
    case 2: v = (struct x87_value){1ull << 63 | draw() >> 1, 0x7fff}; break;
    case 3: v = (struct x87_value){draw() >> draw() % 64, 0}; break;
    case 4: v = (struct x87_value){draw(), (u16)(draw() & 0x7fff)}; break;
    case 5: v = (struct x87_value){1ull << 63, (u16)(0x3fff + draw() % 5 - 2)}; break;
    case 6: v = (struct x87_value){1ull << 63 | draw(), (u16)(draw() & 0x7fff)}; break;
    case 7: v.se = (u16)(0x3fff - draw() % 70); break;
    default: break;
    }
    v.se |= (u16)(draw() & 0x8000);
    return v;
}

static void load(mpfr_t to, struct x87_value v)
{
    int e = v.se & 0x7fff;
    mpfr_init2(to, BITS);
    mpfr_set_ui_2exp(to, v.m, (e ? e : 1) - 16446, MPFR_RNDN);
    if (v.se >> 15)
        mpfr_neg(to, to, MPFR_RNDN);
}

/* The value to 400 bits. */
static void value(mpfr_t r, enum x87_function f, const mpfr_t x, const mpfr_t y)
{
    mpfr_t a, b;
    mpfr_inits2(BITS, a, b, (mpfr_ptr)0);
    switch (f) {
    case X87_2XM1:
        mpfr_const_log2(a, MPFR_RNDN);
        mpfr_mul(a, a, x, MPFR_RNDN);
        mpfr_expm1(r, a, MPFR_RNDN);
        break;
    case X87_SIN:
    case X87_COS:
    case X87_TAN:
        /* By the double angle, from half of it. */
        mpfr_div_2ui(a, x, 1, MPFR_RNDN);
        mpfr_tan(a, a, MPFR_RNDN);
        mpfr_sqr(b, a, MPFR_RNDN);
        mpfr_add_ui(r, b, 1, MPFR_RNDN);
        if (f == X87_COS || f == X87_TAN)
            mpfr_ui_sub(b, 1, b, MPFR_RNDN);
        mpfr_mul_2ui(a, a, 1, MPFR_RNDN);
        mpfr_div(r, f == X87_COS ? b : a, f == X87_TAN ? b : r, MPFR_RNDN);
        break;
    case X87_ATAN:
        mpfr_div(a, y, x, MPFR_RNDN);
        mpfr_atan(r, a, MPFR_RNDN);
        mpfr_const_pi(b, MPFR_RNDN);
        if (mpfr_signbit(x) && mpfr_signbit(y))
            mpfr_sub(r, r, b, MPFR_RNDN);
        else if (mpfr_signbit(x))
            mpfr_add(r, r, b, MPFR_RNDN);
        break;
    case X87_YL2X:
    case X87_YL2XP1:
        if (f == X87_YL2X)
            mpfr_log(a, x, MPFR_RNDN);
        else
            mpfr_log1p(a, x, MPFR_RNDN);
        mpfr_const_log2(b, MPFR_RNDN);
        mpfr_mul(a, a, y, MPFR_RNDN);
        mpfr_div(r, a, b, MPFR_RNDN);
        break;
    }
    mpfr_clears(a, b, (mpfr_ptr)0);
}

/* Rounds |v| to a multiple of its unit in the last place; the control word has all exceptions
 * masked. */
static struct x87_rounded round_here(const mpfr_t v, unsigned mode)
{
    struct x87_rounded out = {.v.se = (u16)(mpfr_signbit(v) ? 0x8000 : 0)};
    mpfr_exp_t e = mpfr_get_exp(v), unit = e - 64 < -16445 ? -16445 : e - 64;
    mpfr_t a, whole;
    mpfr_inits2(BITS, a, whole, (mpfr_ptr)0);
    mpfr_abs(a, v, MPFR_RNDN);
    mpfr_mul_2si(a, a, -unit, MPFR_RNDN);
    mpfr_floor(whole, a);
    mpfr_sub(a, a, whole, MPFR_RNDN);
    u64 m = mpfr_get_uj(whole, MPFR_RNDN);
    int half = mpfr_cmp_d(a, 0.5);
    bool exact = mpfr_cmp_d(a, 0x1p-250) < 0, negative = out.v.se != 0;
    /* An exact value, of which 400 bits of other formulas are just below. */
    bool below = mpfr_cmp_d(a, 1 - 0x1p-53) > 0 && ({
                     mpfr_ui_sub(a, 1, a, MPFR_RNDN);
                     mpfr_cmp_d(a, 0x1p-250) < 0;
                 });
    bool up = mode == 0   ? half > 0 || (half == 0 && (m & 1))
              : mode == 3 ? false
                          : (mode == 1) == negative;
    if (exact || below)
        up = below;
    else
        out.flags = (u16)(0x20 | (e < -16381 ? 0x10 : 0) | (up ? 0x200 : 0));
    if (up && !++m) {
        m = 1ull << 63;
        unit++;
    }
    out.v.m = m;
    if (m >> 63)
        out.v.se |= (u16)(unit + 63 + 16383);
    mpfr_clears(a, whole, (mpfr_ptr)0);
    return out;
}

static bool in_domain(enum x87_function f, struct x87_value a, struct x87_value b)
{
    unsigned ea = a.se & 0x7fff, eb = b.se & 0x7fff;
    if (ea == 0x7fff || eb == 0x7fff || (ea && !(a.m >> 63)) || (eb && !(b.m >> 63)) || !a.m ||
        !b.m)
        return false;
    switch (f) {
    case X87_2XM1: return ea < 0x3fff;
    case X87_SIN:
    case X87_COS:
    case X87_TAN: return ea < 0x3fff + 63 && ea > 0x3fff - 150; /* 400 bits are to be enough */
    case X87_ATAN: return ea - eb + 150 < 300;
    case X87_YL2X: return !(a.se >> 15) && a.m << 1 && eb > 200;
    default: return ea < 0x3fff && ea > 0x3fff - 150 && eb > 200;
    }
}

static void values(void **state)
{
    (void)state;
    unsigned done = 0;
    for (unsigned long n = cases(), k = 0; k < n; k++) {
        enum x87_function f = (enum x87_function)(draw() % 7);
        struct x87_value a = drawn(), b = drawn();
        u16 mode = draw() & 3;
        if (!in_domain(f, a, b))
            continue;
        mpfr_t x, y, r;
        load(x, a);
        load(y, b);
        mpfr_init2(r, BITS);
        value(r, f, x, y);
        if (mpfr_get_exp(r) <= 16384) {
            struct x87_rounded want = round_here(r, mode);
            struct x87_rounded got = x87_compute(f, a, b, (u16)(0x37f | mode << 10));
            if (want.v.m != got.v.m || want.v.se != got.v.se || want.flags != got.flags)
                fail_msg("function %d of %04x.%016llx, %04x.%016llx, rounding %u: expected "
                         "%04x.%016llx %x, got %04x.%016llx %x",
                         f, a.se, (unsigned long long)a.m, b.se, (unsigned long long)b.m, mode,
                         want.v.se, (unsigned long long)want.v.m, want.flags, got.v.se,
                         (unsigned long long)got.v.m, got.flags);
            done++;
        }
        mpfr_clears(x, y, r, (mpfr_ptr)0);
    }
    assert_true(done > 1000);
}

/* The host's CPU on an image. */
static void on_host(enum x87_op op, u8 *image)
{
    static u8 area[512] __attribute__((aligned(64)));
    memset(area, 0, sizeof(area));
    memcpy(area, image, 160);
    area[24] = 0x80;
    area[25] = 0x1f;
#define RUN(insn)                                                                                  \
    case X87_OP_##insn:                                                                            \
        __asm__ volatile("fxrstor64 %0; " #insn "; fxsave64 %0; fninit" : "+m"(area));             \
        break;
    switch (op) {
        RUN(F2XM1)
        RUN(FSIN)
        RUN(FCOS)
        RUN(FSINCOS)
        RUN(FPTAN)
        RUN(FPATAN)
        RUN(FYL2X)
        RUN(FYL2XP1)
        RUN(FPREM)
        RUN(FPREM1)
    }
    memcpy(image, area, 160);
}

/* What the manuals leave to the CPU, or in which CPUs are not exact: not compared. */
static bool open_to_cpus(enum x87_op op, struct x87_value a, u16 fcw)
{
    unsigned e = a.se & 0x7fff;
    switch (op) {
    case X87_OP_F2XM1: return e >= 0x3fff || !e;
    case X87_OP_FYL2XP1: return e >= 0x3ffd || !e;
    case X87_OP_FYL2X: return !(a.m & (a.m - 1)); /* an exact logarithm, which they call inexact */
    case X87_OP_FSIN:
    case X87_OP_FCOS:
    case X87_OP_FSINCOS:
    case X87_OP_FPTAN:
        return e >= 0x3fff - 1 && e < 0x3fff + 63; /* multiples of pi/2 */
    /* What stays as it is, and is tiny: an underflow that is not masked on AMD's, none on Intel's.
     */
    case X87_OP_FPREM:
    case X87_OP_FPREM1: return !e && !(fcw & 0x10);
    default: return false;
    }
}

/* A value's place among all with its sign: neighbours have places side by side, also where the
 * exponent changes. */
static __int128 place(const u8 *at)
{
    u64 m = *(const u64 *)(const void *)at, e = *(const u16 *)(const void *)(at + 8) & 0x7fff;
    return ((__int128)e << 63) + (m & (e ? ~(1ull << 63) : ~0ull));
}

static void like_the_host(void **state)
{
    (void)state;
    for (unsigned long n = 4 * cases(), k = 0; k < n; k++) {
        enum x87_op op = (enum x87_op)(draw() % 10);
        u8 was[160] = {0}, want[160], got[160];
        u16 fcw = (u16)(0x37f | (draw() & 3) << 10);
        if (draw() % 4 == 0)
            fcw = (u16)((fcw & ~0x3fu) | (draw() & 0x3f));
        u16 fsw = (u16)((draw() & 0x4700) | (draw() & 7) << 11);
        unsigned top = fsw >> 11;
        memcpy(was, &fcw, 2);
        memcpy(was + 2, &fsw, 2);
        was[4] = (u8)(draw() % 8 ? 1u << (top & 7) | 1u << ((top + 1) & 7) : draw());
        if (draw() % 8 == 0)
            was[4] |= (u8)(1u << ((top + 7) & 7));
        for (unsigned i = 0; i < 8; i++) {
            struct x87_value v = drawn();
            memcpy(was + 32 + 16 * i, &v.m, 8);
            memcpy(was + 40 + 16 * i, &v.se, 2);
        }
        struct x87_value st0 = {*(u64 *)(void *)(was + 32), *(u16 *)(void *)(was + 40)};
        if ((was[4] >> (top & 7) & 1) && open_to_cpus(op, st0, fcw))
            continue;
        memcpy(want, was, sizeof(was));
        memcpy(got, was, sizeof(was));
        on_host(op, want);
        x87_execute(op, got);
        /* C1 of an inexact result says how it was rounded; partial remainders take more or less. */
        u16 w = *(u16 *)(void *)(want + 2), g = *(u16 *)(void *)(got + 2);
        u16 mask = w & 0x20 && !(w & 0x40) ? 0xfdff : 0xffff;
        bool bad = ((w ^ g) & mask) || want[4] != got[4];
        bool partial = (op == X87_OP_FPREM || op == X87_OP_FPREM1) && (g & 0x400);
        for (unsigned i = 0; i < 8 && !partial; i++) {
            __int128 off = place(want + 32 + 16 * i) - place(got + 32 + 16 * i);
            bad = bad || off > 2 || off < -2 || (want[41 + 16 * i] ^ got[41 + 16 * i]) >> 7;
        }
        if (bad && !partial)
            fail_msg(
                "case %lu, operation %d, control %04x, status %04x, tags %02x, ST0 %04x.%016llx: "
                "the host has %04x %02x %04x.%016llx, we %04x %02x %04x.%016llx",
                k, op, fcw, fsw, was[4], st0.se, (unsigned long long)st0.m, w, want[4],
                *(u16 *)(void *)(want + 40), (unsigned long long)*(u64 *)(void *)(want + 32), g,
                got[4], *(u16 *)(void *)(got + 40), (unsigned long long)*(u64 *)(void *)(got + 32));
    }
}

/* Two NaNs, and what is special in the manual's tables. */
static void known(void **state)
{
    (void)state;
    static const struct {
        enum x87_op op;
        struct x87_value st0, st1, want;
        u16 flags;
    } rows[] = {
        {X87_OP_F2XM1, {1ull << 63, 0x3fff}, {0, 0}, {1ull << 63, 0x3fff}, 0},
        {X87_OP_F2XM1, {1ull << 63, 0xbfff}, {0, 0}, {1ull << 63, 0xbffe}, 0},
        {X87_OP_F2XM1, {1ull << 63, 0x4002}, {0, 0}, {1ull << 63, 0x4002}, 0},
        {X87_OP_FSIN, {0, 0x8000}, {0, 0}, {0, 0x8000}, 0},
        {X87_OP_FCOS, {0, 0x8000}, {0, 0}, {1ull << 63, 0x3fff}, 0},
        {X87_OP_FSIN, {1ull << 63, 0x7fff}, {0, 0}, {3ull << 62, 0xffff}, 1},
        {X87_OP_FYL2X, {0, 0}, {1ull << 63, 0x3fff}, {1ull << 63, 0xffff}, 4},
        {X87_OP_FYL2X, {1ull << 63, 0xbfff}, {1ull << 63, 0x3fff}, {3ull << 62, 0xffff}, 1},
        {X87_OP_FYL2X, {1ull << 63, 0x4002}, {1ull << 63, 0x4000}, {3ull << 62, 0x4001}, 0},
        {X87_OP_FYL2XP1, {1ull << 63, 0xbfff}, {1ull << 63, 0x3fff}, {1ull << 63, 0xffff}, 4},
        {X87_OP_FPATAN, {1ull << 63, 0xffff}, {0, 0x8000}, {0xc90fdaa22168c235, 0xc000}, 0x220},
        {X87_OP_FPREM, {7ull << 61, 0x4001}, {1ull << 63, 0x4000}, {1ull << 63, 0x3fff}, 0x4200},
        {X87_OP_FPREM1, {7ull << 61, 0x4001}, {1ull << 63, 0x4000}, {1ull << 63, 0xbfff}, 0x100},
        {X87_OP_FPREM, {1ull << 63, 0x4100}, {0, 0}, {3ull << 62, 0xffff}, 1},
    };
    for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
        u8 x[160] = {0x7f, 3, 0, 0, 3};
        memcpy(x + 32, &rows[i].st0.m, 8);
        memcpy(x + 40, &rows[i].st0.se, 2);
        memcpy(x + 48, &rows[i].st1.m, 8);
        memcpy(x + 56, &rows[i].st1.se, 2);
        x87_execute(rows[i].op, x);
        u64 m = *(u64 *)(void *)(x + 32);
        u16 se = *(u16 *)(void *)(x + 40), fsw = *(u16 *)(void *)(x + 2) & 0xc77f;
        if (m != rows[i].want.m || se != rows[i].want.se || fsw != rows[i].flags)
            fail_msg("row %u: %04x.%016llx, status %04x", i, se, (unsigned long long)m, fsw);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(like_the_host),
        cmocka_unit_test(known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
