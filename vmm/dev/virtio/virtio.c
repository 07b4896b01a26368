/* The virtio transport over PCI: see virtio.h. No nondeterminism enters here. */
#include "dev/virtio/virtio.h"

#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "dev/pci.h"
#include "dev/util.h"

/* BAR 0. */
#define BAR_SIZE   0x4000u
#define AT_COMMON  0x0000u
#define AT_ISR     0x1000u
#define AT_MSIX    0x1800u
#define AT_PBA     0x1c00u
#define AT_DEVICE  0x2000u
#define AT_NOTIFY  0x3000u
#define NOTIFY_MUL 4u

/* Status bits (2.1). */
#define S_DRIVER_OK   4u
#define S_FEATURES_OK 8u
#define S_NEEDS_RESET 64u
#define S_KNOWN       0xcfu

/* Common configuration (4.1.4.3). */
#define C_DEVICE_FEATURE_SELECT 0x00u
#define C_DEVICE_FEATURE        0x04u
#define C_DRIVER_FEATURE_SELECT 0x08u
#define C_DRIVER_FEATURE        0x0cu
#define C_CONFIG_VECTOR         0x10u
#define C_NUM_QUEUES            0x12u
#define C_STATUS                0x14u
#define C_GENERATION            0x15u
#define C_QUEUE_SELECT          0x16u
#define C_QUEUE_SIZE            0x18u
#define C_QUEUE_VECTOR          0x1au
#define C_QUEUE_ENABLE          0x1cu
#define C_QUEUE_NOTIFY_OFF      0x1eu
#define C_QUEUE_DESC            0x20u
#define C_QUEUE_DRIVER          0x28u
#define C_QUEUE_DEVICE          0x30u
#define C_SIZE                  0x38u

#define CAP_MSIX           0x98u
#define CAP_CFG            0xa4u /* access through configuration space (4.1.4.9) */
#define CFG_BAR            (CAP_CFG + 4)
#define CFG_OFFSET         (CAP_CFG + 8)
#define CFG_LENGTH         (CAP_CFG + 12)
#define CFG_DATA           (CAP_CFG + 16)
#define MSIX_ENABLE        0x8000u
#define MSIX_MASK_ALL      0x4000u
#define ISR_QUEUE          1u
#define ISR_CONFIG         2u
#define DESC_NEXT          1u
#define DESC_WRITE         2u
#define DESC_INDIRECT      4u
#define AVAIL_NO_INT       1u
#define TRANSPORT_FEATURES (VIRTIO_F_VERSION_1 | VIRTIO_F_INDIRECT_DESC | VIRTIO_F_EVENT_IDX)

static struct virtio_state *state(const struct virtio *v)
{
    return v->dev->state;
}

static struct virtio *self(struct device *dev)
{
    return dev->host;
}

static bool dma_read(struct virtio *v, gpa_t gpa, void *out, size_t len)
{
    return v->dev->env->dma_read(v->dev->env->machine, gpa, out, len);
}

static bool dma_write(struct virtio *v, gpa_t gpa, const void *in, size_t len)
{
    return v->dev->env->dma_write(v->dev->env->machine, gpa, in, len);
}

/* ---- interrupts ---- */

static u16 msix_flags(const struct virtio *v)
{
    const u8 *c = pci_config(v->pci, v->slot) + CAP_MSIX + 2;
    return (u16)(c[0] | c[1] << 8);
}

static void update_intx(struct virtio *v)
{
    pci_set_intx(v->pci, v->slot, state(v)->isr && !(msix_flags(v) & MSIX_ENABLE));
}

static void send(struct virtio *v, unsigned vector)
{
    struct virtio_state *s = state(v);
    if (vector >= VIRTIO_VECTORS)
        return;
    if ((msix_flags(v) & MSIX_MASK_ALL) || (s->msix_control[vector] & 1)) {
        s->msix_pending |= 1u << vector;
        return;
    }
    s->msix_pending &= ~(1u << vector);
    v->dev->env->msi(v->dev->env->machine, s->msix_address[vector], s->msix_data[vector]);
}

static void interrupt(struct virtio *v, u8 cause, u16 vector)
{
    if (msix_flags(v) & MSIX_ENABLE) {
        send(v, vector);
        return;
    }
    state(v)->isr |= cause;
    update_intx(v);
}

