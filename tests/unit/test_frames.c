/* Kernels of 32 bits: frames by their code, the task that runs, call frame information. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "board/ram.h"
#include "../unit/kallsyms_sample.h"
#include "inspect/btf.h"
#include "inspect/cfi.h"
#include "inspect/orc.h"
#include "inspect/kernel_code.h"

#define TEXT (0xc0000000 + SAMPLE_TEXT)

struct toy {
    u8 *bytes;
    struct ram ram;
    struct guest_linux g;
    struct symbols s;
};

/* Code is at the beginning of RAM. */
static bool peek(void *opaque, gva_t va, void *out, size_t len)
{
    const struct toy *t = opaque;
    if (va < TEXT || va + len > TEXT + 0x1000)
        return false;
    memcpy(out, t->bytes + (va - TEXT), len);
    return true;
}

static void toy_open(struct toy *t)
{
    struct sample s = {
        .layout = SAMPLE_OLD, .values = SAMPLE_RELATIVE, .vmcoreinfo = true, .narrow = true};
    struct err err = {0};
    t->bytes = malloc(SAMPLE_RAM);
    sample_make(&s, t->bytes);
    t->ram =
        (struct ram){.host = t->bytes, .size = SAMPLE_RAM, .low_size = SAMPLE_RAM, .pagemap = -1};
    const struct guest_memory memory = {.ram = &t->ram, .peek = peek, .opaque = t};
    assert_int_equal(guest_linux_open(&t->g, &memory, &err), 0);
    assert_int_equal(guest_linux_symbols(&t->g, &t->s, &err), 0);
    assert_true(t->s.narrow);
}

static void toy_close(struct toy *t)
{
    symbols_free(&t->s);
    guest_linux_close(&t->g);
    free(t->bytes);
}

static void rows(void **state)
{
    enum { SAVED = 5 | 4 << 5 | 3 << 10 }; /* EBX, ESI, EDI in words below the CFA */
    static const struct {
        u8 symbol, offset, kind, reg;
        i16 to_cfa;
        u16 saved;
    } want[] = {
        {20, 0, ORC_END, 0, 0, 0},
        {33, 0, ORC_END, 0, 0, 0},
        {16, 0, ORC_CALL, ORC_SP, 4, 0},
        {16, 4, ORC_CALL, ORC_SP, 4, 0},
        {16, 5, ORC_CALL, ORC_SP, 8, 0},
        {16, 7, ORC_CALL, ORC_BP, 8, 0},
        {16, 10, ORC_CALL, ORC_BP, 8, SAVED},
        {16, 0x15, ORC_CALL, ORC_BP, 8, SAVED},
        {16, 0x1e, ORC_CALL, ORC_BP, 8, SAVED},
        {16, 0x1f, ORC_CALL, ORC_SP, 4, 0},
        {34, 0, ORC_CALL, ORC_BP, 8, SAVED},
        {25, 0, ORC_IRET, ORC_SP, 0, 0},
        {25, 2, ORC_IRET, ORC_SP, 4, 0},
        {25, 4, ORC_IRET, ORC_SP, 0, 0},
        {25, 6, ORC_IRET, ORC_SP, 4, 0},
        {26, 0, ORC_IRET, ORC_SP, 4, 0},
        {26, 6, ORC_IRET, ORC_SP, 8, 0},
        {27, 0, ORC_IRET, ORC_SP, 4, 0},
        {31, 0, ORC_IRET, ORC_SP, 8, 0},
        {31, 8, ORC_IRET, ORC_SP, 40, 0},
        {31, 9, ORC_REGS, ORC_SP, 0, 0},
        {31, 0x10, ORC_REGS, ORC_SP, 0, 0},
        {31, 0x11, ORC_REGS, ORC_SP, -4, 0},
        {31, 0x1c, ORC_IRET, ORC_SP, 0, 0},
    };
    struct toy t;
    toy_open(&t);
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        u64 at = TEXT + want[i].symbol * 0x40ull + want[i].offset;
        u32 k = 0;
        while (k + 1 < t.s.norc && t.s.orc[k + 1].address <= at)
            k++;
        const struct orc_row *r = &t.s.orc[k];
        if (r->kind != want[i].kind || r->saved != want[i].saved ||
            (r->kind != ORC_END && (r->sp_reg != want[i].reg || r->sp_offset != want[i].to_cfa)))
            fail_msg("symbol %u+%#x: kind %u, CFA %u%+d, saved %#x", want[i].symbol, want[i].offset,
                     r->kind, r->sp_reg, r->sp_offset, r->saved);
    }
    toy_close(&t);
}

