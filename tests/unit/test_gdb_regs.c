/* Registers as gdb sees them: the description, reading, and writes that keep the state canonical.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <errno.h>
#include <string.h>

#include "replay/gdb/regs.h"

static struct vcpu cpu;

static struct gdb_beside beside;

static int reset(void **state)
{
    beside = (struct gdb_beside){.cr8 = 5};
    vcpu_reset(&cpu);
    cpu.cr0 |= CR0_PE;
    cpu.efer = EFER_LME | EFER_LMA;
    cpu.seg_attr[SEG_CS] |= ATTR_L;
    return 0;
}

static u64 read_small(unsigned number)
{
    u8 bytes[GDB_REG_SIZE] = {0};
    u64 v;
    gdb_reg_read(&cpu, &beside, number, bytes);
    memcpy(&v, bytes, sizeof(v));
    return v;
}

static bool write_bytes(unsigned number, const void *bytes)
{
    struct err err = {0};
    struct vcpu before = cpu;
    bool fine = !gdb_reg_write(&cpu, &beside, number, bytes, &err);
    if (!fine) {
        assert_non_null(strstr(err.text, gdb_reg_find(number, GDB_VIEW_AVX)->name));
        assert_memory_equal(&before, &cpu, sizeof(cpu)); /* refused: untouched */
    }
    return fine;
}

static bool write_small(unsigned number, u64 v)
{
    u8 bytes[GDB_REG_SIZE] = {0};
    memcpy(bytes, &v, sizeof(v));
    return write_bytes(number, bytes);
}

static u64 xsave(unsigned at, unsigned size)
{
    u64 v = 0;
    memcpy(&v, cpu.xsave + at, size);
    return v;
}

/* gdb's own numbers of the first registers are fixed by custom. */
static void test_numbers(void **state)
{
    static const struct {
        unsigned number;
        const char *name;
        unsigned bits;
    } known[] = {{0, "rax", 64},
                 {1, "rbx", 64},
                 {GDB_RBP, "rbp", 64},
                 {GDB_RSP, "rsp", 64},
                 {GDB_RIP, "rip", 64},
                 {GDB_EFLAGS, "eflags", 32},
                 {GDB_CS, "cs", 32},
                 {GDB_ST0, "st0", 80},
                 {GDB_FCTRL, "fctrl", 32},
                 {39, "fop", 32},
                 {GDB_XMM0, "xmm0", 128},
                 {GDB_MXCSR, "mxcsr", 32},
                 {GDB_YMM0H, "ymm0h", 128},
                 {GDB_FS_BASE, "fs_base", 64},
                 {GDB_K_GS_BASE, "k_gs_base", 64},
                 {GDB_CR0, "cr0", 64},
                 {GDB_CR2, "cr2", 64},
                 {GDB_CR8, "cr8", 64},
                 {98, "tr_limit", 32},
                 {GDB_PGD, "pgd", 64},
                 {GDB_PID, "pid", 32},
                 {GDB_COMM, "comm", 128}};
    for (unsigned i = 0; i < ARRAY_SIZE(known); i++) {
        assert_string_equal(gdb_reg_find(known[i].number, GDB_VIEW_AVX)->name, known[i].name);
        assert_int_equal(gdb_reg_find(known[i].number, GDB_VIEW_AVX)->bits, known[i].bits);
    }
    assert_null(gdb_reg_find(GDB_REGISTERS, GDB_VIEW_AVX));
    assert_null(gdb_reg_find(UINT64_MAX, GDB_VIEW_AVX));
    assert_null(gdb_reg_find(GDB_YMM0H, 0));
    for (unsigned n = 0; n < GDB_NARROW_FS_BASE; n++)
        assert_true(gdb_reg_find(n, GDB_VIEW_AVX)->name &&
                    gdb_reg_find(n, GDB_VIEW_AVX)->bits <= 128);
}

static void test_description(void **state)
{
    for (unsigned view = 0; view < 8; view++) {
        char *xml = gdb_description(view), *at = xml;
        bool narrow = view & GDB_VIEW_32;
        assert_non_null(strstr(xml, view & GDB_VIEW_16 ? "<architecture>i8086</architecture>"
                                    : narrow           ? "<architecture>i386</architecture>"
                                             : "<architecture>i386:x86-64</architecture>"));
        assert_int_equal(strstr(xml, "org.gnu.gdb.i386.avx") != NULL, view & GDB_VIEW_AVX);
        assert_int_equal(strstr(xml, "\"r8\"") == NULL, narrow);
        assert_int_equal(strstr(xml, "\"xmm8\"") == NULL, narrow);
        assert_non_null(strstr(xml, "\"xmm7\""));
        for (unsigned n = 0; n < GDB_REGISTERS; n++) {
            char reg[128];
            const struct gdb_reg *r = gdb_reg_find(n, view);
            if (!r)
                continue;
            bool wide = narrow && r->bits == 64 && !strcmp(r->type, "data_ptr");
            snprintf(reg, sizeof(reg), "<reg name=\"%s\" bitsize=\"%u\" type=\"%s\" regnum=\"%u\"",
                     r->name, r->bits, wide ? "int64" : r->type, n);
            assert_non_null(at = strstr(at, reg));
        }
        assert_non_null(strstr(at, "</feature></target>"));
        free(xml);
    }
}

