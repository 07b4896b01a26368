/* Disks without a guest: what is got ahead, room for what is written, several queues of virtio-blk,
 * requests that the host cannot do. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "dev/pci.h"
#include "dev/util.h"
#include "dev/virtio/blk.h"

#define PAGES    64u
#define SIZE     (PAGES * PAGE_SIZE)
#define RAM_SIZE (1u << 20)

/* ---- the disk ---- */

static int image;

static u8 byte_at(u64 offset)
{
    return (u8)(offset / 512 * 7 + offset);
}

static void open_disk(struct disk *d, bool readonly)
{
    char path[64];
    u8 *bytes = malloc(SIZE);
    struct err err;
    image = memfd_create("disk", 0);
    for (u64 i = 0; i < SIZE; i++)
        bytes[i] = byte_at(i);
    assert_int_equal(write(image, bytes, SIZE), SIZE);
    free(bytes);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", image);
    struct disk_config c = {.file = path, .serial = "unit", .readonly = readonly};
    assert_int_equal(disk_open(d, &c, &err), 0);
    assert_string_equal(d->format, "raw");
    assert_int_equal(d->size, SIZE);
}

static void close_disk(struct disk *d)
{
    assert_int_equal(d->store.reserved, 0);
    disk_close(d);
    close(image);
}

static void ahead_is_used(void **state)
{
    struct disk d;
    struct disk_ahead a = {0};
    u8 out[3 * PAGE_SIZE], other[512] = {1};
    u64 digest = 0, again = 0, changed = 0;
    (void)state;
    open_disk(&d, false);
    disk_ahead_start(&d, &a, DISK_READ, 512, sizeof(out));
    disk_ahead_wait(&d, &a);
    assert_int_equal(a.failed, 0);
    /* The file is gone meanwhile, and a page of it written by the guest. */
    assert_int_equal(ftruncate(image, 0), 0);
    assert_int_equal(disk_read(&d, &a, 512, out, sizeof(out), &digest), 0);
    for (u64 i = 0; i < sizeof(out); i++)
        assert_int_equal(out[i], byte_at(512 + i));
    assert_int_not_equal(digest, 0);
    assert_int_equal(d.failed.code, 0);
    /* Nothing else can be read, ahead or now. */
    struct disk_ahead b = {0};
    disk_ahead_start(&d, &b, DISK_READ, 40 * PAGE_SIZE, PAGE_SIZE);
    disk_ahead_wait(&d, &b);
    assert_true(b.failed);
    assert_non_null(strstr(d.trouble.text, "became shorter"));
    assert_int_equal(d.failed.code, 0);
    assert_true(disk_read(&d, NULL, 40 * PAGE_SIZE, out, PAGE_SIZE, &again) < 0);
    assert_non_null(strstr(d.failed.text, "became shorter"));
    disk_ahead_drop(&d, &b);
    /* A write of part of a page needs the rest; of whole pages nothing. */
    disk_ahead_start(&d, &b, DISK_WRITE, 50 * PAGE_SIZE + 512, 512);
    disk_ahead_wait(&d, &b);
    assert_true(b.failed);
    disk_ahead_drop(&d, &b);
    disk_ahead_start(&d, &b, DISK_WRITE, 50 * PAGE_SIZE, 2 * PAGE_SIZE);
    disk_ahead_wait(&d, &b);
    assert_int_equal(b.failed, 0);
    assert_int_equal(d.store.reserved, 2);
    disk_ahead_take(&d, &b);
    assert_int_equal(disk_write(&d, &b, 50 * PAGE_SIZE, out, 2 * PAGE_SIZE, &changed), 0);
    disk_ahead_drop(&d, &b);
    assert_int_equal(changed, 0);
    /* ... and of part of a page that was written before, neither. */
    disk_ahead_start(&d, &b, DISK_WRITE, 51 * PAGE_SIZE + 512, 512);
    disk_ahead_wait(&d, &b);
    assert_int_equal(b.failed, 0);
    disk_ahead_take(&d, &b);
    assert_int_equal(disk_write(&d, &b, 51 * PAGE_SIZE + 512, other, 512, &changed), 0);
    disk_ahead_drop(&d, &b);
    assert_int_equal(disk_read(&d, NULL, 50 * PAGE_SIZE, out, 2 * PAGE_SIZE, &changed), 0);
    assert_int_equal(out[0], byte_at(512));
    assert_int_equal(out[PAGE_SIZE + 512], 1);
    assert_int_equal(out[PAGE_SIZE + 1024], byte_at(512 + PAGE_SIZE + 1024));
    assert_int_equal(changed, 0);
    disk_ahead_drop(&d, &a);
    close_disk(&d);
}

