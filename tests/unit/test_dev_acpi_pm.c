/* ACPI fixed hardware (ACPI 6.4, 4.8), the debug-exit port and the ports without a device. */
#include "dev_mock.h"
#include "board/acpi.h"
#include "dev/acpi_pm.h"
#include "dev/debugexit.h"
#include "dev/misc.h"

static u32 rd(struct device *d, u16 port, unsigned size)
{
    return d->ops->pio_read(d, port, size);
}

static void wr(struct device *d, u16 port, unsigned size, u32 v)
{
    d->ops->pio_write(d, port, size, v);
}

static void test_power_button(void **state)
{
    FIXTURE(acpi_pm_create(&d, &env, &err));
    wr(&d, ACPI_PM1_EVT + 2, 2, 0x100);
    acpi_power_button(&d);
    assert_false(m.line[9]); /* legacy mode */
    wr(&d, ACPI_SMI_CMD, 1, 0xf1);
    assert_int_equal(rd(&d, ACPI_PM1_CNT, 2), 1);
    assert_true(m.line[9]);
    assert_int_equal(rd(&d, ACPI_PM1_EVT, 4), 0x01000100);
    wr(&d, ACPI_PM1_EVT, 2, 0x0001);
    assert_true(m.line[9]);
    wr(&d, ACPI_PM1_EVT + 1, 1, 0x01); /* write one to clear, as a byte */
    assert_false(m.line[9]);
    acpi_gpe(&d, 3);
    assert_false(m.line[9]);
    wr(&d, ACPI_GPE0 + 2, 2, 0x0008);
    assert_true(m.line[9]);
    wr(&d, ACPI_GPE0, 2, 0x0008);
    assert_false(m.line[9]);
    wr(&d, ACPI_PM1_CNT, 2, 0);
    assert_int_equal(rd(&d, ACPI_PM1_CNT, 2), 1); /* SCI_EN is not the guest's to write */
    wr(&d, ACPI_SMI_CMD, 1, 0xf0);
    assert_int_equal(rd(&d, ACPI_PM1_CNT, 2), 0);
    device_destroy(&d);
}

static void test_timer(void **state)
{
    FIXTURE(acpi_pm_create(&d, &env, &err));
    m.time = 1000 * MS;
    assert_int_equal(rd(&d, ACPI_PM_TMR, 4), 3579545);
    wr(&d, ACPI_SMI_CMD, 1, 0xf1);
    assert_int_equal(deadline(&d), NEVER);
    wr(&d, ACPI_PM1_EVT + 2, 2, 1);
    vns_t at = deadline(&d);
    m.time = at - 1;
    assert_int_equal(rd(&d, ACPI_PM_TMR, 4), 0x7fffffff);
    run_until(&m, &d, at);
    assert_int_equal(rd(&d, ACPI_PM_TMR, 4), 0x80000000);
    assert_true(m.line[9]);
    assert_int_equal(deadline(&d), NEVER);
    wr(&d, ACPI_PM1_EVT, 2, 1);
    assert_false(m.line[9]);
    run_until(&m, &d, 2 * at);
    assert_true(m.line[9]);
    assert_true(rd(&d, ACPI_PM_TMR, 4) < 2);
    device_destroy(&d);
}

static void test_sleep_and_reset(void **state)
{
    FIXTURE(acpi_pm_create(&d, &env, &err));
    wr(&d, ACPI_PM1_CNT, 2, 0x2000 | 3 << 10);
    assert_int_equal(m.events, 0);
    wr(&d, ACPI_PM1_CNT, 2, 0x2000 | 5 << 10);
    assert_int_equal(m.events, 1);
    assert_int_equal(m.event, DEV_POWEROFF);
    assert_int_equal(rd(&d, ACPI_PM1_CNT, 2), 5 << 10); /* SLP_EN reads as zero */
    wr(&d, ACPI_RESET, 1, 2);
    assert_int_equal(m.events, 1);
    wr(&d, ACPI_RESET, 1, 6);
    assert_int_equal(m.event, DEV_RESET);
    assert_int_equal(rd(&d, ACPI_RESET, 1), 2);
    device_destroy(&d);
}

static void test_debugexit(void **state)
{
    FIXTURE(debugexit_create(&d, &env, &err));
    wr(&d, DEBUG_EXIT, 1, 0x12);
    assert_int_equal(m.event, DEV_EXIT);
    assert_int_equal(m.event_arg, 0x12);
    wr(&d, DEBUG_EXIT, 4, 0xdeadbeef);
    assert_int_equal(m.event_arg, 0xdeadbeef);
    wr(&d, DEBUG_EXIT, 2, 0x77778888);
    assert_int_equal(m.event_arg, 0x8888);
    assert_int_equal(rd(&d, DEBUG_EXIT, 2), 0xffff);
    device_destroy(&d);
}

static void test_misc(void **state)
{
    FIXTURE(misc_create(&d, &env, &err));
    assert_int_equal(rd(&d, 0x60, 1), 0xff);
    assert_int_equal(rd(&d, 0x64, 1), 0xff);
    wr(&d, 0x64, 1, 0xaa);
    wr(&d, 0x60, 1, 0xfe);
    wr(&d, 0x80, 1, 0xfe);
    assert_int_equal(m.events, 0);
    wr(&d, 0x64, 1, 0xfe);
    assert_int_equal(m.event, DEV_RESET);
    device_destroy(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_power_button),
        cmocka_unit_test(test_timer),
        cmocka_unit_test(test_sleep_and_reset),
        cmocka_unit_test(test_debugexit),
        cmocka_unit_test(test_misc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
