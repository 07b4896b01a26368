/*
 * What the manuals leave undefined, run many times over and summed up: flags, RCPPS and RSQRTPS, x87
 * transcendentals and remainders. The sums are printed, and known: they are the same on every host. (Under
 * another machine they are not: QEMU has results of its own.)
 */
#include "tiny.h"

#define TIMES 200u

static u64 sum, seed;
static u8 env[64] __attribute__((aligned(16)));

static u64 draw(void)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return seed ^ seed >> 29;
}

static void add(u64 v)
{
    sum = (sum ^ v) * 0x9e3779b97f4a7c15ull;
    sum ^= sum >> 32;
}

/* After `insn` on rax, rbx, rcx, from random flags; what is there then. */
#define FLAGS(insn)                                                                                \
    do {                                                                                           \
        u64 a_ = draw() >> (draw() & 63), b_ = draw() >> (draw() & 63), c_ = draw() & 127;         \
        u64 f_ = (draw() & 0x8d5) | 2, g_;                                                         \
        __asm__ volatile("pushq %1; popfq; " insn "; jmp 1f; 1: pushfq; popq %0"                   \
                         : "=&r"(g_), "+&r"(f_), "+a"(a_), "+b"(b_), "+c"(c_)                      \
                         :                                                                         \
                         : "rdx", "cc", "memory");                                                 \
        add(g_ & 0x8d5);                                                                           \
        add(a_);                                                                                   \
        add(b_);                                                                                   \
    } while (0)

static void flags(void)
{
    for (unsigned i = 0; i < TIMES; i++) {
        FLAGS("shll $3, %%eax");
        FLAGS("shrq $1, %%rax");
        FLAGS("sarq $40, %%rax");
        FLAGS("shlb $9, %%al");
        FLAGS("shlq %%cl, %%rax");
        FLAGS("shrl %%cl, %%ebx");
        FLAGS("sarl %%cl, %%ecx");
        FLAGS("shrw %%cl, %%ax");
        FLAGS("rolq $5, %%rax");
        FLAGS("rorl %%cl, %%eax");
        FLAGS("rclq $3, %%rax");
        FLAGS("rcrb %%cl, %%bl");
        FLAGS("shldq $7, %%rbx, %%rax");
        FLAGS("shrdl %%cl, %%ebx, %%eax");
        FLAGS("shldw $20, %%bx, %%ax");
        FLAGS("imulq %%rbx, %%rax");
        FLAGS("imull $77, %%ebx, %%eax");
        FLAGS("mulq %%rbx");
        FLAGS("bsfq %%rbx, %%rax");
        FLAGS("bsrl %%ebx, %%eax");
        FLAGS("xorl %%ebx, %%ebx; bsfl %%ebx, %%eax");
        FLAGS("btq %%rbx, %%rax");
        FLAGS("btsl $9, %%eax");
        FLAGS("andq %%rbx, %%rax");
        FLAGS("xorl %%edx, %%edx; orl $1, %%ebx; divl %%ebx");
        FLAGS(".byte 0x66, 0x0f, 0xc8"); /* bswap ax */
    }
}

static void approximations(void)
{
    u32 in[4] __attribute__((aligned(16))), out[4] __attribute__((aligned(16)));
    for (unsigned i = 0; i < 5 * TIMES; i++) {
        for (unsigned k = 0; k < 4; k++)
            in[k] = (u32)draw();
        __asm__ volatile("movaps %1, %%xmm1; rcpps %%xmm1, %%xmm0; movaps %%xmm0, %0"
                         : "=m"(out)
                         : "m"(in));
        add(out[0] ^ (u64)out[1] << 32);
        add(out[2] ^ (u64)out[3] << 32);
        __asm__ volatile("rsqrtps %1, %%xmm9; rcpss %1, %%xmm9; movaps %%xmm9, %0"
                         : "=m"(out)
                         : "m"(in));
        add(out[0] ^ (u64)out[1] << 32);
        add(out[2] ^ (u64)out[3] << 32);
        __asm__ volatile("rsqrtss %1, %%xmm0; movaps %%xmm0, %0" : "=m"(out) : "m"(in));
        add(out[0] ^ (u64)out[1] << 32);
    }
}

static void number(u8 out[10])
{
    *(u64 *)out = draw() | 1ull << 63;
    *(u16 *)(out + 8) = (u16)(0x3fff - 8 + (draw() & 15)) | (u16)(draw() & 0x8000);
}

#define X87(insn)                                                                                  \
    do {                                                                                           \
        number(x);                                                                                 \
        number(y);                                                                                 \
        __asm__ volatile("fninit; fldt %3; fldt %2; " insn "; fnstenv %1; fstpt %0"                \
                         : "=m"(z), "=m"(env)                                                      \
                         : "m"(x), "m"(y));                                                        \
        add(*(u64 *)z);                                                                            \
        add(*(u16 *)(z + 8) | (u64) *(u16 *)(env + 4) << 16);                                      \
    } while (0)

static void x87(void)
{
    u8 x[10], y[10], z[10];
    for (unsigned i = 0; i < TIMES; i++) {
        X87("f2xm1");
        X87("fsin");
        X87("fcos");
        X87("fsincos; faddp");
        X87("fptan; fmulp");
        X87("fpatan");
        X87("fabs; fyl2x");
        X87("fabs; fyl2xp1");
        X87("fprem");
        X87("fprem1");
        
    }
}

static void part(const char *name, void (*fn)(void), u64 want)
{
    sum = seed = 1;
    fn();
    check_eq(sum, want, name);
}

void guest_main(void)
{
    part("flags", flags, 0xe5a69425e3b6e0d4);
    part("approximations", approximations, 0x32bc7f296cf64298);
    part("x87", x87, 0xbc73ef90ac80d614);
}
