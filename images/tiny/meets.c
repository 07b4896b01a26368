/*
 * Branch targets that meet in the place where the engine's jump cache keeps one of them: three by
 * one of its two hashes, and one more by both. Each is called in turns, and becomes another:
 * written, mapped elsewhere, not there.
 */
#include "tiny.h"

/* Bits 0 to 15 of a target and the upper half of nine times its lower 32 bits, with its bytes
 * swapped, have the same sum. */
static const u64 at[] = {0x6110003000, 0x6110012700, 0x61100ad000, 0x6210003000};

static u8 code[2 * COUNT(at)][4096] __attribute__((aligned(4096)));

typedef u32 code_fn(void);

/* mov eax, imm32; ret */
static void put(u8 *p, u32 value)
{
    p[0] = 0xb8;
    for (unsigned i = 0; i < 4; i++)
        p[1 + i] = (u8)(value >> 8 * i);
    p[5] = 0xc3;
}

/* Where the code of one is, in a page for it or in another one. */
static u8 *code_of(unsigned i, bool other)
{
    return code[other ? COUNT(at) + i : i] + (at[i] & 4095);
}

static void map_to(unsigned i, bool other)
{
    map(at[i] & ~4095ull, (u64)code[other ? COUNT(at) + i : i], PT_P | PT_W);
}

static u32 call(unsigned i)
{
    return ((code_fn *)at[i])();
}

static void turns(void)
{
    u64 bad = 0;

    for (u32 k = 0; k < 20000; k++)
        bad += call(k % COUNT(at)) != 100 + k % COUNT(at);
    for (u32 k = 0; k < 20000; k++) /* of two, one is always where it is found second */
        bad += call(k & 1) != 100 + (k & 1);
    check_eq(bad, 0, "targets that meet");
}

/* After each change of one, all are called, it first or last. */
static u64 round(unsigned changed, u32 value, const u32 *want)
{
    u64 bad = 0;

    for (unsigned i = 0; i < COUNT(at); i++) {
        unsigned k = (changed + i + (value & 1)) % COUNT(at);
        bad += call(k) != (k == changed ? value : want[k]);
    }
    return bad;
}

static void changes(void)
{
    u32 want[COUNT(at)];
    u64 written = 0, mapped = 0, loaded = 0;

    for (unsigned i = 0; i < COUNT(at); i++)
        want[i] = 100 + i;
    for (u32 k = 0; k < 3000; k++) {
        unsigned i = k % COUNT(at);

        put(code_of(i, false), 1000 + k);
        written += round(i, 1000 + k, want);
        put(code_of(i, false), want[i]);

        put(code_of(i, true), 5000 + k);
        map_to(i, true);
        mapped += round(i, 5000 + k, want);
        map_to(i, false);
        mapped += round(i, want[i], want);

        *pt_entry(at[i], 1) = (u64)code[COUNT(at) + i] | PT_P | PT_W;
        WRITE_REG(cr3, READ_REG(cr3));
        loaded += round(i, 5000 + k, want);
        *pt_entry(at[i], 1) = (u64)code[i] | PT_P | PT_W;
        WRITE_REG(cr3, READ_REG(cr3));
        loaded += round(i, want[i], want);
    }
    check_eq(written, 0, "one of them written");
    check_eq(mapped, 0, "one of them mapped elsewhere");
    check_eq(loaded, 0, "the same, and CR3 loaded");
}

static void absent(void)
{
    for (unsigned i = 0; i < COUNT(at); i++) {
        u64 bad = 0;

        map(at[i] & ~4095ull, 0, 0);
        for (unsigned k = 0; k < COUNT(at); k++)
            if (k != i)
                bad += call(k) != 100 + k;
        TRY("call *%%rcx", "c"(at[i]), "a"(0));
        check(!bad && trap.vector == 14 && trap.cr2 == at[i] && trap.f.rip == at[i],
              "one of them absent");
        map_to(i, false);
        check_eq(call(i), 100 + i, "... and back");
    }
}

void guest_main(void)
{
    for (u32 i = 0; i < COUNT(at); i++) {
        put(code_of(i, false), 100 + i);
        map_to(i, false);
    }
    turns();
    changes();
    absent();
    exit_guest(0);
}
