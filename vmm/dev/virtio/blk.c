/*
 * virtio block device (virtio 1.2, 5.2). What a request reads of the guest is copied when the guest
 * notifies; what it gives the guest (data, status, used ring, interrupt) is written a fixed virtual
 * time later. Requests complete in order, so that the list of those under way is a ring.
 *
 * Contents follow from the base image and from what was written, and are not logged. A host that
 * cannot read the image is an I/O error to the guest.
 */
#include "dev/virtio/blk.h"

#include <stdio.h>
#include <string.h>

#include "dev/util.h"
#include "host/disk.h"

#define LATENCY_NS 50000u /* from notification to completion, and a byte a quarter ns on top */
#define PIECE      65536u
#define SEG_MAX    254u

#define F_SEG_MAX      (1ull << 2)
#define F_RO           (1ull << 5)
#define F_BLK_SIZE     (1ull << 6)
#define F_FLUSH        (1ull << 9)
#define F_DISCARD      (1ull << 13)
#define F_WRITE_ZEROES (1ull << 14)

enum { T_IN = 0, T_OUT = 1, T_FLUSH = 4, T_GET_ID = 8, T_DISCARD = 11, T_WRITE_ZEROES = 13 };
enum { S_OK = 0, S_IOERR = 1, S_UNSUPP = 2 };

#define UNDER_WAY VIRTIO_QUEUE_MAX

#define BLK_STATE(F, A)                                                                            \
    VIRTIO_STATE(F, A)                                                                             \
    F(u64, base_digest) /* of all that was read of the base image */                               \
    F(u16, first)       /* of those under way */                                                   \
    F(u16, count)                                                                                  \
    A(u16, head, UNDER_WAY)                                                                        \
    A(u8, type, UNDER_WAY)                                                                         \
    A(u8, result, UNDER_WAY)                                                                       \
    A(u64, sector, UNDER_WAY)                                                                      \
    A(u64, due, UNDER_WAY) /* virtual time */

struct blk_state {
    BLK_STATE(STATE_MEMBER, STATE_MEMBER_ARRAY)
};

#define F(t, n)    STATE_FIELD(blk_state, t, n)
#define A(t, n, c) STATE_FIELD_ARRAY(blk_state, t, n, c)
static const struct state_field blk_fields[] = {BLK_STATE(F, A)};
#undef F
#undef A
static const struct state_desc blk_desc = {"virtio-blk", blk_fields, ARRAY_SIZE(blk_fields),
                                           sizeof(struct blk_state)};

static struct virtio_blk *self(const struct device *dev)
{
    return dev->host;
}

/* ---- configuration (5.2.4) ---- */

struct blk_config {
    u64 capacity; /* sectors */
    u32 size_max, seg_max;
    u16 cylinders;
    u8 heads, sectors;
    u32 blk_size;
    u8 topology[8];
    u8 writeback, unused;
    u16 num_queues;
    u32 max_discard_sectors, max_discard_seg, discard_sector_alignment;
    u32 max_write_zeroes_sectors, max_write_zeroes_seg;
    u8 write_zeroes_may_unmap, unused1[3];
} __attribute__((packed));

static void blk_config_read(struct device *dev, unsigned offset, unsigned size, u8 *out)
{
    struct blk_config c = {.capacity = self(dev)->disk->size / DISK_SECTOR,
                           .seg_max = SEG_MAX,
                           .blk_size = DISK_SECTOR,
                           .num_queues = 1,
                           .max_discard_sectors = 1u << 22,
                           .max_discard_seg = 1,
                           .discard_sector_alignment = 8,
                           .max_write_zeroes_sectors = 1u << 15,
                           .max_write_zeroes_seg = 1};
    memcpy(out, (const u8 *)&c + offset, size);
}

/* ---- requests (5.2.6) ---- */

static bool within(const struct disk *d, u64 sector, u64 bytes)
{
    u64 sectors = d->size / DISK_SECTOR;
    return bytes % DISK_SECTOR == 0 && sector <= sectors && bytes / DISK_SECTOR <= sectors - sector;
}

