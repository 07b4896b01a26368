/* 16550A against the PC16550D data sheet. */
#include "dev_mock.h"
#include "dev/uart16550.h"

#define P UART_BASE

static void test_transmit_and_thre(void **state)
{
    FIXTURE(uart16550_create(&d, &env, &err));
    assert_int_equal(inb(&d, P + 5), 0x60);
    assert_int_equal(inb(&d, P + 2), 0x01);
    outb(&d, P + 4, 0x08);
    outb(&d, P + 1, 0x02); /* enabling THRE with an empty register interrupts */
    assert_true(m.line[4]);
    assert_int_equal(inb(&d, P + 2), 0x02);
    assert_false(m.line[4]); /* reading IIR cleared it */
    assert_int_equal(inb(&d, P + 2), 0x01);
    outb(&d, P, 'h');
    assert_true(m.line[4]);
    unsigned rises = m.rises[4];
    outb(&d, P, 'i'); /* the line pulses low for a new edge */
    assert_int_equal(m.rises[4], rises + 1);
    assert_memory_equal(m.out, "hi", 2);
    outb(&d, P + 4, 0); /* OUT2 gates */
    assert_false(m.line[4]);
    outb(&d, P + 4, 8);
    outb(&d, P + 1, 0);
    outb(&d, P + 1, 2); /* asserted again although acknowledged before: Linux's THRE test */
    assert_int_equal(inb(&d, P + 2), 0x02);
    device_destroy(&d);
}

static void test_receive_fifo(void **state)
{
    FIXTURE(uart16550_create(&d, &env, &err));
    const u8 text[] = "0123456789abcdefXY";
    assert_int_equal(uart_room(&d), 0); /* nobody listens */
    outb(&d, P + 2, 0x81);              /* FIFO on, trigger 8 */
    outb(&d, P + 3, 0x03);              /* 8N1 */
    outb(&d, P + 1, 0x0f);
    assert_int_equal(uart_room(&d), 0); /* a probe: OUT2 keeps the interrupt off */
    outb(&d, P + 1, 0x05);
    outb(&d, P + 4, 8);
    assert_int_equal(uart_room(&d), 16);
    uart_receive(&d, text, 7);
    assert_false(m.line[4]);
    /* Four character times of 10 bits at 115200 baud. */
    assert_int_equal(deadline(&d), 347223);
    run_until(&m, &d, 347222);
    assert_int_equal(inb(&d, P + 2), 0xc1);
    run_until(&m, &d, 347223);
    assert_true(m.line[4]);
    assert_int_equal(inb(&d, P + 2), 0xcc);
    assert_int_equal(inb(&d, P), '0'); /* a read ends the timeout and restarts it */
    assert_int_equal(inb(&d, P + 2), 0xc1);
    assert_int_equal(deadline(&d), 2 * 347223);
    uart_receive(&d, text + 7, 2);
    assert_int_equal(inb(&d, P + 2), 0xc4);
    assert_int_equal(uart_room(&d), 8);
    uart_receive(&d, text + 9, 9); /* one too many */
    assert_int_equal(inb(&d, P + 2), 0xc6);
    assert_int_equal(inb(&d, P + 5), 0x63);
    assert_int_equal(inb(&d, P + 5), 0x61);
    for (int i = 1; i < 17; i++)
        assert_int_equal(inb(&d, P), text[i]);
    assert_int_equal(inb(&d, P + 5), 0x60);
    assert_int_equal(deadline(&d), NEVER);
    assert_false(m.line[4]);
    uart_receive(&d, text, 3);
    outb(&d, P + 2, 0x83); /* clear receive FIFO */
    assert_int_equal(uart_room(&d), 16);
    outb(&d, P + 1, 0);
    assert_int_equal(uart_room(&d), 0);
    for (int i = 0; i < 32; i++) /* a guest without interrupts polls */
        inb(&d, P + 5);
    assert_int_equal(uart_room(&d), 16);
    outb(&d, P, '>'); /* and sends */
    assert_int_equal(uart_room(&d), 0);
    device_destroy(&d);
}

