/*
 * virtio console device (virtio 1.2, 5.3). What the guest sends leaves at the position of its
 * notification; what it receives are inputs of the machine, given to the driver where they are
 * taken. Output of the named ports is hashed into the state; that of port 0 is the machine's
 * console, which has a digest of its own.
 *
 * Messages to the driver are bits of the state, made into messages when the driver has buffers, so
 * that there is no queue that could grow.
 */
#include "dev/virtio/console.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "dev/making.h"
#include "dev/util.h"

#define F_MULTIPORT (1ull << 1)

/* Queues (5.3.2): receive and transmit of port 0, of control, of port 1, ... */
enum { CONTROL_RX = 2, CONTROL_TX = 3 };

/* Events of control messages (5.3.6.2). */
enum {
    DEVICE_READY = 0,
    PORT_ADD = 1,
    PORT_READY = 3,
    CONSOLE_PORT = 4,
    PORT_OPEN = 6,
    PORT_NAME = 7
};

/* Messages that wait for buffers, in the order in which they go. */
static const struct {
    u8 bit, event;
} messages[] = {{1, PORT_ADD}, {2, CONSOLE_PORT}, {4, PORT_NAME}, {8, PORT_OPEN}};
#define SAY_ADD     1u
#define SAY_CONSOLE 2u
#define SAY_NAME    4u
#define SAY_OPEN    8u
#define SAY_ALL     15u

#define CONSOLE_STATE(F, A)                                                                        \
    VIRTIO_STATE(F, A)                                                                             \
    F(u8, driver_ready)                                                                            \
    A(u8, pending, CONSOLE_PORTS) /* SAY_ bits */                                                  \
    A(u8, ready, CONSOLE_PORTS)   /* the driver has said PORT_READY */                             \
    A(u8, guest_open, CONSOLE_PORTS)                                                               \
    A(u8, host_open, CONSOLE_PORTS)                                                                \
    A(u64, received, CONSOLE_PORTS) /* bytes */                                                    \
    A(u64, sent, CONSOLE_PORTS)                                                                    \
    A(u64, sent_digest, CONSOLE_PORTS)

STATE(console, "virtio-console", CONSOLE_STATE);

struct message {
    u32 id;
    u16 event, value;
} __attribute__((packed));

static struct virtio_console *self(const struct device *dev)
{
    return dev->host;
}

static unsigned rx_of(unsigned port)
{
    return port ? 2 + 2 * port : 0;
}

/* The queue's port; that of a control queue means nothing. */
static unsigned port_of(unsigned queue)
{
    return queue < 2 ? 0 : queue / 2 - 1;
}

/* Without F_MULTIPORT there is port 0 only, and nothing is said of it (5.3.5). */
static bool multiport(const struct virtio_console *c)
{
    return virtio_has(&c->v, F_MULTIPORT);
}

bool virtio_console_has(const struct device *dev, unsigned port)
{
    return port < CONSOLE_PORTS && self(dev)->exists[port];
}

static void console_config_read(struct device *dev, unsigned offset, unsigned size, u8 *out)
{
    struct {
        u16 cols, rows;
        u32 max_ports, emergency;
    } __attribute__((packed)) config = {.max_ports = self(dev)->nports};
    memcpy(out, (const u8 *)&config + offset, size);
}

/* ---- control ---- */

static bool say(struct virtio_console *c, unsigned port, u8 event)
{
    const struct console_state *s = c->v.dev->state;
    struct {
        struct message m;
        char name[CONSOLE_NAME_MAX];
    } __attribute__((packed)) out = {{port, event, 1}, ""};
    u64 len = sizeof(out.m);
    if (event == PORT_OPEN)
        out.m.value = s->host_open[port];
    if (event == PORT_NAME) {
        u64 n = strlen(c->name[port]);
        memcpy(out.name, c->name[port], n);
        len += n;
    }
    if (!virtio_pop(&c->v, CONTROL_RX))
        return false;
    if (c->v.chain.write_len < len) {
        virtio_broken(&c->v); /* 5.3.6.2.2: large enough for any message */
        return false;
    }
    virtio_write(&c->v, 0, &out, len);
    virtio_push(&c->v, CONTROL_RX, c->v.chain.head, (u32)len);
    return true;
}