static u8 do_write(struct virtio_blk *b, u64 sector)
{
    struct blk_state *s = b->v.dev->state;
    u64 len = b->v.chain.read_len - 16;
    u8 buf[PIECE];
    if (b->disk->readonly || !within(b->disk, sector, len))
        return S_IOERR;
    for (u64 at = 0; at < len; at += PIECE) {
        u64 n = MIN(len - at, (u64)PIECE);
        if (virtio_read(&b->v, 16 + at, buf, n) != n ||
            disk_write(b->disk, sector * DISK_SECTOR + at, buf, n, &s->base_digest))
            return S_IOERR;
    }
    return S_OK;
}

/* 5.2.6.1, struct virtio_blk_discard_write_zeroes: one segment. */
static u8 do_zero(struct virtio_blk *b, u32 type)
{
    struct blk_state *s = b->v.dev->state;
    struct {
        u64 sector;
        u32 sectors, flags;
    } seg;
    if (b->disk->readonly)
        return S_IOERR;
    if (virtio_read(&b->v, 16, &seg, sizeof(seg)) != sizeof(seg) ||
        b->v.chain.read_len != 16 + sizeof(seg) || (seg.flags & ~1u) ||
        (type == T_DISCARD && seg.flags))
        return S_UNSUPP;
    if (!within(b->disk, seg.sector, (u64)seg.sectors * DISK_SECTOR))
        return S_IOERR;
    if (type == T_DISCARD)
        return S_OK; /* may leave the data as it is */
    if (seg.sectors > 1u << 15)
        return S_IOERR;
    return disk_zero(b->disk, seg.sector * DISK_SECTOR, (u64)seg.sectors * DISK_SECTOR,
                     &s->base_digest)
               ? S_IOERR
               : S_OK;
}

/* What the device does where the guest notified it. */
static u8 start(struct virtio_blk *b, u32 type, u64 sector)
{
    switch (type) {
    case T_OUT: return do_write(b, sector);
    case T_DISCARD:
    case T_WRITE_ZEROES: return do_zero(b, type);
    case T_IN:
    case T_FLUSH: /* a write is where it belongs at once */
    case T_GET_ID: return S_OK;
    default: return S_UNSUPP;
    }
}

static void blk_notify(struct device *dev, unsigned queue)
{
    struct virtio_blk *b = self(dev);
    struct blk_state *s = dev->state;
    while (s->count < UNDER_WAY && virtio_pop(&b->v, queue)) {
        struct {
            u32 type, reserved;
            u64 sector;
        } h;
        if (virtio_read(&b->v, 0, &h, sizeof(h)) != sizeof(h) || !b->v.chain.write_len) {
            virtio_broken(&b->v); /* no header, or no room for a status */
            return;
        }
        unsigned i = (s->first + s->count) % UNDER_WAY;
        u64 bytes = b->v.chain.read_len + b->v.chain.write_len;
        vns_t due = dev_now(dev) + LATENCY_NS + bytes / 4;
        if (s->count)
            due = MAX(due, s->due[(i + UNDER_WAY - 1) % UNDER_WAY]);
        s->head[i] = b->v.chain.head;
        s->type[i] = h.type > 255 ? 255 : (u8)h.type;
        s->sector[i] = h.sector;
        s->due[i] = due;
        s->result[i] = start(b, h.type, h.sector);
        s->count++;
    }
    dev_changed(dev);
}

/* Data for a reader: all of the writable part but its last byte. */
static u8 give_data(struct virtio_blk *b, u8 type, u64 sector, u64 len)
{
    struct blk_state *s = b->v.dev->state;
    u8 buf[PIECE];
    if (type == T_GET_ID) {
        memset(buf, 0, 20);
        memcpy(buf, b->disk->serial, strlen(b->disk->serial));
        virtio_write(&b->v, 0, buf, MIN(len, (u64)20));
        return S_OK;
    }
    if (!within(b->disk, sector, len))
        return S_IOERR;
    for (u64 at = 0; at < len; at += PIECE) {
        u64 n = MIN(len - at, (u64)PIECE);
        if (disk_read(b->disk, sector * DISK_SECTOR + at, buf, n, &s->base_digest) ||
            virtio_write(&b->v, at, buf, n) != n)
            return S_IOERR;
    }
    return S_OK;
}

