/*
 * Every device through the same mill: random accesses under advancing time, save, load into a
 * second instance, same hash and same behaviour afterwards; states of a wrong length refused and
 * mutated ones refused or survived. DEV_SOAK=n sets the number of accesses per device. What is
 * driven through PCI has a fuzz target of its own instead.
 */
#include <stdio.h>
#include <unistd.h>

#include "dev_mock.h"
#include "dev/acpi_pm.h"
#include "dev/debugexit.h"
#include "dev/ioapic.h"
#include "dev/lapic.h"
#include "dev/misc.h"
#include "dev/pic8259.h"
#include "dev/pit8254.h"
#include "dev/rtc.h"
#include "dev/uart16550.h"
#include "tests/splitmix.h"

static int create_rtc(struct device *d, const struct dev_env *env, struct err *err)
{
    return rtc_create(d, env, 1700000000, err);
}

static void poke_lapic(struct device *d, struct mock *m, u64 *x)
{
    static const u64 bases[] = {0xfee00900, 0xfee00d00, 0xfee00100, 0xfed00900};
    u64 v = splitmix64(x) & splitmix64(x);
    switch (splitmix64(x) % 12) {
    case 0: mock_trace(m, 6, lapic_wrmsr(d, 0x1b, bases[splitmix64(x) % 4])); break;
    case 1: mock_trace(m, 6, lapic_wrmsr(d, 0x80f, 0x1ff)); break;
    case 2: mock_trace(m, 6, lapic_wrmsr(d, 0x6e0, m->time + splitmix64(x) % 100000)); break;
    case 3:
        mock_trace(
            m, 6, lapic_wrmsr(d, 0x800 + splitmix64(x) % 256, splitmix64(x) % 2 ? v : v & 0x700ff));
        break;
    case 4: mock_trace(m, 6, lapic_rdmsr(d, 0x800 + splitmix64(x) % 256, &v) ? v : 1); break;
    case 5: send_msi(d, 0xfee00000 | (splitmix64(x) & 0xff00c), (u32)v & 0xffff); break;
    case 6: lapic_lint(d, splitmix64(x) % 3, splitmix64(x) & 1); break;
    case 7: lapic_set_tsc_adjust(d, splitmix64(x) % 4 ? v % 100000 : v); break;
    case 8: wr32(d, 0xf0, 0x1ff); break;
    case 9: lapic_set_cr8(d, v & 15); break;
    case 10: lapic_init_reset(d); break;
    default:
        if (lapic_pending(d) >= 0)
            lapic_accept(d, (u8)lapic_pending(d));
        mock_trace(m, 6, (u64)lapic_pending(d) + lapic_accepts_extint(d) + lapic_get_cr8(d));
        break;
    }
}

static void poke_uart(struct device *d, struct mock *m, u64 *x)
{
    u8 data[20];
    for (unsigned i = 0; i < sizeof(data); i++)
        data[i] = (u8)splitmix64(x);
    unsigned room = uart_room(d);
    assert_true(room <= 16);
    if (splitmix64(x) % 4)
        uart_receive(d, data,
                     splitmix64(x) % 4 ? (unsigned)(splitmix64(x) % (room + 1))
                                       : splitmix64(x) % 20);
    else
        uart_break(d);
}

static void poke_pic(struct device *d, struct mock *m, u64 *x)
{
    if (splitmix64(x) % 4)
        pic_set_irq(d, splitmix64(x) % 18, splitmix64(x) & 1);
    else
        mock_trace(m, 6, pic_pending(d) ? pic_ack(d) : 0u);
}

static void poke_ioapic(struct device *d, struct mock *m, u64 *x)
{
    if (splitmix64(x) % 4)
        ioapic_set_irq(d, splitmix64(x) % 26, splitmix64(x) & 1);
    else
        ioapic_eoi(d, (u8)(splitmix64(x) & splitmix64(x)));
}

static void poke_acpi(struct device *d, struct mock *m, u64 *x)
{
    if (splitmix64(x) & 1)
        acpi_power_button(d);
    else
        acpi_gpe(d, splitmix64(x) % 20);
}

static const struct kind {
    const char *maker; /* of its row in dev/devices.def */
    int (*create)(struct device *dev, const struct dev_env *env, struct err *err);
    void (*poke)(struct device *d, struct mock *m, u64 *x);
} kinds[] = {
    {"uart", uart16550_create, poke_uart},
    {"pic", pic8259_create, poke_pic},
    {"pit", pit8254_create, NULL},
    {"rtc", create_rtc, NULL},
    {"ioapic", ioapic_create, poke_ioapic},
    {"lapic", lapic_create, poke_lapic},
    {"acpi_pm", acpi_pm_create, poke_acpi},
    {"debugexit", debugexit_create, NULL},
    {"misc", misc_create, NULL},
};

/* A device that is new in devices.def is tried, one way or the other. */
static void test_no_device_is_left_out(void **state)
{
    static const char *const makers[] = {
#define DEVICE(NAME, maker, ...) #maker,
#include "dev/devices.def"
#undef DEVICE
    };
    for (unsigned i = 0; i < ARRAY_SIZE(makers); i++) {
        unsigned found = 0;
        for (unsigned k = 0; k < ARRAY_SIZE(kinds); k++)
            found += !strcmp(kinds[k].maker, makers[i]);
        char path[64];
        snprintf(path, sizeof(path), "tests/fuzz/corpus/virtio-%s", makers[i]);
        found += !access(path, R_OK);
        found += !strcmp(makers[i], "pci"); /* every one of those goes through it */
        if (found != 1)
            fail_msg("%s is tried %u times: here, or by tests/fuzz", makers[i], found);
    }
}