static void task(void **state)
{
    struct toy t;
    struct guest_current where;
    struct err err = {0};
    toy_open(&t);
    assert_int_equal(guest_current_find(&where, &t.g, &t.s, &err), 0);
    assert_true(where.narrow);
    assert_int_equal(where.variable, 0x1234);
    assert_int_equal(where.pid, 0x454);
    assert_int_equal(where.tgid, 0x458);
    assert_int_equal(where.comm, 0x584);
    /* Another variable in one of them, numbers that are not side by side, nothing at all. */
    t.bytes[22 * 0x40 + 3] ^= 1;
    assert_int_not_equal(guest_current_find(&where, &t.g, &t.s, &err), 0);
    t.bytes[22 * 0x40 + 3] ^= 1;
    t.bytes[22 * 0x40 + 9] += 4;
    assert_int_not_equal(guest_current_find(&where, &t.g, &t.s, &err), 0);
    memset(t.bytes, 0, 0x1000);
    err.text[0] = 0;
    assert_int_not_equal(guest_current_find(&where, &t.g, &t.s, &err), 0);
    assert_true(err.text[0]);
    toy_close(&t);
    assert_int_equal(kernel_code_base((const u8[]){0xff, 0xff, 0x78, 0x56, 0x34, 0x93, 0xcf, 0x12}),
                     0x12345678);
}

/* Records follow each other up to the end, whatever the code is; bytes of fn_16's. */
static void cfi(void **state)
{
    static const u8 body[] = {
        0x45, 0x0e, 0x08, 0x85, 0x02,       /* 5: CFA 8, EBP at -8 */
        0x42, 0x0c, 0x05, 0x08,             /* 7: EBP + 8 */
        0x41, 0x87, 0x03, 0x41, 0x86, 0x04, /* 8, 9: EDI at -12, ESI at -16 */
        0x41, 0x83, 0x05,                   /* 10: EBX at -20 */
    };
    struct toy t;
    struct cfi c;
    struct err err = {0};
    u64 random = 88172645463325252ull;
    toy_open(&t);
    assert_int_equal(cfi_make(&c, &t.s, &err), 0);
    bool seen = false;
    for (size_t i = 0; i + sizeof(body) <= c.size; i++)
        seen = seen || !memcmp(c.data + i, body, sizeof(body));
    assert_true(seen);
    cfi_free(&c);
    for (int n = 0; n < 300; n++) {
        struct symbols s;
        for (u32 i = 0; i < 0x1000; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            /* PUSH, POP and the like more often. */
            t.bytes[i] = random >> 60 < 8 ? (u8)(0x50 + (random >> 32 & 15)) : (u8)(random >> 40);
        }
        strcpy((char *)t.bytes + 0xff0, "x");
        assert_int_equal(guest_linux_symbols(&t.g, &s, &err), 0);
        assert_int_equal(cfi_make(&c, &s, &err), 0);
        size_t at = 0;
        while (at < c.size) {
            u32 length;
            memcpy(&length, c.data + at, 4);
            at += 4 + length;
        }
        assert_int_equal(at, c.size);
        cfi_free(&c);
        symbols_free(&s);
    }
    toy_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows), cmocka_unit_test(task),
                                       cmocka_unit_test(cfi)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
