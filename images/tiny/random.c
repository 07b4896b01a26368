/*
 * RDRAND and RDSEED, and what else `--cpu MODEL,+feature,-feature` turns on and off: CPUID says what is executed,
 * and what it does not say is #UD. Numbers are printed, so that a recording holds them.
 */
#include "tiny.h"

#define DRAWS 64u

static u64 drawn[2 * DRAWS];
static unsigned count;

static bool bit(u32 leaf, char reg, unsigned n)
{
    u32 a = leaf, b, c = 0, d;
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return (reg == 'b' ? b : reg == 'c' ? c : d) >> n & 1;
}

#define ARITH 0x8d5u

/* From set flags and a register of ones; what is there then. */
#define DRAW(insn, value, flags)                                                                \
    __asm__ volatile("pushq %2; popfq; " insn "; pushfq; popq %1"                                  \
                     : "=a"(value), "=&r"(flags)                                                   \
                     : "r"((u64)(ARITH ^ 1 ^ 2)), "0"(~0ull)                                              \
                     : "cc", "memory")

static void draw_all(bool seed)
{
    u64 v, f, flags = 0, sum = 0;
    bool same16 = true, same32 = true, narrow = false;
    for (unsigned i = 0; i < DRAWS; i++) {
        if (seed)
            DRAW("rdseed %%rax", v, f);
        else
            DRAW("rdrand %%rax", v, f);
        flags |= (f & ARITH) ^ 1;
        drawn[count++] = v;
        sum = sum * 31 + v;
        if (seed)
            DRAW("rdseed %%ax", v, f);
        else
            DRAW("rdrand %%ax", v, f);
        flags |= (f & ARITH) ^ 1;
        same16 &= v >> 16 == 0xffffffffffffull;
        narrow |= (u16)v != 0xffff;
        sum = sum * 31 + v;
        if (seed)
            DRAW("rdseed %%eax", v, f);
        else
            DRAW("rdrand %%eax", v, f);
        flags |= (f & ARITH) ^ 1;
        same32 &= v >> 32 == 0;
        sum = sum * 31 + v;
    }
    print("%s %lx\n", seed ? "rdseed" : "rdrand", sum);
    check_eq(flags, 0, seed ? "rdseed sets CF and clears the others" : "rdrand's flags");
    check(same16 && narrow, "16 bits leave the others");
    check(same32, "32 bits clear the others");
}

static void distinct(void)
{
    bool good = true;
    for (unsigned i = 0; i < count; i++)
        for (unsigned k = 0; k < i; k++)
            good &= drawn[i] != drawn[k];
    check(good, "no number comes twice");
}

/* One instruction of each feature that CPUID has a bit for: executed, or #UD. `needs`: what of CR4 and XCR0
 * it takes is not set here. */
#define EACH(X)                                                                                    \
    X("rdrand", 1, 'c', 30, "rdrand %%rax")                                                        \
    X("rdseed", 7, 'b', 18, "rdseed %%rax")                                                        \
    X("adx", 7, 'b', 19, "adcx %%rax, %%rax")                                                      \
    X("bmi2", 7, 'b', 8, "rorx $1, %%rax, %%rax")                                                  \
    X("bmi1", 7, 'b', 3, "andn %%rax, %%rax, %%rax")                                               \
    X("movbe", 1, 'c', 22, "movbe trap_rsp(%%rip), %%rax")                                         \
    X("popcnt", 1, 'c', 23, "popcnt %%rax, %%rax")                                                 \
    X("cx16", 1, 'c', 13, "lock cmpxchg16b scratch(%%rip)")                                        \
    X("lahf", 0x80000001, 'c', 0, "lahf")                                                          \
    X("rdtscp", 0x80000001, 'd', 27, "rdtscp")                                                     \
    X("rdpid", 7, 'c', 22, ".byte 0xf3, 0x0f, 0xc7, 0xf8")                                         \
    X("smap", 7, 'b', 20, "stac; clac")                                                            \
    X("clflushopt", 7, 'b', 23, "clflushopt scratch(%%rip)")                                       \
    X("clwb", 7, 'b', 24, "clwb scratch(%%rip)")                                                   \
    X("crc32", 1, 'c', 20, "crc32q %%rax, %%rax")                                                  \
    X("aes", 1, 'c', 25, "aesenc %%xmm1, %%xmm0")                                                  \
    X("pclmulqdq", 1, 'c', 1, "pclmulqdq $0, %%xmm1, %%xmm0")                                      \
    X("sha", 7, 'b', 29, "sha256msg1 %%xmm1, %%xmm0")                                              \
    X("gfni", 7, 'c', 8, "gf2p8mulb %%xmm1, %%xmm0")                                               \
    X("sse3", 1, 'c', 0, "haddps %%xmm1, %%xmm0")                                                  \
    X("ssse3", 1, 'c', 9, "pshufb %%xmm1, %%xmm0")                                                 \
    X("sse4.1", 1, 'c', 19, "ptest %%xmm1, %%xmm0")

u64 scratch[2] __attribute__((aligned(16)));

static void as_cpuid_says(void)
{
    unsigned there = 0, missing = 0;
    trap_clear();
#define X(name, leaf, reg, n, insn)                                                                \
    do {                                                                                           \
        TRY(insn, "a"(0), "b"(0), "c"(0), "d"(0));                                                 \
        check_trap(bit(leaf, reg, n) ? -1 : 6, 0, 0, name);                                        \
        there += bit(leaf, reg, n);                                                                \
        missing += !bit(leaf, reg, n);                                                             \
    } while (0);
    EACH(X)
#undef X
    print("%u there, %u missing\n", there, missing);
}

void guest_main(void)
{
    u64 cr0, cr4;
    __asm__ volatile("movq %%cr0, %0; movq %%cr4, %1" : "=r"(cr0), "=r"(cr4));
    __asm__ volatile("movq %0, %%cr0; movq %1, %%cr4" : : "r"((cr0 & ~12ull) | 2), "r"(cr4 | 0x600));
    as_cpuid_says();
    if (bit(1, 'c', 30))
        draw_all(false);
    if (bit(7, 'b', 18))
        draw_all(true);
    distinct();
    exit_guest(0);
}
