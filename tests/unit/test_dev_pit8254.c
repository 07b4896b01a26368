/* 8254 against the Intel data sheet: outputs are compared clock by clock with its diagrams. */
#include "dev_mock.h"
#include "dev/pit8254.h"

/* First ns of clock n. */
static vns_t tick(u64 n)
{
    return (n * 1000000000ull + PIT_HZ - 1) / PIT_HZ;
}

static void at(struct mock *m, struct device *d, u64 n)
{
    run_until(m, d, tick(n));
}

static void set_mode(struct device *d, unsigned c, unsigned mode, unsigned count)
{
    outb(d, 0x43, (u8)(c << 6 | 0x30 | mode << 1));
    outb(d, (u16)(0x40 + c), (u8)count);
    outb(d, (u16)(0x40 + c), (u8)(count >> 8));
}

static unsigned count_of(struct device *d, unsigned c)
{
    outb(d, 0x43, (u8)(c << 6));
    unsigned lo = inb(d, (u16)(0x40 + c));
    return lo | (unsigned)inb(d, (u16)(0x40 + c)) << 8;
}

static bool out2(struct device *d)
{
    return inb(d, 0x61) >> 5 & 1;
}

/* Channel 2's output at clocks 1.. as a string of '-' (high) and '_' (low). */
static void expect_out2(struct mock *m, struct device *d, u64 from, const char *diagram)
{
    for (u64 i = 0; diagram[i]; i++) {
        at(m, d, from + i);
        if (out2(d) != (diagram[i] == '-'))
            fail_msg("clock %llu of %s", (unsigned long long)i, diagram);
    }
}

static void test_mode0(void **state)
{
    FIXTURE(pit8254_create(&d, &env, &err));
    outb(&d, 0x61, 1);
    set_mode(&d, 2, 0, 4);
    expect_out2(&m, &d, 0, "_____------");           /* N + 1 clocks after the write */
    assert_int_equal(count_of(&d, 2), (u16)(4 - 9)); /* wraps and goes on */
    set_mode(&d, 2, 0, 4);
    at(&m, &d, 12);
    assert_int_equal(count_of(&d, 2), 3);
    outb(&d, 0x61, 0); /* the gate stops it */
    at(&m, &d, 50);
    assert_int_equal(count_of(&d, 2), 3);
    outb(&d, 0x61, 1);
    expect_out2(&m, &d, 51, "__---");
    device_destroy(&d);
}

static void test_mode1(void **state)
{
    FIXTURE(pit8254_create(&d, &env, &err));
    set_mode(&d, 2, 1, 3);
    expect_out2(&m, &d, 0, "-----");
    outb(&d, 0x61, 1);
    expect_out2(&m, &d, 4, "-___---");
    outb(&d, 0x61, 0);
    outb(&d, 0x61, 1);
    expect_out2(&m, &d, 10, "-__");
    outb(&d, 0x61, 0);
    outb(&d, 0x61, 1); /* retriggered */
    expect_out2(&m, &d, 13, "___--");
    device_destroy(&d);
}

static void test_mode2(void **state)
{
    FIXTURE(pit8254_create(&d, &env, &err));
    outb(&d, 0x61, 1);
    set_mode(&d, 2, 2, 3);
    expect_out2(&m, &d, 0, "---_--_--_--");
    assert_int_equal(count_of(&d, 2), 2); /* clock 11 */
    outb(&d, 0x42, 5);
    outb(&d, 0x42, 0); /* takes effect at the end of the period */
    expect_out2(&m, &d, 11, "-_----_----_");
    outb(&d, 0x61, 0);
    expect_out2(&m, &d, 22, "-----");
    device_destroy(&d);
}

static void test_mode3(void **state)
{
    FIXTURE(pit8254_create(&d, &env, &err));
    outb(&d, 0x61, 1);
    set_mode(&d, 2, 3, 4);
    expect_out2(&m, &d, 0, "---__--__--__");
    set_mode(&d, 2, 3, 5);
    expect_out2(&m, &d, 12, "----__---__---");
    set_mode(&d, 2, 3, 5);
    static const u16 odd[] = {4, 2, 0, 4, 2, 4, 2, 0};
    for (unsigned i = 0; i < ARRAY_SIZE(odd); i++) {
        at(&m, &d, 26 + i);
        assert_int_equal(count_of(&d, 2), odd[i]);
    }
    device_destroy(&d);
}

static void test_mode4_and_5(void **state)
{
    FIXTURE(pit8254_create(&d, &env, &err));
    outb(&d, 0x61, 1);
    set_mode(&d, 2, 4, 3);
    expect_out2(&m, &d, 0, "----_----");
    set_mode(&d, 2, 5, 3);
    expect_out2(&m, &d, 8, "-----");
    outb(&d, 0x61, 0);
    outb(&d, 0x61, 1);
    expect_out2(&m, &d, 12, "----_--");
    device_destroy(&d);
}

