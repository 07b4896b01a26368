/* See keys.h. */
#include "live/keys.h"

#define CTRL_A 0x01

/* What gives the machine something else than bytes. */
static const struct {
    char key;
    u8 gives; /* enum input_kind */
    const char *what;
} events[] = {
    {'b', INPUT_LINE_BREAK, "send BREAK"},
    {'n', INPUT_NMI, "send an NMI"},
    {'p', INPUT_POWER_BUTTON, "power button"},
};

void keys_help(FILE *out)
{
    fprintf(out, "\nCtrl-A %-7c%s\n", 'x', "quit");
    for (size_t i = 0; i < ARRAY_SIZE(events); i++)
        fprintf(out, "Ctrl-A %-7c%s\n", events[i].key, events[i].what);
    fprintf(out, "Ctrl-A %-7c%s\nCtrl-A %-7s%s\n", 'h', "this help", "Ctrl-A", "send Ctrl-A");
}

size_t keys_room(const struct keys *k)
{
    return KEYS_ROOM - k->count;
}

static void push(struct keys *k, u16 key)
{
    if (k->count < KEYS_ROOM)
        k->queue[(k->head + k->count++) % KEYS_ROOM] = key;
}

/* The key after Ctrl-A; returns keys_ask bits. */
static unsigned escaped(struct keys *k, u8 key)
{
    for (size_t i = 0; i < ARRAY_SIZE(events); i++)
        if (events[i].key == key) {
            push(k, (u16)(KEY_INPUT + events[i].gives));
            return 0;
        }
    if (key == CTRL_A)
        push(k, CTRL_A);
    else if (key != 'x')
        return KEYS_HELP;
    else if (!k->script)
        return KEYS_QUIT;
    else
        push(k, KEY_QUIT);
    return 0;
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
        ask |= escaped(k, data[i]);
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
    *in = (struct input){.kind = key < KEY_INPUT ? INPUT_CONSOLE : key - KEY_INPUT};
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
