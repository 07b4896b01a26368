/* A driver for one virtio device behind a PCI bus of its own, and the memory they share. */
#ifndef REPRISE_TEST_VIRTIO_DRIVER_H
#define REPRISE_TEST_VIRTIO_DRIVER_H

#include "dev_mock.h"

#include "dev/pci.h"
#include "dev/virtio/virtio.h"

#define SLOT       3u
#define RINGS      0x1000u /* each queue has a page: descriptors, available at +0x800, used +0xc00 */
#define BUFFERS    0x20000u
#define QUEUE_SIZE 16u

struct driver {
    struct mock m; /* first: the environment's machine */
    struct dev_env env;
    struct device pci, dev;
    u8 ram[0x40000];
    u16 given[VIRTIO_QUEUES], seen[VIRTIO_QUEUES];
    unsigned next_buffer;
    char emitted[256];
    size_t nemitted;
    unsigned emit_unit;
};

static bool driver_dma_read(void *p, gpa_t gpa, void *out, size_t len)
{
    struct driver *d = p;
    if (gpa > sizeof(d->ram) || len > sizeof(d->ram) - gpa)
        return false;
    memcpy(out, d->ram + gpa, len);
    return true;
}

static bool driver_dma_write(void *p, gpa_t gpa, const void *in, size_t len)
{
    struct driver *d = p;
    if (gpa > sizeof(d->ram) || len > sizeof(d->ram) - gpa)
        return false;
    memcpy(d->ram + gpa, in, len);
    return true;
}

static void driver_emit(void *p, enum dev_emit kind, unsigned unit, const void *data, size_t len)
{
    struct driver *d = p;
    assert_true(len <= sizeof(d->emitted) - d->nemitted);
    memcpy(d->emitted + d->nemitted, data, len);
    d->nemitted += len;
    d->emit_unit = unit;
}

static inline void driver_init(struct driver *d)
{
    struct err err;
    memset(d, 0, sizeof(*d));
    d->env = mock_env(&d->m);
    d->env.machine = d;
    d->env.dma_read = driver_dma_read;
    d->env.dma_write = driver_dma_write;
    d->env.emit = driver_emit;
    assert_int_equal(pci_create(&d->pci, &d->env, &err), 0);
}

static inline void config_write(struct driver *d, unsigned offset, unsigned size, u32 value)
{
    d->pci.ops->pio_write(&d->pci, 0xcf8, 4, 0x80000000u | SLOT << 11 | (offset & 0xfc));
    d->pci.ops->pio_write(&d->pci, (u16)(0xcfc + (offset & 3)), size, value);
}

static inline u32 config_read(struct driver *d, unsigned offset, unsigned size)
{
    d->pci.ops->pio_write(&d->pci, 0xcf8, 4, 0x80000000u | SLOT << 11 | (offset & 0xfc));
    return d->pci.ops->pio_read(&d->pci, (u16)(0xcfc + (offset & 3)), size);
}

static inline void bar_store(struct driver *d, u32 offset, unsigned size, u64 value)
{
    d->pci.ops->mmio_write(&d->pci, SLOT * 0x100000u + offset, size, value);
}

static inline u64 bar_load(struct driver *d, u32 offset, unsigned size)
{
    return d->pci.ops->mmio_read(&d->pci, SLOT * 0x100000u + offset, size);
}

static inline gpa_t ring_of(unsigned queue)
{
    return RINGS + queue * 0x1000u;
}

/* Negotiates and enables `queues` queues. */
static inline void driver_start(struct driver *d, u32 features, unsigned queues)
{
    config_write(d, 4, 2, 6);
    bar_store(d, 0x14, 1, 0);
    bar_store(d, 0x14, 1, 3);
    bar_store(d, 8, 4, 0);
    bar_store(d, 12, 4, features);
    bar_store(d, 8, 4, 1);
    bar_store(d, 12, 4, 1); /* VIRTIO_F_VERSION_1 */
    bar_store(d, 0x14, 1, 11);
    assert_int_equal(bar_load(d, 0x14, 1), 11);
    for (unsigned q = 0; q < queues; q++) {
        bar_store(d, 0x16, 2, q);
        bar_store(d, 0x18, 2, QUEUE_SIZE);
        bar_store(d, 0x20, 8, ring_of(q));
        bar_store(d, 0x28, 8, ring_of(q) + 0x800);
        bar_store(d, 0x30, 8, ring_of(q) + 0xc00);
        bar_store(d, 0x1c, 2, 1);
        memset(d->ram + ring_of(q), 0, 0x1000);
        d->given[q] = d->seen[q] = 0;
    }
    bar_store(d, 0x14, 1, 15);
}

static inline void notify(struct driver *d, unsigned queue)
{
    bar_store(d, 0x3000 + 4 * queue, 2, queue);
}

/* Makes a buffer available: `data` for the device to read, or (NULL) `len` bytes for it to write.
 * Returns where it is. */
static inline gpa_t offer(struct driver *d, unsigned queue, const void *data, u32 len)
{
    gpa_t at = BUFFERS + 0x400u * (d->next_buffer++ % 128);
    u16 slot = d->given[queue] % QUEUE_SIZE, idx = (u16)(d->given[queue] + 1);
    u8 *desc = d->ram + ring_of(queue) + 16 * slot, *avail = d->ram + ring_of(queue) + 0x800;
    u16 flags = data ? 0 : 2;
    assert_true(len <= 0x400);
    if (data)
        memcpy(d->ram + at, data, len);
    memcpy(desc, &at, 8);
    memcpy(desc + 8, &len, 4);
    memcpy(desc + 12, &flags, 2);
    memcpy(avail + 4 + 2 * slot, &slot, 2);
    memcpy(avail + 2, &idx, 2);
    d->given[queue] = idx;
    return at;
}

/* The next buffer that came back: its bytes and length; false: none. */
static inline bool came_back(struct driver *d, unsigned queue, const u8 **bytes, u32 *len)
{
    const u8 *used = d->ram + ring_of(queue) + 0xc00;
    u16 idx;
    u32 entry[2];
    gpa_t at;
    memcpy(&idx, used + 2, 2);
    if (idx == d->seen[queue])
        return false;
    memcpy(entry, used + 4 + 8 * (d->seen[queue] % QUEUE_SIZE), 8);
    memcpy(&at, d->ram + ring_of(queue) + 16 * entry[0], 8);
    d->seen[queue]++;
    *bytes = d->ram + at;
    *len = entry[1];
    return true;
}

static inline bool broken(struct driver *d)
{
    return bar_load(d, 0x14, 1) & 64;
}

/* What it saves is accepted, and is the same when loaded. */
static inline void check_state(struct driver *d)
{
    struct err err = {0};
    size_t n = state_size(d->dev.ops->state);
    u8 *saved = malloc(n);
    u64 before = state_hash(d->dev.ops->state, d->dev.state);
    state_save(d->dev.ops->state, d->dev.state, saved);
    assert_int_equal(state_load(d->dev.ops->state, d->dev.state, saved, n, &err), 0);
    if (d->dev.ops->loaded(&d->dev, &err))
        fail_msg("%s", err.text);
    assert_true(state_hash(d->dev.ops->state, d->dev.state) == before);
    free(saved);
}

#endif
