/* Local APIC and I/O APIC against SDM vol. 3, chapter 11, and the 82093AA data sheet. */
#include "dev_mock.h"
#include "dev/ioapic.h"
#include "dev/lapic.h"

#define REG(n) ((gpa_t)(n)*16)

/* The window as software enables it. */
#define LAPIC()                                                                                    \
    FIXTURE(lapic_create(&d, &env, &err));                                                         \
    wr32(&d, REG(0x0f), 0x1ff)

static void fixed(struct device *d, u8 vector)
{
    send_msi(d, 0xfee00000, 0x4000 | vector);
}

static bool gp_wr(struct device *d, u32 msr, u64 v)
{
    return !lapic_wrmsr(d, msr, v);
}

static u64 msr(struct device *d, u32 n)
{
    u64 v = 0;
    assert_true(lapic_rdmsr(d, n, &v));
    return v;
}

static void test_reset_values(void **state)
{
    FIXTURE(lapic_create(&d, &env, &err));
    assert_int_equal(msr(&d, 0x1b), 0xfee00900);
    assert_int_equal(rd32(&d, REG(0x03)), 0x01050014);
    assert_int_equal(rd32(&d, REG(0x0e)), 0xffffffff);
    assert_int_equal(rd32(&d, REG(0x0f)), 0xff);
    for (unsigned i = 0x32; i <= 0x37; i++) {
        assert_int_equal(rd32(&d, REG(i)), 0x10000);
        wr32(&d, REG(i), 0x20); /* cannot be unmasked while software-disabled */
        assert_int_equal(rd32(&d, REG(i)), 0x10020);
    }
    fixed(&d, 0x40);
    assert_int_equal(lapic_pending(&d), -1);
    send_msi(&d, 0xfee00000, 0x4400); /* NMI goes through all the same */
    assert_int_equal(m.event, DEV_NMI);
    assert_int_equal(m.events, 1);
    device_destroy(&d);
}

static void test_priorities(void **state)
{
    LAPIC();
    fixed(&d, 0x31);
    fixed(&d, 0x52);
    fixed(&d, 0x55);
    assert_int_equal(lapic_pending(&d), 0x55);
    lapic_accept(&d, 0x55);
    assert_int_equal(lapic_pending(&d), -1); /* 0x52 is of the same class */
    assert_int_equal(rd32(&d, REG(0x0a)), 0x50);
    assert_int_equal(rd32(&d, REG(0x12)), 1u << 21);
    assert_int_equal(rd32(&d, REG(0x22)), 1u << 18);
    fixed(&d, 0x60);
    assert_int_equal(lapic_pending(&d), 0x60);
    lapic_set_cr8(&d, 6);
    assert_int_equal(rd32(&d, REG(0x08)), 0x60);
    assert_int_equal(lapic_pending(&d), -1);
    wr32(&d, REG(0x08), 0x5f);
    assert_int_equal(lapic_get_cr8(&d), 5);
    assert_int_equal(rd32(&d, REG(0x0a)), 0x5f);
    assert_int_equal(lapic_pending(&d), 0x60);
    wr32(&d, REG(0x08), 0);
    wr32(&d, REG(0x0b), 0);
    lapic_accept(&d, 0x60);
    wr32(&d, REG(0x0b), 0);
    assert_int_equal(lapic_pending(&d), 0x52);
    assert_int_equal(m.eois, 0); /* all were edges */
    fixed(&d, 0x0f);             /* illegal vector */
    wr32(&d, REG(0x28), 0);
    assert_int_equal(rd32(&d, REG(0x28)), 0x40);
    wr32(&d, REG(0x28), 0);
    assert_int_equal(rd32(&d, REG(0x28)), 0);
    device_destroy(&d);
}