/* An i386: the low halves; what is written clears the upper one, and what stays keeps it. */
static void test_narrow(void **state)
{
    struct err err;
    u32 v = 0x12345678;
    cpu.seg_attr[SEG_CS] = ATTR_P | ATTR_S | ATTR_DB;
    assert_int_equal(gdb_view(&cpu, GDB_VIEW_AVX), GDB_VIEW_AVX | GDB_VIEW_32 | GDB_VIEW_LONG);
    assert_int_equal(gdb_reg_find(GDB_RIP, GDB_VIEW_32 | GDB_VIEW_LONG)->bits, 64);
    assert_int_equal(gdb_reg_find(GDB_RIP, GDB_VIEW_32)->bits, 32);
    cpu.seg_attr[SEG_CS] |= ATTR_L;
    assert_int_equal(gdb_view(&cpu, 0), 0);
    cpu.gpr[RAX] = 0xffffffff12345678;
    assert_string_equal(gdb_reg_find(0, GDB_VIEW_32)->name, "eax");
    assert_int_equal(gdb_reg_write_view(&cpu, &beside, 0, GDB_VIEW_32, (const u8 *)&v, &err), 0);
    assert_int_equal(cpu.gpr[RAX], 0xffffffff12345678);
    v++;
    assert_int_equal(gdb_reg_write_view(&cpu, &beside, 0, GDB_VIEW_32, (const u8 *)&v, &err), 0);
    assert_int_equal(cpu.gpr[RAX], 0x12345679);
    assert_null(gdb_reg_find(8, GDB_VIEW_32));
    assert_null(gdb_reg_find(GDB_FS_BASE, GDB_VIEW_32));
    assert_string_equal(gdb_reg_find(GDB_RIP, GDB_VIEW_32)->name, "eip");
}

/* Where CS has a base, gdb's program counter is the linear address. */
static void test_linear_pc(void **state)
{
    struct err err;
    const unsigned view = GDB_VIEW_32 | GDB_VIEW_16;
    u32 v = 0;
    cpu.cr0 &= ~(u64)CR0_PE;
    cpu.efer = 0;
    cpu.seg_attr[SEG_CS] = ATTR_P | ATTR_S | 0xb;
    cpu.seg_base[SEG_CS] = 0xf0000;
    cpu.seg_limit[SEG_CS] = 0xffff;
    cpu.rip = 0xfff0;
    assert_int_equal(gdb_view(&cpu, 0), view);
    assert_true(gdb_reg_read(&cpu, &beside, GDB_RIP, (u8 *)&v));
    assert_int_equal(v, 0xffff0);
    v = 0xf1234;
    assert_int_equal(gdb_reg_write_view(&cpu, &beside, GDB_RIP, view, (const u8 *)&v, &err), 0);
    assert_int_equal(cpu.rip, 0x1234);
    v = 0x7c00;
    assert_int_equal(gdb_reg_write_view(&cpu, &beside, GDB_RIP, view, (const u8 *)&v, &err),
                     -EINVAL);
    assert_string_equal(gdb_reg_find(GDB_IP, view)->name, "ip");
    assert_string_equal(gdb_reg_find(GDB_NARROW_FS_BASE, view)->name, "fs_base");
    assert_null(gdb_reg_find(GDB_NARROW_FS_BASE, 0));
}

static void test_general(void **state)
{
    for (unsigned n = 0; n <= 15; n++)
        assert_true(write_small(n, 0x1000 + n));
    assert_int_equal(cpu.gpr[RAX], 0x1000);
    assert_int_equal(cpu.gpr[RBX], 0x1001);
    assert_int_equal(cpu.gpr[RCX], 0x1002);
    assert_int_equal(cpu.gpr[RDX], 0x1003);
    assert_int_equal(cpu.gpr[RSI], 0x1004);
    assert_int_equal(cpu.gpr[RDI], 0x1005);
    assert_int_equal(cpu.gpr[RBP], 0x1006);
    assert_int_equal(cpu.gpr[RSP], 0x1007);
    assert_int_equal(cpu.gpr[R15], 0x100f);
    cpu.rflags = 0x10246;
    assert_int_equal(read_small(GDB_EFLAGS), 0x10246);
    assert_int_equal(read_small(GDB_CR8), 5);
}