static void digests(void **state)
{
    struct disk d;
    u8 out[2 * PAGE_SIZE];
    u64 ahead = 0, now = 0;
    struct disk_ahead a = {0};
    (void)state;
    open_disk(&d, false);
    disk_ahead_start(&d, &a, DISK_READ, PAGE_SIZE - 512, 1024);
    disk_ahead_wait(&d, &a);
    assert_int_equal(disk_read(&d, &a, PAGE_SIZE - 512, out, 1024, &ahead), 0);
    assert_int_equal(disk_read(&d, NULL, PAGE_SIZE - 512, out, 1024, &now), 0);
    assert_int_equal(ahead, now);
    disk_ahead_drop(&d, &a);
    close_disk(&d);
}

static void discards(void **state)
{
    struct disk d;
    u8 out[PAGE_SIZE], ones[2 * PAGE_SIZE];
    u64 digest = 0;
    (void)state;
    open_disk(&d, false);
    memset(ones, 1, sizeof(ones));
    assert_int_equal(disk_write(&d, NULL, 8 * PAGE_SIZE, ones, sizeof(ones), &digest), 0);
    u64 pages = d.store.pages;
    assert_int_equal(pages, 2);
    /* All of page 9, part of page 8, and pages that were never written. */
    assert_int_equal(disk_discard(&d, 8 * PAGE_SIZE + 512, 10 * PAGE_SIZE), 0);
    assert_int_equal(d.store.pages, 1);
    assert_int_equal(disk_read(&d, NULL, 8 * PAGE_SIZE, out, PAGE_SIZE, &digest), 0);
    assert_int_equal(out[4095], 1);
    assert_int_equal(disk_read(&d, NULL, 9 * PAGE_SIZE, out, PAGE_SIZE, &digest), 0);
    assert_int_equal(out[0] | out[4095], 0);
    assert_int_equal(digest, 0);
    assert_int_equal(disk_read(&d, NULL, 10 * PAGE_SIZE, out, PAGE_SIZE, &digest), 0);
    assert_int_equal(out[100], byte_at(10 * PAGE_SIZE + 100));
    /* To the very end of the disk and of the table. */
    assert_int_equal(disk_discard(&d, 0, SIZE), 0);
    assert_int_equal(d.store.pages, 0);
    /* Zeros take no room. */
    assert_int_equal(disk_zero(&d, NULL, 0, SIZE, &digest), 0);
    assert_int_equal(d.store.pages, 0);
    assert_int_equal(disk_read(&d, NULL, 63 * PAGE_SIZE, out, PAGE_SIZE, &digest), 0);
    assert_int_equal(out[0] | out[4095], 0);
    close_disk(&d);
}

static void room(void **state)
{
    struct disk d;
    struct disk_ahead a = {0}, b = {0};
    u8 data[4 * PAGE_SIZE];
    u64 digest = 0;
    (void)state;
    open_disk(&d, false);
    d.store.limit = 6;
    d.store.ndirs = 0; /* nowhere for a file */
    memset(data, 5, sizeof(data));
    disk_ahead_start(&d, &a, DISK_WRITE, 0, sizeof(data));
    disk_ahead_start(&d, &b, DISK_WRITE, 8 * PAGE_SIZE, 3 * PAGE_SIZE);
    assert_int_equal(a.failed, 0);
    assert_true(b.failed); /* although nothing is written yet */
    assert_non_null(strstr(d.trouble.text, "no room"));
    disk_ahead_drop(&d, &b);
    disk_ahead_start(&d, &b, DISK_ZERO, 8 * PAGE_SIZE + 512, 20 * PAGE_SIZE);
    assert_int_equal(b.failed, 0);
    assert_int_equal(b.reserved, 2);
    disk_ahead_drop(&d, &b);
    disk_ahead_take(&d, &a);
    assert_int_equal(disk_write(&d, &a, 0, data, sizeof(data), &digest), 0);
    disk_ahead_drop(&d, &a);
    /* A checkpoint keeps those pages; writing them anew needs room. */
    struct page_image *copy = page_image_copy(d.written);
    disk_ahead_start(&d, &b, DISK_WRITE, 0, 3 * PAGE_SIZE);
    assert_true(b.failed);
    disk_ahead_drop(&d, &b);
    page_image_destroy(copy);
    assert_true(disk_write(&d, NULL, 16 * PAGE_SIZE, data, sizeof(data), &digest) < 0);
    assert_non_null(strstr(d.failed.text, "no room"));
    close_disk(&d);
}

/* ---- the device ---- */

