/*
 * Fuzz targets: each virtio device from the guest's side, one program a device (fuzz_virtio-blk
 * ..., told apart by their names). An input is a program of a hostile driver: configuration space,
 * BAR, rings and descriptors in memory, notifications, time. After each program the state must be
 * one that is accepted when loaded, and running the same program again must end in the same state
 * and memory.
 *
 * To add a device: its name in mk/test.mk (FUZZ_VIRTIO) and a row of `targets` below.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "dev/pci.h"
#include "dev/virtio/blk.h"
#include "dev/virtio/console.h"
#include "dev/virtio/input.h"
#include "dev/virtio/net.h"
#include "dev/virtio/rng.h"
#include "host/disk.h"
#include "mutate.h"

#define RAM_SIZE    65536u
#define DISK_SIZE   (40u * 512u)
#define MAX_DEVICES 4u

struct world;
struct program {
    const u8 *p;
    size_t left;
};

/* A kind of device. */
struct target {
    const char *name;
    /* Creates one or more, each announced by add() in the order of their slots (1, ...). */
    void (*create)(struct world *w);
    void (*destroy)(struct world *w);
    /* Something that only such a device knows (a request, a packet that arrives); NULL: nothing. */
    void (*special)(struct world *w, unsigned slot, struct program *s);
    /* After each step: what comes from the host, taken or replayed; NULL: nothing. */
    void (*inputs)(struct world *w);
    const u8 *sample; /* a program that reaches the device's requests */
    size_t sample_size;
    unsigned
        queues;   /* that set_up enables, each with a page of its own; 0: a few on shared rings */
    u32 features; /* of the device, that its driver takes */
};

/* An input that was recorded. */
struct failure {
    u32 step, device, request;
};

#define FAILURES_MAX 1024u

struct world {
    bool replay;
    u32 step;
    struct failure *failures; /* room for FAILURES_MAX */
    u32 nfailures;            /* how many there are, or how many were replayed */
    u8 ram[RAM_SIZE];
    vns_t now;
    u64 messages;
    struct dev_env env;
    struct device pci, dev[MAX_DEVICES];
    struct device *list[MAX_DEVICES];
    unsigned ndev;
    struct virtio rng;
    struct virtio_blk blk[2];
    struct virtio_net net[2];
    struct disk disk[2];
    struct virtio_console console[2];
    struct virtio_input input[INPUT_DEVICES];
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

/* Networks send nothing that the link would not carry; ports are those that exist. */
static void world_output(void *w, enum dev_output channel, const void *data, size_t len)
{
    ((struct world *)w)->messages += XXH3_64bits_withSeed(data, len, channel);
}

static void world_emit(void *opaque, enum dev_emit kind, unsigned unit, const void *data,
                       size_t len)
{
    struct world *w = opaque;
    if (kind == EMIT_PORT ? !unit || unit > 3 || !len : kind != EMIT_PACKET)
        abort();
    w->messages += XXH3_64bits_withSeed(data, len, 256u * kind + unit);
    if (kind == EMIT_PACKET && (unit > 1 || len < NET_FRAME_MIN || len > NET_FRAME_MAX ||
                                len > w->net[unit].mtu + NET_OVERHEAD))
        abort();
}

static u64 take(struct program *s, unsigned bytes)
{
    u64 v = 0;
    for (unsigned i = 0; i < bytes && s->left; i++, s->p++, s->left--)
        v |= (u64)*s->p << (8 * i);
    return v;
}

static void config(struct world *w, unsigned slot, unsigned offset, unsigned size, u32 value);
static void store(struct world *w, unsigned slot, u32 offset, unsigned size, u64 value);

static const struct target *target;

/* Where a queue's descriptors and rings are, and from where on its buffers. */
static unsigned desc_of(unsigned q)
{
    return target->queues ? 0x1000 * (1 + q) : 0x1000;
}

static unsigned avail_of(unsigned q)
{
    return target->queues ? desc_of(q) + 0x800 : 0x2000;
}

static unsigned used_of(unsigned q)
{
    return target->queues ? desc_of(q) + 0xa00 : 0x3000;
}

static unsigned buffers(void)
{
    return target->queues ? desc_of(target->queues) : 0x4000;
}

/* The next device, for a target to create. */
static struct device *add(struct world *w, unsigned *slot)
{
    if (w->ndev == MAX_DEVICES)
        abort();
    struct device *d = &w->dev[w->ndev];
    w->list[w->ndev++] = d;
    *slot = w->ndev;
    return d;
}

/* ---- entropy ---- */

static void rng_create(struct world *w)
{
    struct err err;
    unsigned slot;
    struct device *d = add(w, &slot);
    if (virtio_rng_create(d, &w->env, &w->rng, &w->pci, slot, 7, &err))
        abort();
}

static void rng_destroy(struct world *w)
{
    virtio_rng_destroy(&w->dev[0]);
}

static const u8 rng_sample[] = {0x00, 0x3b, 0x00,                    /* set_up slot 1 */
                                0x01, 0x01, 0,    0, 16, 0, 2, 0, 0, /* offer */
                                0x02, 0x03, 0,    0, 9 /* notify, wait */};

/* ---- block: one that is written, one read-only ---- */

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
    make_image();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", image);
    for (unsigned i = 0; i < 2; i++) {
        unsigned slot;
        struct device *d = add(w, &slot);
        struct disk_config c = {.file = path, .format = "raw", .serial = "serial", .readonly = i};
        if (disk_open(&w->disk[i], &c, &err) ||
            virtio_blk_create(d, &w->env, &w->blk[i], &w->pci, slot, &w->disk[i], "disk", &err))
            abort();
    }
}

