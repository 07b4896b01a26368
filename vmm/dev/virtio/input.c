/* virtio input devices (virtio 1.2, 5.8): see input.h. Events are inputs of the machine. */
#include "dev/virtio/input.h"

#include <linux/input-event-codes.h>
#include <stdio.h>
#include <string.h>

#include "dev/making.h"
#include "dev/util.h"

enum { EVENTS = 0, STATUS = 1 };

/* Configuration (5.8.4). */
enum {
    CFG_ID_NAME = 0x01,
    CFG_ID_SERIAL = 0x02,
    CFG_ID_DEVIDS = 0x03,
    CFG_PROP_BITS = 0x10,
    CFG_EV_BITS = 0x11,
    CFG_ABS_INFO = 0x12
};
#define CFG_DATA_SIZE 128u
#define BUS_VIRTUAL   0x06u

struct event {
    u16 type, code;
    u32 value;
} __attribute__((packed));

#define INPUT_STATE(F, A)                                                                          \
    VIRTIO_STATE(F, A)                                                                             \
    F(u8, select)                                                                                  \
    F(u8, subsel)                                                                                  \
    F(u32, leds)                                                                                   \
    F(u64, given) /* events */                                                                     \
    F(u64, status_events)

STATE(input, "virtio-input", INPUT_STATE);

/* Codes first to last of an event type. */
struct code_range {
    u16 type, first, last;
};

struct input_model {
    const char *name, *title;
    u16 product;
    struct code_range codes[6]; /* up to the first of type 0 */
};

static const struct input_model models[INPUT_UNITS] = {
    [INPUT_UNIT_KEYBOARD] = {"keyboard",
                             "Reprise keyboard",
                             1,
                             {{EV_KEY, KEY_ESC, INPUT_LAST_KEY},
                              {EV_LED, LED_NUML, LED_SCROLLL},
                              {EV_REP, REP_DELAY, REP_PERIOD}}},
    [INPUT_UNIT_TABLET] = {"tablet",
                           "Reprise tablet",
                           2,
                           {{EV_KEY, BTN_LEFT, BTN_EXTRA},
                            {EV_REL, REL_HWHEEL, REL_HWHEEL},
                            {EV_REL, REL_WHEEL, REL_WHEEL},
                            {EV_ABS, ABS_X, ABS_Y}}},
};

static struct virtio_input *self(const struct device *dev)
{
    return dev->host;
}

/* ---- configuration ---- */

struct config {
    u8 select, subsel, size, reserved[5];
    u8 data[CFG_DATA_SIZE];
};

static void put_text(struct config *c, const char *text)
{
    c->size = (u8)strlen(text);
    memcpy(c->data, text, c->size);
}

static void put_ids(struct config *c, const struct input_model *m)
{
    const u16 ids[4] = {BUS_VIRTUAL, 0x1af4, m->product, 1};
    c->size = sizeof(ids);
    memcpy(c->data, ids, sizeof(ids));
}

/* A bit for each code; its size is up to the last byte that is not 0. */
static void put_bits(struct config *c, const struct input_model *m, unsigned type)
{
    for (const struct code_range *r = m->codes; r->type; r++)
        for (unsigned code = r->first; r->type == type && code <= r->last; code++) {
            c->data[code / 8] |= (u8)(1u << code % 8);
            c->size = (u8)MAX(c->size, code / 8 + 1);
        }
}

static void put_axis(struct config *c, const struct input_model *m, unsigned axis)
{
    const u32 info[5] = {0, INPUT_AXIS_MAX}; /* min, max, fuzz, flat, resolution */
    for (const struct code_range *r = m->codes; r->type; r++)
        if (r->type == EV_ABS && axis >= r->first && axis <= r->last) {
            c->size = sizeof(info);
            memcpy(c->data, info, sizeof(info));
        }
}

static void input_config_read(struct device *dev, unsigned offset, unsigned size, u8 *out)
{
    const struct input_state *s = dev->state;
    const struct input_model *m = self(dev)->model;
    struct config c = {.select = s->select, .subsel = s->subsel};
    bool first = s->subsel == 0;
    switch (s->select) {
    case CFG_ID_NAME:
        if (first)
            put_text(&c, m->title);
        break;
    case CFG_ID_SERIAL:
        if (first)
            put_text(&c, m->name);
        break;
    case CFG_ID_DEVIDS:
        if (first)
            put_ids(&c, m);
        break;
    case CFG_EV_BITS: put_bits(&c, m, s->subsel); break;
    case CFG_ABS_INFO: put_axis(&c, m, s->subsel); break;
    default: break; /* CFG_PROP_BITS: none are set */
    }
    memcpy(out, (const u8 *)&c + offset, size);
}

