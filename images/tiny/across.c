/*
 * What lies in two pages: an instruction whose second page is written, mapped elsewhere or not
 * there; arrays that a loop goes over from page to page, whose second page is read-only, absent, a
 * page table or the loop's own code.
 */
#include "tiny.h"

#define VA 0x6100000000ull

static u8 first[4096] __attribute__((aligned(4096))), second[4096] __attribute__((aligned(4096))),
    other[4096] __attribute__((aligned(4096)));

typedef u64 code_fn(u64 *, u64);

/* mov eax, imm32, of which `before` bytes are in the first page; ret */
static code_fn *put_across(unsigned before, u32 value)
{
    u8 bytes[6] = {0xb8, (u8)value, (u8)(value >> 8), (u8)(value >> 16), (u8)(value >> 24), 0xc3};

    for (unsigned i = 0; i < sizeof bytes; i++)
        if (i < before)
            first[4096 - before + i] = bytes[i];
        else
            second[i - before] = other[i - before] = bytes[i];
    return (code_fn *)(VA + 4096 - before);
}

static void instruction(void)
{
    u64 bad = 0;

    map(VA, (u64)first, PT_P | PT_W);
    map(VA + PAGE, (u64)second, PT_P | PT_W);
    for (unsigned before = 1; before < 5; before++)
        for (u32 i = 0; i < 300; i++) {
            code_fn *fn = put_across(before, 0x11223344);

            bad += fn(NULL, 0) != 0x11223344;
            second[4 - before] = (u8)i; /* the top byte, in the second page */
            bad += fn(NULL, 0) != (0x223344 | i << 24);
            first[4096 - before] = 0xb9; /* mov ecx: the first byte, in the first */
            first[4096 - before] = 0xb8;
            bad += fn(NULL, 0) != (0x223344 | i << 24);
        }
    check_eq(bad, 0, "an instruction in two pages, either of them written");

    code_fn *fn = put_across(2, 0x55667788);
    for (u32 i = 0; i < 300; i++) {
        other[2] = (u8)i;
        map(VA + PAGE, (u64)(i & 1 ? other : second), PT_P | PT_W);
        invlpg(VA + PAGE);
        bad += fn(NULL, 0) != (i & 1 ? 0x667788 | i << 24 : 0x55667788);
    }
    check_eq(bad, 0, "its second page mapped elsewhere");
    map(VA + PAGE, 0, 0);
    invlpg(VA + PAGE);
    TRY("call *%%rcx", "c"(fn), "a"(0));
    check(trap.vector == 14 && trap.cr2 == VA + PAGE && trap.f.rip == (u64)fn,
          "its second page absent");
    map(VA + PAGE, (u64)second, PT_P | PT_W);
}

/* n words from p on become their number, and each the sum of it and the one before it. */
static u64 fill(u64 *p, u64 n)
{
    u64 *end = p + n, i = 0;

    __asm__ volatile(
        "1:\tmov %1, (%0)\n\tadd -8(%0), %1\n\tmov %1, 8(%0)\n\tadd $8, %0\n\tinc %1\n\t"
        "cmp %2, %0\n\tjne 1b"
        : "+r"(p), "+r"(i)
        : "r"(end)
        : "memory", "cc");
    return i;
}

/* The same, slowly: volatile accesses in a loop of a call each. */
__attribute__((noinline)) static u64 fill_one(volatile u64 *p, u64 i)
{
    p[0] = i;
    i += p[-1];
    p[1] = i;
    return i + 1;
}

static u64 fill_slowly(u64 *p, u64 n)
{
    u64 i = 0;

    while (n--)
        i = fill_one(p++, i);
    return i;
}

__attribute__((noinline)) static void store_until(u64 *p, u64 *end)
{
    TRY("1:\tmov %%rax, (%%rdi)\n\tadd -8(%%rdi), %%rax\n\tadd $8, %%rdi\n\tcmp %%rsi, "
        "%%rdi\n\tjne 1b",
        "D"(p), "S"(end), "a"(0));
}

