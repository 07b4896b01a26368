#define _GNU_SOURCE
/*
 * board/acpi.h: checksums, links and the facts that Linux and vmm/dev rely on; and the hash of all
 * tables, because they are in the guest's memory: a change makes old recordings differ.
 */
#include "board/acpi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <cmocka.h>

static struct ram ram;
static const u8 *rsdp, *xsdt;
static u8 id[ACPI_GENERATION_SIZE];
static const struct cpu_parts one = {1, 0, 1};

static const u8 *at(gpa_t gpa)
{
    assert_true(ram_is_rom(gpa));
    return ram_ptr(&ram, gpa, 64);
}

static u16 u16_at(const u8 *p, unsigned o)
{
    return (u16)(p[o] | p[o + 1] << 8);
}

static u32 u32_at(const u8 *p, unsigned o)
{
    return u16_at(p, o) | (u32)u16_at(p, o + 2) << 16;
}

static u64 u64_at(const u8 *p, unsigned o)
{
    return u32_at(p, o) | (u64)u32_at(p, o + 4) << 32;
}

static void sums_to_zero(const u8 *p, u32 n)
{
    u8 sum = 0;
    while (n--)
        sum = (u8)(sum + *p++);
    assert_int_equal(sum, 0);
}

static const u8 *table(const char *signature)
{
    for (unsigned o = 36; o < u32_at(xsdt, 4); o += 8) {
        const u8 *t = at(u64_at(xsdt, o));
        if (!memcmp(t, signature, 4)) {
            sums_to_zero(t, u32_at(t, 4));
            return t;
        }
    }
    fail_msg("no %s", signature);
    return NULL;
}

static void fixed_hardware(void **state)
{
    const u8 *f = table("FACP");
    assert_int_equal(u32_at(f, 4), 276);
    assert_int_equal(u16_at(f, 46), ACPI_SCI_GSI);
    assert_int_equal(u32_at(f, 48), ACPI_SMI_CMD);
    assert_int_equal(u32_at(f, 56), ACPI_PM1_EVT);
    assert_int_equal(u32_at(f, 64), ACPI_PM1_CNT);
    assert_int_equal(u32_at(f, 76), ACPI_PM_TMR);
    assert_int_equal(u32_at(f, 80), ACPI_GPE0);
    assert_int_equal(u64_at(f, 120), ACPI_RESET);
    assert_int_equal(f[128], ACPI_RESET_VALUE);
    assert_int_equal(u64_at(f, 152), ACPI_PM1_EVT);
    assert_int_equal(u64_at(f, 176), ACPI_PM1_CNT);
    assert_int_equal(u64_at(f, 212), ACPI_PM_TMR);
    assert_int_equal(u64_at(f, 224), ACPI_GPE0);
    u32 flags = u32_at(f, 112);
    assert_true(flags & 1u << 10);         /* reset register */
    assert_true(flags & 1u << 8);          /* 32-bit timer */
    assert_false(flags & 1u << 4);         /* fixed power button */
    assert_false(flags & 1u << 20);        /* not hardware-reduced */
    assert_false(u16_at(f, 109) & 1 << 1); /* no 8042 */
    const u8 *facs = at(u32_at(f, 36));
    assert_memory_equal(facs, "FACS", 4);
    assert_int_equal(u32_at(f, 36) % 64, 0);
}

static void dsdt(void **state)
{
    const u8 *f = table("FACP"), *d = at(u32_at(f, 40));
    assert_int_equal(u64_at(f, 140), u32_at(f, 40));
    assert_memory_equal(d, "DSDT", 4);
    u32 n = u32_at(d, 4);
    sums_to_zero(d, n);
    /* Name(_S5_, Package(4) {ByteConst type, ByteConst type, ...}) */
    const u8 *s5 = memmem(d, n, "_S5_", 4);
    assert_non_null(s5);
    assert_int_equal(s5[4], 0x12);
    assert_int_equal(s5[7], 0x0a);
    assert_int_equal(s5[8], ACPI_SLP_TYP_S5);
    FILE *out = fopen("/tmp/reprise-dsdt.aml", "w");
    fwrite(d, 1, n, out);
    fclose(out);
    assert_int_equal(system("cd /tmp && iasl -d reprise-dsdt.aml >reprise-dsdt.log 2>&1 && grep -q "
                            "PNP0501 reprise-dsdt.dsl; r=$?; rm -f reprise-dsdt.*; exit $r"),
                     0);
}

