/*
 * virtio block device (virtio 1.2, 5.2). When the guest notifies, a request's chain is taken and
 * its header read, and what it will need of the host is got (host/disk.h). All else, data in both
 * directions, is done at its completion, a fixed virtual time later. Requests of all queues
 * complete in the order in which they were taken, so a flush has nothing to do, and the list of
 * those under way is one ring.
 *
 * Contents follow from the base image and from what was written, and are not logged. What the host
 * could not get for a request is nondeterminism and enters as an input: "request K of this disk
 * fails", K counting from power-on (virtio_blk_failing and virtio_blk_fail).
 */
#include "dev/virtio/blk.h"

#include <stdio.h>
#include <string.h>

#include "dev/making.h"
#include "dev/util.h"

#define LATENCY_NS  50000u /* from notification to completion, and a byte a quarter ns on top */
#define PIECE       65536u
#define QUEUES      4u
#define SEG_MAX     254u
#define SEG_BYTES   65536u /* bytes of a segment */
#define REQUEST_MAX (SEG_MAX * SEG_BYTES)
#define AHEAD_MAX   (64u << 20) /* bytes of requests under way beyond which none is taken */
#define DISCARD_MAX (1u << 22)  /* sectors */
#define ZERO_MAX    (1u << 15)

#define F_SIZE_MAX     (1ull << 1)
#define F_SEG_MAX      (1ull << 2)
#define F_RO           (1ull << 5)
#define F_BLK_SIZE     (1ull << 6)
#define F_FLUSH        (1ull << 9)
#define F_TOPOLOGY     (1ull << 10)
#define F_MQ           (1ull << 12)
#define F_DISCARD      (1ull << 13)
#define F_WRITE_ZEROES (1ull << 14)

enum { T_IN = 0, T_OUT = 1, T_FLUSH = 4, T_GET_ID = 8, T_DISCARD = 11, T_WRITE_ZEROES = 13 };
enum { S_OK = 0, S_IOERR = 1, S_UNSUPP = 2 };

#define UNDER_WAY VIRTIO_BLK_UNDER_WAY

/* Request K is at K % UNDER_WAY. */
#define BLK_STATE(F, A)                                                                            \
    VIRTIO_STATE(F, A)                                                                             \
    F(u64, base_digest) /* of all that was read of the base image */                               \
    F(u32, done)        /* requests completed or forgotten: the number of the first under way */   \
    F(u16, count)       /* of those under way */                                                   \
    F(u8, turn)         /* the queue to be looked at first when there is room again */             \
    A(u16, head, UNDER_WAY)                                                                        \
    A(u8, queue, UNDER_WAY)                                                                        \
    A(u8, type, UNDER_WAY)                                                                         \
    A(u8, result, UNDER_WAY) /* not S_OK: nothing of it will be done */                            \
    A(u64, sector, UNDER_WAY)                                                                      \
    A(u32, bytes, UNDER_WAY) /* of data, or of the range */                                        \
    A(u64, due, UNDER_WAY)   /* virtual time */

STATE(blk, "virtio-blk", BLK_STATE);

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
    u8 physical_block_exp, alignment_offset;
    u16 min_io_size;
    u32 opt_io_size;
    u8 writeback, unused;
    u16 num_queues;
    u32 max_discard_sectors, max_discard_seg, discard_sector_alignment;
    u32 max_write_zeroes_sectors, max_write_zeroes_seg;
    u8 write_zeroes_may_unmap, unused1[3];
} __attribute__((packed));

static void blk_config_read(struct device *dev, unsigned offset, unsigned size, u8 *out)
{
    struct blk_config c = {.capacity = self(dev)->disk->size / DISK_SECTOR,
                           .size_max = SEG_BYTES,
                           .seg_max = SEG_MAX,
                           .blk_size = DISK_SECTOR,
                           /* What is kept of writes is whole pages. */
                           .physical_block_exp = 3,
                           .min_io_size = PAGE_SIZE / DISK_SECTOR,
                           .num_queues = QUEUES,
                           .max_discard_sectors = DISCARD_MAX,
                           .max_discard_seg = 1,
                           .discard_sector_alignment = PAGE_SIZE / DISK_SECTOR,
                           .max_write_zeroes_sectors = ZERO_MAX,
                           .max_write_zeroes_seg = 1,
                           .write_zeroes_may_unmap = 1};
    memcpy(out, (const u8 *)&c + offset, size);
}