/* What is not known is said not to be; nothing of it can be written. */
static void test_process(void **state)
{
    u8 bytes[GDB_REG_SIZE];
    for (unsigned n = GDB_PGD; n <= GDB_COMM; n++) {
        assert_false(gdb_reg_read(&cpu, &beside, n, bytes));
        assert_true(gdb_reg_read(&cpu, &beside, n - 6, bytes));
        assert_false(write_small(n, 1));
    }
    beside.process.pgd = 0x53b2000;
    assert_true(gdb_reg_read(&cpu, &beside, GDB_PGD, bytes));
    assert_false(gdb_reg_read(&cpu, &beside, GDB_PID, bytes));
    beside.process = (struct gdb_process){0x53b2000, true, 105, "sh"};
    assert_int_equal(read_small(GDB_PGD), 0x53b2000);
    assert_int_equal(read_small(GDB_PID), 105);
    assert_true(gdb_reg_read(&cpu, &beside, GDB_COMM, bytes));
    assert_memory_equal(bytes, "sh\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    assert_true(write_small(GDB_PID, 105));
    assert_false(write_small(GDB_PID, 106));
}

static void test_rip(void **state)
{
    cpu.halted = cpu.shadow = cpu.rep_resume = 1;
    assert_true(write_small(GDB_RIP, cpu.rip)); /* nothing changes */
    assert_int_equal(cpu.halted, 1);
    assert_false(write_small(GDB_RIP, 0x0000800000000000));
    assert_true(write_small(GDB_RIP, 0xffff800000000000));
    assert_int_equal(cpu.rip, 0xffff800000000000);
    assert_int_equal(cpu.halted + cpu.shadow + cpu.rep_resume, 0);
    cpu.rep_resume = 1;
    assert_true(write_small(2, 17)); /* RCX in the middle of a REP */
    assert_int_equal(cpu.rep_resume, 0);
}

static void test_flags(void **state)
{
    assert_true(write_small(GDB_EFLAGS, 0));
    assert_int_equal(cpu.rflags, 2);
    assert_true(write_small(GDB_EFLAGS, 0x247fd7));
    assert_int_equal(cpu.rflags, 0x247fd7);
    assert_false(write_small(GDB_EFLAGS, 0x8));
    assert_false(write_small(GDB_EFLAGS, 0x20000));  /* VM */
    assert_false(write_small(GDB_EFLAGS, 0x400000)); /* reserved */
    cpu.rflags |= FL_VIF;
    assert_true(write_small(GDB_EFLAGS, FL_VIF | 1)); /* it was there */
}

static void test_system(void **state)
{
    assert_true(write_small(GDB_FS_BASE, 0x7fffffffffff));
    assert_int_equal(cpu.seg_base[SEG_FS], 0x7fffffffffff);
    assert_false(write_small(GDB_FS_BASE, 1ull << 47));
    assert_true(write_small(GDB_FS_BASE + 1, UINT64_MAX));
    assert_int_equal(cpu.seg_base[SEG_GS], UINT64_MAX);
    assert_true(write_small(GDB_K_GS_BASE, 0x1000));
    assert_int_equal(cpu.kernel_gs_base, 0x1000);
    assert_true(write_small(GDB_CR2, 1ull << 63));
    for (unsigned n = GDB_CR0; n < GDB_NARROW_FS_BASE; n++) {
        assert_true(write_small(n, read_small(n)));
        if (n != GDB_CR2)
            assert_false(write_small(n, read_small(n) ^ 1));
    }
    for (unsigned n = GDB_CS; n < GDB_ST0; n++)
        assert_false(write_small(n, 0x33));
}

static void test_vectors(void **state)
{
    static const u8 value[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    static const u8 zero[16];
    u8 out[16];
    assert_true(write_bytes(GDB_XMM0 + 15, value));
    assert_memory_equal(cpu.xsave + 160 + 240, value, 16);
    assert_int_equal(xsave(512, 8), 2);
    assert_true(write_bytes(GDB_YMM0H + 1, value));
    assert_memory_equal(cpu.xsave + 576 + 16, value, 16);
    assert_int_equal(xsave(512, 8), 6);
    gdb_reg_read(&cpu, &beside, GDB_YMM0H + 1, out);
    assert_memory_equal(out, value, 16);
    assert_true(write_bytes(GDB_XMM0 + 15, zero));
    assert_int_equal(xsave(512, 8), 4);
    assert_false(write_small(GDB_MXCSR, 0x11f80));
    assert_true(write_small(GDB_MXCSR, 0xffff));
    assert_int_equal(xsave(24, 8), 0xffff0000ffff);
}

static void test_x87_stack(void **state)
{
    static const u8 one[10] = {0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x3f};
    static const u8 special[10] = {0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x7f};
    assert_true(write_bytes(GDB_ST0 + 1, one));
    assert_memory_equal(cpu.xsave + 48, one, 10);
    assert_int_equal(xsave(58, 6), 0); /* reserved bytes of the slot */
    assert_int_equal(xsave(512, 8), 1);
    assert_int_equal(read_small(GDB_FCTRL + 2), 0xffff);
    /* TOP 6: ST0 is physical 6, ST1 7, ST2 0. */
    assert_true(write_small(GDB_FCTRL + 1, 6 << 11));
    assert_true(write_bytes(GDB_ST0 + 2, special));
    assert_true(write_small(GDB_FCTRL + 2, 0x0ffc)); /* 7, 6 and 0 in use */
    assert_int_equal(cpu.xsave[4], 0xc1);
    assert_int_equal(read_small(GDB_FCTRL + 2), 0x1ffe); /* valid, zero, ..., special */
}

static void test_x87_control(void **state)
{
    assert_int_equal(read_small(GDB_FCTRL), 0x37f);
    assert_true(write_small(GDB_FCTRL, 0x33f)); /* bit 6 is always one */
    assert_int_equal(xsave(0, 2), 0x37f);
    assert_false(write_small(GDB_FCTRL, 0x2000));
    assert_false(write_small(GDB_FCTRL + 1, 0x10000));
    /* An unmasked exception is pending as soon as mask and flag meet. */
    assert_true(write_small(GDB_FCTRL + 1, 0x8004)); /* ZE; B alone is no state */
    assert_int_equal(read_small(GDB_FCTRL + 1), 4);
    assert_true(write_small(GDB_FCTRL, 0x37b));
    assert_int_equal(read_small(GDB_FCTRL + 1), 0x8084);
    assert_true(write_small(GDB_FCTRL + 3, 0x11223344)); /* fiseg */
    assert_true(write_small(GDB_FCTRL + 4, 0x55667788)); /* fioff */
    assert_int_equal(xsave(8, 8), 0x1122334455667788);
    assert_true(write_small(GDB_FCTRL + 5, 0x99aabbcc));
    assert_true(write_small(GDB_FCTRL + 6, 0xddeeff00));
    assert_int_equal(xsave(16, 8), 0x99aabbccddeeff00);
    assert_true(write_small(GDB_FCTRL + 7, 0x7ff));
    assert_false(write_small(GDB_FCTRL + 7, 0x800));
    assert_int_equal(xsave(512, 8), 1);
}

/* Any value to any register: what is taken reads back, and what must hold holds. */
static void test_any_value(void **state)
{
    u64 x = 1;
    for (unsigned i = 0; i < 200000; i++) {
        u8 value[GDB_REG_SIZE], back[GDB_REG_SIZE];
        for (unsigned k = 0; k < sizeof(value); k++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            value[k] = (u8)((x >> 60) < 6 ? 0 : x >> 40);
        }
        unsigned n = (unsigned)(x >> 33) % GDB_NARROW_FS_BASE;
        if (write_bytes(n, value) && (n < GDB_FCTRL || n >= GDB_XMM0) && n != GDB_EFLAGS) {
            gdb_reg_read(&cpu, &beside, n, back);
            assert_memory_equal(value, back, gdb_reg_find(n, GDB_VIEW_AVX)->bits / 8);
        }
        assert_int_equal(cpu.rflags & ~0x3f7fd5ull, 2);
        assert_int_equal(xsave(0, 2) & ~0x1f3full, 0x40);
        assert_int_equal(xsave(26, 6), 0xffff0000);
        assert_int_equal(xsave(5, 1), 0);
        assert_int_equal((u64)((i64)(cpu.rip << 16) >> 16), cpu.rip);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_numbers, reset),
        cmocka_unit_test_setup(test_description, reset),
        cmocka_unit_test_setup(test_narrow, reset),
        cmocka_unit_test_setup(test_linear_pc, reset),
        cmocka_unit_test_setup(test_general, reset),
        cmocka_unit_test_setup(test_process, reset),
        cmocka_unit_test_setup(test_rip, reset),
        cmocka_unit_test_setup(test_flags, reset),
        cmocka_unit_test_setup(test_system, reset),
        cmocka_unit_test_setup(test_vectors, reset),
        cmocka_unit_test_setup(test_x87_stack, reset),
        cmocka_unit_test_setup(test_x87_control, reset),
        cmocka_unit_test_setup(test_any_value, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
