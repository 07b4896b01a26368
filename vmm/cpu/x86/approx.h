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

/* Bits of a single to bits of a single. */
u32 approx_reciprocal(u32 x);
u32 approx_root(u32 x);

#endif