struct world {
    vns_t now;
    unsigned interrupts[16];
    bool failed;
    struct dev_env env;
    struct device pci, dev;
    struct disk disk;
    u8 ram[RAM_SIZE];
};

static vns_t world_now(void *w)
{
    return ((struct world *)w)->now;
}

static void world_irq(void *w, unsigned gsi, bool level)
{
    (void)w;
}

static void world_msi(void *w, u64 address, u32 data)
{
    ((struct world *)w)->interrupts[data % 16]++;
}

static void world_changed(void *w)
{
    (void)w;
}

static void world_failed(void *w, const struct err *why)
{
    ((struct world *)w)->failed = true;
}

static bool world_read(void *opaque, gpa_t gpa, void *out, size_t len)
{
    if (gpa > RAM_SIZE || len > RAM_SIZE - gpa)
        return false;
    memcpy(out, ((struct world *)opaque)->ram + gpa, len);
    return true;
}

static bool world_write(void *opaque, gpa_t gpa, const void *in, size_t len)
{
    if (gpa > RAM_SIZE || len > RAM_SIZE - gpa)
        return false;
    memcpy(((struct world *)opaque)->ram + gpa, in, len);
    return true;
}

static void store(struct world *w, u32 offset, unsigned size, u64 value)
{
    w->pci.ops->mmio_write(&w->pci, 0x100000 + offset, size, value);
}

static u64 load(struct world *w, u32 offset, unsigned size)
{
    return w->pci.ops->mmio_read(&w->pci, 0x100000 + offset, size);
}

static void config(struct world *w, unsigned offset, unsigned size, u32 value)
{
    w->pci.ops->pio_write(&w->pci, 0xcf8, 4, 0x80000000u | 1 << 11 | (offset & 0xfc));
    w->pci.ops->pio_write(&w->pci, (u16)(0xcfc + (offset & 3)), size, value);
}

#define QUEUES  4u
#define RING(q) (0x10000u * ((q) + 1)) /* descriptors, 0x1000 on available, 0x2000 on used */
#define DATA(q) (RING(q) + 0x4000u)

static struct world *create(bool readonly)
{
    struct world *w = calloc(1, sizeof(*w));
    struct err err;
    w->env = (struct dev_env){.machine = w,
                              .now = world_now,
                              .irq = world_irq,
                              .msi = world_msi,
                              .changed = world_changed,
                              .failed = world_failed,
                              .dma_read = world_read,
                              .dma_write = world_write};
    open_disk(&w->disk, readonly);
    assert_int_equal(pci_create(&w->pci, &w->env, &err), 0);
    assert_int_equal(virtio_blk_create(&w->dev, &w->env, &w->pci, 1, &w->disk, "disk0", &err), 0);
    config(w, 0x10, 4, 0xe0100000u);
    config(w, 4, 2, 6);
    config(w, 0x9a, 2, 0x8000);
    store(w, 0x14, 1, 3);
    store(w, 0, 4, 0);
    u64 features = load(w, 4, 4);
    assert_true(features & 1 << 12); /* VIRTIO_BLK_F_MQ */
    assert_int_equal(load(w, 0x2000 + 34, 2), QUEUES);
    assert_int_equal(load(w, 0x2000 + 24, 1), 3);
    store(w, 8, 4, 0);
    store(w, 12, 4, (u32)features & ~(1u << 29)); /* no EVENT_IDX */
    store(w, 8, 4, 1);
    store(w, 12, 4, 1);
    store(w, 0x14, 1, 11);
    for (unsigned q = 0; q < QUEUES; q++) {
        store(w, 0x1800 + 16 * q, 4, 0xfee00000);
        store(w, 0x1808 + 16 * q, 4, q);
        store(w, 0x180c + 16 * q, 4, 0);
        store(w, 0x16, 2, q);
        store(w, 0x1a, 2, q);
        store(w, 0x20, 8, RING(q));
        store(w, 0x28, 8, RING(q) + 0x1000);
        store(w, 0x30, 8, RING(q) + 0x2000);
        store(w, 0x1c, 2, 1);
    }
    store(w, 0x14, 1, 15);
    assert_int_equal(load(w, 0x14, 1), 15);
    return w;
}

static void destroy(struct world *w)
{
    device_destroy(&w->dev);
    device_destroy(&w->pci);
    close_disk(&w->disk);
    free(w);
}

