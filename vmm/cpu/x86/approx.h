/*
 * RCPPS and RSQRTPS, their scalar and VEX forms. The manuals promise an error of at most 1.5 *
 * 2^-12 (SDM vol. 2, RCPPS; APM vol. 4), and each CPU has a table of its own. Canonical is one of
 * them: 12 bits of the operand decide about 12 bits of the result. It is that of CPUs with AMD's
 * Zen 4 cores, which therefore execute the instruction itself; so does every other host on which
 * canon_host.c finds the same. Elsewhere the tables are looked up (vector.c).
 *
 * Zeros and denormals give an infinity of their sign, infinities a zero, results below the least
 * normal number a zero; the root of what is negative is the default NaN, NaNs are made quiet. MXCSR
 * is neither read nor written.
 */
#ifndef REPRISE_X86_APPROX_H
#define REPRISE_X86_APPROX_H

#include "base/types.h"

#define APPROX_UNIT 11 /* bits of a single that are not looked at, and not made */
#define APPROX_PLACES                                                                              \
    8192u /* of a table: 12 bits of the mantissa, below the exponent's lowest one */

/* A result is an entry, shifted by APPROX_UNIT, and a base, less the operand's exponent: with its
 * sign, as it is; of roots half of it. Translated code computes it so, too (dbt/put_approx.c). */
#define APPROX_RECIPROCAL_BASE 0x7e800000u
#define APPROX_ROOT_BASE       0x5e800000u

struct approx {
    u16 reciprocal[APPROX_PLACES], root[APPROX_PLACES];
};

void approx_fill(struct approx *a);
/* Bits of a single to bits of a single. */
u32 approx_reciprocal(const struct approx *a, u32 x);
u32 approx_root(const struct approx *a, u32 x);

static inline u32 approx_of(const struct approx *a, bool root, u32 x)
{
    return root ? approx_root(a, x) : approx_reciprocal(a, x);
}

#endif
