/* What the targets of virtio devices share: a machine of memory, time and PCI, and how a program
 * runs. See fuzz_virtio.h. */
#include "fuzz_virtio.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "mutate.h"

static vns_t world_now(void *w)
{
    return ((struct world *)w)->now;
}

static void world_irq(void *w, unsigned gsi, bool level)
{
    ((struct world *)w)->messages += 1000u * gsi + level;
}

static void world_msi(void *w, u64 address, u32 data)
{
    ((struct world *)w)->messages += address ^ data;
}

static void world_changed(void *w)
{
    (void)w;
}

/* Whatever the host cannot do is known before it is done. */
static void world_failed(void *w, const struct err *why)
{
    (void)w;
    fprintf(stderr, "%s\n", why->text);
    abort();
}

static bool world_read(void *opaque, gpa_t gpa, void *out, size_t len)
{
    struct world *w = opaque;
    if (gpa > RAM_SIZE || len > RAM_SIZE - gpa)
        return false;
    memcpy(out, w->ram + gpa, len);
    return true;
}

static bool world_write(void *opaque, gpa_t gpa, const void *in, size_t len)
{
    struct world *w = opaque;
    if (gpa > RAM_SIZE || len > RAM_SIZE - gpa)
        return false;
    memcpy(w->ram + gpa, in, len);
    return true;
}

static void world_output(void *w, enum dev_output channel, const void *data, size_t len)
{
    ((struct world *)w)->messages += XXH3_64bits_withSeed(data, len, channel);
}

static void world_emit(void *opaque, enum dev_emit kind, unsigned unit, const void *data,
                       size_t len)
{
    struct world *w = opaque;
    if (!target.emit)
        abort();
    if (kind != EMIT_GPU && kind != EMIT_SHARE) /* those have pointers */
        w->messages += XXH3_64bits_withSeed(data, len, 256u * kind + unit);
    target.emit(w, kind, unit, data, len);
}

unsigned desc_of(unsigned q)
{
    return target.queues ? 0x1000 * (1 + q) : 0x1000;
}

unsigned avail_of(unsigned q)
{
    return target.queues ? desc_of(q) + 0x800 : 0x2000;
}

unsigned used_of(unsigned q)
{
    return target.queues ? desc_of(q) + 0xa00 : 0x3000;
}

unsigned buffers(void)
{
    return target.queues ? desc_of(target.queues) : 0x4000;
}

struct device *add(struct world *w, unsigned *slot)
{
    if (w->ndev == MAX_DEVICES)
        abort();
    struct device *d = &w->dev[w->ndev];
    w->list[w->ndev++] = d;
    *slot = w->ndev;
    return d;
}

void make(struct world *w, device_maker *maker, const struct machine_description *is)
{
    struct err err;
    struct making m = {.env = &w->env, .pci = &w->pci, .is = is};
    struct device *d = add(w, &m.slot);
    if (maker(d, &m, &err))
        abort();
}

/* One for all: allocating it takes longer than a program. */
static struct world *world_create(bool replay, size_t size)
{
    static struct world *w;
    struct err err;
    if (!w)
        w = malloc(sizeof(*w));
    if (!w)
        abort();
    memset(w, 0, sizeof(*w));
    w->replay = replay;
    w->size = size;
    w->env = (struct dev_env){.machine = w,
                              .now = world_now,
                              .irq = world_irq,
                              .msi = world_msi,
                              .changed = world_changed,
                              .failed = world_failed,
                              .output = world_output,
                              .emit = world_emit,
                              .dma_read = world_read,
                              .dma_write = world_write};
    if (pci_create(&w->pci, &w->env, &err))
        abort();
    target.create(w);
    return w;
}

static void world_destroy(struct world *w)
{
    target.destroy(w);
    device_destroy(&w->pci);
}

/* ---- programs ---- */

void config(struct world *w, unsigned slot, unsigned offset, unsigned size, u32 value)
{
    w->pci.ops->pio_write(&w->pci, 0xcf8, 4, 0x80000000u | slot << 11 | (offset & 0xfc));
    w->pci.ops->pio_write(&w->pci, (u16)(0xcfc + (offset & 3)), size, value);
    w->pci.ops->pio_read(&w->pci, (u16)(0xcfc + (offset & 3)), size);
}

u64 bar(unsigned slot)
{
    return slot * 0x100000u;
}

void store(struct world *w, unsigned slot, u32 offset, unsigned size, u64 value)
{
    w->pci.ops->mmio_write(&w->pci, bar(slot) + offset, size, value);
}

/* What a good driver does, so that what follows is looked at. */
void set_up(struct world *w, unsigned slot, u64 how, u32 features)
{
    config(w, slot, 4, 2, 6);
    store(w, slot, 0x14, 1, 0);
    store(w, slot, 0x14, 1, 3);
    for (unsigned i = 0; i < 2; i++) {
        store(w, slot, 8, 4, i);
        store(w, slot, 12, 4, i ? 1 : (u32)(how & 7) << 28 | features);
    }
    store(w, slot, 0x14, 1, 11);
    unsigned queues = target.queues ? target.queues : 1 + (how >> 10 & 3); /* on the same rings */
    for (unsigned q = 0; q < queues; q++) {
        store(w, slot, 0x16, 2, q);
        store(w, slot, 0x18, 2, 1u << (how >> 3 & 7));
        store(w, slot, 0x1a, 2, how >> 6 & 3);
        store(w, slot, 0x20, 8, desc_of(q));
        store(w, slot, 0x28, 8, avail_of(q));
        store(w, slot, 0x30, 8, used_of(q));
        store(w, slot, 0x1c, 2, 1);
    }
    store(w, slot, 0x14, 1, 15);
    if (how & 256) { /* MSI-X, vector 1 maybe masked */
        config(w, slot, 0x9a, 2, 0x8000);
        for (unsigned i = 0; i < 3; i++)
            store(w, slot, 0x1800 + 16 * i + 12, 4, i == 1 && (how & 512));
    }
}

