/* The 8259A pair against the Intel data sheet. */
#include "dev_mock.h"
#include "dev/pic8259.h"

static void init(struct device *d, u8 icw4)
{
    outb(d, 0x20, 0x11);
    outb(d, 0x21, 0x30);
    outb(d, 0x21, 0x04);
    outb(d, 0x21, icw4);
    outb(d, 0xa0, 0x11);
    outb(d, 0xa1, 0x38);
    outb(d, 0xa1, 0x02);
    outb(d, 0xa1, 0x01);
}

#define PIC(icw4)                                                                                  \
    FIXTURE(pic8259_create(&d, &env, &err));                                                       \
    init(&d, icw4)

static void test_priority_and_eoi(void **state)
{
    PIC(1);
    pic_set_irq(&d, 4, true);
    pic_set_irq(&d, 1, true);
    assert_int_equal(inb(&d, 0x20), 0x12);
    assert_int_equal(pic_ack(&d), 0x31);
    assert_false(pic_pending(&d)); /* 4 is below 1 */
    outb(&d, 0x20, 0x20);
    assert_int_equal(pic_ack(&d), 0x34);
    pic_set_irq(&d, 0, true);
    assert_int_equal(pic_ack(&d), 0x30); /* nested */
    outb(&d, 0x20, 0x0b);
    assert_int_equal(inb(&d, 0x20), 0x11);
    outb(&d, 0x20, 0x64); /* specific EOI of 4 */
    assert_int_equal(inb(&d, 0x20), 0x01);
    outb(&d, 0x20, 0x20);
    assert_false(pic_pending(&d)); /* still high, but no new edge */
    pic_set_irq(&d, 4, false);
    pic_set_irq(&d, 4, true);
    outb(&d, 0x21, 0x10);
    assert_false(pic_pending(&d));
    outb(&d, 0x21, 0x00);
    assert_true(pic_pending(&d));
    device_destroy(&d);
}

static void test_cascade_and_spurious(void **state)
{
    PIC(1);
    pic_set_irq(&d, 10, true);
    pic_set_irq(&d, 12, true);
    assert_int_equal(pic_ack(&d), 0x3a);
    assert_false(pic_pending(&d));
    outb(&d, 0xa0, 0x20);
    outb(&d, 0x20, 0x20);
    assert_int_equal(pic_ack(&d), 0x3c);
    outb(&d, 0xa0, 0x20);
    outb(&d, 0x20, 0x20);
    pic_set_irq(&d, 5, true);
    pic_set_irq(&d, 5, false); /* withdrawn before the acknowledge */
    assert_false(pic_pending(&d));
    assert_int_equal(pic_ack(&d), 0x37);
    outb(&d, 0x20, 0x0b);
    assert_int_equal(inb(&d, 0x20), 0);
    device_destroy(&d);
}

static void test_level(void **state)
{
    PIC(1);
    outb(&d, 0x4d0, 0xff);
    outb(&d, 0x4d1, 0xff);
    assert_int_equal(inb(&d, 0x4d0), 0xf8);
    assert_int_equal(inb(&d, 0x4d1), 0xde);
    pic_set_irq(&d, 11, true);
    assert_int_equal(pic_ack(&d), 0x3b);
    outb(&d, 0xa0, 0x20);
    outb(&d, 0x20, 0x20);
    assert_int_equal(pic_ack(&d), 0x3b); /* still asserted: again */
    pic_set_irq(&d, 11, false);
    outb(&d, 0xa0, 0x20);
    outb(&d, 0x20, 0x20);
    assert_false(pic_pending(&d));
    device_destroy(&d);
}

static void test_rotation_aeoi(void **state)
{
    PIC(3); /* automatic EOI */
    outb(&d, 0x20, 0x80);
    pic_set_irq(&d, 3, true);
    assert_int_equal(pic_ack(&d), 0x33);
    pic_set_irq(&d, 3, false);
    pic_set_irq(&d, 3, true);
    pic_set_irq(&d, 4, true);
    assert_int_equal(pic_ack(&d), 0x34); /* 3 went to the end of the queue */
    assert_int_equal(pic_ack(&d), 0x33);
    outb(&d, 0x20, 0xc5); /* set priority: 5 lowest, 6 highest */
    pic_set_irq(&d, 0, true);
    pic_set_irq(&d, 6, true);
    assert_int_equal(pic_ack(&d), 0x36);
    device_destroy(&d);
}

static void test_special_mask_and_poll(void **state)
{
    PIC(1);
    pic_set_irq(&d, 1, true);
    assert_int_equal(pic_ack(&d), 0x31);
    pic_set_irq(&d, 6, true);
    assert_false(pic_pending(&d));
    outb(&d, 0x21, 0x02);
    outb(&d, 0x20, 0x68); /* special mask mode: the masked level in service blocks nobody */
    assert_true(pic_pending(&d));
    outb(&d, 0x20, 0x0c); /* poll */
    assert_int_equal(inb(&d, 0x20), 0x86);
    outb(&d, 0x20, 0x20); /* must end 6, not the masked 1 */
    outb(&d, 0x20, 0x0b);
    assert_int_equal(inb(&d, 0x20), 0x02);
    outb(&d, 0x20, 0x0c);
    assert_int_equal(inb(&d, 0x20), 0x00);
    device_destroy(&d);
}

static void test_special_fully_nested(void **state)
{
    PIC(0x11);
    pic_set_irq(&d, 12, true);
    assert_int_equal(pic_ack(&d), 0x3c);
    pic_set_irq(&d, 3, true);
    assert_false(pic_pending(&d));
    pic_set_irq(&d, 9, true); /* better than 12 on the slave in service */
    assert_int_equal(pic_ack(&d), 0x39);
    device_destroy(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_priority_and_eoi),
        cmocka_unit_test(test_cascade_and_spurious),
        cmocka_unit_test(test_level),
        cmocka_unit_test(test_rotation_aeoi),
        cmocka_unit_test(test_special_mask_and_poll),
        cmocka_unit_test(test_special_fully_nested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