/* After a mask was lifted. */
static void send_pending(struct virtio *v)
{
    if (!(msix_flags(v) & MSIX_ENABLE))
        return;
    for (unsigned i = 0; i < VIRTIO_VECTORS; i++)
        if (state(v)->msix_pending >> i & 1)
            send(v, i);
}

void virtio_config_changed(struct virtio *v)
{
    state(v)->generation++;
    interrupt(v, ISR_CONFIG, state(v)->config_vector);
}

void virtio_broken(struct virtio *v)
{
    if (state(v)->status & S_NEEDS_RESET)
        return;
    state(v)->status |= S_NEEDS_RESET;
    interrupt(v, ISR_CONFIG, state(v)->config_vector);
}

bool virtio_ready(const struct virtio *v)
{
    return (state(v)->status & (S_DRIVER_OK | S_NEEDS_RESET)) == S_DRIVER_OK &&
           pci_may_write(v->pci, v->slot);
}

/* ---- queues (2.7) ---- */

struct descriptor {
    u64 addr;
    u32 len;
    u16 flags, next;
};

static bool add_segment(struct virtio *v, const struct descriptor *d)
{
    struct virtio_chain *c = &v->chain;
    bool write = d->flags & DESC_WRITE;
    if (c->nread + c->nwrite == VIRTIO_SEGMENTS || (!write && c->nwrite))
        return false; /* too long; or readable after writable (2.7.4.2) */
    c->seg[c->nread + c->nwrite] = (struct virtio_segment){d->addr, d->len};
    *(write ? &c->nwrite : &c->nread) += 1;
    *(write ? &c->write_len : &c->read_len) += d->len;
    return true;
}

/* Follows a table of `size` descriptors from `index`. Every descriptor is copied before it is
 * looked at, and no chain is longer than its table. */
static bool follow(struct virtio *v, gpa_t table, u32 size, u16 index, bool indirect)
{
    for (u32 n = 0; n < size; n++) {
        struct descriptor d;
        if (index >= size || !dma_read(v, table + 16ull * index, &d, sizeof(d)))
            return false;
        if (d.flags & DESC_INDIRECT) {
            if (indirect || (d.flags & DESC_NEXT) || !virtio_has(v, VIRTIO_F_INDIRECT_DESC) ||
                !d.len || d.len % 16 || d.len / 16 > 65536)
                return false;
            return follow(v, d.addr, d.len / 16, 0, true);
        }
        if (!add_segment(v, &d))
            return false;
        if (!(d.flags & DESC_NEXT))
            return true;
        index = d.next;
    }
    return false; /* a loop */
}

/* The segments stay: clearing 16 KiB would cost more than most chains. */
static void begin_chain(struct virtio *v, u16 head)
{
    struct virtio_chain *c = &v->chain;
    c->head = head;
    c->nread = c->nwrite = 0;
    c->read_len = c->write_len = 0;
}

bool virtio_available(const struct virtio *v, unsigned queue)
{
    const struct virtio_state *s = v->dev->state;
    const struct dev_env *env = v->dev->env;
    u16 avail;
    return virtio_ready(v) && s->q_enable[queue] &&
           env->dma_read(env->machine, s->q_driver[queue] + 2, &avail, sizeof(avail)) &&
           avail != s->q_avail[queue];
}

u16 virtio_waiting(const struct virtio *v, unsigned queue)
{
    const struct virtio_state *s = v->dev->state;
    const struct dev_env *env = v->dev->env;
    u16 avail;
    if (!virtio_ready(v) || !s->q_enable[queue] ||
        !env->dma_read(env->machine, s->q_driver[queue] + 2, &avail, sizeof(avail)))
        return 0;
    u16 n = (u16)(avail - s->q_avail[queue]);
    return n > s->q_size[queue] ? 0 : n;
}

u64 virtio_next_room(struct virtio *v, unsigned queue)
{
    const struct virtio_state *s = state(v);
    u16 head, size = s->q_size[queue];
    if (!virtio_waiting(v, queue) ||
        !dma_read(v, s->q_driver[queue] + 4 + 2ull * (s->q_avail[queue] & (size - 1)), &head,
                  sizeof(head)) ||
        head >= size)
        return 0;
    begin_chain(v, head);
    return follow(v, s->q_desc[queue], size, head, false) ? v->chain.write_len : 0;
}

void virtio_unpop(struct virtio *v, unsigned queue, unsigned n)
{
    state(v)->q_avail[queue] -= (u16)n;
}

