/*
 * virtio network device (virtio 1.2, 5.1). A frame out leaves at the position of the guest's
 * notification; a frame in is an input of the machine, given to the driver where it is taken. What
 * goes out is hashed into the state, so that a replay that sends something else is found.
 */
#include "dev/virtio/net.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "dev/making.h"
#include "dev/util.h"

#define F_MTU       (1ull << 3)
#define F_MAC       (1ull << 5)
#define F_MRG_RXBUF (1ull << 15)
#define F_STATUS    (1ull << 16)

enum { RX = 0, TX = 1 };

#define NET_STATE(F, A)                                                                            \
    VIRTIO_STATE(F, A)                                                                             \
    F(u8, link_down)                                                                               \
    F(u64, sent) /* frames */                                                                      \
    F(u64, sent_bytes)                                                                             \
    F(u64, sent_digest)                                                                            \
    F(u64, refused) /* to be sent, and no frame for this link */                                   \
    F(u64, received)                                                                               \
    F(u64, received_bytes)                                                                         \
    F(u64, dropped) /* arrived, and did not fit */

STATE(net, "virtio-net", NET_STATE);

/* 5.1.6; no offloads, so that all but the last field is 0. */
struct net_header {
    u8 flags, gso_type;
    u16 hdr_len, gso_size, csum_start, csum_offset, num_buffers;
} __attribute__((packed));

static struct virtio_net *self(const struct device *dev)
{
    return dev->host;
}

static void net_config_read(struct device *dev, unsigned offset, unsigned size, u8 *out)
{
    const struct net_state *s = dev->state;
    struct {
        u8 mac[6];
        u16 status, max_virtqueue_pairs, mtu;
    } __attribute__((packed)) c = {.status = !s->link_down, .max_virtqueue_pairs = 1};
    memcpy(c.mac, self(dev)->mac, 6);
    c.mtu = self(dev)->mtu;
    memcpy(out, (const u8 *)&c + offset, size);
}

/* The longest frame of this link: header, two VLAN tags, payload. */
static u32 longest(const struct virtio_net *n)
{
    return MIN(n->mtu + NET_OVERHEAD, NET_FRAME_MAX);
}

static void send(struct virtio_net *n)
{
    struct device *dev = n->v.dev;
    struct net_state *s = dev->state;
    u64 len = n->v.chain.read_len - MIN(n->v.chain.read_len, sizeof(struct net_header));
    if (len < NET_FRAME_MIN || len > longest(n) || s->link_down ||
        virtio_read(&n->v, sizeof(struct net_header), n->frame, len) != len) {
        s->refused++; /* nothing that a wire would carry */
        return;
    }
    s->sent++;
    s->sent_bytes += len;
    s->sent_digest = XXH3_64bits_withSeed(n->frame, len, s->sent_digest);
    dev->env->emit(dev->env->machine, EMIT_PACKET, n->unit, n->frame, len);
}

static void net_notify(struct device *dev, unsigned queue)
{
    struct virtio_net *n = self(dev);
    if (queue != TX)
        return; /* buffers for reception: taken when a frame arrives */
    while (virtio_pop(&n->v, TX)) {
        u16 head = n->v.chain.head;
        send(n);
        virtio_push(&n->v, TX, head, 0);
    }
    virtio_signal(&n->v, TX);
}

u32 virtio_net_room(const struct device *dev)
{
    const struct net_state *s = dev->state;
    return !s->link_down && virtio_available(&self(dev)->v, RX) ? NET_FRAME_MAX : 0;
}

/* The buffers that take `len` bytes: 0 if there are not so many. They are taken. */
static unsigned gather(struct virtio_net *n, u64 len)
{
    u64 room = 0;
    unsigned count = 0;
    while (room < len) {
        bool more = count == 0 || (virtio_has(&n->v, F_MRG_RXBUF) && count < ARRAY_SIZE(n->head));
        if (!more || !virtio_pop(&n->v, RX)) {
            virtio_unpop(&n->v, RX, count);
            return 0;
        }
        n->head[count++] = n->v.chain.head;
        room += n->v.chain.write_len;
        if (n->v.chain.write_len < sizeof(struct net_header)) {
            virtio_broken(&n->v); /* 5.1.6.3.1 */
            return 0;
        }
    }
    return count;
}

