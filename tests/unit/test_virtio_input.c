/* virtio-input, and the window to a device's BAR in configuration space (virtio 1.2, 4.1.4.9). */
#include "virtio_driver.h"

#include <linux/input-event-codes.h>

#include "dev/virtio/input.h"

#define CFG_NAME   0x01u
#define CFG_SERIAL 0x02u
#define CFG_IDS    0x03u
#define CFG_PROPS  0x10u
#define CFG_BITS   0x11u
#define CFG_ABS    0x12u

static struct driver *start(unsigned kind)
{
    struct driver *d = malloc(sizeof(*d));
    struct err err;
    driver_init(d);
    assert_int_equal(virtio_input_create(&d->dev, &d->env, &d->pci, SLOT, kind, &err), 0);
    driver_start(d, 0, 2);
    return d;
}

static void end(struct driver *d)
{
    check_state(d);
    device_destroy(&d->dev);
    device_destroy(&d->pci);
    free(d);
}

static unsigned ask(struct driver *d, u8 select, u8 subsel, u8 data[128])
{
    bar_store(d, 0x2000, 1, select);
    bar_store(d, 0x2001, 1, subsel);
    for (unsigned i = 0; i < 128; i++)
        data[i] = (u8)bar_load(d, 0x2008 + i, 1);
    assert_int_equal(bar_load(d, 0x2000, 1), select);
    assert_int_equal(bar_load(d, 0x2001, 1), subsel);
    return (unsigned)bar_load(d, 0x2002, 1);
}

static bool has(const u8 *bits, unsigned size, unsigned code)
{
    return code / 8 < size && bits[code / 8] >> code % 8 & 1;
}

static void says_what_it_is(void **state)
{
    struct driver *d = start(INPUT_UNIT_KEYBOARD);
    u8 data[128];
    unsigned size = ask(d, CFG_NAME, 0, data);
    assert_int_equal(size, strlen("Reprise keyboard"));
    assert_memory_equal(data, "Reprise keyboard", size);
    assert_int_equal(ask(d, CFG_NAME, 1, data), 0);
    assert_int_equal(ask(d, CFG_IDS, 0, data), 8);
    assert_true(ask(d, CFG_SERIAL, 0, data) > 0);
    assert_int_equal(ask(d, CFG_PROPS, 0, data), 0);
    size = ask(d, CFG_BITS, EV_KEY, data);
    assert_true(has(data, size, KEY_A) && has(data, size, KEY_MICMUTE) && !has(data, size, 0) &&
                !has(data, size, BTN_LEFT));
    size = ask(d, CFG_BITS, EV_LED, data);
    assert_int_equal(size, 1);
    assert_int_equal(data[0], 7);
    assert_int_equal(ask(d, CFG_BITS, EV_REL, data), 0);
    assert_int_equal(ask(d, CFG_ABS, ABS_X, data), 0);
    assert_int_equal(ask(d, 0, 0, data), 0);
    assert_int_equal(ask(d, 0xff, 0xff, data), 0);
    end(d);
    d = start(INPUT_UNIT_TABLET);
    size = ask(d, CFG_BITS, EV_KEY, data);
    assert_true(has(data, size, BTN_LEFT) && has(data, size, BTN_EXTRA) && !has(data, size, KEY_A));
    size = ask(d, CFG_BITS, EV_REL, data);
    assert_true(has(data, size, REL_WHEEL) && has(data, size, REL_HWHEEL) &&
                !has(data, size, REL_X));
    size = ask(d, CFG_BITS, EV_ABS, data);
    assert_true(size == 1 && data[0] == 3);
    assert_int_equal(ask(d, CFG_ABS, ABS_Y, data), 20);
    assert_int_equal(data[4] | data[5] << 8, INPUT_AXIS_MAX);
    assert_int_equal(ask(d, CFG_ABS, ABS_Z, data), 0);
    /* Only select and subsel can be written, with any size. */
    bar_store(d, 0x2000, 4, 0xffff0000u | EV_ABS << 8 | CFG_BITS);
    assert_int_equal(bar_load(d, 0x2000, 4), 1u << 16 | EV_ABS << 8 | CFG_BITS);
    bar_store(d, 0x2008, 8, ~0ull);
    assert_int_equal(bar_load(d, 0x2008, 8), 3);
    end(d);
}

static void put(u8 *at, u16 type, u16 code, u32 value)
{
    memcpy(at, &type, 2);
    memcpy(at + 2, &code, 2);
    memcpy(at + 4, &value, 4);
}

static void gives_events(void **state)
{
    struct driver *d = start(INPUT_UNIT_TABLET);
    const u8 *bytes;
    u32 len;
    u8 e[24] = {0};
    put(e, EV_ABS, ABS_X, 7);
    put(e + 8, EV_ABS, ABS_Y, 8);
    virtio_input_events(&d->dev, e, sizeof(e)); /* no room: nothing happens */
    offer(d, 0, NULL, 8);
    offer(d, 0, NULL, 8);
    assert_int_equal(virtio_input_room(&d->dev), 16);
    u64 before = state_hash(d->dev.ops->state, d->dev.state);
    virtio_input_events(&d->dev, e, sizeof(e)); /* a report is whole or not at all */
    assert_true(state_hash(d->dev.ops->state, d->dev.state) == before);
    offer(d, 0, NULL, 8);
    unsigned rises = d->m.rises[16 + SLOT];
    virtio_input_events(&d->dev, e, sizeof(e));
    assert_int_equal(d->m.rises[16 + SLOT], rises + 1);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(came_back(d, 0, &bytes, &len));
        assert_int_equal(len, 8);
        assert_memory_equal(bytes, e + 8 * i, 8);
    }
    assert_int_equal(virtio_input_room(&d->dev), 0);
    offer(d, 0, NULL, 7); /* too small for an event */
    virtio_input_events(&d->dev, e + 16, 8);
    assert_true(broken(d));
    assert_int_equal(virtio_input_room(&d->dev), 0);
    end(d);
}