static void test_error_interrupt(void **state)
{
    LAPIC();
    wr32(&d, REG(0x37), 0xfe);
    rd32(&d, REG(0x3f)); /* no such register */
    assert_int_equal(lapic_pending(&d), 0xfe);
    lapic_accept(&d, 0xfe);
    wr32(&d, REG(0x0b), 0);
    wr32(&d, REG(0x30), 0x40005); /* not armed: no second interrupt */
    assert_int_equal(lapic_pending(&d), -1);
    wr32(&d, REG(0x28), 0);
    assert_int_equal(rd32(&d, REG(0x28)), 0xa0);
    wr32(&d, REG(0x37), 0x02); /* the error vector itself illegal: must not recurse */
    wr32(&d, REG(0x30), 0x40005);
    wr32(&d, REG(0x28), 0);
    assert_int_equal(rd32(&d, REG(0x28)), 0x60);
    device_destroy(&d);
}

static void test_destinations(void **state)
{
    LAPIC();
    static const struct {
        u32 ldr, dfr, dest;
        bool logical, hit;
    } cases[] = {
        {0, ~0u, 0x00, false, true},
        {0, ~0u, 0x01, false, false},
        {0, ~0u, 0xff, false, true},
        {0x04000000, ~0u, 0x06, true, true},
        {0x04000000, ~0u, 0x03, true, false},
        {0x24000000, 0x0fffffff, 0x26, true, true},
        {0x24000000, 0x0fffffff, 0x16, true, false},
        {0x24000000, 0x0fffffff, 0x23, true, false},
        {0, ~0u, 0xff, true, true},
    };
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        wr32(&d, REG(0x0d), cases[i].ldr);
        wr32(&d, REG(0x0e), cases[i].dfr);
        send_msi(&d, 0xfee00000 | cases[i].dest << 12 | (u32)cases[i].logical << 2, 0x4041);
        assert_int_equal(lapic_pending(&d), cases[i].hit ? 0x41 : -1);
        wr32(&d, REG(0x31), cases[i].dest << 24);
        wr32(&d, REG(0x30), 0x4042 | (u32)cases[i].logical << 11);
        assert_int_equal(lapic_pending(&d), cases[i].hit ? 0x42 : -1);
        if (cases[i].hit) {
            lapic_accept(&d, 0x42);
            wr32(&d, REG(0x0b), 0);
            lapic_accept(&d, 0x41);
            wr32(&d, REG(0x0b), 0);
        }
    }
    wr32(&d, REG(0x30), 0x84043); /* all including self */
    assert_int_equal(lapic_pending(&d), 0x43);
    wr32(&d, REG(0x30), 0xc4044); /* all excluding self */
    assert_int_equal(lapic_pending(&d), 0x43);
    wr32(&d, REG(0x31), 0);
    wr32(&d, REG(0x30), 0x4500);
    assert_int_equal(m.event, DEV_INIT);
    wr32(&d, REG(0x30), 0x4612);
    assert_int_equal(m.event, DEV_SIPI);
    assert_int_equal(m.event_arg, 0x12);
    assert_int_equal(m.events, 2);
    wr32(&d, REG(0x30), 0x8500);  /* INIT de-assert */
    wr32(&d, REG(0x30), 0x44400); /* NMI with a self shorthand is invalid */
    assert_int_equal(m.events, 2);
    device_destroy(&d);
}