bool virtio_pop(struct virtio *v, unsigned queue)
{
    struct virtio_state *s = state(v);
    u16 size = s->q_size[queue], avail, head;
    if (!virtio_ready(v) || !s->q_enable[queue])
        return false;
    if (!dma_read(v, s->q_driver[queue] + 2, &avail, sizeof(avail)))
        goto broken;
    if (avail == s->q_avail[queue]) {
        /* Ask for a notification of the next one (2.7.10), and look again: there is nobody else
         * who could have added one since. */
        if (virtio_has(v, VIRTIO_F_EVENT_IDX) &&
            !dma_write(v, s->q_device[queue] + 4 + 8ull * size, &avail, sizeof(avail)))
            goto broken;
        return false;
    }
    if ((u16)(avail - s->q_avail[queue]) > size)
        goto broken;
    if (!dma_read(v, s->q_driver[queue] + 4 + 2ull * (s->q_avail[queue] & (size - 1)), &head,
                  sizeof(head)) ||
        head >= size)
        goto broken;
    begin_chain(v, head);
    if (!follow(v, s->q_desc[queue], size, head, false))
        goto broken;
    s->q_avail[queue]++;
    return true;
broken:
    virtio_broken(v);
    return false;
}

bool virtio_again(struct virtio *v, unsigned queue, u16 head)
{
    struct virtio_state *s = state(v);
    if (!virtio_ready(v) || !s->q_enable[queue])
        return false;
    begin_chain(v, head);
    if (follow(v, s->q_desc[queue], s->q_size[queue], head, false) && v->chain.write_len)
        return true;
    virtio_broken(v);
    return false;
}

static u64 transfer(struct virtio *v, const struct virtio_segment *seg, unsigned n, u64 offset,
                    u8 *out, const u8 *in, u64 len)
{
    u64 done = 0;
    for (unsigned i = 0; i < n && done < len; i++) {
        if (offset >= seg[i].len) {
            offset -= seg[i].len;
            continue;
        }
        u64 part = MIN(seg[i].len - offset, len - done);
        bool good = out ? dma_read(v, seg[i].gpa + offset, out + done, part)
                        : dma_write(v, seg[i].gpa + offset, in + done, part);
        if (!good) {
            virtio_broken(v);
            break;
        }
        done += part;
        offset = 0;
    }
    return done;
}

u64 virtio_read(struct virtio *v, u64 offset, void *out, u64 len)
{
    return transfer(v, v->chain.seg, v->chain.nread, offset, out, NULL, len);
}

u64 virtio_write(struct virtio *v, u64 offset, const void *in, u64 len)
{
    return transfer(v, v->chain.seg + v->chain.nread, v->chain.nwrite, offset, NULL, in, len);
}

void virtio_push(struct virtio *v, unsigned queue, u16 head, u32 written)
{
    struct virtio_state *s = state(v);
    u32 entry[2] = {head, written};
    u16 size = s->q_size[queue];
    if (!virtio_ready(v) || !s->q_enable[queue])
        return;
    gpa_t ring = s->q_device[queue];
    u16 next = (u16)(s->q_used[queue] + 1);
    if (!dma_write(v, ring + 4 + 8ull * (s->q_used[queue] & (size - 1)), entry, sizeof(entry)) ||
        !dma_write(v, ring + 2, &next, sizeof(next))) {
        virtio_broken(v);
        return;
    }
    s->q_used[queue] = next;
}

void virtio_signal(struct virtio *v, unsigned queue)
{
    struct virtio_state *s = state(v);
    u16 flags = 0, event = 0, size = s->q_size[queue];
    if (!virtio_ready(v) || !s->q_enable[queue])
        return;
    u16 old = s->q_signalled[queue], now = s->q_used[queue];
    bool wanted;
    if (virtio_has(v, VIRTIO_F_EVENT_IDX)) {
        if (!dma_read(v, s->q_driver[queue] + 4 + 2ull * size, &event, sizeof(event))) {
            virtio_broken(v);
            return;
        }
        wanted = !s->q_signalled_valid[queue] || (u16)(now - event - 1) < (u16)(now - old);
    } else {
        if (!dma_read(v, s->q_driver[queue], &flags, sizeof(flags))) {
            virtio_broken(v);
            return;
        }
        wanted = now != old && !(flags & AVAIL_NO_INT);
    }
    s->q_signalled[queue] = now;
    s->q_signalled_valid[queue] = 1;
    if (wanted)
        interrupt(v, ISR_QUEUE, s->q_vector[queue]);
}