static void arrays(void)
{
    u64 bad = 0;
    static u64 a[1024], b[1024];

    for (unsigned shift = 0; shift < 8; shift += 7)
        for (u64 n = 1; n < 700; n += 41) {
            memset(a, 0, sizeof a);
            memset(b, 0, sizeof b);
            /* Words that are not aligned are in two pages themselves. */
            bad += fill((u64 *)((u8 *)a + 64 + shift), n) !=
                   fill_slowly((u64 *)((u8 *)b + 64 + shift), n);
            for (unsigned i = 0; i < 1024; i++)
                bad += a[i] != b[i];
        }
    check_eq(bad, 0, "arrays over pages");

    /* The second page: read-only, absent. The fault is at the word that lies there. */
    u64 *p = (u64 *)(VA + PAGE - 800);
    map(VA, (u64)first, PT_P | PT_W | PT_NX);
    for (int k = 0; k < 2; k++) {
        map(VA + PAGE, (u64)second, k ? 0 : PT_P);
        invlpg(VA + PAGE);
        store_until(p, p + 300);
        check(trap.vector == 14 && trap.cr2 == VA + PAGE && trap.f.rdi == VA + PAGE,
              k ? "the second page absent" : "the second page read-only");
    }
    /* It becomes a page table, through which the loop's own reads go. */
    u64 *table = pt_entry(VA, 1), was = table[5];
    map(VA + 5 * PAGE, (u64)other, PT_P | PT_W);
    other[0] = 1;
    second[0] = 2;
    volatile u8 *at = (volatile u8 *)VA + 5 * PAGE;
    for (unsigned i = 0; i < 50; i++) {
        bad += *at != 1;
        table[5] = (u64)second | PT_P | PT_W;
        invlpg((u64)at);
        bad += *at != 2;
        table[5] = (u64)other | PT_P | PT_W;
        invlpg((u64)at);
    }
    table[5] = was;
    invlpg((u64)at);
    check_eq(bad, 0, "a page table is written between reads through it");
}

/* Words of a stack that is not aligned, one of them in two pages that are not neighbours in memory;
 * the carry flag is kept over all of it. */
static void stack(void)
{
    u64 got = 0, bad = 0;

    u8 *low = first + PAGE == second ? second : first, *high = low == first ? second : first;

    map(VA, (u64)low, PT_P | PT_W);
    map(VA + PAGE, (u64)high, PT_P | PT_W);
    for (u64 i = 0; i < 300; i++) {
        u64 top = VA + PAGE + i % 24, value = i * 0x0102030405060708;

        __asm__ volatile(
            "mov %%rsp, %%r8\n\tmov %2, %%rsp\n\tstc\n\tpush %3\n\tpush %3\n\tpush %3\n\t"
            "push %3\n\tcall 1f\n1:\tpop %0\n\tpop %0\n\tsbb $0, %0\n\tpop %0\n\tstc\n\t"
            "pop %0\n\tpop %0\n\tadc $0, %0\n\tmov %%r8, %%rsp"
            : "=&r"(got), "+m"(bad)
            : "r"(top), "r"(value)
            : "r8", "memory", "cc");
        bad += got != value + 1;
        for (u64 k = 0; k < 32; k++) {
            u64 at = top - 32 + k;
            const u8 *page = at < VA + PAGE ? low : high;
            bad += page[at & 4095] != (u8)(value >> 8 * (k & 7));
        }
    }
    check_eq(bad, 0, "a stack over the end of a page");
}

/* Adds w, and the carry. */
static u64 add(u64 sum, u64 w, bool *carry)
{
    u64 got = sum + w + *carry;

    *carry = *carry ? got <= sum : got < sum;
    return got;
}

/* Two arrays are summed with carry in one loop, so that flags live while both are looked up. One is
 * at RAX, where flags may be kept meanwhile: that changes its low 16 bits only, and all that those
 * lead to is there, other than what is asked for. */
static void carries(void)
{
    static u64 wide[2 * 65536 / 8] __attribute__((aligned(65536))), narrow[32];
    u64 bad = 0;

    for (unsigned i = 0; i < COUNT(wide); i++)
        wide[i] = (i + 1) * 0x9e3779b97f4a7c15;
    for (unsigned i = 0; i < COUNT(narrow); i++)
        narrow[i] = ~0ull / (i + 1);
    for (unsigned k = 0; k < 2000; k++) {
        u64 *p = wide + k * 37 % (65536 / 8), *q = narrow, sums[2] = {0}, want[2] = {0}, n = 16;
        bool carry = false;

        for (unsigned i = 0; i < COUNT(wide); i += 512)
            *(volatile u64 *)&wide[i]; /* all pages are known to the TLB */
        for (unsigned i = 0; i < n; i++) {
            want[0] = add(add(want[0], narrow[2 * i], &carry), narrow[2 * i + 1], &carry);
            want[1] = add(add(want[1], p[2 * i], &carry), p[2 * i + 1], &carry);
        }
        __asm__ volatile("clc\n1:\tadc (%1), %2\n\tadc 8(%1), %2\n\tadc (%%rax), %3\n\t"
                         "adc 8(%%rax), %3\n\tlea 16(%1), %1\n\tlea 16(%%rax), %%rax\n\t"
                         "dec %4\n\tjne 1b"
                         : "+a"(p), "+r"(q), "+r"(sums[0]), "+r"(sums[1]), "+r"(n)
                         :
                         : "memory", "cc");
        bad += sums[0] != want[0] || sums[1] != want[1];
    }
    check_eq(bad, 0, "sums with carry of two arrays, one at RAX");
}

void guest_main(void)
{
    stack();
    instruction();
    arrays();
    carries();
    exit_guest(0);
}