static void test_x2apic(void **state)
{
    LAPIC();
    u64 v;
    assert_false(lapic_rdmsr(&d, 0x802, &v));
    assert_true(gp_wr(&d, 0x1b, 0xfee00500)); /* EXTD without EN */
    assert_true(gp_wr(&d, 0x1b, 0xfee00901));
    assert_true(gp_wr(&d, 0x1b, 1ull << 40 | 0x900));
    assert_true(lapic_mmio_active(&d, 0xfee00ffc));
    assert_false(gp_wr(&d, 0x1b, 0xfed00900));
    assert_false(lapic_mmio_active(&d, 0xfee00000));
    assert_true(lapic_mmio_active(&d, 0xfed00000));
    assert_false(gp_wr(&d, 0x1b, 0xfee00d00));
    assert_false(lapic_mmio_active(&d, 0xfee00000));
    assert_true(gp_wr(&d, 0x1b, 0xfee00900)); /* x2APIC to xAPIC */
    assert_int_equal(msr(&d, 0x802), 0);
    assert_int_equal(msr(&d, 0x80d), 1);
    assert_int_equal(msr(&d, 0x80f), 0x1ff); /* kept across the switch */

    static const u32 readable[] = {0x802, 0x803, 0x808, 0x80a, 0x80d, 0x80f,
                                   0x828, 0x830, 0x838, 0x839, 0x83e};
    for (u32 n = 0x800; n < 0x900; n++) {
        bool want = (n >= 0x810 && n <= 0x827) || (n >= 0x832 && n <= 0x837);
        for (unsigned i = 0; i < ARRAY_SIZE(readable); i++)
            want |= readable[i] == n;
        assert_int_equal(lapic_rdmsr(&d, n, &v), want);
    }
    static const struct {
        u32 msr;
        u64 bad;
    } gp[] = {
        {0x802, 0},       {0x803, 0},      {0x808, 0x100},      {0x80a, 0},
        {0x80b, 1},       {0x80d, 0},      {0x80e, 0},          {0x80f, 0x200},
        {0x810, 0},       {0x828, 1},      {0x82f, 0},          {0x830, 0x2000},
        {0x830, 1 << 20}, {0x831, 0},      {0x832, 0x100},      {0x832, 1ull << 32},
        {0x835, 0x20000}, {0x837, 0x2000}, {0x838, 1ull << 32}, {0x839, 0},
        {0x83e, 4},       {0x83f, 0x100},  {0x840, 0},          {0x8ff, 0},
    };
    for (unsigned i = 0; i < ARRAY_SIZE(gp); i++)
        if (!gp_wr(&d, gp[i].msr, gp[i].bad))
            fail_msg("WRMSR %x, %llx", gp[i].msr, (unsigned long long)gp[i].bad);

    assert_false(gp_wr(&d, 0x83f, 0x77));
    assert_int_equal(lapic_pending(&d), 0x77);
    assert_false(gp_wr(&d, 0x830, 0xffffffff00000078ull)); /* broadcast */
    assert_int_equal(lapic_pending(&d), 0x78);
    assert_false(gp_wr(&d, 0x830, 0x1000000079ull)); /* ID 16: nobody */
    assert_int_equal(lapic_pending(&d), 0x78);
    assert_false(gp_wr(&d, 0x830, 0x0000000300000879ull)); /* logical cluster 0, bits 0 and 1 */
    assert_int_equal(lapic_pending(&d), 0x79);
    lapic_accept(&d, 0x79);
    assert_false(gp_wr(&d, 0x80b, 0));
    assert_int_equal(msr(&d, 0x80a), 0);

    assert_false(gp_wr(&d, 0x1b, 0xfee00100)); /* off */
    assert_false(lapic_enabled(&d));
    assert_true(lapic_accepts_extint(&d));
    assert_int_equal(lapic_pending(&d), -1);
    lapic_lint(&d, 1, true);
    assert_int_equal(m.event, DEV_NMI);
    assert_true(gp_wr(&d, 0x1b, 0xfee00d00)); /* off to x2APIC */
    assert_false(gp_wr(&d, 0x1b, 0xfee00900));
    assert_int_equal(rd32(&d, REG(0x0f)), 0xff); /* registers as after reset */
    device_destroy(&d);
}

static void test_timer(void **state)
{
    LAPIC();
    wr32(&d, REG(0x3e), 0x03); /* divide by 16: 640 ns */
    wr32(&d, REG(0x32), 0x20040);
    wr32(&d, REG(0x38), 1000);
    assert_int_equal(deadline(&d), 640 * US);
    run_until(&m, &d, 320 * US);
    assert_int_equal(rd32(&d, REG(0x39)), 500);
    wr32(&d, REG(0x3e), 0x0b); /* divide by 1, in the middle */
    assert_int_equal(deadline(&d), 320 * US + 500 * 40);
    assert_int_equal(run_until(&m, &d, 340 * US + 40 * US * 10), 11);
    assert_int_equal(lapic_pending(&d), 0x40);
    lapic_accept(&d, 0x40);
    wr32(&d, REG(0x32), 0x30040); /* masked: no deadline, but it counts */
    assert_int_equal(deadline(&d), NEVER);
    m.time += 40 * US * 1000000 + 20 * US;
    assert_int_equal(rd32(&d, REG(0x39)), 500);
    wr32(&d, REG(0x0b), 0);
    assert_int_equal(lapic_pending(&d), -1);
    wr32(&d, REG(0x32), 0x00041); /* one-shot */
    assert_int_equal(run_until(&m, &d, m.time + 1000 * MS), 1);
    assert_int_equal(lapic_pending(&d), 0x41);
    assert_int_equal(rd32(&d, REG(0x39)), 0);
    assert_int_equal(rd32(&d, REG(0x38)), 1000);
    wr32(&d, REG(0x38), 10);
    wr32(&d, REG(0x38), 0); /* stopped */
    assert_int_equal(deadline(&d), NEVER);
    device_destroy(&d);
}