/* ---- common configuration (4.1.4.3) ---- */

static u64 offered(const struct virtio *v)
{
    return v->class->features | TRANSPORT_FEATURES;
}

static u64 queue_field(const struct virtio *v, u32 offset)
{
    const struct virtio_state *s = state(v);
    unsigned q = s->queue_select;
    if (q >= v->class->queues)
        return offset == C_QUEUE_VECTOR ? VIRTIO_NO_VECTOR : 0;
    switch (offset) {
    case C_QUEUE_SIZE: return s->q_size[q];
    case C_QUEUE_VECTOR: return s->q_vector[q];
    case C_QUEUE_ENABLE: return s->q_enable[q];
    case C_QUEUE_NOTIFY_OFF: return q;
    case C_QUEUE_DESC: return s->q_desc[q];
    case C_QUEUE_DRIVER: return s->q_driver[q];
    default: return s->q_device[q];
    }
}

static u32 feature_word(u64 features, u32 select)
{
    return select < 2 ? (u32)(features >> (32 * select)) : 0;
}

/* The whole of a field; its start is *at. */
static u64 common_field(const struct virtio *v, u32 offset, u32 *at)
{
    const struct virtio_state *s = state(v);
    static const u8 starts[] = {0x00, 0x04, 0x08, 0x0c, 0x10, 0x12, 0x14, 0x15, 0x16,
                                0x18, 0x1a, 0x1c, 0x1e, 0x20, 0x28, 0x30, 0x38};
    unsigned i = 0;
    while (starts[i + 1] <= offset)
        i++;
    *at = starts[i];
    switch (*at) {
    case C_DEVICE_FEATURE_SELECT: return s->device_feature_select;
    case C_DEVICE_FEATURE: return feature_word(offered(v), s->device_feature_select);
    case C_DRIVER_FEATURE_SELECT: return s->driver_feature_select;
    case C_DRIVER_FEATURE: return feature_word(s->driver_features, s->driver_feature_select);
    case C_CONFIG_VECTOR: return s->config_vector;
    case C_NUM_QUEUES: return v->class->queues;
    case C_STATUS: return s->status;
    case C_GENERATION: return s->generation;
    case C_QUEUE_SELECT: return s->queue_select;
    default: return queue_field(v, *at);
    }
}

static u64 common_read(const struct virtio *v, u32 offset, unsigned size)
{
    u64 value = 0;
    for (unsigned i = 0; i < size; i++) {
        u32 at;
        u64 field = offset + i < C_SIZE ? common_field(v, offset + i, &at) : 0;
        if (offset + i < C_SIZE)
            value |= (field >> (8 * (offset + i - at)) & 0xff) << (8 * i);
    }
    return value;
}

/* The rows only: what pads the struct belongs to the device's own rows. */
#define ROWS_SIZE (offsetof(struct virtio_state, msix_pending) + sizeof(u32))

static void reset_queues(struct virtio *v)
{
    struct virtio_state *s = state(v);
    memset(s, 0, ROWS_SIZE);
    s->config_vector = VIRTIO_NO_VECTOR;
    for (unsigned q = 0; q < VIRTIO_QUEUES; q++) {
        s->q_vector[q] = VIRTIO_NO_VECTOR;
        s->q_size[q] = q < v->class->queues ? v->class->queue_max : 0;
    }
}

/* 2.4: the driver wrote 0. The MSI-X table is the PCI function's and stays. */
static void driver_reset(struct virtio *v)
{
    struct virtio_state *s = state(v), before = *s;
    reset_queues(v);
    memcpy(s->msix_address, before.msix_address, sizeof(s->msix_address));
    memcpy(s->msix_data, before.msix_data, sizeof(s->msix_data));
    memcpy(s->msix_control, before.msix_control, sizeof(s->msix_control));
    s->generation = before.generation;
    if (v->class->reset)
        v->class->reset(v->dev);
    update_intx(v);
    dev_changed(v->dev);
}

