/* TF, the debug registers, INT3 and ICEBP. */
#include "tiny.h"

static volatile u64 hits, rips[64], dr6s[64], watched[4] __attribute__((aligned(32)));

static bool on_db(struct frame *f)
{
    if (hits < 64) {
        rips[hits] = f->rip;
        dr6s[hits] = READ_REG(dr6);
    }
    hits++;
    WRITE_REG(dr6, 0xffff0ff0);
    if (f->rip == rips[0] && (dr6s[0] & 15) && hits == 1)
        f->rflags |= 0x10000; /* RF: past the instruction breakpoint */
    return true;
}

static void clear(void)
{
    hits = 0;
    for (unsigned i = 0; i < 64; i++)
        rips[i] = dr6s[i] = 0;
}

static void single_step(void)
{
    u64 a, b;

    clear();
    __asm__ volatile("lea 1f(%%rip), %0; lea 2f(%%rip), %1; pushfq; orl $0x100, (%%rsp); popfq\n\t"
                     "nop; 1: xor %%eax, %%eax; nop; pushfq; andl $~0x100, (%%rsp); popfq; 2: nop"
                     : "=&r"(a), "=&r"(b)
                     :
                     : "rax", "memory", "cc");
    check_eq(hits, 6, "single steps");
    check_eq(rips[0], a, "the first after the instruction after POPF");
    check_eq(rips[5], b, "the last after the POPF that ends it");
    check_eq(dr6s[0], 0xffff4ff0, "DR6.BS");
    clear();
    __asm__ volatile("lea 1f(%%rip), %0; mov %%ss, %%edx; pushfq; orl $0x100, (%%rsp); popfq\n\t"
                     "mov %%edx, %%ss; nop; 1: pushfq; andl $~0x100, (%%rsp); popfq"
                     : "=&r"(a)
                     :
                     : "rdx", "memory", "cc");
    check_eq(rips[0], a, "MOV SS holds the trap back");
    clear();
    {
        static u8 s[8] = "1234567", d[8];
        u64 n = 4, si = (u64)s, di = (u64)d;

        __asm__ volatile(
            "pushfq; orl $0x100, (%%rsp); popfq; rep movsb; pushfq; andl $~0x100, (%%rsp); popfq"
            : "+c"(n), "+S"(si), "+D"(di)
            :
            : "memory", "cc");
        INEXACT(check_eq(hits, 4 + 3, "a trap after each iteration"));
        INEXACT(check(rips[0] == rips[2] && rips[3] == rips[2] + 2,
                      "RIP stays on the REP until its end"));
    }
}

static void instruction_bp(void)
{
    u64 a;

    clear();
    for (unsigned i = 0; i < 3; i++) {
        __asm__ volatile(
            "lea 1f(%%rip), %0; mov %0, %%dr0; mov %1, %%dr7; nop; 1: nop; nop; mov %2, %%dr7"
            : "=&r"(a)
            : "r"(0x402ull), "r"(0x400ull)
            : "memory");
        if (i == 0) {
            check_eq(hits, 1, "instruction breakpoint");
            check_eq(rips[0], a, "is a fault");
            check_eq(dr6s[0] & 0x600f, 1, "DR6.B0");
        }
        clear();
    }
}

static void data_bp(void)
{
    clear();
    WRITE_REG(dr1, (u64)&watched[1]);
    WRITE_REG(dr7, 0x408 | 1 << 20 | 2 << 22); /* write, 8 bytes */
    watched[0] = 1;
    (void)watched[1];
    check_eq(hits, 0, "neither a neighbour nor a read");
    watched[1] = 5;
    check_eq(hits, 1, "a write");
    check_eq(dr6s[0] & 15, 2, "DR6.B1");
    ((volatile u8 *)&watched[1])[7] = 1;
    check_eq(hits, 2, "its last byte");
    *(volatile u32 *)((u8 *)&watched[1] - 2) = 0;
    check_eq(hits, 3, "half of it");
    WRITE_REG(dr7, 0x408 | 3 << 20 | 2 << 22); /* access */
    (void)watched[1];
    check_eq(hits, 4, "a read");
    watched[1] = 5;
    check_eq(hits, 5, "a write too");
    WRITE_REG(dr7, 0x400);
    watched[1] = 6;
    check_eq(hits, 5, "off");
    clear();
    WRITE_REG(dr7, 0x408 | 1 << 20 | 2 << 22);
    {
        u64 d = (u64)watched, n = 32;

        __asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(3) : "memory");
    }
    WRITE_REG(dr7, 0x400);
    INEXACT(check_eq(hits, 8, "each byte that REP STOSB writes"));
}

static void registers(void)
{
    WRITE_REG(dr7, 0x400);
    check_eq(READ_REG(dr7), 0x400, "DR7 fixed bits");
    WRITE_REG(dr6, 0);
    INEXACT(check_eq(READ_REG(dr6), 0xffff0ff0, "DR6 fixed bits"));
    TRY("mov %%rax, %%dr7", "a"(1ull << 32));
    check_trap(13, 0, 0, "DR7 has 32 bits");
    WRITE_REG(cr4, READ_REG(cr4) | 8);
    TRY("mov %%dr4, %%rax", "a"(0));
    check_trap(6, 0, 0, "DR4 with CR4.DE");
    WRITE_REG(cr4, READ_REG(cr4) & ~8ull);
    TRY("mov %%dr4, %%rax", "a"(0));
    check_trap(-1, 0, 0, "DR4 is DR6 without");
    WRITE_REG(cr4, READ_REG(cr4) | 8);
    WRITE_REG(dr7, 0x2400); /* GD */
    set_handler(1, NULL);
    TRY("mov %%dr0, %%rax", "a"(0));
    INEXACT(check_eq(trap.vector, 1, "general detect"));
    INEXACT(check_eq(trap.f.rip, trap_rip, "is a fault");
            check_eq(READ_REG(dr6) & 0x2000, 0x2000, "DR6.BD"));
    WRITE_REG(dr7, 0x400);
}

void guest_main(void)
{
    set_handler(1, on_db);
    single_step();
    instruction_bp();
    data_bp();
    registers();
}