/* As many of the waiting messages as there are buffers for. */
static void say_pending(struct virtio_console *c)
{
    struct console_state *s = c->v.dev->state;
    bool room = true;
    for (unsigned port = 0; port < CONSOLE_PORTS && room; port++)
        for (unsigned i = 0; i < ARRAY_SIZE(messages) && room; i++) {
            if (!(s->pending[port] & messages[i].bit))
                continue;
            room = say(c, port, messages[i].event);
            if (room)
                s->pending[port] &= (u8)~messages[i].bit;
        }
    virtio_signal(&c->v, CONTROL_RX);
}

static void forget_driver(struct console_state *s)
{
    s->driver_ready = 0;
    memset(s->pending, 0, sizeof(s->pending));
    memset(s->ready, 0, sizeof(s->ready));
    memset(s->guest_open, 0, sizeof(s->guest_open));
}

static void port_ready(struct virtio_console *c, unsigned port, bool ready)
{
    struct console_state *s = c->v.dev->state;
    s->ready[port] = ready;
    s->pending[port] = 0;
    if (!ready) {
        s->guest_open[port] = 0;
        return;
    }
    if (port == 0)
        s->pending[port] |= SAY_CONSOLE;
    if (*c->name[port])
        s->pending[port] |= SAY_NAME;
    if (s->host_open[port])
        s->pending[port] |= SAY_OPEN;
}

static void control(struct virtio_console *c, const struct message *m)
{
    struct console_state *s = c->v.dev->state;
    if (m->event == DEVICE_READY) {
        forget_driver(s);
        s->driver_ready = m->value == 1;
        for (unsigned i = 0; i < CONSOLE_PORTS; i++)
            s->pending[i] = s->driver_ready && c->exists[i] ? SAY_ADD : 0;
        return;
    }
    if (!s->driver_ready || !virtio_console_has(c->v.dev, m->id))
        return;
    if (m->event == PORT_READY)
        port_ready(c, m->id, m->value == 1);
    else if (m->event == PORT_OPEN && s->ready[m->id])
        s->guest_open[m->id] = m->value == 1;
}

/* ---- data ---- */

/* Sends the chain that was popped from the port. */
static void send(struct virtio_console *c, unsigned port)
{
    struct device *dev = c->v.dev;
    struct console_state *s = dev->state;
    u64 len = c->v.chain.read_len;
    if (len > CONSOLE_CHAIN_MAX) {
        virtio_broken(&c->v);
        return;
    }
    if (!virtio_console_has(dev, port) || !s->host_open[port])
        return;
    for (u64 at = 0; at < len;) {
        u64 n = virtio_read(&c->v, at, c->bytes, MIN(len - at, sizeof(c->bytes)));
        if (!n)
            return; /* not RAM: the driver is broken */
        s->sent[port] += n;
        if (port == 0) {
            dev->env->output(dev->env->machine, OUT_CONSOLE, c->bytes, n);
        } else {
            s->sent_digest[port] = XXH3_64bits_withSeed(c->bytes, n, s->sent_digest[port]);
            dev->env->emit(dev->env->machine, EMIT_PORT, port, c->bytes, n);
        }
        at += n;
    }
}

static void console_notify(struct device *dev, unsigned queue)
{
    struct virtio_console *c = self(dev);
    if (queue >= CONTROL_RX && !multiport(c))
        return; /* no such queues then */
    if (queue == CONTROL_RX) {
        say_pending(c);
        return;
    }
    if (queue % 2 == 0)
        return; /* buffers for what arrives: taken when it does */
    while (virtio_pop(&c->v, queue)) {
        u16 head = c->v.chain.head;
        struct message m;
        if (queue != CONTROL_TX)
            send(c, port_of(queue));
        else if (virtio_read(&c->v, 0, &m, sizeof(m)) == sizeof(m))
            control(c, &m);
        virtio_push(&c->v, queue, head, 0);
    }
    virtio_signal(&c->v, queue);
    if (queue == CONTROL_TX)
        say_pending(c);
}

u32 virtio_console_room(const struct device *dev, unsigned port)
{
    struct virtio_console *c = self(dev);
    const struct console_state *s = dev->state;
    if (!virtio_console_has(dev, port) || !s->host_open[port] ||
        (multiport(c) ? !s->guest_open[port] : port != 0))
        return 0;
    return (u32)MIN(virtio_next_room(&c->v, rx_of(port)), (u64)CONSOLE_ROOM_MAX);
}