static void lights(void **state)
{
    struct driver *d = start(INPUT_UNIT_KEYBOARD);
    u8 e[8];
    put(e, EV_LED, LED_CAPSL, 1);
    offer(d, 1, e, 8);
    put(e, EV_LED, LED_NUML, 5);
    offer(d, 1, e, 8);
    put(e, EV_LED, 200, 1);
    offer(d, 1, e, 8);
    offer(d, 1, e, 3);
    notify(d, 1);
    assert_int_equal(virtio_input_leds(&d->dev), 3);
    put(e, EV_LED, LED_CAPSL, 0);
    offer(d, 1, e, 8);
    notify(d, 1);
    assert_int_equal(virtio_input_leds(&d->dev), 1);
    assert_false(broken(d));
    end(d);
}

/* ---- the window ---- */

static unsigned find_window(struct driver *d)
{
    for (unsigned at = config_read(d, 0x34, 1), n = 0; at; at = config_read(d, at + 1, 1)) {
        assert_true(n++ < 16);
        if (config_read(d, at, 1) == 9 && config_read(d, at + 3, 1) == 5)
            return at;
    }
    fail_msg("there is no such capability");
    return 0;
}

static void aim(struct driver *d, unsigned cap, u8 bar, u32 offset, u32 length)
{
    config_write(d, cap + 4, 1, bar);
    config_write(d, cap + 8, 4, offset);
    config_write(d, cap + 12, 4, length);
}

static void window_reads_and_writes(void **state)
{
    struct driver *d = start(INPUT_UNIT_KEYBOARD);
    unsigned cap = find_window(d);
    assert_int_equal(config_read(d, cap + 2, 1), 20);
    /* As the BAR does, with 1, 2 and 4 bytes. */
    aim(d, cap, 0, 0x12, 2);
    assert_int_equal(config_read(d, cap + 16, 2), 2); /* num_queues */
    aim(d, cap, 0, 0x14, 1);
    assert_int_equal(config_read(d, cap + 16, 1), 15);
    aim(d, cap, 0, 0x28, 4);
    assert_int_equal(config_read(d, cap + 16, 4), ring_of(1) + 0x800);
    aim(d, cap, 0, 0x16, 2);
    config_write(d, cap + 16, 4, 0xffff0000); /* the first two bytes count */
    assert_int_equal(bar_load(d, 0x16, 2), 0);
    config_write(d, cap + 16, 2, 1);
    assert_int_equal(bar_load(d, 0x16, 2), 1);
    /* Select, subsel; a notification; the reset. */
    u8 e[8];
    aim(d, cap, 0, 0x2000, 2);
    config_write(d, cap + 16, 2, EV_LED << 8 | CFG_BITS);
    assert_int_equal(bar_load(d, 0x2008, 1), 7);
    put(e, EV_LED, LED_CAPSL, 1);
    offer(d, 1, e, 8);
    aim(d, cap, 0, 0x3004, 2);
    config_write(d, cap + 16, 2, 1);
    assert_int_equal(virtio_input_leds(&d->dev), 2);
    /* What must not be asked for does nothing: another BAR, lengths, alignment, beyond the end. */
    static const u32 wrong[][3] = {{1, 0x14, 1},       {0, 0x14, 0},      {0, 0x14, 3},
                                   {0, 0x14, 8},       {0, 0x15, 2},      {0, 0x4000, 1},
                                   {0, 0xffffffff, 1}, {0, 0x80000014, 1}};
    for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
        aim(d, cap, (u8)wrong[i][0], wrong[i][1], wrong[i][2]);
        config_write(d, cap + 16, 4, 0);
        assert_int_equal(config_read(d, cap + 16, 4), 0);
        assert_int_equal(bar_load(d, 0x14, 1), 15);
    }
    /* The status is read and cleared through it too: the interrupt falls. */
    offer(d, 0, NULL, 8);
    put(e, 0, 0, 0);
    virtio_input_events(&d->dev, e, 8);
    assert_true(d->m.line[16 + SLOT]);
    aim(d, cap, 0, 0x1000, 1);
    assert_int_equal(config_read(d, cap + 16, 1), 1);
    assert_false(d->m.line[16 + SLOT]);
    assert_int_equal(config_read(d, cap + 16, 1), 0);
    aim(d, cap, 0, 0x14, 1);
    config_write(d, cap + 16, 1, 0);
    assert_int_equal(bar_load(d, 0x14, 1), 0);
    struct err err;
    assert_int_equal(d->pci.ops->loaded(&d->pci, &err), 0);
    end(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_it_is),
        cmocka_unit_test(gives_events),
        cmocka_unit_test(lights),
        cmocka_unit_test(window_reads_and_writes),
    };
    return cmocka_run_group_tests_name("virtio-input", tests, NULL, NULL);
}