static void interrupts(void **state)
{
    const u8 *m = table("APIC");
    unsigned seen[8] = {0};
    assert_int_equal(u32_at(m, 36), 0xfee00000);
    for (u32 o = 44; o < u32_at(m, 4); o += m[o + 1]) {
        assert_true(m[o] < 8 && m[o + 1] >= 6);
        seen[m[o]]++;
        if (m[o] == 1)
            assert_int_equal(u32_at(m, o + 4), 0xfec00000);
        if (m[o] == 2 && m[o + 3] == 0)
            assert_int_equal(u32_at(m, o + 4), 2);
        if (m[o] == 2 && m[o + 3] == 9)
            assert_int_equal(u16_at(m, o + 8), 0xd);
    }
    assert_int_equal(seen[0], 1);
    assert_int_equal(seen[1], 1);
    assert_int_equal(seen[2], 2);
    assert_int_equal(seen[4], 1);
}

/* The device's names as guests look for them, and its page, which nothing else is in. */
static void generation(void **state)
{
    const u8 *g = table("SSDT");
    u32 n = u32_at(g, 4);
    sums_to_zero(g, n);
    assert_non_null(memmem(g, n, "VM_Gen_Counter", 15));
    const u8 *address = memmem(g, n, "ADDR", 4);
    assert_non_null(address);
    assert_int_equal(address[7], 0x0c); /* a DWord */
    assert_int_equal(u32_at(address, 8), ACPI_GENERATION);
    assert_non_null(memmem(g, n, "_E00", 4));
    const u8 *page = at(ACPI_GENERATION);
    assert_memory_equal(page, id, sizeof(id));
    for (unsigned i = sizeof(id); i < 4096; i++)
        assert_int_equal(page[i], 0);
}

/* Local APICs are listed by their ids, which have gaps where cores are three. */
static void ids(void **state)
{
    static const struct cpu_parts six = {6, 3, 1};
    static const u8 want[] = {0, 1, 2, 4, 5, 6};
    unsigned n = 0;
    acpi_build(&ram, &six, id);
    const u8 *m = table("APIC");
    sums_to_zero(m, u32_at(m, 4));
    for (u32 o = 44; o < u32_at(m, 4); o += m[o + 1])
        if (m[o] == 0) {
            assert_true(n < ARRAY_SIZE(want));
            assert_int_equal(m[o + 2], n);
            assert_int_equal(m[o + 3], want[n++]);
        }
    assert_int_equal(n, ARRAY_SIZE(want));
    memset(ram_ptr(&ram, ROM_BASE, ROM_END - ROM_BASE), 0, ROM_END - ROM_BASE);
    acpi_build(&ram, &one, id);
}

/* Tables of one CPU, for ever: before revision 3 of the machine, and since. A new iasl that
 * compiles the sources to other bytes fails here too. */
static void frozen(void **state)
{
    const u8 *all = ram_ptr(&ram, ACPI_BASE, 0x20000);
    assert_int_equal(XXH3_64bits(all, 0x20000), 0xa27751efac5d7152ull);
    memset(ram_ptr(&ram, ROM_BASE, ROM_END - ROM_BASE), 0, ROM_END - ROM_BASE);
    acpi_build(&ram, &one, NULL);
    assert_int_equal(XXH3_64bits(all, 0x20000), 0x9c7dc2d30a1aaac7ull);
}

int main(void)
{
    static const struct cpu_parts most = {ACPI_MAX_CPUS, 0, 1};
    struct err err;
    if (ram_create(&ram, 16 << 20, &err))
        return 1;
    acpi_generation(1, id);
    acpi_build(&ram, &most, id); /* the largest fits; then the usual one over it */
    memset(ram_ptr(&ram, ROM_BASE, ROM_END - ROM_BASE), 0, ROM_END - ROM_BASE);
    gpa_t gpa = acpi_build(&ram, &one, id);
    rsdp = ram_ptr(&ram, gpa, 36);
    xsdt = ram_ptr(&ram, u64_at(rsdp, 24), 64);
    sums_to_zero(rsdp, 20);
    sums_to_zero(rsdp, 36);
    sums_to_zero(xsdt, u32_at(xsdt, 4));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_hardware), cmocka_unit_test(dsdt), cmocka_unit_test(interrupts),
        cmocka_unit_test(generation),     cmocka_unit_test(ids),  cmocka_unit_test(frozen),
    };
    return cmocka_run_group_tests_name("board/acpi", tests, NULL, NULL);
}
