/* What people do at a display: keysyms to keys, and the queue of reports in front of the guest. */
#include <linux/input-event-codes.h>
#include <rfb/keysym.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "live/input_queue.h"
#include "host/keymap.h"

static const u32 plenty[INPUT_UNITS] = {1000, 1000};

static void keysyms(void **state)
{
    static const struct {
        u32 keysym;
        u16 key;
    } known[] = {
        {'a', KEY_A},
        {'A', KEY_A},
        {'!', KEY_1},
        {'0', KEY_0},
        {'|', KEY_BACKSLASH},
        {'?', KEY_SLASH},
        {' ', KEY_SPACE},
        {'~', KEY_GRAVE},
        {XK_Return, KEY_ENTER},
        {XK_KP_Enter, KEY_KPENTER},
        {XK_F1, KEY_F1},
        {XK_F11, KEY_F11},
        {XK_F24, KEY_F24},
        {XK_Shift_R, KEY_RIGHTSHIFT},
        {XK_KP_Home, KEY_KP7},
        {XK_Prior, KEY_PAGEUP},
        {0, 0},
        {'\n', 0},
        {127, 0},
        {0xe9, 0},
        {0x1000000 + 'a', 0},
        {0xffffffff, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        assert_int_equal(keymap_keysym(known[i].keysym), known[i].key);
    /* All of ASCII has a key, and no keysym one that the keyboard does not have. */
    for (u32 c = ' '; c < 127; c++)
        assert_int_not_equal(keymap_keysym(c), 0);
    for (u32 k = 0; k < 0x20000; k++)
        assert_true(keymap_keysym(k) <= INPUT_LAST_KEY);
}

static struct input_change first(const struct input_report *r)
{
    struct input_change c;
    memcpy(&c.type, r->events, 2);
    memcpy(&c.code, r->events + 2, 2);
    memcpy(&c.value, r->events + 4, 4);
    return c;
}

/* Takes the oldest. */
static struct input_change next(struct input_queue *q)
{
    const struct input_report *r = input_queue_peek(q, plenty);
    assert_non_null(r);
    struct input_change c = first(r);
    input_queue_take(q, r->unit);
    return c;
}

static void order(void **state)
{
    static struct input_queue q;
    input_queue_key(&q, KEY_LEFTCTRL, true);
    input_queue_key(&q, BTN_LEFT, true);
    input_queue_key(&q, BTN_LEFT, true); /* said twice */
    input_queue_key(&q, KEY_LEFTCTRL, false);
    input_queue_key(&q, KEY_B, false); /* never pressed */
    input_queue_key(&q, 0, true);
    input_queue_key(&q, 300, true);
    input_queue_key(&q, 65535, true);
    assert_int_equal(next(&q).code, KEY_LEFTCTRL);
    assert_int_equal(next(&q).code, BTN_LEFT);
    struct input_change c = next(&q);
    assert_true(c.code == KEY_LEFTCTRL && c.value == 0);
    assert_null(input_queue_peek(&q, plenty));
    input_queue_release(&q);
    c = next(&q);
    assert_true(c.code == BTN_LEFT && c.value == 0);
    assert_null(input_queue_peek(&q, plenty));
    input_queue_release(&q);
    assert_null(input_queue_peek(&q, plenty));
}

static void one_without_room_does_not_hold_up_the_other(void **state)
{
    static struct input_queue q;
    static const u32 tablet[INPUT_UNITS] = {15, 24}, keyboard[INPUT_UNITS] = {16, 23};
    input_queue_key(&q, KEY_A, true);
    input_queue_move(&q, 5, 6);
    assert_int_equal(input_queue_peek(&q, plenty)->unit, INPUT_UNIT_KEYBOARD);
    const struct input_report *r = input_queue_peek(&q, tablet);
    assert_int_equal(r->unit, INPUT_UNIT_TABLET);
    assert_int_equal(r->len, 24);
    input_queue_take(&q, INPUT_UNIT_TABLET);
    assert_null(input_queue_peek(&q, tablet));
    assert_int_equal(input_queue_peek(&q, keyboard)->len, 16);
}

static void motion_is_replaced(void **state)
{
    static struct input_queue q;
    for (i32 i = 0; i < 1000; i++)
        input_queue_move(&q, i, -i);
    input_queue_key(&q, BTN_RIGHT, true);
    input_queue_move(&q, 1 << 30, 7);
    struct input_change c = next(&q);
    assert_true(c.type == EV_ABS && c.code == ABS_X && c.value == 999);
    assert_int_equal(next(&q).code, BTN_RIGHT);
    const struct input_report *r = input_queue_peek(&q, plenty);
    assert_int_equal(first(r).value, INPUT_AXIS_MAX);
    assert_int_equal(r->events[12], 7);
    next(&q);
    input_queue_wheel(&q, REL_WHEEL, 2);
    input_queue_wheel(&q, REL_WHEEL, 3);
    input_queue_wheel(&q, REL_HWHEEL, -1);
    input_queue_wheel(&q, REL_X, -1);
    input_queue_wheel(&q, REL_WHEEL, 0);
    assert_int_equal(next(&q).value, 5);
    c = next(&q);
    assert_true(c.code == REL_HWHEEL && c.value == -1);
    assert_null(input_queue_peek(&q, plenty));
}

static void full(void **state)
{
    static struct input_queue q;
    /* A guest that takes nothing, and somebody who hits all keys again and again. */
    for (unsigned k = 0; k < 3000; k++)
        input_queue_key(&q, (u16)(1 + k * 7 % INPUT_LAST_KEY), k / 3 % 2 == 0);
    input_queue_release(&q);
    bool down[INPUT_LAST_KEY + 1] = {0};
    unsigned n = 0;
    for (const struct input_report *r; (r = input_queue_peek(&q, plenty)); n++) {
        struct input_change c = first(r);
        assert_int_equal(c.type, EV_KEY);
        assert_int_not_equal(down[c.code], c.value);
        down[c.code] = c.value;
        input_queue_take(&q, r->unit);
    }
    assert_in_range(n, 100, INPUT_QUEUE_ROOM);
    for (unsigned k = 0; k <= INPUT_LAST_KEY; k++)
        assert_false(down[k]);
    /* And it works again. */
    input_queue_key(&q, KEY_A, true);
    assert_int_equal(next(&q).code, KEY_A);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keysyms),
        cmocka_unit_test(order),
        cmocka_unit_test(one_without_room_does_not_hold_up_the_other),
        cmocka_unit_test(motion_is_replaced),
        cmocka_unit_test(full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