static void test_channel0_interrupts(void **state)
{
    FIXTURE(pit8254_create(&d, &env, &err));
    assert_int_equal(deadline(&d), NEVER);
    set_mode(&d, 0, 2, 11932); /* HZ=100 */
    unsigned before = m.rises[0];
    run_until(&m, &d, 1000 * MS);
    assert_int_equal(m.rises[0] - before, 99);
    assert_int_equal(deadline(&d), tick(1 + 100 * 11932));
    set_mode(&d, 0, 3, 11932);
    before = m.rises[0];
    run_until(&m, &d, 2000 * MS);
    assert_in_range(m.rises[0] - before, 99, 100);
    set_mode(&d, 0, 0, 1000);
    assert_false(m.line[0]);
    u64 now = m.time;
    run_until(&m, &d, now + 837 * US);
    assert_false(m.line[0]);
    run_until(&m, &d, now + 840 * US);
    assert_true(m.line[0]);
    assert_int_equal(deadline(&d), NEVER);
    set_mode(&d, 0, 4, 100);
    before = m.rises[0];
    assert_int_equal(run_until(&m, &d, m.time + MS), 1);
    assert_int_equal(m.rises[0] - before, 1);
    device_destroy(&d);
}

static void test_read_back_and_bcd(void **state)
{
    FIXTURE(pit8254_create(&d, &env, &err));
    outb(&d, 0x43, 0xe2);
    assert_int_equal(inb(&d, 0x40) & 0x40,
                     0);  /* Linux waits for this before it programs anything */
    outb(&d, 0x43, 0x35); /* channel 0, both bytes, mode 2, BCD */
    outb(&d, 0x43, 0xe2); /* status only */
    assert_int_equal(inb(&d, 0x40), 0x80 | 0x40 | 0x35); /* null count */
    outb(&d, 0x40, 0x00);
    outb(&d, 0x40, 0x10); /* 1000 */
    at(&m, &d, 2);
    outb(&d, 0x43, 0xc2); /* count and status: status comes first */
    at(&m, &d, 300);
    outb(&d, 0x43, 0x00); /* ignored: already latched */
    assert_int_equal(inb(&d, 0x40), 0xb5);
    assert_int_equal(inb(&d, 0x40), 0x99);
    assert_int_equal(inb(&d, 0x40), 0x09);
    assert_int_equal(count_of(&d, 0), 0x0701);
    outb(&d, 0x43, 0x10); /* low byte only, mode 0 */
    outb(&d, 0x40, 9);
    at(&m, &d, 302);
    assert_int_equal(inb(&d, 0x40), 8);
    assert_int_equal(inb(&d, 0x43), 0xff);
    device_destroy(&d);
}

/* One jump must give what single clocks give. */
static void test_jump_equals_steps(void **state)
{
    for (unsigned mode = 0; mode < 6; mode++)
        for (unsigned count = 1; count < 9; count++)
            for (unsigned len = 1; len < 40; len++) {
                FIXTURE(pit8254_create(&d, &env, &err));
                struct mock m2;
                struct dev_env env2 = mock_env(&m2);
                struct device e;
                assert_int_equal(pit8254_create(&e, &env2, &err), 0);
                struct device *both[] = {&d, &e};
                for (unsigned i = 0; i < 2; i++) {
                    set_mode(both[i], 2, mode, count);
                    outb(both[i], 0x61, 1);
                }
                for (u64 t = 1; t <= len; t++) {
                    m2.time = tick(t);
                    inb(&e, 0x61);
                }
                m.time = tick(len);
                inb(&d, 0x61);
                assert_int_equal(state_hash(d.ops->state, d.state),
                                 state_hash(e.ops->state, e.state));
                device_destroy(&d);
                device_destroy(&e);
            }
}

static void test_refresh_toggle(void **state)
{
    FIXTURE(pit8254_create(&d, &env, &err));
    unsigned toggles = 0, last = inb(&d, 0x61) & 0x10;
    for (m.time = 0; m.time < MS; m.time += US) {
        unsigned v = inb(&d, 0x61) & 0x10;
        toggles += v != last;
        last = v;
    }
    assert_in_range(toggles, 65, 67);
    device_destroy(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mode0),
        cmocka_unit_test(test_mode1),
        cmocka_unit_test(test_mode2),
        cmocka_unit_test(test_mode3),
        cmocka_unit_test(test_mode4_and_5),
        cmocka_unit_test(test_channel0_interrupts),
        cmocka_unit_test(test_read_back_and_bcd),
        cmocka_unit_test(test_jump_equals_steps),
        cmocka_unit_test(test_refresh_toggle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
