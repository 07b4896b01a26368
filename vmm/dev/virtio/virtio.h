/*
 * Virtio 1.2 over PCI (modern only, MSI-X), for the devices in this folder: the transport owns
 * feature negotiation, status, queues, configuration and interrupts; a device says what it is and
 * handles its queues' buffers. Numbers of sections are those of the Virtual I/O Device standard,
 * version 1.2.
 *
 * A device works at two kinds of positions only: where the guest notifies it (reads descriptors
 * and data of the guest, all of it copied once, before it is looked at), and at its own deadlines.
 * A driver that breaks the rules gets DEVICE_NEEDS_RESET (2.1.2) and no service until it resets.
 */
#ifndef REPRISE_DEV_VIRTIO_H
#define REPRISE_DEV_VIRTIO_H

#include "dev/device.h"

#define VIRTIO_QUEUES    18u  /* a console with 8 ports has as many */
#define VIRTIO_QUEUE_MAX 256u /* descriptors of a queue */
#define VIRTIO_VECTORS   (VIRTIO_QUEUES + 1)
#define VIRTIO_SEGMENTS  1024u /* of one chain; drivers' limits are far below */
#define VIRTIO_NO_VECTOR 0xffffu

#define VIRTIO_F_INDIRECT_DESC (1ull << 28)
#define VIRTIO_F_EVENT_IDX     (1ull << 29)
#define VIRTIO_F_VERSION_1     (1ull << 32)

/* The transport's part of a device's saved state: the first rows of each device. */
#define VIRTIO_STATE(F, A)                                                                         \
    F(u64, driver_features)                                                                        \
    F(u32, device_feature_select)                                                                  \
    F(u32, driver_feature_select)                                                                  \
    F(u16, config_vector)                                                                          \
    F(u16, queue_select)                                                                           \
    F(u8, status)                                                                                  \
    F(u8, isr)                                                                                     \
    F(u8, generation)                                                                              \
    A(u8, q_enable, VIRTIO_QUEUES)                                                                 \
    A(u16, q_size, VIRTIO_QUEUES)                                                                  \
    A(u16, q_vector, VIRTIO_QUEUES)                                                                \
    A(u16, q_avail, VIRTIO_QUEUES)     /* next entry of the available ring to take */              \
    A(u16, q_used, VIRTIO_QUEUES)      /* next entry of the used ring to fill */                   \
    A(u16, q_signalled, VIRTIO_QUEUES) /* value of q_used at the last interrupt */                 \
    A(u8, q_signalled_valid, VIRTIO_QUEUES)                                                        \
    A(u64, q_desc, VIRTIO_QUEUES)                                                                  \
    A(u64, q_driver, VIRTIO_QUEUES)                                                                \
    A(u64, q_device, VIRTIO_QUEUES)                                                                \
    A(u64, msix_address, VIRTIO_VECTORS)                                                           \
    A(u32, msix_data, VIRTIO_VECTORS)                                                              \
    A(u32, msix_control, VIRTIO_VECTORS) /* bit 0: masked */                                       \
    F(u32, msix_pending)

STATE_STRUCT(virtio, VIRTIO_STATE);

struct virtio_segment {
    gpa_t gpa;
    u32 len;
};

/* A chain of descriptors: what the device reads, then what it writes (2.7.4.2). */
struct virtio_chain {
    u16 head;
    unsigned nread, nwrite;
    u64 read_len, write_len; /* bytes */
    struct virtio_segment seg[VIRTIO_SEGMENTS];
};

struct virtio_class {
    u16 type; /* device id (5): 1 network, 2 block, 3 console, 4 entropy, 18 input */
    u8 pci_class[3];
    u64 features; /* the device's own; the transport adds its own */
    unsigned queues;
    u16 queue_max; /* a power of two */
    unsigned config_size;
    /* Device configuration space: bytes [offset, offset + size) of config_size. */
    void (*config_read)(struct device *dev, unsigned offset, unsigned size, u8 *out);
    void (*config_write)(struct device *dev, unsigned offset, unsigned size, const u8 *in);
    void (*notify)(struct device *dev, unsigned queue); /* there may be buffers */
    void (*reset)(struct device *dev);                  /* its own part; may be NULL */
};

/* Where a device's host side, dev->host, begins. */
struct virtio {
    struct device *dev;
    const struct virtio_class *class;
    struct device *pci;
    unsigned slot;
    u8 config[256], writable[256];
    struct virtio_chain chain; /* scratch */
};

/* Allocates a device of this folder: its state, and as dev->host zeroed bytes that begin with a
 * struct virtio. To be connected. */
int virtio_alloc(struct device *dev, const struct device_ops *ops, const struct dev_env *env,
                 size_t state_size, size_t host_size, struct err *err);
/* Connects a device (created, its state starting with VIRTIO_STATE) to a slot.
 */
void virtio_connect(struct device *dev, const struct virtio_class *class, struct device *pci,
                    unsigned slot);
/* The transport's part of device_ops.reset and .loaded. */
void virtio_reset(struct device *dev);
int virtio_loaded(struct device *dev, struct err *err);

/* Takes the next chain of a queue into v->chain. 0: none (or the driver broke a rule). */
bool virtio_pop(struct virtio *v, unsigned queue);
/* Would virtio_pop find something (or something broken)? Changes nothing. */
bool virtio_available(const struct virtio *v, unsigned queue);
/* How many chains wait in a queue; 0 also if the driver's index makes no sense. Changes nothing. */
u16 virtio_waiting(const struct virtio *v, unsigned queue);
/* Bytes that the device may write into the next chain, without taking it; 0: there is none, or it
 * is none that virtio_pop would give. Changes nothing but v->chain. */
u64 virtio_next_room(struct virtio *v, unsigned queue);
/* Gives the last `n` chains that were taken back to be taken again. */
void virtio_unpop(struct virtio *v, unsigned queue, unsigned n);
/* Follows the chain of a head that was taken before once more; false: the driver changed it into
 * something that is none. */
bool virtio_again(struct virtio *v, unsigned queue, u16 head);
/* Bytes between chain and host, from `offset` of the readable or writable part; returns how many
 * there were. */
u64 virtio_read(struct virtio *v, u64 offset, void *out, u64 len);
u64 virtio_write(struct virtio *v, u64 offset, const void *in, u64 len);
/* Gives a chain back, `written` bytes of it filled. */
void virtio_push(struct virtio *v, unsigned queue, u16 head, u32 written);
/* Interrupts for what was pushed since the last time, if the driver wants one. */
void virtio_signal(struct virtio *v, unsigned queue);
/* The device's configuration changed (2.5): generation and interrupt. */
void virtio_config_changed(struct virtio *v);
/* The driver broke a rule. */
void virtio_broken(struct virtio *v);
static inline bool virtio_has(const struct virtio *v, u64 feature)
{
    return ((const struct virtio_state *)v->dev->state)->driver_features & feature;
}
/* DRIVER_OK and not broken. */
bool virtio_ready(const struct virtio *v);

#endif
