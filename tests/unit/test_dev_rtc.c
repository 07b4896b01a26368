/* MC146818 against its data sheet; the calendar against gmtime. */
#include <time.h>

#include "dev_mock.h"
#include "dev/rtc.h"

#define S 1000000000ull

static u8 get(struct device *d, u8 reg)
{
    outb(d, 0x70, reg);
    return inb(d, 0x71);
}

static void set(struct device *d, u8 reg, u8 v)
{
    outb(d, 0x70, reg);
    outb(d, 0x71, v);
}

static unsigned bcd(u8 v)
{
    return (v >> 4) * 10u + (v & 15);
}

static void expect_time(struct device *d, u64 unix_time)
{
    time_t t = (time_t)unix_time;
    struct tm tm;
    assert_non_null(gmtime_r(&t, &tm));
    assert_int_equal(bcd(get(d, 0)), tm.tm_sec);
    assert_int_equal(bcd(get(d, 2)), tm.tm_min);
    assert_int_equal(bcd(get(d, 4)), tm.tm_hour);
    assert_int_equal(bcd(get(d, 6)), tm.tm_wday + 1);
    assert_int_equal(bcd(get(d, 7)), tm.tm_mday);
    assert_int_equal(bcd(get(d, 8)), tm.tm_mon + 1);
    assert_int_equal(bcd(get(d, 0x32)) * 100 + bcd(get(d, 9)), tm.tm_year + 1900);
}

static void test_calendar(void **state)
{
    static const u64 walls[] = {0,          86399,      951782399,  951782400,  951868800,
                                1709164800, 1709251199, 4107542400, 1735689599, 253402300799ull};
    for (unsigned i = 0; i < ARRAY_SIZE(walls); i++) {
        FIXTURE(rtc_create(&d, &env, walls[i], &err));
        expect_time(&d, walls[i]);
        if (walls[i] < 253402300799ull) {
            m.time = 86400 * S * 40 + S - 1;
            expect_time(&d, walls[i] + 86400 * 40);
            m.time++;
            expect_time(&d, walls[i] + 86400 * 40 + 1);
        }
        device_destroy(&d);
    }
    u64 x = 1;
    for (unsigned i = 0; i < 3000; i++) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        FIXTURE(rtc_create(&d, &env, (x >> 20) % 253402300800ull, &err));
        expect_time(&d, (x >> 20) % 253402300800ull);
        device_destroy(&d);
    }
    struct mock mk;
    struct dev_env e = mock_env(&mk);
    struct device dd;
    struct err er = {0};
    assert_int_equal(rtc_create(&dd, &e, 253402300800ull, &er), -22);
    assert_string_not_equal(er.text, "");
}

static void test_set_by_guest(void **state)
{
    FIXTURE(rtc_create(&d, &env, 1700000000, &err));
    m.time = 300 * MS;
    set(&d, 0x0b, 0x82);
    static const u8 regs[] = {0, 2, 4, 6, 7, 8, 9, 0x32};
    static const u8 vals[] = {0x58, 0x59, 0x23, 0x07, 0x28, 0x02, 0x00, 0x20};
    for (unsigned i = 0; i < sizeof(regs); i++)
        set(&d, regs[i], vals[i]);
    m.time = 10 * S + 300 * MS;
    assert_int_equal(get(&d, 0), 0x58); /* held */
    set(&d, 0x0b, 0x02);
    m.time += 699 * MS;
    assert_int_equal(get(&d, 0), 0x58);
    m.time += 2 * MS; /* the divider chain was never reset: updates at whole seconds */
    assert_int_equal(get(&d, 0), 0x59);
    m.time += S;
    assert_int_equal(get(&d, 0), 0x00);
    assert_int_equal(get(&d, 7), 0x29); /* 2000 was a leap year */
    assert_int_equal(get(&d, 6), 0x01); /* the guest's own idea of the week goes on */
    /* 12-hour, binary. */
    set(&d, 0x0b, 0x84);
    set(&d, 4, 12);
    set(&d, 0x0b, 0x04);
    assert_int_equal(get(&d, 4), 12); /* midnight */
    m.time += 3600 * 13 * S;
    assert_int_equal(get(&d, 4), 0x81);
    set(&d, 0x0b, 0x06);
    assert_int_equal(get(&d, 4), 13);
    device_destroy(&d);
}

