/* The approximations of 1/x and 1/sqrt(x) (approx.h). */
#include "cpu/x86/approx.h"

#include "base/check.h"

#define ROWS  64u /* of a table, */
#define PARTS 64u /* and parts of an octave in a row */
#define UNIT  11  /* bits of a single that are not looked at, and not made */

enum { RECIPROCAL, ROOT_ODD, ROOT_EVEN, TABLES };

static const struct {
    u32 first;
    char steps[PARTS + 1];
} rows[TABLES][ROWS] = {
#define ROW(table, k, first, steps) [table][k] = {first, steps},
#include "cpu/x86/approx.def"
};

/* Bits of the result for a mantissa. */
static u32 look_up(unsigned table, u32 x)
{
    u32 part = x >> UNIT & (ROWS * PARTS - 1), lower = 0;
    const char *steps = rows[table][part / PARTS].steps;
    for (unsigned i = 0; i <= part % PARTS; i++)
        lower += (u32)(steps[i] - '0');
    return rows[table][part / PARTS].first - (lower << UNIT);
}

#define SIGN     0x80000000u
#define INFINITE 0x7f800000u
#define QUIET    0x00400000u

static bool is_nan(u32 x)
{
    return (x & ~SIGN) > INFINITE;
}

u32 approx_reciprocal(u32 x)
{
    u32 sign = x & SIGN, e = x >> 23 & 0xff;
    if (is_nan(x))
        return x | QUIET;
    if (e == 0)
        return sign | INFINITE;
    if (e == 0xff)
        return sign;
    u32 r = look_up(RECIPROCAL, x);
    i32 out = (i32)(r >> 23) + 127 - (i32)e;
    return out <= 0 ? sign : sign | (u32)out << 23 | (r & 0x7fffff);
}

u32 approx_root(u32 x)
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
    u32 r = look_up(e & 1 ? ROOT_ODD : ROOT_EVEN, x);
    i32 out = (i32)(r >> 23) - ((i32)e - (e & 1 ? 127 : 128)) / 2;
    return (u32)out << 23 | (r & 0x7fffff);
}