/* Request `n` of a queue: its header, `len` bytes at DATA, a status byte. */
static void request(struct world *w, unsigned q, unsigned n, u32 type, u64 sector, u32 len)
{
    bool in = type == 0 || type == 8;
    u32 at = DATA(q) + n * 0x1000, first = 3 * n;
    struct {
        u64 addr;
        u32 len;
        u16 flags, next;
    } d[3] = {{at, 16, 1, (u16)(first + 1)},
              {at + 0x20, len, (u16)(1 | (in ? 2 : 0)), (u16)(first + 2)},
              {at + 0xfff, 1, 2, 0}};
    u16 idx, head = (u16)first;
    memset(w->ram + at, 0, 16);
    memcpy(w->ram + at, &type, 4);
    memcpy(w->ram + at + 8, &sector, 8);
    w->ram[at + 0xfff] = 0xee;
    memcpy(w->ram + RING(q) + 16 * first, d, sizeof(d));
    memcpy(&idx, w->ram + RING(q) + 0x1002, 2);
    memcpy(w->ram + RING(q) + 0x1004 + 2 * (idx % 256), &head, 2);
    idx++;
    memcpy(w->ram + RING(q) + 0x1002, &idx, 2);
}

static u8 *data(struct world *w, unsigned q, unsigned n)
{
    return w->ram + DATA(q) + n * 0x1000 + 0x20;
}

static u8 status(const struct world *w, unsigned q, unsigned n)
{
    return w->ram[DATA(q) + n * 0x1000 + 0xfff];
}

static void notify(struct world *w, unsigned q)
{
    store(w, 0x3000 + 4 * q, 2, q);
}

static void wait_for_it(struct world *w)
{
    for (vns_t due; (due = w->dev.ops->deadline(&w->dev)) != NEVER;) {
        w->now = MAX(w->now, due);
        w->dev.ops->expire(&w->dev, w->now);
    }
}

static unsigned used(const struct world *w, unsigned q)
{
    u16 idx;
    memcpy(&idx, w->ram + RING(q) + 0x2002, 2);
    return idx;
}

/* Each queue has its own rings and vector; what one wrote another reads; data of a write are the
 * guest's until it completes. */
static void queues(void **state)
{
    struct world *w = create(false);
    (void)state;
    for (unsigned q = 0; q < QUEUES; q++) {
        request(w, q, 0, 1, 8 * q, 512);
        memset(data(w, q, 0), (int)(0x10 + q), 512);
        notify(w, q);
    }
    for (unsigned q = 0; q < QUEUES; q++) {
        request(w, q, 1, 0, 8 * (3 - q), 512);
        notify(w, q);
        assert_int_equal(used(w, q), 0);
    }
    memset(data(w, 2, 0), 0x77, 512); /* late, but in time */
    wait_for_it(w);
    for (unsigned q = 0; q < QUEUES; q++) {
        assert_int_equal(used(w, q), 2);
        assert_int_equal(status(w, q, 0), 0);
        assert_int_equal(status(w, q, 1), 0);
        assert_int_equal(data(w, q, 1)[100], q == 1 ? 0x77 : 0x10 + 3 - q);
        assert_true(w->interrupts[q] > 0);
    }
    assert_false(w->failed);
    destroy(w);
}

/* More requests than the list takes: none is lost, no queue starves. */
static void crowd(void **state)
{
    struct world *w = create(false);
    unsigned total = 0;
    (void)state;
    for (unsigned q = 0; q < QUEUES; q++) {
        request(w, q, 0, 0, q, 512);
        for (unsigned i = 1; i < 200; i++) { /* the same chain, over and over */
            u16 idx;
            memcpy(&idx, w->ram + RING(q) + 0x1002, 2);
            idx++;
            memcpy(w->ram + RING(q) + 0x1002, &idx, 2);
        }
        notify(w, q);
    }
    for (unsigned i = 0; i < 3; i++) {
        w->now = w->dev.ops->deadline(&w->dev);
        w->dev.ops->expire(&w->dev, w->now);
    }
    wait_for_it(w);
    for (unsigned q = 0; q < QUEUES; q++)
        total += used(w, q);
    assert_int_equal(total, 4 * 200);
    destroy(w);
}

