/* 100,000 page faults that a handler repairs, and string instructions that fault half way. */
#include "tiny.h"

#define BASE  0x5200000000ull
#define SLOTS 64

static u8 pool[SLOTS][4096] __attribute__((aligned(4096)));
static u64 faults, bad_err, last_rcx, last_rsi, last_rdi, last_cr2;

static bool repair(struct frame *f)
{
    u64 cr2 = READ_REG(cr2);

    if (cr2 < BASE || cr2 >= BASE + (1ull << 30))
        return false;
    faults++;
    last_rcx = f->rcx;
    last_rsi = f->rsi;
    last_rdi = f->rdi;
    last_cr2 = cr2;
    bad_err += (f->err & ~2ull) != 0;
    *pt_entry(cr2, 1) = (u64)pool[(cr2 >> 12) % SLOTS] | PT_P | PT_W;
    return true;
}

static void unmap(u64 va)
{
    *pt_entry(va, 1) = 0;
    invlpg(va);
}

static void storm(void)
{
    u64 sum = 0;

    faults = 0;
    for (u64 i = 0; i < 100000; i++) {
        u64 va = BASE + (i * 7 % SLOTS) * PAGE;

        if (i & 1)
            *(volatile u64 *)(va + i % 512 * 8) = i;
        else
            sum += *(volatile u64 *)(va + i % 512 * 8);
        unmap(va);
    }
    check_eq(faults, 100000, "100000 faults");
    check_eq(bad_err, 0, "their error codes");
}

static void strings(void)
{
    u64 dst = BASE + 100 * PAGE, src = BASE + 200 * PAGE, rcx, rsi, rdi;

    for (u64 i = 0; i < 8; i++)
        unmap(dst + i * PAGE), unmap(src + i * PAGE);
    faults = 0;
    rdi = dst + 0x800, rcx = 0x2000;
    __asm__ volatile("rep stosb" : "+D"(rdi), "+c"(rcx) : "a"(0x5a) : "memory");
    check_eq(faults, 3, "REP STOSB over three pages faults three times");
    check_eq(last_rcx, 0x800, "RCX at the last fault");
    check_eq(last_rdi, dst + 0x2000, "RDI at the last fault");
    check_eq(last_cr2, dst + 0x2000, "CR2 at the last fault");
    check_eq(rdi, dst + 0x2800, "RDI at the end");

    for (u64 i = 0; i < 8; i++)
        unmap(dst + i * PAGE);
    faults = 0;
    rdi = dst + 0xffc, rsi = src + 0xff8, rcx = 0x400; /* qwords, destination misaligned */
    __asm__ volatile("rep movsq" : "+D"(rdi), "+S"(rsi), "+c"(rcx) : : "memory");
    check_eq(faults, 6, "REP MOVSQ across pages");
    check_eq(rdi, dst + 0xffc + 0x2000, "RDI of MOVSQ");
    check_eq(rsi, src + 0xff8 + 0x2000, "RSI of MOVSQ");
    check_eq(rcx, 0, "RCX of MOVSQ");

    for (u64 i = 0; i < 8; i++)
        unmap(dst + i * PAGE);
    faults = 0;
    rdi = dst + 0x17ff, rcx = 0x1000;
    __asm__ volatile("std; rep stosb; cld" : "+D"(rdi), "+c"(rcx) : "a"(1) : "memory");
    check_eq(faults, 2, "downwards");
    check_eq(last_rcx, 0x800, "RCX downwards");
    check_eq(last_rdi, dst + 0xfff, "RDI downwards");

    for (u64 i = 0; i < 8; i++)
        unmap(dst + i * PAGE), unmap(src + i * PAGE);
    set_handler(14, NULL);
    TRY("rep movsb", "D"(dst), "S"(src), "c"(16));
    check_eq(trap.cr2, src, "the source is read first");
    check_eq(trap.err, 0, "by a read");
    INEXACT(check_eq(trap.f.rflags & 0x10000, 0x10000, "RF in a string's fault"));
    TRY("xor %%eax, %%eax; repe cmpsb", "D"(dst), "S"(src), "c"(0));
    check_eq(trap.vector, ~0ull, "no access with RCX = 0");
    set_handler(14, repair);
}

void guest_main(void)
{
    set_handler(14, repair);
    storm();
    strings();
}
