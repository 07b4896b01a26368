/* virtio-net, a common MTU and the largest: see fuzz_virtio.h. */
#include <stdlib.h>
#include <string.h>

#include "dev/virtio/net.h"
#include "fuzz_virtio.h"

static const u16 mtus[2] = {1500, 32000};

static void net_create(struct world *w)
{
    static const u8 mac[6] = {2, 0, 0, 0, 0, 1};
    struct err err;
    for (unsigned i = 0; i < 2; i++) {
        unsigned slot;
        struct device *d = add(w, &slot);
        if (virtio_net_create(d, &w->env, &w->pci, slot, i, mac, mtus[i], &err))
            abort();
    }
}

static void net_destroy(struct world *w)
{
    for (unsigned i = 0; i < 2; i++)
        device_destroy(&w->dev[i]);
}

/* Both queues, on one table of descriptors: available rings at 0x2000 and 0x2800, used ones at
 * 0x3000 and 0x3800. */
static void net_set_up(struct world *w, unsigned slot, u64 how)
{
    config(w, slot, 4, 2, 6);
    store(w, slot, 0x14, 1, 0);
    store(w, slot, 0x14, 1, 3);
    store(w, slot, 8, 4, 0);
    store(w, slot, 12, 4, (u32)(how & 3) << 28 | (u32)(how >> 2 & 3) << 15 | 8 | 32);
    store(w, slot, 8, 4, 1);
    store(w, slot, 12, 4, 1);
    store(w, slot, 0x14, 1, 11);
    for (unsigned q = 0; q < 2; q++) {
        store(w, slot, 0x16, 2, q);
        store(w, slot, 0x18, 2, 1u << (how >> 4 & 7));
        store(w, slot, 0x20, 8, 0x1000);
        store(w, slot, 0x28, 8, 0x2000 + 0x800 * q);
        store(w, slot, 0x30, 8, 0x3000 + 0x800 * q);
        store(w, slot, 0x1c, 2, 1);
    }
    store(w, slot, 0x14, 1, 15);
}

/* So many heads more in the available ring of a queue. */
static void net_offer(struct world *w, unsigned queue, unsigned n, struct program *s)
{
    u8 *ring = w->ram + 0x2000 + 0x800 * queue;
    u16 idx, head;
    memcpy(&idx, ring + 2, 2);
    for (unsigned i = 0; i < n; i++, idx++) {
        head = (u16)take(s, 1) % 10;
        memcpy(ring + 4 + 2 * (idx % 256), &head, 2);
    }
    memcpy(ring + 2, &idx, 2);
}

static void net_special(struct world *w, unsigned slot, struct program *s)
{
    static u8 frame[NET_FRAME_MAX];
    struct device *d = w->list[slot - 1];
    unsigned what = (unsigned)take(s, 1);
    u32 len, room;
    switch (what % 6) {
    case 0: net_set_up(w, slot, take(s, 2)); break;
    case 1:
        len = MAX((u32)take(s, 2) % (NET_FRAME_MAX + 1), NET_FRAME_MIN);
        memset(frame, what, len);
        room = virtio_net_room(d);
        if (room != 0 && room != NET_FRAME_MAX)
            abort();
        virtio_net_receive(d, frame, len);
        break;
    case 2: virtio_net_link(d, what & 64); break;
    case 3: net_offer(w, 0, what >> 4, s); break;
    case 4:
        net_offer(w, 1, what >> 4, s);
        store(w, slot, 0x3004, 2, 0);
        break;
    case 5: /* a short frame, as most are */
        len = NET_FRAME_MIN + (u32)take(s, 1);
        memset(frame, what, len);
        virtio_net_receive(d, frame, len);
        break;
    }
}

/* Set up with mergeable buffers; three buffers; a frame that takes two of them; one is sent. */
static const u8 net_sample[] = {0x0a, 0x00, 0x3c, 0x00,                            /* set up */
                                0x01, 0x02, 0,    0,    0,    2,    2,    0,    8, /* offer */
                                0,    2,    2,    0,    16,   0,    2,    2,    0, /* ... */
                                0x0a, 0x33, 0,    1,    2,                         /* receive */
                                0x0a, 0x05, 0x50, 0x0a, 0x01, 0,    3,             /* frames */
                                0x01, 0x01, 0,    0,    12,   0,    1,    0,    1, /* offer */
                                64,   0,    0,    0,    0x0a, 0x14, 0,             /* send */
                                0x0a, 0x02, 0x0a, 0x42, 0x0a, 0x05, 0x20, 0x03, 0, 0, 1};

static void net_emit(struct world *w, enum dev_emit kind, unsigned unit, const void *data,
                     size_t len)
{
    (void)data;
    if (kind != EMIT_PACKET || unit > 1 || len < NET_FRAME_MIN || len > NET_FRAME_MAX ||
        len > mtus[unit] + NET_OVERHEAD)
        abort();
}

const struct target target = {.create = net_create,
                              .destroy = net_destroy,
                              .special = net_special,
                              .emit = net_emit,
                              SAMPLE(net_sample)};