/* ---- taking requests (5.2.6) ---- */

static bool within(const struct disk *d, u64 sector, u64 bytes)
{
    u64 sectors = d->size / DISK_SECTOR;
    return bytes % DISK_SECTOR == 0 && sector <= sectors && bytes / DISK_SECTOR <= sectors - sector;
}

/* 5.2.6.1, struct virtio_blk_discard_write_zeroes: one segment, which is read here and not again.
 */
static u8 check_range(struct virtio_blk *b, u8 type, u64 *sector, u32 *bytes)
{
    struct {
        u64 sector;
        u32 sectors, flags;
    } seg;
    if (b->disk->readonly)
        return S_IOERR;
    /* Flag 0, unmap: zeros take no room in any case. It makes no sense to discard (5.2.6.2). */
    if (b->v.chain.read_len != 16 + sizeof(seg) ||
        virtio_read(&b->v, 16, &seg, sizeof(seg)) != sizeof(seg) || (seg.flags & ~1u) ||
        (type == T_DISCARD && seg.flags))
        return S_UNSUPP;
    if (seg.sectors > (type == T_DISCARD ? DISCARD_MAX : ZERO_MAX) ||
        !within(b->disk, seg.sector, (u64)seg.sectors * DISK_SECTOR))
        return S_IOERR;
    *sector = seg.sector;
    *bytes = seg.sectors * DISK_SECTOR;
    return S_OK;
}

static u8 check_data(struct virtio_blk *b, u64 sector, u64 len, bool write, u32 *bytes)
{
    if ((write && b->disk->readonly) || len > REQUEST_MAX || !within(b->disk, sector, len))
        return S_IOERR;
    *bytes = (u32)len;
    return S_OK;
}

/* Can it be done, as far as the guest decides that? */
static u8 check(struct virtio_blk *b, u8 type, u64 *sector, u32 *bytes)
{
    const struct virtio_chain *c = &b->v.chain;
    switch (type) {
    case T_IN: return check_data(b, *sector, c->write_len - 1, false, bytes);
    case T_OUT: return check_data(b, *sector, c->read_len - 16, true, bytes);
    case T_DISCARD:
    case T_WRITE_ZEROES: return check_range(b, type, sector, bytes);
    case T_FLUSH:
    case T_GET_ID: return S_OK;
    default: return S_UNSUPP;
    }
}

static void get_ahead(struct virtio_blk *b, unsigned i)
{
    const struct blk_state *s = b->v.dev->state;
    enum disk_access access = s->type[i] == T_IN    ? DISK_READ
                              : s->type[i] == T_OUT ? DISK_WRITE
                                                    : DISK_ZERO;
    bool needs = s->type[i] == T_IN || s->type[i] == T_OUT || s->type[i] == T_WRITE_ZEROES;
    if (s->result[i] == S_OK && needs)
        disk_ahead_start(b->disk, &b->ahead[i], access, s->sector[i] * DISK_SECTOR, s->bytes[i]);
}