static void write_status(struct virtio *v, u8 value)
{
    struct virtio_state *s = state(v);
    if (value == 0) {
        driver_reset(v);
        return;
    }
    u8 status = (u8)((s->status & S_NEEDS_RESET) | (value & S_KNOWN & ~S_NEEDS_RESET));
    status |= s->status & (u8)~S_FEATURES_OK; /* bits are only added (2.1.1) */
    /* 2.2.2: features outside what is offered, or a legacy driver: no FEATURES_OK. */
    if ((status & S_FEATURES_OK) && !(s->status & S_FEATURES_OK) &&
        ((s->driver_features & ~offered(v)) || !(s->driver_features & VIRTIO_F_VERSION_1)))
        status &= (u8)~S_FEATURES_OK;
    s->status = status;
}

static void enable_queue(struct virtio *v, unsigned q, u64 value)
{
    struct virtio_state *s = state(v);
    u16 size = s->q_size[q];
    if (value != 1 || !size || (size & (size - 1)))
        return;
    s->q_enable[q] = 1;
}

static u64 half(u64 old, u64 value, u32 offset, unsigned size)
{
    if (size == 8)
        return value;
    return offset & 4 ? (old & 0xffffffffu) | value << 32 : (old & ~0xffffffffull) | (u32)value;
}

static u16 checked_vector(u64 value)
{
    return value < VIRTIO_VECTORS ? (u16)value : VIRTIO_NO_VECTOR;
}

static void queue_write(struct virtio *v, u32 offset, unsigned size, u64 value)
{
    struct virtio_state *s = state(v);
    unsigned q = s->queue_select;
    if (q >= v->class->queues)
        return;
    if (offset == C_QUEUE_VECTOR && size == 2)
        s->q_vector[q] = checked_vector(value);
    if (s->q_enable[q])
        return; /* 4.1.4.3.2: not once it is enabled */
    switch (offset & ~4u) {
    case C_QUEUE_SIZE:
        if (offset == C_QUEUE_SIZE && size == 2 && value && value <= v->class->queue_max &&
            !(value & (value - 1)))
            s->q_size[q] = (u16)value;
        else if (offset == C_QUEUE_ENABLE && size == 2)
            enable_queue(v, q, value);
        break;
    case C_QUEUE_DESC: s->q_desc[q] = half(s->q_desc[q], value, offset, size); break;
    case C_QUEUE_DRIVER: s->q_driver[q] = half(s->q_driver[q], value, offset, size); break;
    case C_QUEUE_DEVICE: s->q_device[q] = half(s->q_device[q], value, offset, size); break;
    default: break;
    }
}

static void common_write(struct virtio *v, u32 offset, unsigned size, u64 value)
{
    struct virtio_state *s = state(v);
    switch (offset) {
    case C_DEVICE_FEATURE_SELECT: s->device_feature_select = (u32)value; break;
    case C_DRIVER_FEATURE_SELECT: s->driver_feature_select = (u32)value; break;
    case C_DRIVER_FEATURE:
        if (s->driver_feature_select < 2 && !(s->status & S_FEATURES_OK)) {
            unsigned shift = 32 * s->driver_feature_select;
            s->driver_features = (s->driver_features & ~(0xffffffffull << shift)) | (u64)(u32)value
                                                                                        << shift;
        }
        break;
    case C_CONFIG_VECTOR: s->config_vector = checked_vector((u16)value); break;
    case C_STATUS: write_status(v, (u8)value); break;
    case C_QUEUE_SELECT: s->queue_select = (u16)value; break;
    default:
        if (size >= 2 && offset % (size == 8 ? 8 : size) == 0 &&
            (offset < C_QUEUE_DESC ? size == 2 : size >= 4))
            queue_write(v, offset, size, value);
    }
}

/* ---- the BAR ---- */

static u64 msix_read(const struct virtio *v, u32 offset, unsigned size)
{
    const struct virtio_state *s = state(v);
    u64 value = 0;
    for (unsigned i = 0; i < size; i += 4) {
        unsigned entry = (offset + i) / 16;
        u32 word = 0;
        if (entry < VIRTIO_VECTORS)
            switch ((offset + i) / 4 % 4) {
            case 0: word = (u32)s->msix_address[entry]; break;
            case 1: word = (u32)(s->msix_address[entry] >> 32); break;
            case 2: word = s->msix_data[entry]; break;
            default: word = s->msix_control[entry]; break;
            }
        value |= (u64)word << (8 * i);
    }
    return value;
}