static void pass_time(struct device *d, struct mock *m, u64 *x)
{
    /* From a few ns to minutes; at most so many deadlines that a 40 ns timer does not stall us. */
    vns_t until = m->time + (splitmix64(x) >> (24 + splitmix64(x) % 40)) % (90 * 1000 * MS);
    for (unsigned i = 0; i < 8; i++) {
        vns_t at = deadline(d);
        if (at > until)
            break;
        m->time = MAX(m->time, at);
        d->ops->expire(d, m->time);
        mock_trace(m, 7, m->time);
        assert_true(deadline(d) > m->time);
    }
    m->time = MAX(m->time, until);
    if (deadline(d) <= m->time) { /* skipped some: expire late, in one step */
        d->ops->expire(d, m->time);
        assert_true(deadline(d) > m->time);
    }
}

static void access_random(struct device *d, struct mock *m, u64 *x)
{
    const struct io_range *r = &d->ops->ranges[splitmix64(x) % d->ops->nranges];
    unsigned size = 1u << splitmix64(x) % (r->mmio ? 4 : 3);
    u64 off = splitmix64(x) % r->size, v = splitmix64(x);
    if (r->mmio && splitmix64(x) % 4) { /* registers that exist, values that mean something */
        off = off % 0x400 & ~15ull;
        size = 4;
        v &= 0x7a7ff;
    }
    if (splitmix64(x) % 3) {
        if (r->mmio)
            d->ops->mmio_write(d, off, size, v);
        else
            d->ops->pio_write(d, (u16)(r->base + off), size, (u32)v);
        return;
    }
    if (r->mmio)
        mock_trace(m, 8, d->ops->mmio_read(d, off, size));
    else
        mock_trace(m, 8, d->ops->pio_read(d, (u16)(r->base + off), size));
}

static void hammer(const struct kind *k, struct device *d, struct mock *m, u64 *x, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (splitmix64(x) % 4 == 0)
            pass_time(d, m, x);
        if (k->poke && splitmix64(x) % 3 == 0)
            k->poke(d, m, x);
        access_random(d, m, x);
    }
}

static unsigned soak(void)
{
    const char *n = getenv("DEV_SOAK");
    return n ? (unsigned)strtoul(n, NULL, 0) : 20000;
}

static void test_save_load(void **state)
{
    for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
        const struct kind *k = &kinds[i];
        for (u64 seed = 1; seed <= 20; seed++) {
            FIXTURE(k->create(&d, &env, &err));
            struct mock m2;
            struct dev_env env2 = mock_env(&m2);
            struct device e;
            assert_int_equal(k->create(&e, &env2, &err), 0);
            assert_int_equal(state_hash(d.ops->state, d.state), state_hash(e.ops->state, e.state));
            u64 x = seed;
            hammer(k, &d, &m, &x, soak() / 20);

            size_t len = state_size(d.ops->state);
            u8 *image = malloc(len + 1);
            assert_non_null(image);
            state_save(d.ops->state, d.state, image);
            u64 fresh = state_hash(e.ops->state, e.state);
            assert_int_not_equal(state_load(e.ops->state, e.state, image, len - 1, &err), 0);
            assert_int_not_equal(state_load(e.ops->state, e.state, image, len + 1, &err), 0);
            assert_int_equal(state_hash(e.ops->state, e.state), fresh);
            assert_int_equal(state_load(e.ops->state, e.state, image, len, &err), 0);
            if (e.ops->loaded && e.ops->loaded(&e, &err))
                fail_msg("%s seed %llu: %s", d.ops->name, (unsigned long long)seed, err.text);
            assert_int_equal(state_hash(e.ops->state, e.state), state_hash(d.ops->state, d.state));
            assert_int_equal(deadline(&e), deadline(&d));

            m2.time = m.time;
            m2.trace = m.trace;
            u64 y = x;
            hammer(k, &d, &m, &x, 500);
            hammer(k, &e, &m2, &y, 500);
            if (m.trace != m2.trace)
                fail_msg("%s seed %llu behaves differently", d.ops->name, (unsigned long long)seed);
            assert_int_equal(state_hash(e.ops->state, e.state), state_hash(d.ops->state, d.state));

            d.ops->reset(&d);
            free(image);
            device_destroy(&d);
            device_destroy(&e);
        }
    }
}

/* A state with bits flipped is refused, or what it does stays defined (for the sanitizers). */
static void test_mutated_state(void **state)
{
    for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
        const struct kind *k = &kinds[i];
        unsigned refused = 0, rounds = soak() / 10;
        FIXTURE(k->create(&d, &env, &err));
        size_t len = state_size(d.ops->state);
        u8 *good = malloc(len), *bad = malloc(len);
        assert_non_null(good);
        assert_non_null(bad);
        u64 x = i;
        for (unsigned n = 0; n < rounds; n++) {
            d.ops->reset(&d);
            hammer(k, &d, &m, &x, 20);
            state_save(d.ops->state, d.state, good);
            memcpy(bad, good, len);
            for (unsigned b = 0; b <= splitmix64(&x) % 3; b++)
                bad[splitmix64(&x) % len] ^= (u8)(1u << splitmix64(&x) % 8);
            assert_int_equal(state_load(d.ops->state, d.state, bad, len, &err), 0);
            if (d.ops->loaded && d.ops->loaded(&d, &err)) {
                refused++;
                continue;
            }
            hammer(k, &d, &m, &x, 20);
        }
        free(good);
        free(bad);
        device_destroy(&d);
        print_message("%s: %u of %u mutated states refused\n", d.ops->name, refused, rounds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_device_is_left_out),
        cmocka_unit_test(test_save_load),
        cmocka_unit_test(test_mutated_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