/* The chain that was just taken. False: it is no request. */
static bool accept(struct virtio_blk *b, unsigned queue)
{
    struct blk_state *s = b->v.dev->state;
    struct {
        u32 type, reserved;
        u64 sector;
    } h;
    if (virtio_read(&b->v, 0, &h, sizeof(h)) != sizeof(h) || !b->v.chain.write_len) {
        virtio_broken(&b->v); /* no header, or no room for a status */
        return false;
    }
    unsigned i = (s->done + s->count) % UNDER_WAY;
    u64 bytes = b->v.chain.read_len + b->v.chain.write_len;
    vns_t due = dev_late(b->v.dev, dev_now(b->v.dev) + LATENCY_NS + bytes / 4);
    if (s->count)
        due = MAX(due, s->due[(i + UNDER_WAY - 1) % UNDER_WAY]);
    s->head[i] = b->v.chain.head;
    s->queue[i] = (u8)queue;
    s->type[i] = h.type > 255 ? 255 : (u8)h.type;
    s->sector[i] = h.sector;
    s->bytes[i] = 0;
    s->due[i] = due;
    s->result[i] = check(b, s->type[i], &s->sector[i], &s->bytes[i]);
    s->count++;
    get_ahead(b, i);
    return true;
}

/* Bytes for which there may be buffers. */
static u64 under_way(const struct blk_state *s)
{
    u64 sum = 0;
    for (u32 k = 0; k < s->count; k++) {
        unsigned i = (s->done + k) % UNDER_WAY;
        sum += s->type[i] == T_IN || s->type[i] == T_OUT ? s->bytes[i] : 0;
    }
    return sum;
}

static void blk_notify(struct device *dev, unsigned queue)
{
    struct virtio_blk *b = self(dev);
    struct blk_state *s = dev->state;
    u16 before = s->count;
    while (s->count < UNDER_WAY && under_way(s) < AHEAD_MAX && virtio_pop(&b->v, queue))
        if (!accept(b, queue))
            break;
    for (u32 k = before; k < s->count; k++) {
        struct disk_ahead *a = &b->ahead[(s->done + k) % UNDER_WAY];
        disk_ahead_wait(b->disk, a);
        b->failing = b->failing || a->failed;
    }
    dev_changed(dev);
}

/* ---- what the host cannot do ---- */

bool virtio_blk_failing(struct device *dev, u32 *request)
{
    struct virtio_blk *b = self(dev);
    const struct blk_state *s = dev->state;
    for (u32 k = 0; b->failing && k < s->count; k++) {
        unsigned i = (s->done + k) % UNDER_WAY;
        if (s->result[i] == S_OK && b->ahead[i].failed) {
            *request = s->done + k;
            return true;
        }
    }
    b->failing = false;
    return false;
}

void virtio_blk_fail(struct device *dev, u32 request)
{
    struct virtio_blk *b = self(dev);
    struct blk_state *s = dev->state;
    unsigned i = request % UNDER_WAY;
    if (request - s->done >= s->count)
        return; /* the driver's reset came first */
    s->result[i] = S_IOERR;
    disk_ahead_drop(b->disk, &b->ahead[i]);
}

/* ---- performing and completing them ---- */

/* The guest cannot be told that the host failed here: it would be told something else than in a
 * replay. */
static u8 host_failed(struct virtio_blk *b)
{
    const struct dev_env *env = b->v.dev->env;
    env->failed(env->machine, &b->disk->failed);
    return S_IOERR;
}

static u8 do_write(struct virtio_blk *b, const struct disk_ahead *a, u64 offset, u64 len)
{
    struct blk_state *s = b->v.dev->state;
    u8 buf[PIECE];
    for (u64 at = 0; at < len; at += PIECE) {
        u64 n = MIN(len - at, (u64)PIECE);
        if (virtio_read(&b->v, 16 + at, buf, n) != n)
            return S_IOERR;
        if (disk_write(b->disk, a, offset + at, buf, n, &s->base_digest))
            return host_failed(b);
    }
    return S_OK;
}

static u8 do_read(struct virtio_blk *b, const struct disk_ahead *a, u64 offset, u64 len)
{
    struct blk_state *s = b->v.dev->state;
    u8 buf[PIECE];
    for (u64 at = 0; at < len; at += PIECE) {
        u64 n = MIN(len - at, (u64)PIECE);
        if (disk_read(b->disk, a, offset + at, buf, n, &s->base_digest))
            return host_failed(b);
        if (virtio_write(&b->v, at, buf, n) != n)
            return S_IOERR;
    }
    return S_OK;
}

