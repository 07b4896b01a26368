/*
 * A driver for virtio-gpu over PCI (virtio 1.2, 4.1 and 5.7) with which everything can be done
 * wrong: what the device sees is the caller's to change.
 */
#ifndef TINY_VIRTIO_GPU_H
#define TINY_VIRTIO_GPU_H

#include <linux/virtio_gpu.h>
#include "tiny.h"

#define GPU_QUEUE 16u
enum { GPU_CONTROL, GPU_CURSOR, GPU_QUEUES };
enum gpu_irq { GPU_POLLED, GPU_INTX, GPU_MSIX };

/* Of virtio (2.1, 2.7, 6). */
#define STATUS_NEEDS_RESET 0x40u
#define DESC_NEXT          1u
#define DESC_WRITE         2u
#define DESC_INDIRECT      4u
#define F_INDIRECT         (1ull << 28)
#define F_EVENT_IDX        (1ull << 29)
#define F_VERSION_1        (1ull << 32)

struct gpu_desc {
    u64 addr;
    u32 len;
    u16 flags, next;
};
/* A queue as the device sees it. */
struct gpu_queue {
    struct gpu_desc desc[GPU_QUEUE];
    u16 avail_flags, avail_idx, avail[GPU_QUEUE], used_event;
    u16 pad;
    u16 used_flags, used_idx;
    struct {
        u32 id, len;
    } used[GPU_QUEUE];
    u16 avail_event;
};
extern volatile struct gpu_queue gpu_queue[GPU_QUEUES];
extern volatile u64 gpu_interrupts; /* since power-on */

/* Registers, found by gpu_find() through the device's capabilities. */
struct gpu_at {
    u16 slot;
    u64 bar, common, notify, isr, device, msix;
    u8 msix_cap, cfg_cap;
    u32 notify_step;
};
extern struct gpu_at gpu_at;

u32 pci_read(u16 slot, u8 reg);
void pci_write(u16 slot, u8 reg, u32 v);
#define MMIO(type, at) (*(volatile type *)(at))

/* Finds the device and lets it work. false: there is none. */
bool gpu_find(void);
/* Resets it and starts both queues anew. false: it refused the features (VERSION_1 is added). */
bool gpu_start(u64 features, enum gpu_irq irq);
u8 gpu_status(void);
/* Offers the chain that begins with `head`, and tells the device. */
void gpu_offer(unsigned queue, u16 head);
/* Waits until everything offered was used. false: the device needs a reset, or never did. */
bool gpu_wait(unsigned queue);
/* A command from its buffer to its answer: the response's type; 0: there was no answer. */
u32 gpu_ask(const void *request, u32 len, void *answer, u32 room);
/* A command of the cursor's queue. */
bool gpu_cursor(const struct virtio_gpu_update_cursor *c);

#endif
