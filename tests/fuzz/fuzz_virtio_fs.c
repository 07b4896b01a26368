/* virtio-fs, two shares, with replies that a server or a forged recording could have: see
 * fuzz_virtio.h. */
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "dev/virtio/fs.h"
#include "fuzz_virtio.h"

#define SHARES 2u

static u64 owed[SHARES], under_way[SHARES]; /* the first number that has no reply, and how many */
static u32 seed;

/* The same in both runs of a program. */
static u32 draw(u32 below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

static void fs_create(struct world *w)
{
    static const struct machine_description is = {
        .share = {{.tag = "share"}, {.tag = "a-tag-of-36-bytes-which-is-the-most."}}};
    struct err err;
    seed = (u32)w->size;
    for (unsigned i = 0; i < SHARES; i++) {
        struct making m = {.env = &w->env, .pci = &w->pci, .is = &is, .unit = i};
        struct device *d = add(w, &m.slot);
        owed[i] = under_way[i] = 0;
        if (make_fs(d, &m, &err))
            abort();
    }
}

static void fs_destroy(struct world *w)
{
    for (unsigned i = 0; i < SHARES; i++)
        device_destroy(&w->dev[i]);
}

static void fs_emit(struct world *w, enum dev_emit kind, unsigned unit, const void *data,
                    size_t len)
{
    const struct dev_share *e = data;
    if (kind != EMIT_SHARE || unit >= SHARES || len != sizeof(*e))
        abort();
    if (e->what == DEV_SHARE_RESET) {
        owed[unit] += under_way[unit];
        under_way[unit] = 0;
        return;
    }
    if (e->size < sizeof(struct fuse_in_header) || e->size > SHARE_REQUEST_MAX ||
        e->size > e->total || e->room > SHARE_REPLY_MAX)
        abort();
    w->messages = w->messages * 31 + XXH3_64bits_withSeed(e->request, e->size, e->total ^ e->room);
    if (!e->awaited)
        return;
    if (e->number != owed[unit] + under_way[unit]++ || under_way[unit] > SHARE_UNDER_WAY ||
        e->room < sizeof(struct fuse_out_header))
        abort();
}

/* A part of a reply, some of them wrong. */
static void forge(u8 *out, struct input *in)
{
    struct fuse_out_header h = {.len = sizeof(h) + draw(6) * draw(4000)};
    u32 size = 1 + draw(draw(3) ? 64 : INPUT_MAX);
    h.error = draw(4) ? 0 : -(i32)draw(200);
    if (!draw(20))
        h.len = draw(~0u);
    if (!draw(20))
        h.error = (i32)draw(~0u);
    memset(out, (int)size, size);
    memcpy(out, &h, MIN(size, (u32)sizeof(h)));
    in->data = out;
    if (draw(4)) {
        in->kind = INPUT_SHARE;
        in->len = size;
    } else {
        in->kind = INPUT_CONTENT;
        in->arg = size;
    }
}

static void fs_inputs(struct world *w)
{
    static u8 out[INPUT_CONTENT_MAX];
    for (unsigned i = 0; i < SHARES; i++) {
        struct device *d = &w->dev[i];
        u64 number, after;
        for (unsigned k = 0; k < 3 && virtio_fs_waiting(d, &number); k++) {
            struct input in = {.unit = i};
            if (number != owed[i] || !under_way[i])
                abort();
            forge(out, &in);
            u32 size = in.kind == INPUT_CONTENT ? in.arg : in.len;
            if (d->ops->room(d, in.kind, i) < size)
                abort();
            /* Of exactly that size, so that a read beyond it is seen. */
            u8 *copy = malloc(size);
            memcpy(copy, in.data, size);
            in.data = copy;
            u64 before = under_way[i];
            owed[i]++, under_way[i]--; /* it may take another at once */
            d->ops->input(d, &in);
            if (virtio_fs_waiting(d, &after) && after == number)
                owed[i]--, under_way[i] = before;
            free(copy);
        }
    }
}

/* A request as a driver makes it: what it asks in one part, room for the reply in another. */
static void fs_special(struct world *w, unsigned slot, struct program *s)
{
    static const u32 opcodes[] = {FUSE_INIT,         FUSE_LOOKUP,    FUSE_READ,  FUSE_FORGET,
                                  FUSE_BATCH_FORGET, FUSE_INTERRUPT, FUSE_WRITE, 4000};
    unsigned what = (unsigned)take(s, 1), q = what & 1;
    u32 room = (u32)take(s, 2);
    struct fuse_in_header h = {
        .len = sizeof(h) + 16, .opcode = opcodes[what >> 1 & 7], .unique = w->step};
    u8 *desc = w->ram + desc_of(q);
    u64 at[2] = {buffers(), buffers() + 0x100};
    u32 len[2] = {h.len, room};
    u16 idx, flags[2] = {room ? 1 : 0, 2}, next[2] = {1, 0};
    if (what & 0x40) { /* saved and restored, as a checkpoint does it */
        struct device *d = &w->dev[slot - 1];
        struct err err;
        size_t size = state_size(d->ops->state);
        u8 *saved = malloc(size);
        state_save(d->ops->state, d->state, saved);
        memset(d->state, 0xee, d->ops->state->size);
        if (state_load(d->ops->state, d->state, saved, size, &err) || d->ops->loaded(d, &err))
            abort();
        free(saved);
    }
    memcpy(w->ram + buffers(), &h, sizeof(h));
    for (unsigned i = 0; i < 2; i++) {
        memcpy(desc + 16 * i, &at[i], 8);
        memcpy(desc + 16 * i + 8, &len[i], 4);
        memcpy(desc + 16 * i + 12, &flags[i], 2);
        memcpy(desc + 16 * i + 14, &next[i], 2);
    }
    memset(w->ram + avail_of(q) + 4, 0, 512);
    memcpy(&idx, w->ram + avail_of(q) + 2, 2);
    idx = (u16)(idx + 1 + (what >> 4 & 3));
    memcpy(w->ram + avail_of(q) + 2, &idx, 2);
    store(w, slot, 0x3000 + 4 * q, 2, 0);
}

static const u8 fs_sample[] = {0x00, 0x3b, 0x00,                            /* set up */
                               0x0a, 0x01, 80,   0,                         /* INIT */
                               0x03, 0xff, 0xff, 0,                         /* wait: reply */
                               0x0a, 0x33, 0,    8,                         /* LOOKUP, four times */
                               0x0a, 0x05, 0xff, 0xff,                      /* READ */
                               0x03, 0xff, 0xff, 0,    0x0a, 0x06, 0,    0, /* FORGET */
                               0x0a, 0x4f, 16,   0,    0x03, 0xff, 0xff, 0x01};

const struct target target = {.create = fs_create,
                              .destroy = fs_destroy,
                              .special = fs_special,
                              .inputs = fs_inputs,
                              .emit = fs_emit,
                              SAMPLE(fs_sample),
                              .queues = 2};