static u8 give_id(struct virtio_blk *b, u64 room)
{
    char id[20] = {0};
    memcpy(id, b->disk->serial, strlen(b->disk->serial));
    virtio_write(&b->v, 0, id, MIN(room, (u64)sizeof(id)));
    return S_OK;
}

/* The chain is looked at anew: it has to be as long as when it was taken. */
static u8 perform(struct virtio_blk *b, unsigned i)
{
    struct blk_state *s = b->v.dev->state;
    const struct virtio_chain *c = &b->v.chain;
    struct disk_ahead *a = &b->ahead[i];
    u64 offset = s->sector[i] * DISK_SECTOR, room = c->write_len - 1;
    disk_ahead_take(b->disk, a);
    switch (s->type[i]) {
    case T_IN: return room == s->bytes[i] ? do_read(b, a, offset, s->bytes[i]) : S_IOERR;
    case T_OUT:
        return c->read_len == 16ull + s->bytes[i] ? do_write(b, a, offset, s->bytes[i]) : S_IOERR;
    case T_WRITE_ZEROES:
        return disk_zero(b->disk, a, offset, s->bytes[i], &s->base_digest) ? host_failed(b) : S_OK;
    case T_DISCARD: return disk_discard(b->disk, offset, s->bytes[i]) ? host_failed(b) : S_OK;
    case T_GET_ID: return give_id(b, room);
    default: return S_OK; /* a flush: all before it is done */
    }
}

static void complete(struct virtio_blk *b, unsigned i)
{
    struct blk_state *s = b->v.dev->state;
    if (virtio_again(&b->v, s->queue[i], s->head[i])) {
        u64 room = b->v.chain.write_len - 1;
        bool gives = s->type[i] == T_IN || s->type[i] == T_GET_ID;
        u8 status = s->result[i] == S_OK ? perform(b, i) : s->result[i];
        virtio_write(&b->v, room, &status, 1);
        virtio_push(&b->v, s->queue[i], s->head[i], (u32)(status == S_OK && gives ? room + 1 : 1));
    }
    disk_ahead_drop(b->disk, &b->ahead[i]);
}

static vns_t blk_deadline(const struct device *dev)
{
    const struct blk_state *s = dev->state;
    return s->count ? s->due[s->done % UNDER_WAY] : NEVER;
}

static void blk_expire(struct device *dev, vns_t now)
{
    struct virtio_blk *b = self(dev);
    struct blk_state *s = dev->state;
    unsigned used = 0;
    while (s->count && s->due[s->done % UNDER_WAY] <= now) {
        unsigned i = s->done % UNDER_WAY;
        used |= 1u << s->queue[i];
        s->done++;
        s->count--;
        complete(b, i);
    }
    for (unsigned q = 0; q < QUEUES; q++)
        if (used >> q & 1)
            virtio_signal(&b->v, q);
    /* What had to wait for room. */
    for (unsigned k = 0; k < QUEUES && virtio_ready(&b->v); k++)
        blk_notify(dev, (s->turn + k) % QUEUES);
    s->turn = (u8)((s->turn + 1) % QUEUES);
}

static void drop_all(struct virtio_blk *b)
{
    for (unsigned i = 0; i < UNDER_WAY; i++)
        disk_ahead_drop(b->disk, &b->ahead[i]);
    b->failing = false;
}

/* The driver's reset forgets what is under way. */
static void blk_driver_reset(struct device *dev)
{
    struct blk_state *s = dev->state;
    s->done += s->count;
    s->count = 0;
    if (self(dev))
        drop_all(self(dev));
}

static void blk_reset(struct device *dev)
{
    virtio_reset(dev);
    blk_driver_reset(dev);
}

