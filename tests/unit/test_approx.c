/*
 * RCPPS and RSQRTPS as approx.h has them, against what the manuals promise of any CPU (SDM vol. 2;
 * APM vol. 4): errors of at most 1.5 * 2^-12, by double arithmetic; signs, zeros, infinities, NaNs.
 * And that they stay as they are: recordings have them in them. APPROX_ALL=1 takes all 2^32
 * operands.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>
#include <xxhash.h>

#include "cpu/x86/approx.h"

static struct approx tables;

static u32 reciprocal(u32 x)
{
    return approx_reciprocal(&tables, x);
}

static u32 root(u32 x)
{
    return approx_root(&tables, x);
}

#define BOUND (1.5 / 4096)

static double number(u32 x)
{
    float f;
    memcpy(&f, &x, sizeof(f));
    return (double)f;
}

/* What the manual's tables say of an operand, from its value alone; else the error. */
static void one(u32 x)
{
    double v = number(x), a = number(reciprocal(x)), b = number(root(x));
    bool sign = x >> 31, tiny = fabs(v) < 0x1p-126;
    if (isnan(v)) {
        assert_int_equal(reciprocal(x), x | 0x400000);
        assert_int_equal(root(x), x | 0x400000);
        return;
    }
    if (tiny) {
        assert_true(isinf(a) && isinf(b) && signbit(a) == sign && signbit(b) == sign);
        return;
    }
    if (sign)
        assert_int_equal(root(x), 0xffc00000);
    assert_true(!!signbit(a) == sign);
    if (isinf(v)) {
        assert_true(a == 0 && (sign || b == 0));
        return;
    }
    /* Near the least normal number a result may be flushed. */
    if (!(a == 0 && fabs(1 / v) < 0x1p-126 * (1 + BOUND)) && !(fabs(a * v - 1) <= BOUND))
        fail_msg("1/%a is %a: wrong by %g of %g", v, a, a * v - 1, BOUND);
    double square = b * b * v; /* (1 + error) squared */
    if (!sign && !(square >= (1 - BOUND) * (1 - BOUND) && square <= (1 + BOUND) * (1 + BOUND)))
        fail_msg("1/sqrt(%a) is %a: its square is wrong by %g", v, b, square - 1);
}

/* Both ends of each part of each octave; or all. */
static void within_bounds(void **state)
{
    (void)state;
    if (getenv("APPROX_ALL")) {
        u32 x = 0;
        do
            one(x);
        while (++x);
        return;
    }
    for (u64 x = 0; x < 1ull << 32; x += 0x800) {
        one((u32)x);
        one((u32)x | 0x7ff);
    }
}

/* Results never rise with the operand. */
static void monotonic(void **state)
{
    (void)state;
    for (u32 x = 0x00800000; x < 0x7f7ff800; x += 0x800) {
        assert_true(reciprocal(x) >= reciprocal(x + 0x800));
        assert_true(root(x) >= root(x + 0x800));
    }
}

static void stay_as_they_are(void **state)
{
    (void)state;
    XXH64_state_t *h = XXH64_createState();
    XXH64_reset(h, 0);
    for (u64 x = 0; x < 1ull << 32; x += 0x755) {
        u32 r[2] = {reciprocal((u32)x), root((u32)x)};
        XXH64_update(h, r, sizeof(r));
    }
    u64 digest = XXH64_digest(h);
    XXH64_freeState(h);
    if (digest != 0xe1df9895b7c6b76cull)
        fail_msg("the digest of the results is %llx: recordings have the others in them",
                 (unsigned long long)digest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(within_bounds),
        cmocka_unit_test(monotonic),
        cmocka_unit_test(stay_as_they_are),
    };
    approx_fill(&tables);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