static void test_overrun_without_fifo(void **state)
{
    FIXTURE(uart16550_create(&d, &env, &err));
    outb(&d, P + 4, 8);
    outb(&d, P + 1, 1);
    assert_int_equal(uart_room(&d), 1);
    uart_receive(&d, (const u8 *)"ab", 2);
    assert_int_equal(uart_room(&d), 0);
    assert_int_equal(inb(&d, P + 5), 0x63);
    assert_int_equal(inb(&d, P), 'b'); /* the buffer register is overwritten */
    device_destroy(&d);
}

static void test_break(void **state)
{
    FIXTURE(uart16550_create(&d, &env, &err));
    outb(&d, P + 2, 0x01);
    outb(&d, P + 4, 8);
    outb(&d, P + 1, 0x04);
    uart_receive(&d, (const u8 *)"x", 1);
    uart_break(&d);
    assert_false(m.line[4]); /* not at the top of the FIFO yet */
    assert_int_equal(inb(&d, P + 5), 0xe1);
    assert_int_equal(inb(&d, P), 'x');
    assert_true(m.line[4]);
    assert_int_equal(inb(&d, P + 2), 0xc6);
    assert_int_equal(inb(&d, P + 5), 0xf9);
    assert_int_equal(inb(&d, P + 5), 0x61);
    assert_int_equal(inb(&d, P), 0);
    device_destroy(&d);
}

static void test_loopback_modem(void **state)
{
    FIXTURE(uart16550_create(&d, &env, &err));
    assert_int_equal(inb(&d, P + 6), 0xb0);
    outb(&d, P + 4, 0x1a); /* loop, OUT2, RTS: what Linux's autoconfig expects */
    assert_int_equal(inb(&d, P + 6) & 0xf0, 0x90);
    assert_int_equal(uart_room(&d), 0);
    outb(&d, P + 4, 0x1e); /* RI on */
    assert_int_equal(inb(&d, P + 6), 0xd0);
    outb(&d, P + 4, 0x1a); /* RI off: trailing edge */
    assert_int_equal(inb(&d, P + 6), 0x94);
    outb(&d, P, 0x5a);
    assert_int_equal(m.out_len, 0);
    assert_int_equal(inb(&d, P + 5), 0x61);
    assert_int_equal(inb(&d, P), 0x5a);
    outb(&d, P + 4, 0x08);
    inb(&d, P + 6);
    outb(&d, P + 1, 0x08);
    assert_false(m.line[4]);
    outb(&d, P + 4, 0x18);
    outb(&d, P + 4, 0x08);
    assert_true(m.line[4]);
    assert_int_equal(inb(&d, P + 2), 0x00);
    assert_int_equal(inb(&d, P + 6), 0xb3);
    assert_false(m.line[4]);
    device_destroy(&d);
}

static void test_divisor_scratch(void **state)
{
    FIXTURE(uart16550_create(&d, &env, &err));
    outb(&d, P + 3, 0x83);
    d.ops->pio_write(&d, P, 2, 0x1234);
    assert_int_equal(d.ops->pio_read(&d, P, 2), 0x1234);
    outb(&d, P + 3, 0x03);
    assert_int_equal(inb(&d, P + 1), 0);
    outb(&d, P + 7, 0xa5);
    assert_int_equal(inb(&d, P + 7), 0xa5);
    outb(&d, P + 1, 0xff);
    assert_int_equal(inb(&d, P + 1), 0x0f);
    assert_int_equal(d.ops->pio_read(&d, P + 7, 4), 0xffffffa5);
    device_destroy(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transmit_and_thre),    cmocka_unit_test(test_receive_fifo),
        cmocka_unit_test(test_overrun_without_fifo), cmocka_unit_test(test_break),
        cmocka_unit_test(test_loopback_modem),       cmocka_unit_test(test_divisor_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