static void test_divider_reset(void **state)
{
    FIXTURE(rtc_create(&d, &env, 1000, &err));
    m.time = 100 * MS;
    set(&d, 0x0a, 0x70);
    m.time = 130 * MS;
    set(&d, 0x0a, 0x26); /* first update half a second later */
    u8 before = get(&d, 0);
    m.time = 629 * MS;
    assert_int_equal(get(&d, 0), before);
    assert_int_equal(get(&d, 0x0a), 0xa6);
    m.time = 630 * MS;
    assert_int_equal(bcd(get(&d, 0)), bcd(before) + 1);
    m.time = 1630 * MS;
    assert_int_equal(bcd(get(&d, 0)), bcd(before) + 2);
    device_destroy(&d);
}

static void test_uip(void **state)
{
    FIXTURE(rtc_create(&d, &env, 1000, &err));
    m.time = S - 2229000;
    assert_int_equal(get(&d, 0x0a), 0x26);
    m.time = S - 2228000;
    assert_int_equal(get(&d, 0x0a), 0xa6);
    m.time = S - 1;
    assert_int_equal(get(&d, 0x0a), 0xa6);
    m.time = S;
    assert_int_equal(get(&d, 0x0a), 0x26);
    set(&d, 0x0b, 0x82);
    m.time = 2 * S - 1;
    assert_int_equal(get(&d, 0x0a), 0x26);
    device_destroy(&d);
}

static void test_periodic_and_update(void **state)
{
    FIXTURE(rtc_create(&d, &env, 1000, &err));
    assert_int_equal(deadline(&d), NEVER);
    set(&d, 0x0a, 0x26); /* 1024 Hz */
    set(&d, 0x0b, 0x42);
    unsigned n = 0;
    while (deadline(&d) <= S) {
        run_until(&m, &d, deadline(&d));
        assert_true(m.line[8]);
        assert_int_equal(deadline(&d), NEVER); /* until C is read */
        assert_int_equal(get(&d, 0x0c) & 0xc0, 0xc0);
        assert_false(m.line[8]);
        n++;
    }
    assert_int_equal(n, 1024);
    assert_int_equal(m.time, S);
    set(&d, 0x0b, 0x12);
    get(&d, 0x0c);
    assert_int_equal(deadline(&d), 2 * S);
    run_until(&m, &d, 2 * S);
    assert_true(m.line[8]);
    assert_int_equal(get(&d, 0x0c), 0xd0);
    m.time = 3 * S;
    set(&d, 0x0b, 0x02);
    assert_int_equal(get(&d, 0x0c), 0x50); /* flags without interrupts */
    set(&d, 0x0b, 0x92);
    assert_int_equal(get(&d, 0x0b), 0x82); /* SET clears UIE */
    device_destroy(&d);
}

static void test_alarm(void **state)
{
    FIXTURE(rtc_create(&d, &env, 86400 * 3 + 86390, &err)); /* 23:59:50 */
    set(&d, 1, 0x05);
    set(&d, 3, 0x00);
    set(&d, 5, 0x00);
    set(&d, 0x0b, 0x22);
    assert_int_equal(deadline(&d), 15 * S); /* 00:00:05 tomorrow */
    run_until(&m, &d, 15 * S);
    assert_true(m.line[8]);
    assert_int_equal(get(&d, 0x0c) & 0xa0, 0xa0);
    assert_int_equal(deadline(&d), (15 + 86400) * S);
    set(&d, 5, 0xc0);
    assert_int_equal(deadline(&d), (15 + 3600) * S);
    set(&d, 3, 0xff);
    assert_int_equal(deadline(&d), (15 + 60) * S);
    set(&d, 1, 0xff);
    assert_int_equal(deadline(&d), 16 * S);
    set(&d, 1, 0x75); /* never */
    assert_int_equal(deadline(&d), NEVER);
    device_destroy(&d);
}

static void test_memory(void **state)
{
    FIXTURE(rtc_create(&d, &env, 1000, &err));
    set(&d, 0x8f, 0x5a); /* index bit 7 masks NMI and is no part of the address */
    assert_true(rtc_nmi_masked(&d));
    assert_int_equal(get(&d, 0x0f), 0x5a);
    assert_false(rtc_nmi_masked(&d));
    set(&d, 0x7f, 0xa5);
    assert_int_equal(get(&d, 0x7f), 0xa5);
    assert_int_equal(get(&d, 0x0d), 0x80);
    assert_int_equal(inb(&d, 0x70), 0xff);
    device_destroy(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calendar),
        cmocka_unit_test(test_set_by_guest),
        cmocka_unit_test(test_divider_reset),
        cmocka_unit_test(test_uip),
        cmocka_unit_test(test_periodic_and_update),
        cmocka_unit_test(test_alarm),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