static void blk_destroy(struct world *w)
{
    for (unsigned i = 0; i < 2; i++) {
        virtio_blk_destroy(&w->dev[i]);
        if (w->disk[i].store.reserved)
            abort(); /* a promise that nobody gave back */
        disk_close(&w->disk[i]);
    }
}

/* The host: the image ends early, or there is room for so many pages of what the guest writes. */
static void blk_trouble(struct world *w, unsigned how)
{
    struct page_store *store = &w->disk[0].store;
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
    const struct failure *f = w->failures + w->nfailures;
    for (; w->replay && w->nfailures < FAILURES_MAX && f->step == w->step; f++, w->nfailures++)
        virtio_blk_fail(&w->dev[f->device], f->request);
    for (u32 i = 0; !w->replay && i < 2; i++) {
        u32 request;
        while (virtio_blk_failing(&w->dev[i], &request)) {
            if (w->nfailures == FAILURES_MAX)
                abort();
            w->failures[w->nfailures++] = (struct failure){w->step, i, request};
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

/* ---- network: a common MTU, and the largest ---- */

static void net_create(struct world *w)
{
    static const u8 mac[6] = {2, 0, 0, 0, 0, 1};
    struct err err;
    for (unsigned i = 0; i < 2; i++) {
        unsigned slot;
        struct device *d = add(w, &slot);
        if (virtio_net_create(d, &w->env, &w->net[i], &w->pci, slot, i, mac, i ? 32000 : 1500,
                              &err))
            abort();
    }
}

static void net_destroy(struct world *w)
{
    for (unsigned i = 0; i < 2; i++)
        virtio_net_destroy(&w->dev[i]);
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

/* ---- console: hvc0 and two ports; three ports ---- */

#define CONSOLE_QUEUES 10u

static void console_create(struct world *w)
{
    static const char *const names[2][CONSOLE_PORTS] = {{NULL, "one", "the.second_port"},
                                                        {NULL, "a", "", "c"}};
    struct err err;
    for (unsigned i = 0; i < 2; i++) {
        unsigned slot;
        struct device *d = add(w, &slot);
        if (virtio_console_create(d, &w->env, &w->console[i], &w->pci, slot, i == 0, names[i],
                                  &err))
            abort();
    }
}

static void console_destroy(struct world *w)
{
    for (unsigned i = 0; i < 2; i++)
        virtio_console_destroy(&w->dev[i]);
}

/* Says something on the control queue as a good driver would. */
static void console_say(struct world *w, unsigned slot, unsigned port, u8 event, bool value)
{
    u8 *message = w->ram + buffers(), *desc = w->ram + desc_of(3);
    u64 at = buffers();
    memset(message, 0, 8);
    message[0] = (u8)port;
    message[4] = event;
    message[6] = value;
    memset(desc, 0, 16);
    memcpy(desc, &at, 8);
    desc[8] = 8;
    w->ram[avail_of(3) + 2]++;
    store(w, slot, 0x3000 + 4 * 3, 2, 0);
}

/* The driver says something; the host opens, closes, sends. */
static void console_special(struct world *w, unsigned slot, struct program *s)
{
    struct device *d = &w->dev[slot - 1];
    static u8 bytes[CONSOLE_ROOM_MAX];
    unsigned what = (unsigned)take(s, 1), port = what >> 2 & 7;
    u32 room = virtio_console_room(d, port), len;
    switch (what & 3) {
    case 0: console_say(w, slot, port, (u8)take(s, 1) % 9, what >> 5 != 7); break;
    case 1:
    case 2:
        if (virtio_console_has(d, port))
            virtio_console_open(d, port, what >> 5 & 1);
        break;
    default:
        len = (u32)take(s, 2);
        len = room ? 1 + len % room : 0;
        if (room > CONSOLE_ROOM_MAX)
            abort();
        memset(bytes, (int)what, len);
        if (len)
            virtio_console_receive(d, port, bytes, len);
    }
}

#define NOTIFY(q)           0x02, q
#define OFFER(q, len, flag) 0x01, q, 0x00, 0, 1, len, 0, flag, 2 /* three times the same */
#define SPECIAL(what, arg)  0x0a, what, arg

/* Both queues of messages, all three ports ready and open, bytes in both directions. */
static const u8 console_sample[] = {0x00,
                                    0x2b,
                                    0x00,
                                    OFFER(2, 60, 2),
                                    OFFER(2, 60, 2),
                                    OFFER(2, 60, 2),
                                    OFFER(2, 60, 2),
                                    OFFER(2, 60, 2),
                                    SPECIAL(0x20, 0), /* DEVICE_READY */
                                    SPECIAL(0x20, 3),
                                    SPECIAL(0x24, 3),
                                    SPECIAL(0x28, 3), /* PORT_READY */
                                    SPECIAL(0x20, 6),
                                    SPECIAL(0x24, 6),
                                    SPECIAL(0x28, 6), /* PORT_OPEN */
                                    0x0a,
                                    0x25,
                                    0x0a,
                                    0x29,
                                    OFFER(0, 90, 2),
                                    OFFER(4, 90, 2),
                                    OFFER(6, 90, 2),
                                    0x0a,
                                    0x03,
                                    50,
                                    0,
                                    0x0a,
                                    0x07,
                                    20,
                                    0,
                                    0x0a,
                                    0x0b,
                                    9,
                                    0,
                                    OFFER(1, 30, 0),
                                    NOTIFY(1),
                                    OFFER(5, 30, 0),
                                    NOTIFY(5),
                                    OFFER(7, 30, 0),
                                    NOTIFY(7),
                                    0x0a,
                                    0x05,
                                    SPECIAL(0xe4, 6),
                                    SPECIAL(0xe0, 0)};

/* ---- input: keyboard, tablet ---- */

static void input_create(struct world *w)
{
    struct err err;
    for (unsigned i = 0; i < INPUT_DEVICES; i++) {
        unsigned slot;
        struct device *d = add(w, &slot);
        if (virtio_input_create(d, &w->env, &w->input[i], &w->pci, slot, (enum input_device)i,
                                &err))
            abort();
    }
}

static void input_destroy(struct world *w)
{
    for (unsigned i = 0; i < INPUT_DEVICES; i++)
        virtio_input_destroy(&w->dev[i]);
}

/* Something happens to the device, as much as it has room for; or what its configuration says. */
static void input_special(struct world *w, unsigned slot, struct program *s)
{
    struct device *d = &w->dev[slot - 1];
    u8 events[8 * 8];
    unsigned what = (unsigned)take(s, 1), select;
    u32 len = 8 * (1 + (what & 7)), room = virtio_input_room(d);
    if (room % 8 || room > 8 * 64)
        abort();
    memset(events, (int)what, sizeof(events));
    if (!(what & 8) && len <= room)
        virtio_input_events(d, events, len);
    if (!(what & 8))
        return;
    static const u8 selects[] = {1, 2, 3, 0x10, 0x11, 0x11, 0x12, 0x55};
    select = selects[what >> 4 & 7] | (unsigned)take(s, 1) % 0x18 << 8;
    store(w, slot, 0x2000, 2, select);
    for (unsigned i = 0; i < 136; i += 8)
        w->messages += w->pci.ops->mmio_read(&w->pci, slot * 0x100000u + 0x2000 + i, 8) * i;
}

static const u8 input_sample[] = {0x00,
                                  0x2b,
                                  0x00,
                                  OFFER(0, 8, 2),
                                  OFFER(0, 8, 2),
                                  0x0a,
                                  0x01,
                                  0x0a,
                                  0x02, /* events */
                                  0x0b,
                                  0x01,
                                  0x30,
                                  0x11,
                                  0x00,
                                  0x01,
                                  OFFER(1, 8, 0),
                                  NOTIFY(1), /* lights */
                                  SPECIAL(0x08, 0),
                                  SPECIAL(0x28, 0),
                                  SPECIAL(0x48, 1),
                                  SPECIAL(0x58, 0x11),
                                  SPECIAL(0x68, 0),
                                  SPECIAL(0x78, 0)};

/* ---- all of them ---- */

#define SAMPLE(bytes) bytes, sizeof(bytes)

static const struct target targets[] = {
    {"virtio-rng", rng_create, rng_destroy, NULL, NULL, SAMPLE(rng_sample), 0, 0},
    {"virtio-net", net_create, net_destroy, net_special, NULL, SAMPLE(net_sample), 0, 0},
    {"virtio-blk", blk_create, blk_destroy, blk_special, blk_inputs, SAMPLE(blk_sample), 0, 0},
    {"virtio-console", console_create, console_destroy, console_special, NULL,
     SAMPLE(console_sample), CONSOLE_QUEUES, 2},
    {"virtio-input", input_create, input_destroy, input_special, NULL, SAMPLE(input_sample), 2, 0},
};

/* By the program's name, fuzz_NAME. */
static void choose_target(void)
{
    const char *name = strchr(program_invocation_short_name, '_');
    for (unsigned i = 0; !target && name && i < ARRAY_SIZE(targets); i++)
        if (!strcmp(targets[i].name, name + 1))
            target = &targets[i];
    if (!target) {
        fprintf(stderr, "%s: no device has that name\n", program_invocation_short_name);
        exit(1);
    }
}

/* `failures` has room for FAILURES_MAX. */
static struct world *world_create(bool replay, struct failure *failures)
{
    static struct world *w; /* one for all: allocating it takes longer than a program */
    struct err err;
    if (!w)
        w = malloc(sizeof(*w));
    if (!w)
        abort();
    memset(w, 0, sizeof(*w));
    w->replay = replay;
    w->failures = failures;
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
    target->create(w);
    return w;
}

static void world_destroy(struct world *w)
{
    target->destroy(w);
    pci_destroy(&w->pci);
}

/* ---- programs ---- */

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
        store(w, slot, 12, 4, i ? 1 : (u32)(how & 7) << 28 | target->features);
    }
    store(w, slot, 0x14, 1, 11);
    unsigned queues = target->queues ? target->queues : 1 + (how >> 10 & 3); /* on the same rings */
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
    unsigned q = target->queues ? (unsigned)take(s, 1) % target->queues : 0;
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
        case 0: set_up(w, slot, take(&s, 2)); break;
        case 1: offer(w, &s); break;
        case 2:
            n = target->queues ? (unsigned)take(&s, 1) % target->queues : op >> 6;
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
            if (target->special)
                target->special(w, slot, &s);
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
        if (target->inputs)
            target->inputs(w);
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
    return h * 31 + state_hash(w->pci.ops->state, w->pci.state);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    static struct failure failures[FAILURES_MAX];
    u64 h[2];
    if (!target)
        choose_target();
    memset(failures, 0xff, sizeof(failures));
    for (int i = 0; i < 2; i++) {
        struct world *w = world_create(i, failures);
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
    if (!target)
        choose_target();
    u8 *data = malloc(target->sample_size);
    memcpy(data, target->sample, target->sample_size);
    *size = target->sample_size;
    return data;
}
