/*
 * What the host's own CPU does, where that decides how canonical results are made (canon.h). Runs
 * before there is a guest, so vector registers and flags are free.
 */
#include "cpu/x86/canon.h"

#include <errno.h>
#include <immintrin.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/vcpu.h"

static u32 host_reciprocal(u32 x)
{
    return (u32)_mm_cvtsi128_si32(
        _mm_castps_si128(_mm_rcp_ss(_mm_castsi128_ps(_mm_cvtsi32_si128((i32)x)))));
}

static u32 host_root(u32 x)
{
    return (u32)_mm_cvtsi128_si32(
        _mm_castps_si128(_mm_rsqrt_ss(_mm_castsi128_ps(_mm_cvtsi32_si128((i32)x)))));
}

static bool same(const struct approx *a, u32 x)
{
    return host_reciprocal(x) == approx_reciprocal(a, x) && host_root(x) == approx_root(a, x);
}

/* All entries of the tables, and what is special. */
bool canon_host_approximates(const struct approx *a)
{
    static const u32 special[] = {0,          1,          0x007fffff, 0x7f800000, 0x7f800001,
                                  0x7fc12345, 0x7f7fffff, 0x7e7fffff, 0x7e800000, 0x00800000};
    for (unsigned i = 0; i < ARRAY_SIZE(special); i++)
        if (!same(a, special[i]) || !same(a, special[i] | 0x80000000u))
            return false;
    /* Both ends of each interval, of an odd and an even exponent. */
    for (u32 x = 0x3f800000; x < 0x40800000; x += 0x800)
        if (!same(a, x) || !same(a, x | 0x7ff))
            return false;
    return true;
}

u32 canon_rules(u8 *other_maker, struct approx *a)
{
    const char *test = getenv("REPRISE_TEST_OTHER_MAKER");
    *other_maker = !test ? OTHER_NOT : strcmp(test, "raw") ? OTHER_FAKED : OTHER_RAW;
    approx_fill(a);
    return RULE_CANONICAL | (*other_maker || !canon_host_approximates(a) ? RULE_APPROX : 0);
}

/* Flags after `text` on a and b, from flags `in`. */
#define FLAGS_AFTER(text, in, a, b)                                                                \
    ({                                                                                             \
        u64 out_, x_ = (a);                                                                        \
        __asm__ volatile("sub $128, %%rsp; push %2; popf; " text                                   \
                         "; pushf; pop %0; add $128, %%rsp"                                        \
                         : "=&r"(out_), "+&r"(x_)                                                  \
                         : "r"((u64)(in) | 2), "r"((u64)(b))                                       \
                         : "cc", "memory");                                                        \
        (u32) out_ &FL_ARITH;                                                                      \
    })

static int differs(struct err *err, const char *what)
{
    return err_set(err, -ENOTSUP,
                   "this host's CPU is none that was known when this program was made: %s. "
                   "Recordings made or replayed here would differ from others",
                   what);
}

static int check_flags(u64 a, u64 b, u32 in, struct err *err)
{
    if ((FLAGS_AFTER("and %3, %1", in, a, b) | FLAGS_AFTER("or %3, %1", in, a, b) |
         FLAGS_AFTER("xor %3, %1", in, a, b) | FLAGS_AFTER("test %3, %1", in, a, b)) &
        FL_AF)
        return differs(err, "AND, OR, XOR or TEST set AF");
    if ((FLAGS_AFTER("bt %3, %1", in, a, b) ^ in) & ~FL_CF ||
        (FLAGS_AFTER("bts %3, %1", in, a, b) ^ in) & ~FL_CF ||
        (FLAGS_AFTER("btr $7, %1", in, a, b) ^ in) & ~FL_CF ||
        (FLAGS_AFTER("btc %k3, %k1", in, a, b) ^ in) & ~FL_CF)
        return differs(err, "BT, BTS, BTR or BTC change more flags than CF");
    return 0;
}

/* C0, C2 and C3 after arithmetic. */
static int check_x87(struct err *err)
{
    struct {
        u32 control, status, rest[5];
    } env;
    u16 after;
    for (u32 conditions = 0; conditions <= 0x4500; conditions += 0x100) {
        if (conditions & ~0x4500u)
            continue;
        __asm__ volatile("fninit; fld1; fldpi; fnstenv %0" : "=m"(env));
        env.status |= conditions;
        __asm__ volatile("fldenv %1; fadd %%st(1), %%st; fmul %%st(1), %%st; fdiv %%st(1), %%st; "
                         "fsqrt; frndint; fnstsw %0; fninit"
                         : "=m"(after)
                         : "m"(env));
        if ((after & 0x4500) != conditions)
            return differs(err, "x87 arithmetic changes C0, C2 or C3");
    }
    return 0;
}

int canon_host_check(struct err *err)
{
    static const u64 values[] = {0, 1, 0xf, 0x10, 0x80, 0xdeadbeef, 1ull << 63, ~0ull};
    int r = check_x87(err);
    for (unsigned i = 0; i < ARRAY_SIZE(values); i++)
        for (unsigned k = 0; k < ARRAY_SIZE(values); k++) {
            if (!r)
                r = check_flags(values[i], values[k], 0, err);
            if (!r)
                r = check_flags(values[i], values[k], FL_ARITH, err);
        }
    return r;
}
