/*
 * A timer's interrupt that is wanted when STI, or STI and MOV SS, let it in with a REP string as
 * the next instruction: it comes after the first iteration, never where the host's slices end.
 */
#include "tiny.h"

#define N 300

static u8 from[N], to[N];
static volatile u64 ticks, left;

static bool on_tick(struct frame *f)
{
    ticks++;
    left = f->rcx;
    lapic_eoi();
    return true;
}

/* The timer fires while interrupts are off; then `insns` lets it in. */
#define LET_IN(insns, name)                                                                        \
    do {                                                                                           \
        u64 rcx = N, rdi = (u64)to, rsi = (u64)from, ss = READ_REG(ss);                            \
        cli();                                                                                     \
        ticks = 0;                                                                                 \
        lapic_write(0x380, 200);                                                                   \
        while (lapic_read(0x390))                                                                  \
            ;                                                                                      \
        __asm__ volatile(insns "\n\tnop\n\tcli"                                                    \
                         : "+c"(rcx), "+D"(rdi), "+S"(rsi)                                         \
                         : "a"(0), "d"(ss)                                                         \
                         : "memory", "cc");                                                        \
        check(ticks == 1 && left < N, name);                                                       \
        firsts += left == N - 1;                                                                   \
        sum = sum * 31 + left;                                                                     \
    } while (0)

void guest_main(void)
{
    u64 sum = 0, firsts = 0;

    lapic_enable();
    set_handler(0x40, on_tick);
    lapic_write(0x3e0, 0xb);
    lapic_write(0x320, 0x40);
    for (unsigned i = 0; i < 10; i++) {
        LET_IN("sti; rep stosb", "sti, rep stos");
        LET_IN("sti; rep movsb", "sti, rep movs");
        LET_IN("sti; rep lodsb", "sti, rep lods");
        LET_IN("sti; repe cmpsb", "sti, repe cmps");
        LET_IN("sti; repe scasb", "sti, repe scas");
        LET_IN("sti; mov %%edx, %%ss; rep stosb", "sti, mov ss, rep stos");
    }
    print("after the first: %lu of %u, %lx\n", firsts, 10 * 6, sum);
    exit_guest(0);
}