static void msix_write(struct virtio *v, u32 offset, unsigned size, u64 value)
{
    struct virtio_state *s = state(v);
    for (unsigned i = 0; i < size; i += 4, value >>= 32) {
        unsigned entry = (offset + i) / 16;
        if (entry >= VIRTIO_VECTORS)
            return;
        switch ((offset + i) / 4 % 4) {
        case 0:
            s->msix_address[entry] = (s->msix_address[entry] & ~0xffffffffull) | (u32)(value & ~3u);
            break;
        case 1: s->msix_address[entry] = (u32)s->msix_address[entry] | value << 32; break;
        case 2: s->msix_data[entry] = (u32)value; break;
        default: s->msix_control[entry] = (u32)value & 1; break;
        }
    }
    send_pending(v);
}

static u64 bar_read(struct device *dev, u32 offset, unsigned size)
{
    struct virtio *v = self(dev);
    u8 bytes[8] = {0};
    u64 value = 0;
    if (offset < AT_COMMON + C_SIZE)
        return common_read(v, offset - AT_COMMON, size);
    if (offset == AT_ISR) {
        value = state(v)->isr; /* reading clears it (4.1.4.5) */
        state(v)->isr = 0;
        update_intx(v);
        return value;
    }
    if (offset >= AT_MSIX && offset < AT_PBA)
        return size >= 4 && offset % 4 == 0 ? msix_read(v, offset - AT_MSIX, size) : 0;
    if (offset == AT_PBA)
        return state(v)->msix_pending;
    if (offset >= AT_DEVICE && offset - AT_DEVICE + size <= v->class->config_size)
        v->class->config_read(dev, offset - AT_DEVICE, size, bytes);
    memcpy(&value, bytes, sizeof(value));
    return value;
}

static void bar_write(struct device *dev, u32 offset, unsigned size, u64 value)
{
    struct virtio *v = self(dev);
    if (offset < AT_COMMON + C_SIZE) {
        common_write(v, offset - AT_COMMON, size, value);
    } else if (offset >= AT_MSIX && offset < AT_PBA) {
        if (size >= 4 && offset % 4 == 0)
            msix_write(v, offset - AT_MSIX, size, value);
    } else if (offset >= AT_DEVICE && offset - AT_DEVICE + size <= v->class->config_size) {
        if (v->class->config_write)
            v->class->config_write(dev, offset - AT_DEVICE, size, (const u8 *)&value);
    } else if (offset >= AT_NOTIFY && offset < AT_NOTIFY + NOTIFY_MUL * v->class->queues) {
        unsigned q = (offset - AT_NOTIFY) / NOTIFY_MUL;
        if (virtio_ready(v) && state(v)->q_enable[q])
            v->class->notify(dev, q);
    }
}

/* ---- configuration space ---- */

/* What the driver asks for through the window in configuration space; false: not what 4.1.4.9.1
 * says it must be. */
static bool window(const struct virtio *v, u32 *offset, u32 *length)
{
    const u8 *c = pci_config(v->pci, v->slot);
    *offset = get32(c + CFG_OFFSET);
    *length = get32(c + CFG_LENGTH);
    return c[CFG_BAR] == 0 && (*length == 1 || *length == 2 || *length == 4) &&
           *offset % *length == 0 && *offset < BAR_SIZE;
}

static bool in_data(unsigned offset, unsigned size)
{
    return offset < CFG_DATA + 4 && offset + size > CFG_DATA;
}

static void config_reading(struct device *dev, unsigned offset, unsigned size)
{
    struct virtio *v = self(dev);
    u32 at, length;
    if (!in_data(offset, size) || !window(v, &at, &length))
        return;
    u64 value = bar_read(dev, at, length);
    pci_config_set(v->pci, v->slot, CFG_DATA, &value, length);
}

static void config_written(struct device *dev, unsigned offset, unsigned size)
{
    struct virtio *v = self(dev);
    u32 at, length;
    if (in_data(offset, size) && window(v, &at, &length)) {
        u32 value = get32(pci_config(v->pci, v->slot) + CFG_DATA);
        bar_write(dev, at, length, length == 4 ? value : value & ((1u << 8 * length) - 1));
    }
    update_intx(v);
    send_pending(v);
}

/* ---- creation ---- */

/* A capability that says where a structure lies (4.1.4). */
static void put_cap(u8 *config, u8 at, u8 next, u8 len, u8 type, u32 offset, u32 length)
{
    config[at] = 0x09;
    config[at + 1] = next;
    config[at + 2] = len;
    config[at + 3] = type;
    put32(config + at + 8, offset);
    put32(config + at + 12, length);
}