static void input_config_write(struct device *dev, unsigned offset, unsigned size, const u8 *in)
{
    struct input_state *s = dev->state;
    for (unsigned i = 0; i < size; i++)
        if (offset + i == offsetof(struct config, select))
            s->select = in[i];
        else if (offset + i == offsetof(struct config, subsel))
            s->subsel = in[i];
}

/* ---- queues ---- */

static void input_notify(struct device *dev, unsigned queue)
{
    struct virtio_input *n = self(dev);
    struct input_state *s = dev->state;
    if (queue != STATUS)
        return; /* buffers for events: taken when there are some */
    while (virtio_pop(&n->v, STATUS)) {
        struct event e;
        if (virtio_read(&n->v, 0, &e, sizeof(e)) == sizeof(e)) {
            s->status_events++;
            if (e.type == EV_LED && e.code <= LED_MAX)
                s->leds = (s->leds & ~(1u << e.code)) | (u32)(e.value != 0) << e.code;
        }
        virtio_push(&n->v, STATUS, n->v.chain.head, 0);
    }
    virtio_signal(&n->v, STATUS);
}

u32 virtio_input_room(const struct device *dev)
{
    return virtio_waiting(&self(dev)->v, EVENTS) * (u32)sizeof(struct event);
}

void virtio_input_events(struct device *dev, const u8 *events, u32 len)
{
    struct virtio_input *n = self(dev);
    struct input_state *s = dev->state;
    if (len > virtio_input_room(dev))
        return;
    for (u32 at = 0; at + sizeof(struct event) <= len; at += sizeof(struct event)) {
        if (!virtio_pop(&n->v, EVENTS))
            return;
        if (n->v.chain.write_len < sizeof(struct event)) {
            virtio_broken(&n->v); /* 5.8.6.1: at least as large as an event */
            return;
        }
        virtio_write(&n->v, 0, events + at, sizeof(struct event));
        virtio_push(&n->v, EVENTS, n->v.chain.head, sizeof(struct event));
        s->given++;
    }
    virtio_signal(&n->v, EVENTS);
}

u32 virtio_input_leds(const struct device *dev)
{
    return ((const struct input_state *)dev->state)->leds;
}

/* ---- the device ---- */

static void input_driver_reset(struct device *dev)
{
    struct input_state *s = dev->state;
    s->select = s->subsel = 0;
}

static int input_loaded(struct device *dev, struct err *err)
{
    const struct input_state *s = dev->state;
    if (s->leds >> (LED_MAX + 1))
        return dev_bad_state(dev, err, "lights");
    return virtio_loaded(dev, err);
}

static const struct virtio_class input_class = {
    .type = 18,
    .pci_class = {0x00, 0x80, 0x09}, /* input device */
    .queues = 2,
    .queue_max = 64,
    .config_size = sizeof(struct config),
    .config_read = input_config_read,
    .config_write = input_config_write,
    .notify = input_notify,
    .reset = input_driver_reset,
};

static u32 input_room(const struct device *dev, enum input_kind kind, u32 unit)
{
    return virtio_input_room(dev);
}

static void input_input(struct device *dev, const struct input *in)
{
    virtio_input_events(dev, in->data, in->len);
}

static const struct device_ops input_ops = {
    .name = "virtio-input",
    .state = &input_desc,
    .reset = virtio_reset,
    .loaded = input_loaded,
    .room = input_room,
    .input = input_input,
};

int virtio_input_create(struct device *dev, const struct dev_env *env, struct device *pci,
                        unsigned slot, unsigned unit, struct err *err)
{
    int r = virtio_alloc(dev, &input_ops, env, sizeof(struct input_state),
                         sizeof(struct virtio_input), err);
    if (r)
        return r;
    struct virtio_input *n = dev->host;
    n->model = &models[unit];
    snprintf(dev->name, sizeof(dev->name), "%s", n->model->name);
    virtio_connect(dev, &input_class, pci, slot);
    return 0;
}

int make_input(struct device *dev, const struct making *w, struct err *err)
{
    return virtio_input_create(dev, w->env, w->pci, w->slot, w->unit, err);
}
