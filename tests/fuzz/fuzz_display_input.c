/*
 * Fuzz target: what a display's viewer says of keyboard and pointer, in any order, against a guest
 * that takes what it likes. Each report that comes out is whole and of a device that exists; a key
 * goes down and up by turns; when whoever held keys has gone and all is taken, none is down.
 */
#include <linux/input-event-codes.h>
#include <stdlib.h>
#include <string.h>

#include "dev/virtio/input.h"
#include "live/input_queue.h"
#include "host/keymap.h"
#include "mutate.h"

struct guest {
    bool down[INPUT_QUEUE_CODES];
};

static void key(struct guest *g, u32 unit, u16 code, i32 value)
{
    bool good = unit == INPUT_UNIT_KEYBOARD ? code >= 1 && code <= INPUT_LAST_KEY
                                            : code >= BTN_LEFT && code <= BTN_EXTRA;
    if (!good || (value != 0 && value != 1) || g->down[code] == value)
        abort();
    g->down[code] = value;
}

static void check(struct guest *g, const struct input_report *r)
{
    static const u8 syn[8];
    if (r->unit >= INPUT_UNITS || r->len % 8 || r->len < 16 || r->len > sizeof(r->events) ||
        memcmp(r->events + r->len - 8, syn, 8))
        abort();
    for (u32 i = 0; i + 8 < r->len; i += 8) {
        struct input_change c;
        memcpy(&c.type, r->events + i, 2);
        memcpy(&c.code, r->events + i + 2, 2);
        memcpy(&c.value, r->events + i + 4, 4);
        if (c.type == EV_KEY)
            key(g, r->unit, c.code, c.value);
        else if (r->unit != INPUT_UNIT_TABLET)
            abort();
        else if (c.type == EV_ABS &&
                 (c.code > ABS_Y || c.value < 0 || c.value > (i32)INPUT_AXIS_MAX))
            abort();
        else if (c.type == EV_REL && ((c.code != REL_WHEEL && c.code != REL_HWHEEL) || !c.value))
            abort();
        else if (c.type != EV_ABS && c.type != EV_REL)
            abort();
    }
}

static bool take(struct input_queue *q, struct guest *g, const u32 room[INPUT_UNITS])
{
    const struct input_report *r = input_queue_peek(q, room);
    if (!r)
        return false;
    if (r->len > room[r->unit])
        abort();
    check(g, r);
    input_queue_take(q, r->unit);
    return true;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    struct input_queue *q = calloc(1, sizeof(*q));
    struct guest g = {0};
    for (; size >= 8; data += 8, size -= 8) {
        u16 code;
        i32 value;
        memcpy(&code, data + 2, 2);
        memcpy(&value, data + 4, 4);
        switch (data[0] % 8) {
        case 0: input_queue_key(q, code, value & 1); break;
        case 1: input_queue_key(q, (u16)(code % INPUT_QUEUE_CODES), value & 1); break;
        case 2: input_queue_key(q, keymap_keysym((u32)value), code & 1); break;
        case 3: input_queue_move(q, code, value); break;
        case 4: input_queue_wheel(q, code, value); break;
        case 5: input_queue_wheel(q, code & 1 ? REL_WHEEL : REL_HWHEEL, value % 9); break;
        case 6: input_queue_release(q); break;
        default: take(q, &g, (const u32[INPUT_UNITS]){data[1] % 32, data[2] % 32}); break;
        }
    }
    input_queue_release(q);
    while (take(q, &g, (const u32[INPUT_UNITS]){64, 64}))
        ;
    for (unsigned i = 0; i < INPUT_QUEUE_CODES; i++)
        if (g.down[i])
            abort();
    free(q);
    return 0;
}

u8 *fuzz_sample(size_t *size)
{
    *size = 8 * 800;
    u8 *data = calloc(1, *size);
    for (unsigned i = 0; i < 800; i++) {
        u8 *e = data + 8 * i;
        e[0] = (u8)(i % 13 == 12 ? 7 : i % 7);
        e[1] = 24;
        e[2] = (u8)(i * 5);
        e[3] = e[0] == 1 && i % 3 ? 1 : 0;
        e[4] = (u8)(i / 3);
    }
    return data;
}
