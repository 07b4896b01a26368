/*
 * virtio file system device (virtio 1.2, 5.11), see fs.h. A request is copied at the position of
 * the guest's notification and handed to whoever listens. A fixed virtual time later it is due, and
 * the device waits for the reply, which comes as inputs: its parts in their order, each written to
 * the guest where it is taken. Requests complete in the order in which they were taken.
 *
 * What the guest gets of a reply is bounded by its own buffers and by what the header says; who
 * wrote it (a server that was taken over, a recording of somebody else) does not matter here.
 */
#include "dev/virtio/fs.h"

#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "dev/making.h"
#include "dev/util.h"

#define LATENCY_NS 5000u /* and a byte an eighth ns on top */

enum { HIPRIO = 0, REQUESTS = 1 };

#define FS_STATE(F, A)                                                                             \
    VIRTIO_STATE(F, A)                                                                             \
    F(u64, digest) /* running, of all requests */                                                  \
    F(u64, oneway) /* requests without a reply */                                                  \
    F(u64, done)   /* others completed or forgotten: the number of the first under way */          \
    F(u16, count)  /* of those under way; request K is at K % SHARE_UNDER_WAY */                   \
    F(u8, waiting) /* the first is due, and its reply is not there, or in part only */             \
    F(u32, filled) /* bytes of the reply so far */                                                 \
    F(u32, length) /* ... that it will have */                                                     \
    A(u16, head, SHARE_UNDER_WAY)                                                                  \
    A(u64, unique, SHARE_UNDER_WAY)                                                                \
    A(u64, due, SHARE_UNDER_WAY) /* virtual time */

STATE(fs, "virtio-fs", FS_STATE);

static struct virtio_fs *self(const struct device *dev)
{
    return dev->host;
}

static void emit(struct virtio_fs *f, const struct dev_share *what)
{
    const struct dev_env *env = f->v.dev->env;
    env->emit(env->machine, EMIT_SHARE, f->unit, what, sizeof(*what));
}

/* 5.11.4 */
static void fs_config_read(struct device *dev, unsigned offset, unsigned size, u8 *out)
{
    struct {
        char tag[36];
        u32 num_request_queues;
    } __attribute__((packed)) c = {.num_request_queues = 1};
    memcpy(c.tag, self(dev)->tag, sizeof(c.tag));
    memcpy(out, (const u8 *)&c + offset, size);
}

/* ---- requests (5.11.6) ---- */

static bool has_reply(u32 opcode)
{
    return opcode != FUSE_FORGET && opcode != FUSE_BATCH_FORGET && opcode != FUSE_INTERRUPT;
}

/* f->v.chain was taken from `queue`. false: it is no request, or has no room for a reply. */
static bool take(struct virtio_fs *f, unsigned queue)
{
    struct fs_state *s = f->v.dev->state;
    const struct virtio_chain *c = &f->v.chain;
    struct fuse_in_header h;
    u16 head = c->head;
    u64 room = c->write_len, total = c->read_len;
    u32 size = (u32)MIN(total, (u64)sizeof(f->request));
    if (size < sizeof(h) || virtio_read(&f->v, 0, f->request, size) != size)
        return false;
    memcpy(&h, f->request, sizeof(h));
    bool awaited = has_reply(h.opcode);
    if (awaited && (queue == HIPRIO || room < sizeof(struct fuse_out_header)))
        return false;
    s->digest = XXH3_64bits_withSeed(f->request, size, s->digest ^ room);
    struct dev_share what = {.what = DEV_SHARE_TAKEN,
                             .awaited = awaited,
                             .number = s->done + s->count,
                             .request = f->request,
                             .size = size,
                             .total = total,
                             .room = (u32)MIN(room, (u64)SHARE_REPLY_MAX)};
    if (awaited) {
        unsigned i = (unsigned)((s->done + s->count) % SHARE_UNDER_WAY);
        vns_t due = dev_late(f->v.dev,
                             dev_now(f->v.dev) + LATENCY_NS + MIN(room, (u64)SHARE_REPLY_MAX) / 8);
        if (s->count)
            due = MAX(due, s->due[(i + SHARE_UNDER_WAY - 1) % SHARE_UNDER_WAY]);
        s->head[i] = head;
        s->unique[i] = h.unique;
        s->due[i] = due;
        s->count++;
    } else {
        s->oneway++;
        virtio_push(&f->v, queue, head, 0);
    }
    emit(f, &what);
    return true;
}

static void fs_notify(struct device *dev, unsigned queue)
{
    struct virtio_fs *f = self(dev);
    const struct fs_state *s = dev->state;
    while ((queue == HIPRIO || s->count < SHARE_UNDER_WAY) && virtio_pop(&f->v, queue))
        if (!take(f, queue)) {
            virtio_broken(&f->v);
            return;
        }
    virtio_signal(&f->v, queue);
    dev_changed(dev);
}

/* ---- replies ---- */

static vns_t fs_deadline(const struct device *dev)
{
    const struct fs_state *s = dev->state;
    return s->count && !s->waiting ? s->due[s->done % SHARE_UNDER_WAY] : NEVER;
}

static void await(struct virtio_fs *f, vns_t now)
{
    struct fs_state *s = f->v.dev->state;
    if (s->count && s->due[s->done % SHARE_UNDER_WAY] <= now)
        s->waiting = 1;
}

