/* The approximations of 1/x and 1/sqrt(x) (approx.h). */
#include "cpu/x86/approx.h"

#include "base/check.h"

#define ROWS  64u /* of a table, */
#define PARTS 64u /* and parts of an octave in a row */

enum { RECIPROCAL, ROOT_ODD, ROOT_EVEN, TABLES };

static const struct {
    u32 first;
    char steps[PARTS + 1];
} rows[TABLES][ROWS] = {
#define ROW(table, k, first, steps) [table][k] = {first, steps},
#include "cpu/x86/approx.def"
};

/* Bits of the result for a mantissa, whose place in its octave is `part`. */
static u32 look_up(unsigned table, u32 part)
{
    u32 lower = 0;
    const char *steps = rows[table][part / PARTS].steps;
    for (unsigned i = 0; i <= part % PARTS; i++)
        lower += (u32)(steps[i] - '0');
    return rows[table][part / PARTS].first - (lower << APPROX_UNIT);
}

#define SIGN     0x80000000u
#define INFINITE 0x7f800000u
#define QUIET    0x00400000u

static bool is_nan(u32 x)
{
    return (x & ~SIGN) > INFINITE;
}

/*
 * What is left of it but the operand's exponent, for each of its APPROX_PLACES: it counts from FROM
 * on, in units of 2^APPROX_UNIT.
 */
#define FROM 0x3f000000u

void approx_fill(struct approx *a)
{
    for (u32 i = 0; i < APPROX_PLACES; i++) {
        bool odd = i / (ROWS * PARTS);
        u32 part = i % (ROWS * PARTS), r = look_up(odd ? ROOT_ODD : ROOT_EVEN, part);
        a->reciprocal[i] = (u16)((look_up(RECIPROCAL, part) - FROM) >> APPROX_UNIT);
        a->root[i] = (u16)((r - FROM + (odd ? 0 : 1u << 23)) >> APPROX_UNIT);
    }
}

/* Of what is neither NaN nor infinite nor denormal, and positive. */
static u32 root_by(const u16 *table, u32 x)
{
    return ((u32)table[x >> APPROX_UNIT & (APPROX_PLACES - 1)] << APPROX_UNIT) + APPROX_ROOT_BASE -
           (x >> 24 << 23);
}

/* ... of either sign, if the result is no denormal either. */
static u32 reciprocal_by(const u16 *table, u32 x)
{
    return ((u32)table[x >> APPROX_UNIT & (APPROX_PLACES - 1)] << APPROX_UNIT) +
           APPROX_RECIPROCAL_BASE - (x >> 23 << 23);
}

u32 approx_reciprocal(const struct approx *a, u32 x)
{
    u32 sign = x & SIGN, e = x >> 23 & 0xff;
    if (is_nan(x))
        return x | QUIET;
    if (e == 0)
        return sign | INFINITE;
    if (e >= 0xfd) /* all reciprocals are less than the power of two that they are of */
        return sign;
    return reciprocal_by(a->reciprocal, x);
}

u32 approx_root(const struct approx *a, u32 x)
{
    u32 sign = x & SIGN, e = x >> 23 & 0xff;
    if (is_nan(x))
        return x | QUIET;
    if (e == 0)
        return sign | INFINITE;
    if (sign)
        return SIGN | INFINITE | QUIET;
    if (e == 0xff)
        return 0;
    return root_by(a->root, x);
}
