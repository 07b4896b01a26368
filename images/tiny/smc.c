/* Self-modifying code in all the ways that a translator must notice. */
#include "tiny.h"

static u8 code[8 * 4096] __attribute__((aligned(4096)));

typedef u64 code_fn(u64);

static void put_mov_ret(u8 *p, u32 value) /* mov eax, value; ret */
{
    p[0] = 0xb8;
    memcpy(p + 1, &value, 4);
    p[5] = 0xc3;
}

static void rewritten(void)
{
    u8 *p = code + 0x100;
    u64 bad = 0;

    for (u32 i = 0; i < 2000; i++) {
        put_mov_ret(p, i);
        bad += ((code_fn *)p)(0) != i;
    }
    check_eq(bad, 0, "rewritten between calls");
    for (u32 i = 0; i < 2000; i++) {
        *(volatile u32 *)(p + 1) = i * 3; /* only the immediate */
        bad += ((code_fn *)p)(0) != i * 3;
    }
    check_eq(bad, 0, "immediate rewritten");
}

static void next_instruction(void)
{
    u8 *p = code + 0x200;
    u64 r;
    /* movb $0x43, 1f(%rip)(the byte after); 1: b8+n imm32: the opcode's register or value changes
     */
    static const u8 text[] = {0xc6, 0x05, 0x01, 0x00, 0x00, 0x00, 0x55, /* movb 0x55, [rip+1] */
                              0xb8, 0x11, 0x00, 0x00, 0x00,             /* mov eax, 0x11 */
                              0xc3};

    for (unsigned i = 0; i < 3; i++) {
        memcpy(p, text, sizeof text);
        r = ((code_fn *)p)(0);
        check_eq(r, 0x55, "the very next instruction");
    }
}

static void own_block(void)
{
    u8 *p = code + 0x300;
    /* loop: inc eax; dec ecx -> the store turns INC into NOP after the first turn */
    static const u8 text[] = {0x31, 0xc0,                /* xor eax, eax */
                              0xb9, 10,   0,    0,    0, /* mov ecx, 10 */
                              0xff, 0xc0,                /* 7: inc eax */
                              0x66, 0xc7, 0x05, 0xf5, 0xff,
                              0xff, 0xff, 0x66, 0x90, /* movw 9066, [7] */
                              0xff, 0xc9,             /* dec ecx */
                              0x75, 0xf1,             /* jnz 7 */
                              0xc3};

    memcpy(p, text, sizeof text);
    check_eq(((code_fn *)p)(0), 1, "a store into its own loop");
}

static void alias(void)
{
    u8 *p = code + 4096;
    volatile u32 *other = (volatile u32 *)(0x5100000000 + 1);
    u64 bad = 0;

    map(0x5100000000, (u64)p, PT_P | PT_W);
    put_mov_ret(p, 1);
    for (u32 i = 0; i < 1000; i++) {
        *other = i;
        bad += ((code_fn *)p)(0) != i;
        bad += ((code_fn *)0x5100000000)(0) != i;
    }
    check_eq(bad, 0, "written through another mapping");
    map(0x5100001000, (u64)code + 2 * 4096, PT_P);
    put_mov_ret(code + 2 * 4096, 77);
    check_eq(((code_fn *)0x5100001000)(0), 77, "before the mapping changes");
    map(0x5100001000, (u64)code + 4096, PT_P);
    check_eq(((code_fn *)0x5100001000)(0), 999, "after the mapping changed");
}

static void crossing(void)
{
    u8 *p = code + 4 * 4096 - 3;
    u64 bad = 0;

    for (u32 i = 0; i < 500; i++) {
        put_mov_ret(p, i << 16 | i);
        bad += ((code_fn *)p)(0) != (u64)(i << 16 | i);
        p[4] ^= 0xff; /* only the half on the second page */
        bad += ((code_fn *)p)(0) != (u64)((i << 16 | i) ^ 0xff000000);
        p[1] ^= 0xff; /* only the half on the first */
        bad += ((code_fn *)p)(0) != (u64)((i << 16 | i) ^ 0xff0000ff);
    }
    check_eq(bad, 0, "an instruction on two pages");
}

static void neighbours(void)
{
    u8 *p = code + 5 * 4096;
    volatile u64 *data = (volatile u64 *)(p + 2048);
    u64 sum = 0, bad = 0;

    put_mov_ret(p, 5);
    for (u64 i = 0; i < 20000; i++) {
        data[i % 8] = i;
        sum += ((code_fn *)p)(0);
        bad += data[i % 8] != i;
    }
    check_eq(sum, 100000, "data beside code: the code");
    check_eq(bad, 0, "data beside code: the data");
    memset(p, 0x90, 4096); /* REP STOS over code */
    put_mov_ret(p + 4090, 9);
    check_eq(((code_fn *)p)(0), 9, "filled by REP STOS");
    for (u32 i = 0; i < 200; i++) {
        put_mov_ret(code + 6 * 4096, i);
        memcpy(p, code + 6 * 4096, 6); /* REP MOVS over code */
        bad += ((code_fn *)p)(0) != i;
    }
    check_eq(bad, 0, "copied by REP MOVS");
}

static void straight(void)
{
    /* Writes an instruction a few ahead, on this page and on the next, in one straight run. */
    u8 *p = code + 7 * 4096 - 32;
    unsigned n = 0;
    i64 rel;

    memset(p, 0x90, 64);
    p[n++] = 0x31, p[n++] = 0xc0; /* xor eax, eax */
    rel = 48 - (n + 7);
    p[n++] = 0xc6, p[n++] = 0x05, memcpy(p + n, &rel, 4), n += 4, p[n++] = 0x40; /* [48] = REX */
    rel = 20 - (n + 7);
    p[n++] = 0xc6, p[n++] = 0x05, memcpy(p + n, &rel, 4), n += 4, p[n++] = 0xb0; /* [20] = mov al */
    p[20] = 0x90, p[21] = 0x07;
    p[20] = 0x3c; /* cmp al, 7 at first */
    p[48] = 0xf4; /* hlt at first */
    p[49] = 0x90;
    p[60] = 0xc3;
    check_eq(((code_fn *)p)(0), 7, "ahead, on this page and the next");
}

void guest_main(void)
{
    rewritten();
    next_instruction();
    own_block();
    alias();
    crossing();
    neighbours();
    straight();
}