/* Could it have been taken? */
static bool sane(const struct virtio_blk *b, const struct blk_state *s, unsigned i)
{
    bool data = s->type[i] == T_IN || s->type[i] == T_OUT;
    bool range = s->type[i] == T_DISCARD || s->type[i] == T_WRITE_ZEROES;
    bool write = range || s->type[i] == T_OUT;
    u32 most = data                      ? REQUEST_MAX
               : s->type[i] == T_DISCARD ? DISCARD_MAX * DISK_SECTOR
                                         : ZERO_MAX * DISK_SECTOR;
    if (s->queue[i] >= QUEUES || s->result[i] > S_UNSUPP)
        return false;
    if (s->result[i] != S_OK || !(data || range))
        return true;
    return s->bytes[i] <= most && within(b->disk, s->sector[i], s->bytes[i]) &&
           !(write && b->disk->readonly);
}

static int blk_loaded(struct device *dev, struct err *err)
{
    const struct blk_state *s = dev->state;
    struct virtio_blk *b = self(dev);
    if (s->count > UNDER_WAY || s->turn >= QUEUES)
        return dev_bad_state(dev, err, "requests");
    for (u32 k = 0; k < s->count; k++)
        if (!sane(b, s, (s->done + k) % UNDER_WAY))
            return dev_bad_state(dev, err, "a request");
    drop_all(b); /* what was got ahead was for others; it is got when it is needed */
    return virtio_loaded(dev, err);
}

#define FEATURES (F_SIZE_MAX | F_SEG_MAX | F_BLK_SIZE | F_FLUSH | F_TOPOLOGY | F_MQ)

static const struct virtio_class blk_class = {
    .type = 2,
    .pci_class = {0x00, 0x80, 0x01}, /* mass storage controller */
    .features = FEATURES | F_DISCARD | F_WRITE_ZEROES,
    .queues = QUEUES,
    .queue_max = VIRTIO_QUEUE_MAX,
    .config_size = sizeof(struct blk_config),
    .config_read = blk_config_read,
    .notify = blk_notify,
    .reset = blk_driver_reset,
};

static const struct virtio_class blk_class_ro = {
    .type = 2,
    .pci_class = {0x00, 0x80, 0x01},
    .features = FEATURES | F_RO,
    .queues = QUEUES,
    .queue_max = VIRTIO_QUEUE_MAX,
    .config_size = sizeof(struct blk_config),
    .config_read = blk_config_read,
    .notify = blk_notify,
    .reset = blk_driver_reset,
};

static void blk_input(struct device *dev, const struct input *in)
{
    virtio_blk_fail(dev, in->arg);
}

static void blk_destroy(struct device *dev)
{
    if (self(dev)->disk)
        drop_all(self(dev));
}

static const struct device_ops blk_ops = {
    .name = "disk",
    .state = &blk_desc,
    .reset = blk_reset,
    .deadline = blk_deadline,
    .expire = blk_expire,
    .loaded = blk_loaded,
    .input = blk_input,
    .destroy = blk_destroy,
};

const struct page_image *virtio_blk_written(const struct device *dev, u64 *pages)
{
    const struct disk *d = self(dev)->disk;
    *pages = (d->size + PAGE_SIZE - 1) / PAGE_SIZE;
    return d->written;
}

int virtio_blk_restore(struct device *dev, const struct page_image *image, struct err *err)
{
    return disk_restore(self(dev)->disk, image, err);
}

int virtio_blk_create(struct device *dev, const struct dev_env *env, struct device *pci,
                      unsigned slot, struct disk *disk, const char *name, struct err *err)
{
    int r =
        virtio_alloc(dev, &blk_ops, env, sizeof(struct blk_state), sizeof(struct virtio_blk), err);
    if (r)
        return r;
    struct virtio_blk *b = dev->host;
    b->disk = disk;
    snprintf(dev->name, sizeof(dev->name), "%s", name);
    virtio_connect(dev, disk->readonly ? &blk_class_ro : &blk_class, pci, slot);
    return 0;
}

int make_blk(struct device *dev, const struct making *w, struct err *err)
{
    char name[16];
    snprintf(name, sizeof(name), "disk%u", w->unit);
    return virtio_blk_create(dev, w->env, w->pci, w->slot, w->disks[w->unit], name, err);
}