void virtio_net_receive(struct device *dev, const u8 *frame, u32 len)
{
    struct virtio_net *n = self(dev);
    struct net_state *s = dev->state;
    struct net_header header = {0};
    u64 total = sizeof(header) + len, done = 0;
    /* 5.1.4.1: none that is longer than the MTU allows. */
    unsigned count = len > longest(n) || s->link_down ? 0 : gather(n, total);
    if (!count) {
        s->dropped++;
        return;
    }
    header.num_buffers = (u16)count;
    memcpy(n->frame, &header, sizeof(header));
    memcpy(n->frame + sizeof(header), frame, len);
    for (unsigned i = 0; i < count; i++) {
        if (count > 1 && !virtio_again(&n->v, RX, n->head[i]))
            return;
        u64 part = MIN(total - done, n->v.chain.write_len);
        if (virtio_write(&n->v, 0, n->frame + done, part) != part)
            return;
        done += part;
        virtio_push(&n->v, RX, n->head[i], (u32)part);
    }
    s->received++;
    s->received_bytes += len;
    virtio_signal(&n->v, RX);
}

void virtio_net_link(struct device *dev, bool up)
{
    struct net_state *s = dev->state;
    if (s->link_down == !up)
        return;
    s->link_down = !up;
    if (virtio_ready(&self(dev)->v) && virtio_has(&self(dev)->v, F_STATUS))
        virtio_config_changed(&self(dev)->v);
}

bool virtio_net_is_up(const struct device *dev)
{
    const struct net_state *s = dev->state;
    return !s->link_down;
}

static int net_loaded(struct device *dev, struct err *err)
{
    const struct net_state *s = dev->state;
    if (s->link_down > 1)
        return dev_bad_state(dev, err, "link");
    return virtio_loaded(dev, err);
}

static const struct virtio_class net_class = {
    .type = 1,
    .pci_class = {0x00, 0x00, 0x02}, /* Ethernet controller */
    .features = F_MTU | F_MAC | F_MRG_RXBUF | F_STATUS,
    .queues = 2,
    .queue_max = VIRTIO_QUEUE_MAX,
    .config_size = 12,
    .config_read = net_config_read,
    .notify = net_notify,
};

static u32 net_room(const struct device *dev, enum input_kind kind, u32 unit)
{
    return kind == INPUT_PACKET ? virtio_net_room(dev) : 1;
}

static void net_input(struct device *dev, const struct input *in)
{
    if (in->kind == INPUT_PACKET)
        virtio_net_receive(dev, in->data, in->len);
    else
        virtio_net_link(dev, in->arg);
}

static const struct device_ops net_ops = {
    .name = "net",
    .state = &net_desc,
    .reset = virtio_reset,
    .loaded = net_loaded,
    .room = net_room,
    .input = net_input,
};

int virtio_net_create(struct device *dev, const struct dev_env *env, struct device *pci,
                      unsigned slot, unsigned unit, const u8 mac[6], u16 mtu, struct err *err)
{
    int r =
        virtio_alloc(dev, &net_ops, env, sizeof(struct net_state), sizeof(struct virtio_net), err);
    if (r)
        return r;
    struct virtio_net *n = dev->host;
    n->unit = unit;
    n->mtu = mtu;
    memcpy(n->mac, mac, 6);
    snprintf(dev->name, sizeof(dev->name), "net%u", unit);
    virtio_connect(dev, &net_class, pci, slot);
    return 0;
}

int make_net(struct device *dev, const struct making *w, struct err *err)
{
    const struct description_net *n = &w->is->net[w->unit];
    return virtio_net_create(dev, w->env, w->pci, w->slot, w->unit, n->mac, (u16)n->mtu, err);
}
