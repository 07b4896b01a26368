/* virtio-console, hvc0 with two ports and three ports: see fuzz_virtio.h. */
#include <stdlib.h>
#include <string.h>

#include "dev/virtio/console.h"
#include "fuzz_virtio.h"

#define CONSOLE_QUEUES 10u

static void console_create(struct world *w)
{
    static const char *const names[2][CONSOLE_PORTS] = {{NULL, "one", "the.second_port"},
                                                        {NULL, "a", "", "c"}};
    struct err err;
    for (unsigned i = 0; i < 2; i++) {
        unsigned slot;
        struct device *d = add(w, &slot);
        if (virtio_console_create(d, &w->env, &w->pci, slot, i == 0, names[i], &err))
            abort();
    }
}

static void console_destroy(struct world *w)
{
    for (unsigned i = 0; i < 2; i++)
        device_destroy(&w->dev[i]);
}

/* Says something on the control queue as a good driver would. */
static void console_say(struct world *w, unsigned slot, unsigned port, u8 event, bool value)
{
    u8 *message = w->ram + buffers(), *desc = w->ram + desc_of(3);
    u64 at = buffers();
    memset(message, 0, 8);
    message[0] = (u8)port;
    message[4] = event;
    message[6] = value;
    memset(desc, 0, 16);
    memcpy(desc, &at, 8);
    desc[8] = 8;
    w->ram[avail_of(3) + 2]++;
    store(w, slot, 0x3000 + 4 * 3, 2, 0);
}

/* The driver says something; the host opens, closes, sends. */
static void console_special(struct world *w, unsigned slot, struct program *s)
{
    struct device *d = &w->dev[slot - 1];
    static u8 bytes[CONSOLE_ROOM_MAX];
    unsigned what = (unsigned)take(s, 1), port = what >> 2 & 7;
    u32 room = virtio_console_room(d, port), len;
    switch (what & 3) {
    case 0: console_say(w, slot, port, (u8)take(s, 1) % 9, what >> 5 != 7); break;
    case 1:
    case 2:
        if (virtio_console_has(d, port))
            virtio_console_open(d, port, what >> 5 & 1);
        break;
    default:
        len = (u32)take(s, 2);
        len = room ? 1 + len % room : 0;
        if (room > CONSOLE_ROOM_MAX)
            abort();
        memset(bytes, (int)what, len);
        if (len)
            virtio_console_receive(d, port, bytes, len);
    }
}

/* Both queues of messages, all three ports ready and open, bytes in both directions. */
static const u8 console_sample[] = {0x00,
                                    0x2b,
                                    0x00,
                                    OFFER(2, 60, 2),
                                    OFFER(2, 60, 2),
                                    OFFER(2, 60, 2),
                                    OFFER(2, 60, 2),
                                    OFFER(2, 60, 2),
                                    SPECIAL(0x20, 0), /* DEVICE_READY */
                                    SPECIAL(0x20, 3),
                                    SPECIAL(0x24, 3),
                                    SPECIAL(0x28, 3), /* PORT_READY */
                                    SPECIAL(0x20, 6),
                                    SPECIAL(0x24, 6),
                                    SPECIAL(0x28, 6), /* PORT_OPEN */
                                    0x0a,
                                    0x25,
                                    0x0a,
                                    0x29,
                                    OFFER(0, 90, 2),
                                    OFFER(4, 90, 2),
                                    OFFER(6, 90, 2),
                                    0x0a,
                                    0x03,
                                    50,
                                    0,
                                    0x0a,
                                    0x07,
                                    20,
                                    0,
                                    0x0a,
                                    0x0b,
                                    9,
                                    0,
                                    OFFER(1, 30, 0),
                                    NOTIFY(1),
                                    OFFER(5, 30, 0),
                                    NOTIFY(5),
                                    OFFER(7, 30, 0),
                                    NOTIFY(7),
                                    0x0a,
                                    0x05,
                                    SPECIAL(0xe4, 6),
                                    SPECIAL(0xe0, 0)};

static void console_emit(struct world *w, enum dev_emit kind, unsigned unit, const void *data,
                         size_t len)
{
    (void)data;
    if (kind != EMIT_PORT || !unit || unit > 3 || !len)
        abort();
}

const struct target target = {.create = console_create,
                              .destroy = console_destroy,
                              .special = console_special,
                              .emit = console_emit,
                              SAMPLE(console_sample),
                              .queues = CONSOLE_QUEUES,
                              .features = 2};
