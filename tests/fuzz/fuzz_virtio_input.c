/* virtio-input, keyboard and tablet: see fuzz_virtio.h. */
#include <stdlib.h>
#include <string.h>

#include "dev/virtio/input.h"
#include "fuzz_virtio.h"

static void input_create(struct world *w)
{
    struct err err;
    for (unsigned i = 0; i < INPUT_UNITS; i++) {
        unsigned slot;
        struct device *d = add(w, &slot);
        if (virtio_input_create(d, &w->env, &w->pci, slot, i, &err))
            abort();
    }
}

static void input_destroy(struct world *w)
{
    for (unsigned i = 0; i < INPUT_UNITS; i++)
        device_destroy(&w->dev[i]);
}

/* Something happens to the device, as much as it has room for; or what its configuration says. */
static void input_special(struct world *w, unsigned slot, struct program *s)
{
    struct device *d = &w->dev[slot - 1];
    u8 events[8 * 8];
    unsigned what = (unsigned)take(s, 1), select;
    u32 len = 8 * (1 + (what & 7)), room = virtio_input_room(d);
    if (room % 8 || room > 8 * 64)
        abort();
    memset(events, (int)what, sizeof(events));
    if (!(what & 8) && len <= room)
        virtio_input_events(d, events, len);
    if (!(what & 8))
        return;
    static const u8 selects[] = {1, 2, 3, 0x10, 0x11, 0x11, 0x12, 0x55};
    select = selects[what >> 4 & 7] | (unsigned)take(s, 1) % 0x18 << 8;
    store(w, slot, 0x2000, 2, select);
    for (unsigned i = 0; i < 136; i += 8)
        w->messages += w->pci.ops->mmio_read(&w->pci, bar(slot) + 0x2000 + i, 8) * i;
}

static const u8 input_sample[] = {0x00,
                                  0x2b,
                                  0x00,
                                  OFFER(0, 8, 2),
                                  OFFER(0, 8, 2),
                                  0x0a,
                                  0x01,
                                  0x0a,
                                  0x02, /* events */
                                  0x0b,
                                  0x01,
                                  0x30,
                                  0x11,
                                  0x00,
                                  0x01,
                                  OFFER(1, 8, 0),
                                  NOTIFY(1), /* lights */
                                  SPECIAL(0x08, 0),
                                  SPECIAL(0x28, 0),
                                  SPECIAL(0x48, 1),
                                  SPECIAL(0x58, 0x11),
                                  SPECIAL(0x68, 0),
                                  SPECIAL(0x78, 0)};

const struct target target = {.create = input_create,
                              .destroy = input_destroy,
                              .special = input_special,
                              SAMPLE(input_sample),
                              .queues = 2};
