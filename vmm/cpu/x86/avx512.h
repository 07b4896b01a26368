/* avx512.c: what of AVX-512 is not one plain access of an instruction that the host executes. */
#ifndef REPRISE_X86_AVX512_H
#define REPRISE_X86_AVX512_H

#include "cpu/x86/core.h"

/* The 8 bytes of vector register 0 to 31 in the parked state that hold byte `byte` of it. */
u8 *vector_at(struct core *d, unsigned reg, unsigned byte);

/* Bits 256 and up of register 0 to 15 become zero, as with each VEX instruction that writes it. */
void vector_clear_high(struct core *d, unsigned reg);

/*
 * VRCP14 (or, `root`, VRSQRT14) of the number with bits x, a double if `wide`, as MXCSR's DAZ and
 * FTZ are: by a rule of ours, as makers' CPUs differ. It is the nearest number with 14 bits after
 * the point to the exact value for x cut to 32 bits (`root`: 29), which is half the error that the
 * manual allows. Zeros, infinities, NaNs and what is too small are as in its tables (SDM vol. 2).
 */
u64 approx14(bool root, bool wide, u64 x, bool daz, bool ftz);

/* Gathers with EVEX. */
int evex_gather(struct core *d, struct insn *in);

#endif