static void complete(struct virtio_blk *b, unsigned i)
{
    struct blk_state *s = b->v.dev->state;
    if (!virtio_again(&b->v, 0, s->head[i]))
        return;
    u64 len = b->v.chain.write_len - 1;
    u8 status = s->result[i];
    bool gives = s->type[i] == T_IN || s->type[i] == T_GET_ID;
    if (status == S_OK && gives)
        status = give_data(b, s->type[i], s->sector[i], len);
    virtio_write(&b->v, len, &status, 1);
    virtio_push(&b->v, 0, s->head[i], (u32)(status == S_OK && gives ? len + 1 : 1));
}

static vns_t blk_deadline(const struct device *dev)
{
    const struct blk_state *s = dev->state;
    return s->count ? s->due[s->first] : NEVER;
}

static void blk_expire(struct device *dev, vns_t now)
{
    struct virtio_blk *b = self(dev);
    struct blk_state *s = dev->state;
    while (s->count && s->due[s->first] <= now) {
        unsigned i = s->first;
        s->first = (u16)((s->first + 1) % UNDER_WAY);
        s->count--;
        complete(b, i);
    }
    virtio_signal(&b->v, 0);
    if (virtio_ready(&b->v))
        blk_notify(dev, 0); /* what had to wait for room */
}

/* The driver's reset forgets what is under way. */
static void blk_driver_reset(struct device *dev)
{
    struct blk_state *s = dev->state;
    s->first = s->count = 0;
}

static void blk_reset(struct device *dev)
{
    virtio_reset(dev);
    blk_driver_reset(dev);
}

static int blk_loaded(struct device *dev, struct err *err)
{
    const struct blk_state *s = dev->state;
    if (s->first >= UNDER_WAY || s->count > UNDER_WAY)
        return dev_bad_state(dev, err, "requests");
    return virtio_loaded(dev, err);
}

static const struct virtio_class blk_class = {
    .type = 2,
    .pci_class = {0x00, 0x80, 0x01}, /* mass storage controller */
    .features = F_SEG_MAX | F_BLK_SIZE | F_FLUSH | F_DISCARD | F_WRITE_ZEROES,
    .queues = 1,
    .queue_max = VIRTIO_QUEUE_MAX,
    .config_size = sizeof(struct blk_config),
    .config_read = blk_config_read,
    .notify = blk_notify,
    .reset = blk_driver_reset,
};

static const struct virtio_class blk_class_ro = {
    .type = 2,
    .pci_class = {0x00, 0x80, 0x01},
    .features = F_SEG_MAX | F_BLK_SIZE | F_FLUSH | F_RO,
    .queues = 1,
    .queue_max = VIRTIO_QUEUE_MAX,
    .config_size = sizeof(struct blk_config),
    .config_read = blk_config_read,
    .notify = blk_notify,
    .reset = blk_driver_reset,
};

static const struct device_ops blk_ops = {
    .name = "disk",
    .state = &blk_desc,
    .reset = blk_reset,
    .deadline = blk_deadline,
    .expire = blk_expire,
    .loaded = blk_loaded,
};

bool virtio_blk_failing(struct device *dev, u32 *request)
{
    return false;
}

void virtio_blk_fail(struct device *dev, u32 request)
{
}

int virtio_blk_create(struct device *dev, const struct dev_env *env, struct virtio_blk *b,
                      struct device *pci, unsigned slot, struct disk *disk, const char *name,
                      struct err *err)
{
    int r = dev_alloc(dev, &blk_ops, env, sizeof(struct blk_state), err);
    if (r)
        return r;
    b->disk = disk;
    snprintf(dev->name, sizeof(dev->name), "%s", name);
    virtio_connect(&b->v, dev, disk->readonly ? &blk_class_ro : &blk_class, pci, slot);
    return 0;
}

void virtio_blk_destroy(struct device *dev)
{
    dev_free(dev);
}