void virtio_console_receive(struct device *dev, unsigned port, const u8 *data, u32 len)
{
    struct virtio_console *c = self(dev);
    struct console_state *s = dev->state;
    if (len > virtio_console_room(dev, port) || !virtio_pop(&c->v, rx_of(port)))
        return;
    u64 n = virtio_write(&c->v, 0, data, len);
    virtio_push(&c->v, rx_of(port), c->v.chain.head, (u32)n);
    s->received[port] += n;
    virtio_signal(&c->v, rx_of(port));
}

void virtio_console_open(struct device *dev, unsigned port, bool open)
{
    struct virtio_console *c = self(dev);
    struct console_state *s = dev->state;
    if (port == 0 || !virtio_console_has(dev, port) || s->host_open[port] == open)
        return;
    s->host_open[port] = open;
    if (!s->ready[port])
        return;
    s->pending[port] |= SAY_OPEN;
    say_pending(c);
}

/* ---- the device ---- */

static void console_driver_reset(struct device *dev)
{
    forget_driver(dev->state);
}

static void console_reset(struct device *dev)
{
    struct console_state *s = dev->state;
    memset(s, 0, sizeof(*s));
    virtio_reset(dev);
    s->host_open[0] = self(dev) && self(dev)->terminal;
}

static int console_loaded(struct device *dev, struct err *err)
{
    const struct console_state *s = dev->state;
    if (s->driver_ready > 1)
        return dev_bad_state(dev, err, "driver");
    for (unsigned i = 0; i < CONSOLE_PORTS; i++) {
        bool exists = virtio_console_has(dev, i), known = exists && s->driver_ready;
        if (s->host_open[i] > exists || s->ready[i] > known || s->guest_open[i] > s->ready[i] ||
            (s->pending[i] & (known ? ~SAY_ALL : ~0u)) ||
            ((s->pending[i] & ~SAY_ADD) && !s->ready[i]))
            return dev_bad_state(dev, err, "port");
    }
    if (s->host_open[0] != virtio_console_has(dev, 0))
        return dev_bad_state(dev, err, "console");
    return virtio_loaded(dev, err);
}

static u32 console_room(const struct device *dev, enum input_kind kind, u32 unit)
{
    return kind == INPUT_PORT ? virtio_console_room(dev, unit)
                              : unit && virtio_console_has(dev, unit);
}

static void console_input(struct device *dev, const struct input *in)
{
    if (in->kind == INPUT_PORT)
        virtio_console_receive(dev, in->unit, in->data, in->len);
    else
        virtio_console_open(dev, in->unit, in->arg);
}

static const struct device_ops console_ops = {
    .name = "virtio-console",
    .state = &console_desc,
    .reset = console_reset,
    .loaded = console_loaded,
    .room = console_room,
    .input = console_input,
};

int virtio_console_create(struct device *dev, const struct dev_env *env, struct device *pci,
                          unsigned slot, bool terminal, const char *const names[CONSOLE_PORTS],
                          struct err *err)
{
    int r = virtio_alloc(dev, &console_ops, env, sizeof(struct console_state),
                         sizeof(struct virtio_console), err);
    if (r)
        return r;
    struct virtio_console *c = dev->host;
    c->terminal = c->exists[0] = terminal;
    c->nports = 1;
    for (unsigned i = 1; i < CONSOLE_PORTS; i++) {
        if (!names[i] || !*names[i])
            continue;
        snprintf(c->name[i], sizeof(c->name[i]), "%s", names[i]);
        c->exists[i] = true;
        c->nports = i + 1;
    }
    c->class = (struct virtio_class){
        .type = 3,
        .pci_class = {0x00, 0x80, 0x07}, /* communication controller */
        .features = F_MULTIPORT,
        .queues = 2 + 2 * c->nports,
        .queue_max = 128,
        .config_size = 12,
        .config_read = console_config_read,
        .notify = console_notify,
        .reset = console_driver_reset,
    };
    virtio_connect(dev, &c->class, pci, slot);
    console_reset(dev);
    return 0;
}

int make_console(struct device *dev, const struct making *w, struct err *err)
{
    static_assert(DESCRIPTION_PORTS == CONSOLE_PORTS, "as many as the device has");
    const char *names[CONSOLE_PORTS];
    for (unsigned i = 0; i < CONSOLE_PORTS; i++)
        names[i] = w->is->port[i].name;
    return virtio_console_create(dev, w->env, w->pci, w->slot, w->is->hvc0, names, err);
}