/* The host fails: nobody sees it before the input, and then one request fails and nothing else. */
static void failing(void **state)
{
    for (int tell = 0; tell < 2; tell++) {
        struct world *w = create(false);
        u32 which = 99;
        (void)state;
        assert_false(virtio_blk_failing(&w->dev, &which));
        request(w, 0, 0, 0, 0, 512);
        notify(w, 0);
        assert_false(virtio_blk_failing(&w->dev, &which));
        assert_int_equal(ftruncate(image, 16 * PAGE_SIZE), 0);
        request(w, 1, 0, 0, 20 * 8, 512);             /* fails */
        request(w, 1, 1, 1, 21 * 8, 2048);            /* needs the rest of its page: fails */
        request(w, 1, 2, 1, 22 * 8, 4096 - 32 - 512); /* no sectors */
        notify(w, 1);
        request(w, 0, 1, 0, 8, 512);
        notify(w, 0);
        assert_true(virtio_blk_failing(&w->dev, &which));
        assert_int_equal(which, 1);
        assert_true(virtio_blk_failing(&w->dev, &which)); /* asked twice */
        assert_int_equal(which, 1);
        if (tell) {
            virtio_blk_fail(&w->dev, 1);
            assert_true(virtio_blk_failing(&w->dev, &which));
            assert_int_equal(which, 2);
            virtio_blk_fail(&w->dev, 2);
            assert_false(virtio_blk_failing(&w->dev, &which));
            virtio_blk_fail(&w->dev, 77); /* not under way */
        }
        wait_for_it(w);
        assert_int_equal(w->failed, !tell); /* as in a replay that was not told */
        assert_int_equal(status(w, 0, 0), 0);
        assert_int_equal(status(w, 0, 1), 0);
        assert_int_equal(status(w, 1, 0), 1);
        assert_int_equal(status(w, 1, 1), 1);
        assert_int_equal(status(w, 1, 2), 1);
        /* A healthy host that is told the same ends in the same state. */
        assert_false(virtio_blk_failing(&w->dev, &which));
        destroy(w);
    }
}

/* A reset in between: its number is of a request that is no more. */
static void reset_between(void **state)
{
    struct world *w = create(false);
    u32 which;
    (void)state;
    assert_int_equal(ftruncate(image, 0), 0);
    request(w, 0, 0, 0, 0, 512);
    notify(w, 0);
    assert_true(virtio_blk_failing(&w->dev, &which));
    store(w, 0x14, 1, 0);
    virtio_blk_fail(&w->dev, which);
    assert_false(virtio_blk_failing(&w->dev, &which));
    assert_int_equal(w->dev.ops->deadline(&w->dev), NEVER);
    assert_int_equal(status(w, 0, 0), 0xee);
    destroy(w);
}

/* A chain that was changed after it was taken is an error of that request. */
static void changed_chain(void **state)
{
    struct world *w = create(false);
    u32 longer = 1024;
    (void)state;
    request(w, 0, 0, 1, 0, 512);
    notify(w, 0);
    memcpy(w->ram + RING(0) + 16 + 8, &longer, 4);
    wait_for_it(w);
    assert_int_equal(status(w, 0, 0), 1);
    assert_int_equal(w->disk.store.pages, 0);
    assert_false(w->failed);
    destroy(w);
}

static void ranges(void **state)
{
    struct {
        u64 sector;
        u32 sectors, flags;
    } seg[] = {{8, 8, 1}, {8, 8, 2}, {8, 8, 1}, {SIZE / 512 - 1, 2, 0}, {0, 8, 0}};
    static const struct {
        u32 type;
        u8 status;
    } expected[] = {{13, 0}, {13, 2}, {11, 2}, {13, 1}, {11, 0}};
    (void)state;
    for (int readonly = 0; readonly < 2; readonly++) {
        struct world *w = create(readonly);
        for (unsigned i = 0; i < 5; i++) {
            request(w, 0, i, expected[i].type, 0, 16);
            memcpy(data(w, 0, i), &seg[i], 16);
        }
        notify(w, 0);
        wait_for_it(w);
        for (unsigned i = 0; i < 5; i++)
            assert_int_equal(status(w, 0, i), readonly ? 1 : expected[i].status);
        destroy(w);
    }
}

/* Loading a state with requests under way: they are done all the same. */
static void loaded(void **state)
{
    struct world *w = create(false);
    struct err err;
    (void)state;
    request(w, 3, 0, 0, 8, 512);
    notify(w, 3);
    const struct virtio_blk *b = w->dev.host;
    assert_non_null(b->ahead[0].first);
    assert_int_equal(w->dev.ops->loaded(&w->dev, &err), 0);
    assert_null(b->ahead[0].first);
    wait_for_it(w);
    assert_int_equal(status(w, 3, 0), 0);
    assert_int_equal(data(w, 3, 0)[5], byte_at(PAGE_SIZE + 5));
    destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ahead_is_used), cmocka_unit_test(digests), cmocka_unit_test(discards),
        cmocka_unit_test(room),          cmocka_unit_test(queues),  cmocka_unit_test(crowd),
        cmocka_unit_test(failing),       cmocka_unit_test(ranges),  cmocka_unit_test(reset_between),
        cmocka_unit_test(changed_chain), cmocka_unit_test(loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