static void test_tsc_deadline(void **state)
{
    LAPIC();
    assert_false(gp_wr(&d, 0x6e0, 5000)); /* ignored in one-shot mode */
    assert_int_equal(msr(&d, 0x6e0), 0);
    wr32(&d, REG(0x32), 0x40050);
    assert_false(gp_wr(&d, 0x6e0, 5000));
    assert_int_equal(msr(&d, 0x6e0), 5000);
    assert_int_equal(deadline(&d), 5000);
    lapic_set_tsc_adjust(&d, 1000);
    assert_int_equal(deadline(&d), 4000);
    lapic_set_tsc_adjust(&d, (u64)-1000); /* the TSC would start below zero: it has wrapped */
    assert_int_equal(lapic_pending(&d), 0x50);
    lapic_accept(&d, 0x50);
    wr32(&d, REG(0x0b), 0);
    lapic_set_tsc_adjust(&d, 0);
    assert_false(gp_wr(&d, 0x6e0, 7000));
    run_until(&m, &d, 6999);
    assert_int_equal(lapic_pending(&d), -1);
    run_until(&m, &d, 7000);
    assert_int_equal(lapic_pending(&d), 0x50);
    assert_int_equal(msr(&d, 0x6e0), 0);
    lapic_accept(&d, 0x50);
    wr32(&d, REG(0x0b), 0);
    assert_false(gp_wr(&d, 0x6e0, 6000)); /* in the past: at once */
    assert_int_equal(lapic_pending(&d), 0x50);
    assert_false(gp_wr(&d, 0x6e0, ~0ull));
    assert_true(deadline(&d) > 1ull << 60);
    wr32(&d, REG(0x32), 0x50); /* leaving the mode disarms */
    assert_int_equal(deadline(&d), NEVER);
    wr32(&d, REG(0x38), 3);
    assert_int_equal(deadline(&d), 7000 + 3 * 80);
    device_destroy(&d);
}

static void test_lint(void **state)
{
    LAPIC();
    assert_false(lapic_accepts_extint(&d));
    wr32(&d, REG(0x35), 0x700);
    assert_true(lapic_accepts_extint(&d));
    wr32(&d, REG(0x36), 0x400);
    lapic_lint(&d, 1, true);
    lapic_lint(&d, 1, true);
    assert_int_equal(m.events, 1);
    assert_int_equal(m.event, DEV_NMI);
    wr32(&d, REG(0x35), 0x8060); /* fixed, level */
    lapic_lint(&d, 0, true);
    assert_int_equal(lapic_pending(&d), 0x60);
    assert_int_equal(rd32(&d, REG(0x35)), 0xc060);
    lapic_accept(&d, 0x60);
    wr32(&d, REG(0x0b), 0);
    assert_int_equal(lapic_pending(&d), 0x60); /* still asserted */
    lapic_lint(&d, 0, false);
    lapic_accept(&d, 0x60);
    wr32(&d, REG(0x0b), 0);
    assert_int_equal(lapic_pending(&d), -1);
    device_destroy(&d);
}

struct pair {
    struct device *lapic, *ioapic;
};

static void to_lapic(void *opaque, u64 addr, u32 data)
{
    send_msi(((struct pair *)opaque)->lapic, addr, data);
}

