/* virtio-blk, one that is written and one read-only: see fuzz_virtio.h. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dev/virtio/blk.h"
#include "fuzz_virtio.h"
#include "host/disk.h"

#define DISK_SIZE    (40u * 512u)
#define FAILURES_MAX 1024u

/* An input that was recorded. */
struct failure {
    u32 step, device, request;
};

static struct disk disks[2];
static struct failure failures[FAILURES_MAX];
static u32 nfailures, recorded; /* so far in this run; in the run before */

static int image = -1;
static bool image_whole;

static void make_image(void)
{
    static u8 bytes[DISK_SIZE];
    if (image_whole)
        return;
    if (image < 0) {
        image = memfd_create("disk", 0);
        for (unsigned i = 0; i < DISK_SIZE; i++)
            bytes[i] = (u8)(i / 512 + i);
    }
    image_whole = true;
    if (image < 0 || pwrite(image, bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        abort();
}

static void blk_create(struct world *w)
{
    struct err err;
    char path[64];
    recorded = nfailures;
    nfailures = 0;
    make_image();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", image);
    for (unsigned i = 0; i < 2; i++) {
        unsigned slot;
        struct device *d = add(w, &slot);
        struct disk_config c = {.file = path, .format = "raw", .serial = "serial", .readonly = i};
        if (disk_open(&disks[i], &c, &err) ||
            virtio_blk_create(d, &w->env, &w->pci, slot, &disks[i], "disk", &err))
            abort();
    }
}

static void blk_destroy(struct world *w)
{
    for (unsigned i = 0; i < 2; i++) {
        device_destroy(&w->dev[i]);
        if (disks[i].store.reserved)
            abort(); /* a promise that nobody gave back */
        disk_close(&disks[i]);
    }
}

/* The host: the image ends early, or there is room for so many pages of what the guest writes. */
static void blk_trouble(struct world *w, unsigned how)
{
    struct page_store *store = &disks[0].store;
    if (w->replay)
        return;
    if (how & 1) {
        store->limit = MAX(1 + (how >> 1) % 8, store->pages);
        store->ndirs = 0;
        return;
    }
    make_image();
    image_whole = !(how & 2);
    if (how & 2 && ftruncate(image, (off_t)((how >> 2) % 41) * 512))
        abort();
}

/* A request's header at 0x4000; after that a range to zero. */
static void blk_special(struct world *w, unsigned slot, struct program *s)
{
    static const u8 types[] = {0, 1, 4, 8, 11, 13, 14, 255};
    u8 what = (u8)take(s, 1), sector = (u8)take(s, 1);
    (void)slot;
    if (what >= 0xc0) {
        blk_trouble(w, sector);
        return;
    }
    w->ram[0x4000] = types[what % 8];
    w->ram[0x4008] = w->ram[0x4010] = sector;
    w->ram[0x4018] = (u8)take(s, 1) % 50;
}

static void blk_inputs(struct world *w)
{
    const struct failure *f = failures + nfailures;
    for (; w->replay && nfailures < recorded && f->step == w->step; f++, nfailures++)
        virtio_blk_fail(&w->dev[f->device], f->request);
    for (u32 i = 0; !w->replay && i < 2; i++) {
        u32 request;
        while (virtio_blk_failing(&w->dev[i], &request)) {
            if (nfailures == FAILURES_MAX)
                abort();
            failures[nfailures++] = (struct failure){w->step, i, request};
            virtio_blk_fail(&w->dev[i], request);
        }
    }
}

static const u8 blk_sample[] = {0x00, 0x3b, 0x00,       /* set_up slot 1 */
                                0x0a, 0x00, 0x01, 0x01, /* header: read */
                                0x01, 0x02, 0,    0,    16,   0,    1, 0, 1,  0,    4,    3, 0,
                                2,    1,    0,    2,    0, /* offer */
                                0x02, 0x03, 0,    0,    9, /* notify, wait */
                                0x0a, 0x01, 0x02, 0x01, 0x01, 0x02, 0, 0, 16, 0,    1,    0, 1,
                                0,    2,    1,    0,    2,    1,    0, 2, 0,  0x02, 0x03, 0, 0,
                                9,    0x10, 0x3b, 0x00, 0x11, 0x00, 0, 8, 64, 0,    2,    0, 0x12,
                                0x06, 0x14, 0,    0,    0,    0,    0, 0, 0,  0,    0};

const struct target target = {.create = blk_create,
                              .destroy = blk_destroy,
                              .special = blk_special,
                              .inputs = blk_inputs,
                              SAMPLE(blk_sample)};