static void fs_expire(struct device *dev, vns_t now)
{
    await(self(dev), now);
}

bool virtio_fs_waiting(const struct device *dev, u64 *number)
{
    const struct fs_state *s = dev->state;
    *number = s->done;
    return s->waiting;
}

/* The first request is done, `written` bytes of its buffers are filled. */
static void complete(struct virtio_fs *f, u32 written)
{
    struct device *dev = f->v.dev;
    struct fs_state *s = dev->state;
    u16 head = s->head[s->done % SHARE_UNDER_WAY];
    s->done++;
    s->count--;
    s->waiting = 0;
    s->filled = s->length = 0;
    virtio_push(&f->v, REQUESTS, head, written);
    await(f, dev_now(dev));
    virtio_signal(&f->v, REQUESTS);
    if (virtio_ready(&f->v))
        fs_notify(dev, REQUESTS); /* what had to wait for room */
    dev_changed(dev);
}

static u32 put_header(struct virtio_fs *f, u32 length, i32 error)
{
    const struct fs_state *s = f->v.dev->state;
    struct fuse_out_header h = {
        .len = length, .error = error, .unique = s->unique[s->done % SHARE_UNDER_WAY]};
    return (u32)virtio_write(&f->v, 0, &h, sizeof(h));
}

/* The first part of a reply: its length. false: what only a forged recording has. */
static bool begin(struct virtio_fs *f, const u8 *data, u32 len)
{
    struct fs_state *s = f->v.dev->state;
    struct fuse_out_header h;
    if (len < sizeof(h))
        return false;
    memcpy(&h, data, sizeof(h));
    if (h.len < sizeof(h) || h.len > SHARE_REPLY_MAX || h.len > f->v.chain.write_len ||
        h.error > 0 || h.error <= -4096)
        return false;
    s->length = h.len;
    s->filled = put_header(f, h.len, h.error);
    return true;
}

static void fs_input(struct device *dev, const struct input *in)
{
    struct virtio_fs *f = self(dev);
    struct fs_state *s = dev->state;
    const u8 *data = in->data;
    u32 len = in->kind == INPUT_CONTENT ? in->arg : in->len, skip = 0;
    if (!s->waiting)
        return;
    if (!virtio_again(&f->v, REQUESTS, s->head[s->done % SHARE_UNDER_WAY])) {
        complete(f, 0);
        return;
    }
    if (!s->length) {
        if (f->v.chain.write_len < sizeof(struct fuse_out_header) || !begin(f, data, len)) {
            complete(f, put_header(f, sizeof(struct fuse_out_header), -EIO));
            return;
        }
        skip = sizeof(struct fuse_out_header);
    }
    u32 part = MIN(len - skip, s->length - s->filled);
    s->filled += (u32)virtio_write(&f->v, s->filled, data + skip, part);
    if (s->filled >= s->length || !virtio_ready(&f->v))
        complete(f, s->filled);
}

static u32 fs_room(const struct device *dev, enum input_kind kind, u32 unit)
{
    const struct fs_state *s = dev->state;
    return !s->waiting ? 0 : kind == INPUT_CONTENT ? INPUT_CONTENT_MAX : INPUT_MAX;
}

/* ---- life ---- */

static void fs_driver_reset(struct device *dev)
{
    struct fs_state *s = dev->state;
    s->done += s->count;
    s->count = 0;
    s->waiting = 0;
    s->filled = s->length = 0;
    emit(self(dev), &(struct dev_share){.what = DEV_SHARE_RESET});
}

static int fs_loaded(struct device *dev, struct err *err)
{
    const struct fs_state *s = dev->state;
    if (s->count > SHARE_UNDER_WAY || s->waiting > 1 || (s->waiting && !s->count) ||
        s->length > SHARE_REPLY_MAX || s->filled > s->length || (s->length && !s->waiting))
        return dev_bad_state(dev, err, "requests");
    return virtio_loaded(dev, err);
}

static const struct virtio_class fs_class = {
    .type = 26,
    .pci_class = {0x00, 0x80, 0x01}, /* mass storage controller */
    .queues = 2,
    .queue_max = VIRTIO_QUEUE_MAX,
    .config_size = 40,
    .config_read = fs_config_read,
    .notify = fs_notify,
    .reset = fs_driver_reset,
};

static const struct device_ops fs_ops = {
    .name = "share",
    .state = &fs_desc,
    .reset = virtio_reset,
    .deadline = fs_deadline,
    .expire = fs_expire,
    .loaded = fs_loaded,
    .room = fs_room,
    .input = fs_input,
};

int make_fs(struct device *dev, const struct making *w, struct err *err)
{
    int r =
        virtio_alloc(dev, &fs_ops, w->env, sizeof(struct fs_state), sizeof(struct virtio_fs), err);
    if (r)
        return r;
    struct virtio_fs *f = dev->host;
    f->unit = w->unit;
    snprintf(f->tag, sizeof(f->tag), "%s", w->is->share[w->unit].tag);
    snprintf(dev->name, sizeof(dev->name), "share%u", w->unit);
    virtio_connect(dev, &fs_class, w->pci, w->slot);
    return 0;
}
