/*
 * What is interrupted in its midst: REP strings, and stretches of thousands of instructions without
 * a branch, in rings 0 and 3. Each result is checked, and each interrupt noted: where it came and
 * with what registers. They come from the local APIC's timer, from the serial port (typed bytes)
 * and as NMIs.
 */
#include "tiny.h"

#define SIZE   2048u
#define ROUNDS 6u
#define BLOCKS 300u

static u8 a[SIZE] __attribute__((aligned(4096))), b[SIZE] __attribute__((aligned(4096)));
static u64 cells[8];
static volatile u64 seen, noted = 1;
static u64 bad;

static void note(u64 v)
{
    noted = (noted ^ v) * 0x9e3779b97f4a7c15ull;
    noted ^= noted >> 29;
}

static void note_frame(const struct frame *f)
{
    seen++;
    note(f->vector);
    note(f->rip);
    note(f->rflags);
    note(f->rcx);
    note(f->rsi);
    note(f->rdi);
    note(f->rax ^ f->rdx ^ f->rbx ^ f->r8 ^ f->r9);
}

static bool on_timer(struct frame *f)
{
    note_frame(f);
    lapic_eoi();
    return true;
}

static bool on_serial(struct frame *f)
{
    note_frame(f);
    (void)inb(0x3fa);
    while (inb(0x3fd) & 1)
        note(inb(0x3f8));
    lapic_eoi();
    return true;
}

static bool on_nmi(struct frame *f)
{
    note_frame(f);
    return true;
}

/* No branch in BLOCKS times this; flags go from one instruction to the next all along. */
#define BLOCK                                                                                      \
    "add %%rcx, %%rax\n\tadc %%rdx, %%rbx\n\trol $13, %%rax\n\timul $0x6c8e9cf5, %%rdx, %%rdx\n\t" \
    "lea 5(%%rcx,%%rax,2), %%rcx\n\txor %%rbx, (%%rsi)\n\tsbb %%rax, 8(%%rsi)\n\tsetc %%r8b\n\t"   \
    "cmovs %%rax, %%rdx\n\tadd %%r8, %%rdx\n\tbswap %%rbx\n\tmov 16(%%rsi), %%r9\n\t"              \
    "xadd %%rdx, %%r9\n\tmov %%r9, 16(%%rsi)\n\tpush %%rax\n\tpopq 24(%%rsi)\n\t"

/* In a line, or round and round. */
static u64 stretch(u64 *cell, bool line)
{
    u64 x = 1, y = 2, n = 3, z = 5;

    memset(cell, 7, sizeof cells);
    if (line)
        __asm__ volatile("xor %%r8d, %%r8d\n\t.rept %c5\n\tclc\n\t" BLOCK "\n\t.endr"
                         : "+a"(x), "+b"(y), "+c"(n), "+d"(z)
                         : "S"(cell), "i"(BLOCKS)
                         : "r8", "r9", "memory", "cc");
    else
        __asm__ volatile("xor %%r8d, %%r8d\n\tmov %5, %%r10d\n\t1: clc\n\t" BLOCK
                         "\n\tdec %%r10d\n\tjnz 1b"
                         : "+a"(x), "+b"(y), "+c"(n), "+d"(z)
                         : "S"(cell), "i"(BLOCKS)
                         : "r8", "r9", "r10", "memory", "cc");
    return x ^ y ^ n ^ z ^ cell[0] ^ cell[1] ^ cell[2] ^ cell[3];
}

static void strings(u8 *s, u8 *d, u64 seed)
{
    u64 si, di, n, al;

    for (unsigned i = 0; i < SIZE; i++)
        s[i] = (u8)(i * 5 + (i >> 8) + seed);
    di = (u64)d, n = SIZE / 8;
    __asm__ volatile("rep stosq"
                     : "+D"(di), "+c"(n)
                     : "a"(0x0101010101010101 * (seed & 63))
                     : "memory");
    bad += di != (u64)d + SIZE || d[0] != (seed & 63) || d[SIZE - 1] != (seed & 63);
    si = (u64)s, di = (u64)d, n = SIZE;
    __asm__ volatile("rep movsb" : "+D"(di), "+S"(si), "+c"(n) : : "memory");
    bad += si != (u64)s + SIZE || n;
    si = (u64)s, di = (u64)d, n = SIZE;
    __asm__ volatile("repe cmpsb" : "+D"(di), "+S"(si), "+c"(n) : : "memory", "cc");
    bad += n || si != (u64)s + SIZE;
    d[SIZE - 100] ^= 0x40;
    si = (u64)s + SIZE - 4, di = (u64)d + SIZE - 4, n = SIZE / 4;
    __asm__ volatile("std; repe cmpsl; cld" : "+D"(di), "+S"(si), "+c"(n) : : "memory", "cc");
    bad += si != (u64)s + SIZE - 104;
    n = SIZE / 4, di = (u64)d;
    __asm__ volatile("rep stosl" : "+D"(di), "+c"(n) : "a"(0x20202020) : "memory");
    d[SIZE - 50] = 0x21;
    di = (u64)d, n = SIZE;
    __asm__ volatile("repne scasb" : "+D"(di), "+c"(n) : "a"(0x21) : "memory", "cc");
    bad += di != (u64)d + SIZE - 49 || n != 49;
    si = (u64)s, n = SIZE / 2, al = 0;
    __asm__ volatile("rep lodsw" : "+S"(si), "+c"(n), "+a"(al) : : "memory");
    bad += al != *(u16 *)(s + SIZE - 2);
    si = (u64)s + SIZE - 8, di = (u64)d + SIZE - 8, n = SIZE / 8;
    __asm__ volatile("std; rep movsq; cld" : "+D"(di), "+S"(si), "+c"(n) : : "memory");
    bad += memcmp(s, d, SIZE) != 0;
}

static volatile u64 in_line[2], around;

/* In ring 3, where code finds its data at the alias, as itself. */
static void user(void)
{
    strings(a, b, 77);
    in_line[1] = stretch(cells, true);
}

void guest_main(void)
{
    set_handler(2, on_nmi);
    set_handler(0x34, on_serial);
    set_handler(0x40, on_timer);
    lapic_enable();
    ioapic_route(4, 0x34, 0);
    outb(0x3fa, 0x07); /* FIFO on and empty, interrupt at each byte */
    outb(0x3fc, 0x0b);
    outb(0x3f9, 0x05);
    around = stretch(cells, false);
    lapic_write(0x3e0, 0xb); /* divide by 1 */
    lapic_write(0x320, 0x40 | 1 << 17);
    lapic_write(0x380, 1709);
    sti();
    for (unsigned i = 0; i < ROUNDS; i++) {
        strings(a, b, i);
        in_line[0] = stretch(cells, true);
        bad += in_line[0] != around;
        user_run(user, 0x202);
        sti();
        bad += in_line[1] != around;
    }
    cli();
    outb(0x3f9, 0);
    check_eq(bad, 0, "REP strings and branchless stretches are as without interrupts");
    check(seen >= ROUNDS, "they were interrupted");
    print("noted %lx\n", noted);
}
