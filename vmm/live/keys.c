/* See keys.h. */
#include "live/keys.h"

#define CTRL_A 0x01

size_t keys_room(const struct keys *k)
{
    return KEYS_ROOM - k->count;
}

static void push(struct keys *k, u16 key)
{
    if (k->count < KEYS_ROOM)
        k->queue[(k->head + k->count++) % KEYS_ROOM] = key;
}

unsigned keys_typed(struct keys *k, const u8 *data, size_t len)
{
    unsigned ask = 0;
    for (size_t i = 0; i < len; i++) {
        if (!k->escape) {
            k->escape = data[i] == CTRL_A;
            if (!k->escape)
                push(k, data[i]);
            continue;
        }
        k->escape = false;
        switch (data[i]) {
        case CTRL_A: push(k, CTRL_A); break;
        case 'b': push(k, KEY_BREAK); break;
        case 'n': push(k, KEY_NMI); break;
        case 'p': push(k, KEY_POWER); break;
        case 'x':
            if (k->script)
                push(k, KEY_QUIT);
            else
                ask |= KEYS_QUIT;
            break;
        default: ask |= KEYS_HELP; break;
        }
    }
    return ask;
}

bool keys_quit_next(const struct keys *k)
{
    return k->count && k->queue[k->head] == KEY_QUIT;
}

bool keys_ready(const struct keys *k, unsigned room)
{
    return k->count && !keys_quit_next(k) && (room || k->queue[k->head] > 255);
}

bool keys_take(struct keys *k, unsigned room, struct input *in)
{
    if (!keys_ready(k, room))
        return false;
    u16 key = k->queue[k->head];
    *in = (struct input){.kind = key == KEY_BREAK   ? INPUT_LINE_BREAK
                                 : key == KEY_NMI   ? INPUT_NMI
                                 : key == KEY_POWER ? INPUT_POWER_BUTTON
                                                    : INPUT_CONSOLE};
    unsigned max = in->kind == INPUT_CONSOLE ? MIN(room, INPUT_CONSOLE_MAX) : 1;
    in->data = k->taken;
    for (unsigned n = 0; n < max && k->count; n++) {
        key = k->queue[k->head];
        if (in->kind == INPUT_CONSOLE) {
            if (key > 255)
                break;
            k->taken[in->len++] = (u8)key;
        }
        k->head = (k->head + 1) % KEYS_ROOM;
        k->count--;
    }
    return true;
}