static void make_config(struct virtio *v)
{
    u8 *c = v->config, *w = v->writable;
    put16(c + 0x00, 0x1af4);
    put16(c + 0x02, (u16)(0x1040 + v->class->type));
    put16(c + 0x06, 0x0010); /* capabilities */
    c[0x08] = 1;             /* revision: modern (4.1.2.1) */
    memcpy(c + 0x09, v->class->pci_class, 3);
    put16(c + 0x2c, 0x1af4);
    put16(c + 0x2e, (u16)(0x40 + v->class->type));
    c[0x34] = 0x40;
    c[0x3d] = 1; /* INTA# */
    put_cap(c, 0x40, 0x50, 16, 1, AT_COMMON, C_SIZE);
    put_cap(c, 0x50, 0x60, 16, 3, AT_ISR, 1);
    put_cap(c, 0x60, 0x74, 20, 2, AT_NOTIFY, NOTIFY_MUL * v->class->queues);
    put32(c + 0x60 + 16, NOTIFY_MUL);
    put_cap(c, 0x74, CAP_MSIX, 16, 4, AT_DEVICE, MAX(v->class->config_size, 4u));
    c[CAP_MSIX] = 0x11; /* MSI-X (PCI 3.0, 6.8.2) */
    c[CAP_MSIX + 1] = CAP_CFG;
    put16(c + CAP_MSIX + 2, VIRTIO_VECTORS - 1);
    put32(c + CAP_MSIX + 4, AT_MSIX);
    put32(c + CAP_MSIX + 8, AT_PBA);
    put_cap(c, CAP_CFG, 0, 20, 5, 0, 0);
    w[CFG_BAR] = 0xff;
    memset(w + CFG_OFFSET, 0xff, CFG_DATA + 4 - CFG_OFFSET);
    put16(w + PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_NOINTX);
    w[0x3c] = 0xff; /* interrupt line: software's */
    put16(w + CAP_MSIX + 2, MSIX_ENABLE | MSIX_MASK_ALL);
}

int virtio_alloc(struct device *dev, const struct device_ops *ops, const struct dev_env *env,
                 size_t state_size, size_t host_size, struct err *err)
{
    int r = dev_alloc(dev, ops, env, state_size, err);
    if (r)
        return r;
    dev->host = calloc(1, host_size);
    return dev->host ? 0 : err_set(err, -ENOMEM, "no memory for device %s", ops->name);
}

void virtio_connect(struct device *dev, const struct virtio_class *class, struct device *pci,
                    unsigned slot)
{
    struct virtio *v = self(dev);
    CHECK(class->queues <= VIRTIO_QUEUES && class->queue_max <= VIRTIO_QUEUE_MAX, "%s",
          dev->ops->name);
    v->dev = dev;
    v->class = class;
    v->pci = pci;
    v->slot = slot;
    make_config(v);
    struct pci_function f = {.dev = dev,
                             .config = v->config,
                             .writable = v->writable,
                             .bar_size = BAR_SIZE,
                             .read = bar_read,
                             .write = bar_write,
                             .config_reading = config_reading,
                             .config_written = config_written};
    pci_add(pci, slot, &f);
    virtio_reset(dev);
}

void virtio_reset(struct device *dev)
{
    struct virtio *v = self(dev);
    if (!v)
        return; /* not connected yet */
    reset_queues(v);
    for (unsigned i = 0; i < VIRTIO_VECTORS; i++)
        state(v)->msix_control[i] = 1; /* masked (PCI 3.0, 6.8.2.9) */
}

int virtio_loaded(struct device *dev, struct err *err)
{
    struct virtio *v = self(dev);
    const struct virtio_state *s = state(v);
    for (unsigned q = 0; q < VIRTIO_QUEUES; q++) {
        u16 size = s->q_size[q];
        if (size > v->class->queue_max || (size & (size - 1)) || s->q_enable[q] > 1 ||
            (q >= v->class->queues && (size || s->q_enable[q])) || (s->q_enable[q] && !size))
            return dev_bad_state(dev, err, "queue");
        if (s->q_vector[q] >= VIRTIO_VECTORS && s->q_vector[q] != VIRTIO_NO_VECTOR)
            return dev_bad_state(dev, err, "queue vector");
    }
    if (s->msix_pending >> VIRTIO_VECTORS)
        return dev_bad_state(dev, err, "pending vectors");
    return 0;
}
