/*
 * The x87's transcendental functions, correctly rounded: the result is the exact value rounded
 * once, as the control word says, so it is the same on every host, with every release of the
 * library (MPFR). The CPUs' own are off by up to one unit in the last place, each in its own way
 * (SDM vol. 1, 8.3.10). Called with the guest's vector state parked.
 */
#ifndef REPRISE_X86_X87_MATH_H
#define REPRISE_X86_X87_MATH_H

#include "base/types.h"

/* An extended double as the registers have it (SDM vol. 1, 4.2.2). */
struct x87_value {
    u64 m;  /* with the integer bit */
    u16 se; /* sign and exponent */
};

enum x87_function {
    X87_2XM1, /* 2^a - 1 */
    X87_SIN,
    X87_COS,
    X87_TAN,
    X87_ATAN,   /* of b / a, in the quadrant of (a, b) */
    X87_YL2X,   /* b * log2(a) */
    X87_YL2XP1, /* b * log2(a + 1) */
};

struct x87_rounded {
    struct x87_value v;
    u16 flags; /* of FSW: underflow, overflow, precision; C1 if the magnitude was rounded up */
};

/* Finite a, b (b of the last three) in the function's domain, no zeros but of ATAN. fcw: rounding,
 * and which of overflow and underflow are masked; unmasked, the result's exponent is moved (SDM
 * vol. 1, 8.5.4, 8.5.5). */
struct x87_rounded x87_compute(enum x87_function f, struct x87_value a, struct x87_value b,
                               u16 fcw);

#endif
