/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Telling RDTSC and RDTSCP from other instructions. Needs no kernel: the unit tests have it too. */
#ifndef REPRISE_TSC_INSN_H
#define REPRISE_TSC_INSN_H

enum tsc_insn { TSC_OTHER, TSC_RDTSC, TSC_RDTSCP };

/*
 * What the `n` bytes at `code` begin with. `bits` is 64 in 64-bit mode, else 32 (or 16: it is the
 * same here). *length is the instruction's with its prefixes, in bytes, unless it is TSC_OTHER. One
 * that is longer than 15 bytes, is cut off by `n`, or has a LOCK prefix is TSC_OTHER: the CPU
 * refuses those.
 */
enum tsc_insn tsc_decode(const unsigned char *code, int n, int bits, int *length);

#endif
