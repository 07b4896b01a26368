/* XSTATE_BV after instructions that C executes: what is in use follows from the registers alone,
 * whatever ran between them and XSAVE. */
#include "tiny.h"

static u8 area[1024] __attribute__((aligned(64)));
static u32 words[8] __attribute__((aligned(64)));

void guest_main(void)
{
    WRITE_REG(cr4, READ_REG(cr4) | 1 << 18);
    __asm__ volatile("xsetbv" : : "c"(0), "a"(7), "d"(0));
    for (unsigned full = 0; full < 2; full++) {
        memset(words, full ? 0x77 : 0, sizeof words);
        memset(area, 0, sizeof area);
        /* The mask and YMM0's upper half go; what is loaded comes. */
        __asm__ volatile("vzeroall; vpcmpeqd %%xmm1, %%xmm1, %%xmm1;"
                         "vpcmpeqd %%ymm0, %%ymm0, %%ymm0; mov $7, %%eax; xor %%edx, %%edx;"
                         "vpgatherdd %%xmm1, (%1,%%xmm2,4), %%xmm0;"
                         "lea (%0), %%rcx; lea (%%rcx), %%rcx; xsave64 (%%rcx)"
                         :
                         : "r"(area), "r"(words)
                         : "rax", "rcx", "rdx", "memory");
        check_eq(area[512] & 6, full ? 2 : 0, "what is in use after a gather");
    }
}
