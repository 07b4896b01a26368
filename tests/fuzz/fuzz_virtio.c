/*
 * Fuzz target: the virtio devices from the guest's side. An input is a program of a hostile driver:
 * configuration space, BAR, rings and descriptors in memory, notifications, time. After each
 * program the state must be one that is accepted when loaded, and running the same program again
 * must end in the same state and memory.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "dev/pci.h"
#include "dev/virtio/blk.h"
#include "dev/virtio/rng.h"
#include "host/disk.h"
#include "mutate.h"

#define RAM_SIZE  65536u
#define DISK_SIZE (40u * 512u)
#define SLOTS     3u

struct world {
    u8 ram[RAM_SIZE];
    vns_t now;
    u64 messages;
    struct dev_env env;
    struct device pci, rng, blk[2];
    struct virtio rng_host;
    struct virtio_blk blk_host[2];
    struct disk disk[2];
    struct device *list[3];
};

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

static char image_path[64];

static void make_image(void)
{
    static u8 bytes[DISK_SIZE];
    if (image_path[0])
        return;
    int fd = memfd_create("disk", 0);
    for (unsigned i = 0; i < DISK_SIZE; i++)
        bytes[i] = (u8)(i / 512 + i);
    if (fd < 0 || write(fd, bytes, sizeof(bytes)) != (ssize_t)sizeof(bytes))
        abort();
    snprintf(image_path, sizeof(image_path), "/proc/self/fd/%d", fd);
}

static struct world *world_create(void)
{
    struct world *w = calloc(1, sizeof(*w));
    struct err err;
    make_image();
    w->env = (struct dev_env){.machine = w,
                              .now = world_now,
                              .irq = world_irq,
                              .msi = world_msi,
                              .changed = world_changed,
                              .dma_read = world_read,
                              .dma_write = world_write};
    if (pci_create(&w->pci, &w->env, &err) ||
        virtio_rng_create(&w->rng, &w->env, &w->rng_host, &w->pci, 1, 7, &err))
        abort();
    for (unsigned i = 0; i < 2; i++)
        if (disk_open(&w->disk[i], image_path, i, "serial", &err) ||
            virtio_blk_create(&w->blk[i], &w->env, &w->blk_host[i], &w->pci, 2 + i, &w->disk[i],
                              "disk", &err))
            abort();
    w->list[0] = &w->rng;
    w->list[1] = &w->blk[0];
    w->list[2] = &w->blk[1];
    return w;
}

static void world_destroy(struct world *w)
{
    for (unsigned i = 0; i < 2; i++) {
        virtio_blk_destroy(&w->blk[i]);
        disk_close(&w->disk[i]);
    }
    virtio_rng_destroy(&w->rng);
    pci_destroy(&w->pci);
    free(w);
}

struct program {
    const u8 *p;
    size_t left;
};

static u64 take(struct program *s, unsigned bytes)
{
    u64 v = 0;
    for (unsigned i = 0; i < bytes && s->left; i++, s->p++, s->left--)
        v |= (u64)*s->p << (8 * i);
    return v;
}

static void config(struct world *w, unsigned slot, unsigned offset, unsigned size, u32 value)
{
    w->pci.ops->pio_write(&w->pci, 0xcf8, 4, 0x80000000u | slot << 11 | (offset & 0xfc));
    w->pci.ops->pio_write(&w->pci, (u16)(0xcfc + (offset & 3)), size, value);
    w->pci.ops->pio_read(&w->pci, (u16)(0xcfc + (offset & 3)), size);
}

static u64 bar(unsigned slot)
{
    return slot * 0x100000u;
}

static void store(struct world *w, unsigned slot, u32 offset, unsigned size, u64 value)
{
    w->pci.ops->mmio_write(&w->pci, bar(slot) + offset, size, value);
}

/* What a good driver does, so that what follows is looked at. */
static void set_up(struct world *w, unsigned slot, u64 how)
{
    config(w, slot, 4, 2, 6);
    store(w, slot, 0x14, 1, 0);
    store(w, slot, 0x14, 1, 3);
    for (unsigned i = 0; i < 2; i++) {
        store(w, slot, 8, 4, i);
        store(w, slot, 12, 4, i ? 1 : (u32)(how & 7) << 28);
    }
    store(w, slot, 0x14, 1, 11);
    store(w, slot, 0x16, 2, 0);
    store(w, slot, 0x18, 2, 1u << (how >> 3 & 7));
    store(w, slot, 0x1a, 2, how >> 6 & 3);
    store(w, slot, 0x20, 8, 0x1000);
    store(w, slot, 0x28, 8, 0x2000);
    store(w, slot, 0x30, 8, 0x3000);
    store(w, slot, 0x1c, 2, 1);
    store(w, slot, 0x14, 1, 15);
    if (how & 256) { /* MSI-X, vector 1 maybe masked */
        config(w, slot, 0x9a, 2, 0x8000);
        for (unsigned i = 0; i < 3; i++)
            store(w, slot, 0x1800 + 16 * i + 12, 4, i == 1 && (how & 512));
    }
}

