/* Transcendental functions by MPFR (x87_math.h). */
#include "cpu/x86/x87_math.h"

#include <mpfr.h>

#include "base/check.h"

#define PRECISION 64
#define FIRST     192   /* bits of an approximation; twice as many while they do not decide */
#define MOST      65536 /* more than any argument takes: the values are irrational */
/* An MPFR number is 0.1... * 2^exponent. */
#define EXP_MIN    (-16381) /* of the least normal number */
#define EXP_DENORM (-16444)
#define EXP_MAX    16384
#define MOVED      24576 /* the exponent of an unmasked overflow or underflow */

enum { UE = 0x10, OE = 0x08, PE = 0x20, C1 = 0x200 };

static void load(mpfr_t to, struct x87_value v)
{
    unsigned e = v.se & 0x7fff;
    mpfr_init2(to, PRECISION);
    mpfr_set_uj_2exp(to, v.m, (intmax_t)(e ? e : 1) - 16383 - 63, MPFR_RNDN);
    mpfr_setsign(to, to, v.se >> 15, MPFR_RNDN);
}

static mpfr_rnd_t rounding(u16 fcw)
{
    static const mpfr_rnd_t modes[] = {MPFR_RNDN, MPFR_RNDD, MPFR_RNDU, MPFR_RNDZ};
    return modes[fcw >> 10 & 3];
}

/* y * log2(x), or of x + 1: the logarithm to more and more bits, the product exact, until what the
 * bits beyond may be no longer matters. */
static int product(mpfr_t r, const mpfr_t x, const mpfr_t y, bool plus_one, mpfr_rnd_t rnd)
{
    mpfr_t log, all;
    int inexact = 0;
    mpfr_init2(log, FIRST);
    mpfr_init2(all, FIRST + PRECISION);
    for (mpfr_prec_t p = FIRST;; p *= 2) {
        CHECK(p <= MOST, "a logarithm that %d bits do not decide", MOST);
        mpfr_set_prec(log, p);
        mpfr_set_prec(all, p + PRECISION);
        int beyond = plus_one ? mpfr_log2p1(log, x, MPFR_RNDN) : mpfr_log2(log, x, MPFR_RNDN);
        mpfr_mul(all, log, y, MPFR_RNDN);
        if (!beyond || mpfr_can_round(all, p - 2, MPFR_RNDN, rnd, PRECISION + (rnd == MPFR_RNDN))) {
            inexact = mpfr_set(r, all, rnd);
            break;
        }
    }
    mpfr_clear(log);
    mpfr_clear(all);
    return inexact;
}

static struct x87_value store(const mpfr_t r)
{
    u16 sign = (u16)(mpfr_signbit(r) ? 0x8000 : 0);
    mpfr_t m;
    if (mpfr_zero_p(r))
        return (struct x87_value){0, sign};
    mpfr_exp_t e = mpfr_get_exp(r);
    mpfr_init2(m, PRECISION);
    mpfr_abs(m, r, MPFR_RNDN);
    mpfr_exp_t low = e >= EXP_MIN ? e - PRECISION : EXP_DENORM - 1;
    mpfr_mul_2si(m, m, -low, MPFR_RNDN);
    struct x87_value v = {mpfr_get_uj(m, MPFR_RNDN), sign};
    if (e >= EXP_MIN)
        v.se |= (u16)(e + 16382);
    mpfr_clear(m);
    return v;
}

static struct x87_value too_large(bool negative, mpfr_rnd_t rnd)
{
    u16 sign = negative ? 0x8000 : 0;
    bool finite =
        rnd == MPFR_RNDZ || (rnd == MPFR_RNDD && !negative) || (rnd == MPFR_RNDU && negative);
    return finite ? (struct x87_value){~0ull, sign | 0x7ffe}
                  : (struct x87_value){1ull << 63, sign | 0x7fff};
}

/* Rounded to 64 bits, of any exponent: what the register's exponents make of it. `inexact` as MPFR
 * says it: the sign of what rounding added. */
static struct x87_rounded fit(mpfr_t r, int inexact, u16 fcw)
{
    mpfr_rnd_t rnd = rounding(fcw);
    struct x87_rounded out = {.flags = 0};
    bool negative = mpfr_signbit(r);
    mpfr_exp_t e = mpfr_zero_p(r) ? 0 : mpfr_get_exp(r);
    if (!mpfr_zero_p(r) && e > EXP_MAX && (fcw & OE)) {
        out.v = too_large(negative, rnd);
        out.flags = OE | PE | (out.v.m == 1ull << 63 ? C1 : 0);
        return out;
    }
    if (!mpfr_zero_p(r) && e > EXP_MAX) {
        out.flags |= OE;
        mpfr_mul_2si(r, r, -MOVED, MPFR_RNDN);
    } else if (!mpfr_zero_p(r) && e < EXP_MIN && !(fcw & UE)) {
        out.flags |= UE;
        mpfr_mul_2si(r, r, MOVED, MPFR_RNDN);
    } else if (!mpfr_zero_p(r) && e < EXP_MIN) {
        mpfr_exp_t was = mpfr_get_emin();
        mpfr_set_emin(EXP_DENORM);
        inexact = mpfr_check_range(r, inexact, rnd);
        inexact = mpfr_subnormalize(r, inexact, rnd);
        mpfr_set_emin(was);
        out.flags |= inexact ? UE : 0;
    }
    if (inexact)
        out.flags |= PE | ((inexact > 0) != negative ? C1 : 0);
    out.v = store(r);
    return out;
}

struct x87_rounded x87_compute(enum x87_function f, struct x87_value a, struct x87_value b, u16 fcw)
{
    mpfr_rnd_t rnd = rounding(fcw);
    mpfr_t x, y, r;
    int inexact = 0;
    load(x, a);
    load(y, b);
    mpfr_init2(r, PRECISION);
    switch (f) {
    case X87_2XM1: inexact = mpfr_exp2m1(r, x, rnd); break;
    case X87_SIN: inexact = mpfr_sin(r, x, rnd); break;
    case X87_COS: inexact = mpfr_cos(r, x, rnd); break;
    case X87_TAN: inexact = mpfr_tan(r, x, rnd); break;
    case X87_ATAN: inexact = mpfr_atan2(r, y, x, rnd); break;
    case X87_YL2X: inexact = product(r, x, y, false, rnd); break;
    case X87_YL2XP1: inexact = product(r, x, y, true, rnd); break;
    }
    struct x87_rounded out = fit(r, inexact, fcw);
    mpfr_clear(x);
    mpfr_clear(y);
    mpfr_clear(r);
    return out;
}
