// SPDX-License-Identifier: MIT OR GPL-2.0
#include "insn.h"

#define LONGEST 15

static int is_prefix(unsigned char b)
{
    switch (b) {
    case 0x26: /* segments */
    case 0x2e:
    case 0x36:
    case 0x3e:
    case 0x64:
    case 0x65:
    case 0x66: /* sizes */
    case 0x67:
    case 0xf2: /* repeats */
    case 0xf3: return 1;
    default: return 0;
    }
}

enum tsc_insn tsc_decode(const unsigned char *code, int n, int bits, int *length)
{
    int i = 0;
    if (n > LONGEST)
        n = LONGEST;
    /* A REX that another prefix follows has no effect, and neither has one here. */
    while (i < n && (is_prefix(code[i]) || (bits == 64 && (code[i] & 0xf0) == 0x40)))
        i++;
    if (i + 2 <= n && code[i] == 0x0f && code[i + 1] == 0x31) {
        *length = i + 2;
        return TSC_RDTSC;
    }
    if (i + 3 <= n && code[i] == 0x0f && code[i + 1] == 0x01 && code[i + 2] == 0xf9) {
        *length = i + 3;
        return TSC_RDTSCP;
    }
    return TSC_OTHER;
}