/* A chain of descriptors, made available. */
static void offer(struct world *w, struct program *s)
{
    unsigned q = target.queues ? (unsigned)take(s, 1) % target.queues : 0;
    unsigned n = (unsigned)take(s, 1) % 8, room = MIN(RAM_SIZE - 0x3000 - buffers(), 0x9000u);
    u16 idx;
    for (unsigned i = 0; i <= n; i++) {
        u64 addr = buffers() + take(s, 2) % room;
        u32 len = (u32)take(s, 2);
        u16 flags = (u16)take(s, 1), next = (u16)(i + 1);
        u8 *d = w->ram + desc_of(q) + 16 * i;
        if (flags & 0x80)
            addr = take(s, 8);
        flags &= 7;
        memcpy(d, &addr, 8);
        memcpy(d + 8, &len, 4);
        memcpy(d + 12, &flags, 2);
        memcpy(d + 14, &next, 2);
    }
    u8 *avail = w->ram + avail_of(q) + 2;
    memcpy(&idx, avail, 2);
    idx = (u16)(idx + 1 + take(s, 1) % 3);
    memcpy(avail, &idx, 2);
}

static void expire(struct world *w)
{
    for (unsigned i = 0; i < w->ndev; i++) {
        struct device *d = w->list[i];
        if (d->ops->deadline && d->ops->deadline(d) <= w->now)
            d->ops->expire(d, w->now);
        if (d->ops->deadline && d->ops->deadline(d) <= w->now)
            abort(); /* a deadline that does not move */
    }
}

static void run(struct world *w, const u8 *data, size_t size)
{
    struct program s = {data, size};
    while (s.left) {
        unsigned op = (unsigned)take(&s, 1), slot = 1 + (op >> 4) % w->ndev, at, n;
        switch (op & 15) {
        case 0: set_up(w, slot, take(&s, 2), target.features); break;
        case 1: offer(w, &s); break;
        case 2:
            n = target.queues ? (unsigned)take(&s, 1) % target.queues : op >> 6;
            store(w, slot, 0x3000 + 4 * n, 2, 0);
            break;
        case 3:
            w->now += take(&s, 3);
            expire(w);
            break;
        case 4:
            at = (unsigned)take(&s, 1);
            n = 1u << (take(&s, 1) % 3);
            at &= ~(n - 1);
            config(w, slot, at, n, (u32)take(&s, 4));
            break;
        case 5: /* the BAR stays, so that the next stores reach it */
            config(w, slot, 0x10, 4, (u32)(0xe0000000u + bar(slot)));
            break;
        case 6:
        case 7:
            at = (unsigned)take(&s, 2) & 0x3fff;
            store(w, slot, at, 1u << (op >> 6), take(&s, 8));
            break;
        case 8:
            at = (unsigned)take(&s, 2) & 0x3fff;
            w->messages += w->pci.ops->mmio_read(&w->pci, bar(slot) + at, 1u << (op >> 6));
            break;
        case 9: /* common and device configuration */
            at = (unsigned)take(&s, 1) & 0x3f;
            store(w, slot, at, 1u << (op >> 6), take(&s, 8));
            w->messages += w->pci.ops->mmio_read(&w->pci, bar(slot) + 0x2000 + at, 1u << (op >> 6));
            break;
        case 10:
            if (target.special)
                target.special(w, slot, &s);
            break;
        case 11: /* the window to the BAR in configuration space */
            config(w, slot, 0xac, 4, (u32)take(&s, 2) & 0x7fff);
            config(w, slot, 0xb0, 4, 1u << (op >> 6));
            config(w, slot, 0xb4, 1u << (op >> 6) % 3, (u32)take(&s, 4));
            break;
        default:
            at = (unsigned)take(&s, 2);
            n = 1 + (op >> 4);
            for (unsigned i = 0; i < n; i++)
                w->ram[(at + i) % RAM_SIZE] = (u8)take(&s, 1);
        }
        if (target.inputs)
            target.inputs(w);
        w->step++;
    }
    w->now += 1000000000;
    expire(w);
}

static u64 outcome(struct world *w)
{
    u64 h = XXH3_64bits(w->ram, RAM_SIZE) ^ w->messages;
    struct err err;
    for (unsigned i = 0; i < w->ndev; i++) {
        h = h * 31 + state_hash(w->list[i]->ops->state, w->list[i]->state);
        if (w->list[i]->ops->loaded(w->list[i], &err))
            abort(); /* a state that would be refused */
    }
    if (w->pci.ops->loaded(&w->pci, &err))
        abort();
    if (target.outcome)
        h = h * 31 + target.outcome(w);
    return h * 31 + state_hash(w->pci.ops->state, w->pci.state);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    u64 h[2];
    for (int i = 0; i < 2; i++) {
        struct world *w = world_create(i, size);
        run(w, data, size);
        h[i] = outcome(w);
        world_destroy(w);
    }
    if (h[0] != h[1])
        abort();
    return 0;
}

u8 *fuzz_sample(size_t *size)
{
    u8 *data = malloc(target.sample_size);
    memcpy(data, target.sample, target.sample_size);
    *size = target.sample_size;
    return data;
}