/* A descriptor at 0x1000, made available. */
static void offer(struct world *w, struct program *s)
{
    unsigned n = (unsigned)take(s, 1) % 8;
    u16 idx;
    for (unsigned i = 0; i <= n; i++) {
        u64 addr = 0x4000 + take(s, 2) % 0x9000;
        u32 len = (u32)take(s, 2);
        u16 flags = (u16)take(s, 1), next = (u16)(i + 1);
        u8 *d = w->ram + 0x1000 + 16 * i;
        if (flags & 0x80)
            addr = take(s, 8);
        flags &= 7;
        memcpy(d, &addr, 8);
        memcpy(d + 8, &len, 4);
        memcpy(d + 12, &flags, 2);
        memcpy(d + 14, &next, 2);
    }
    memcpy(&idx, w->ram + 0x2002, 2);
    idx = (u16)(idx + 1 + take(s, 1) % 3);
    memcpy(w->ram + 0x2002, &idx, 2);
}

static void expire(struct world *w)
{
    for (unsigned i = 0; i < ARRAY_SIZE(w->list); i++) {
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
        unsigned op = (unsigned)take(&s, 1), slot = 1 + (op >> 4) % SLOTS, at, n;
        switch (op & 15) {
        case 0: set_up(w, slot, take(&s, 2)); break;
        case 1: offer(w, &s); break;
        case 2: store(w, slot, 0x3000 + 4 * ((op >> 6) & 1), 2, 0); break;
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
        case 9: /* common configuration */
            at = (unsigned)take(&s, 1) & 0x3f;
            store(w, slot, at, 1u << (op >> 6), take(&s, 8));
            break;
        case 10: { /* a request's header at 0x4000; after that a range to zero */
            static const u8 types[] = {0, 1, 4, 8, 11, 13, 14, 255};
            w->ram[0x4000] = types[take(&s, 1) % 8];
            w->ram[0x4008] = w->ram[0x4010] = (u8)take(&s, 1);
            w->ram[0x4018] = (u8)take(&s, 1) % 50;
            break;
        }
        default:
            at = (unsigned)take(&s, 2);
            n = 1 + (op >> 4);
            for (unsigned i = 0; i < n; i++)
                w->ram[(at + i) % RAM_SIZE] = (u8)take(&s, 1);
        }
    }
    w->now += 1000000000;
    expire(w);
}

static u64 outcome(struct world *w)
{
    u64 h = XXH3_64bits(w->ram, RAM_SIZE) ^ w->messages;
    struct err err;
    for (unsigned i = 0; i < ARRAY_SIZE(w->list); i++) {
        h = h * 31 + state_hash(w->list[i]->ops->state, w->list[i]->state);
        if (w->list[i]->ops->loaded(w->list[i], &err))
            abort(); /* a state that would be refused */
    }
    if (w->pci.ops->loaded(&w->pci, &err))
        abort();
    return h * 31 + state_hash(w->pci.ops->state, w->pci.state);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    u64 h[2];
    for (int i = 0; i < 2; i++) {
        struct world *w = world_create();
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
    static const u8 bytes[] = {0x10, 0x3b, 0x00, /* set_up slot 2 */
                               0x1a, 0x00, 0x01, /* header: read */
                               0x11, 0x02, 0,    0,    16,   0,    1,    0,  1, 0,    4,    3,
                               0,    2,    1,    0,    2,    0, /* offer */
                               0x12, 0x13, 0,    0,    9,       /* notify, wait */
                               0x1a, 0x01, 0x02, 0x11, 0x02, 0,    0,    16, 0, 1,    0,    1,
                               0,    2,    1,    0,    2,    1,    0,    2,  0, 0x12, 0x13, 0,
                               0,    9,    0x00, 0x3b, 0x00, 0x01, 0x00, 0,  8, 64,   0,    2,
                               0,    0x02, 0x16, 0x14, 0,    0,    0,    0,  0};
    u8 *data = malloc(sizeof(bytes));
    memcpy(data, bytes, sizeof(bytes));
    *size = sizeof(bytes);
    return data;
}
