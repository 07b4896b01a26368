/* String instructions: all widths, both directions, overlap, page edges, segments, 67h. */
#include "tiny.h"

static u8 a[16384] __attribute__((aligned(4096))), b[16384] __attribute__((aligned(4096)));

static void fill(void)
{
    for (unsigned i = 0; i < sizeof a; i++) {
        a[i] = (u8)(i * 7 + (i >> 8));
        b[i] = 0;
    }
}

#define REP_MOVS(suffix, d, s, n)                                                                  \
    do {                                                                                           \
        u64 d_ = (u64)(d), s_ = (u64)(s), n_ = (n);                                                \
        __asm__ volatile("rep movs" suffix : "+D"(d_), "+S"(s_), "+c"(n_) : : "memory");           \
    } while (0)

static void moves(void)
{
    u64 bad = 0;

    for (unsigned off = 4064; off < 4128; off += 3) {
        fill();
        REP_MOVS("b", b + off, a + off + 1, 300);
        bad += memcmp(b + off, a + off + 1, 300) != 0 || b[off + 300] || b[off - 1];
        fill();
        REP_MOVS("w", b + off, a + off + 1, 150);
        bad += memcmp(b + off, a + off + 1, 300) != 0 || b[off + 300];
        fill();
        REP_MOVS("l", b + off, a + off + 1, 75);
        bad += memcmp(b + off, a + off + 1, 300) != 0 || b[off + 300];
        fill();
        REP_MOVS("q", b + off, a + off + 1, 40);
        bad += memcmp(b + off, a + off + 1, 320) != 0 || b[off + 320];
    }
    check_eq(bad, 0, "REP MOVS at page edges");
    fill();
    a[0] = 0x5a;
    REP_MOVS("b", a + 1, a, 8000); /* overlap: the first byte spreads */
    for (unsigned i = 0; i <= 8000; i++)
        bad += a[i] != 0x5a;
    check_eq(bad, 0, "overlapping by one");
    fill();
    REP_MOVS("q", a + 3, a, 1000); /* overlap shorter than an element */
    for (unsigned i = 0; i < 3; i++)
        bad += a[i] != (u8)(i * 7);
    check_eq(bad, 0, "overlapping by three");
    check_eq(*(u64 *)(a + 3), 0x312a231c150e0700, "the first element is whole");
    check_eq(*(u64 *)(a + 11), 0x69625b544d312a23, "the second sees the first");
}

static void scans(void)
{
    u64 p, n, al = 0x11;
    u8 zf;

    fill();
    memset(b, 0x22, sizeof b);
    b[5000] = 0x11;
    p = (u64)b, n = sizeof b;
    __asm__ volatile("repne scasb; setz %2"
                     : "+D"(p), "+c"(n), "=q"(zf)
                     : "a"(al)
                     : "memory", "cc");
    check_eq(p - (u64)b, 5001, "REPNE SCASB stops after the byte");
    check_eq(n, sizeof b - 5001, "and keeps the rest of RCX");
    check_eq(zf, 1, "with ZF");
    p = (u64)b + 6000, n = 0;
    __asm__ volatile("cmp %%eax, %%eax; repne scasb; setz %2"
                     : "+D"(p), "+c"(n), "=q"(zf)
                     : "a"(al)
                     : "cc");
    check_eq(zf, 1, "RCX = 0 leaves the flags");
    check_eq(p, (u64)b + 6000, "and RDI");
    {
        u64 s = (u64)a, d = (u64)b;

        memcpy(b, a, sizeof b);
        b[9001] ^= 1;
        n = sizeof a / 2;
        __asm__ volatile("repe cmpsw" : "+D"(d), "+S"(s), "+c"(n) : : "memory", "cc");
        check_eq(s - (u64)a, 9002, "REPE CMPSW stops after the word");
        s = (u64)a + 15999, d = (u64)b + 15999, n = 16000;
        __asm__ volatile("std; repe cmpsb; cld" : "+D"(d), "+S"(s), "+c"(n) : : "memory", "cc");
        check_eq(s - (u64)a, 9000, "downwards");
    }
    p = (u64)a + 10, n = 5;
    __asm__ volatile("rep lodsb" : "+S"(p), "+c"(n), "+a"(al) : : "memory");
    check_eq(al & 0xff, a[14], "REP LODSB leaves the last byte");
}

static void odd(void)
{
    u64 s, d, n;

    fill();
    /* 67h: 32-bit registers count and point, their upper halves are cleared by the writing. */
    s = (u64)a | 0xffull << 32, d = (u64)b | 0xffull << 32, n = 8 | 0xffull << 32;
    __asm__ volatile("rep addr32 movsb" : "+D"(d), "+S"(s), "+c"(n) : : "memory");
    check_eq(n, 0, "67h: RCX");
    check_eq(s, (u64)a + 8, "67h: RSI");
    check(memcmp(a, b, 8) == 0, "67h: the bytes");
    wrmsr(0xc0000100, 100); /* FS base */
    s = (u64)a, d = (u64)b, n = 8;
    __asm__ volatile("rep movsb %%fs:(%%rsi), (%%rdi)" : "+D"(d), "+S"(s), "+c"(n) : : "memory");
    check(memcmp(a + 100, b, 8) == 0, "a segment override moves the source");
    wrmsr(0xc0000100, 0);
    n = 1000, d = (u64)b;
    __asm__ volatile("rep stosq" : "+D"(d), "+c"(n) : "a"(0x1122334455667788) : "memory");
    check_eq(*(u64 *)(b + 7992), 0x1122334455667788, "REP STOSQ");
    check_eq(d, (u64)b + 8000, "its RDI");
}

void guest_main(void)
{
    moves();
    scans();
    odd();
}