static void to_ioapic(void *opaque, u8 vector)
{
    ioapic_eoi(((struct pair *)opaque)->ioapic, vector);
}

static void redir(struct device *d, unsigned pin, u64 rte)
{
    wr32(d, 0, 0x11 + 2 * pin);
    wr32(d, 0x10, (u32)(rte >> 32));
    wr32(d, 0, 0x10 + 2 * pin);
    wr32(d, 0x10, (u32)rte);
}

static void test_ioapic(void **state)
{
    FIXTURE(ioapic_create(&d, &env, &err));
    wr32(&d, 0, 1);
    assert_int_equal(rd32(&d, 0x10), 0x00170020);
    wr32(&d, 0, 0);
    wr32(&d, 0x10, 0xffffffff);
    assert_int_equal(rd32(&d, 0x10), 0x0f000000);
    redir(&d, 4, 0x5500000000000834ull);
    ioapic_set_irq(&d, 4, true);
    ioapic_set_irq(&d, 4, true);
    assert_int_equal(m.msis, 1);
    assert_int_equal(m.msi_addr, 0xfee55004);
    assert_int_equal(m.msi_data, 0x4034);
    redir(&d, 5, 0x10035);
    ioapic_set_irq(&d, 5, true); /* an edge on a masked pin is lost */
    redir(&d, 5, 0x35);
    assert_int_equal(m.msis, 1);
    ioapic_set_irq(&d, 0, true);
    redir(&d, 2, 0x8132); /* level, lowest priority; GSI 0 is pin 2 */
    assert_int_equal(m.msis, 2);
    assert_int_equal(m.msi_addr, 0xfee00008);
    assert_int_equal(m.msi_data, 0xc132);
    assert_int_equal(rd32(&d, 0x10), 0xc132); /* remote IRR */
    ioapic_eoi(&d, 0x31);
    assert_int_equal(m.msis, 2);
    wr32(&d, 0x40, 0x32); /* EOI register; still asserted */
    assert_int_equal(m.msis, 3);
    ioapic_set_irq(&d, 0, false);
    wr32(&d, 0x10, 0x0132); /* edge: clears remote IRR */
    wr32(&d, 0x10, 0x8132);
    assert_int_equal(rd32(&d, 0x10), 0x8132);
    device_destroy(&d);
}

static void test_level_through_both(void **state)
{
    FIXTURE(ioapic_create(&d, &env, &err));
    struct device l;
    assert_int_equal(lapic_create(&l, &env, &err), 0);
    struct pair pair = {&l, &d};
    m.on_msi = to_lapic;
    m.on_eoi = to_ioapic;
    m.opaque = &pair;
    wr32(&l, REG(0x0f), 0x1ff);
    redir(&d, 9, 0x8039);
    ioapic_set_irq(&d, 9, true);
    assert_int_equal(lapic_pending(&l), 0x39);
    lapic_accept(&l, 0x39);
    assert_int_equal(rd32(&l, REG(0x19)), 1u << 25); /* TMR */
    wr32(&l, REG(0x0b), 0);
    assert_int_equal(m.eois, 1);
    assert_int_equal(lapic_pending(&l), 0x39); /* fires again */
    ioapic_set_irq(&d, 9, false);
    lapic_accept(&l, 0x39);
    wr32(&l, REG(0x0f), 0x11ff); /* suppress the broadcast */
    wr32(&l, REG(0x0b), 0);
    assert_int_equal(m.eois, 1);
    assert_int_equal(rd32(&d, 0x10), 0xc039);
    wr32(&d, 0x40, 0x39);
    assert_int_equal(rd32(&d, 0x10), 0x8039);
    assert_int_equal(lapic_pending(&l), -1);
    device_destroy(&l);
    device_destroy(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reset_values),    cmocka_unit_test(test_priorities),
        cmocka_unit_test(test_error_interrupt), cmocka_unit_test(test_destinations),
        cmocka_unit_test(test_x2apic),          cmocka_unit_test(test_timer),
        cmocka_unit_test(test_tsc_deadline),    cmocka_unit_test(test_lint),
        cmocka_unit_test(test_ioapic),          cmocka_unit_test(test_level_through_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
