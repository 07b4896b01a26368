/* See virtio_gpu.h. */
#include "virtio_gpu.h"

#define DEVICE_ID 0x10501af4u
#define VECTOR    0x50
#define LOOKS     100000u /* at a queue, before it is given up */

/* Common configuration (4.1.4.3). */
enum {
    DRIVER_FEATURE_SELECT = 0x08,
    DRIVER_FEATURE = 0x0c,
    CONFIG_VECTOR = 0x10,
    STATUS = 0x14,
    QUEUE_SELECT = 0x16,
    QUEUE_SIZE = 0x18,
    QUEUE_VECTOR = 0x1a,
    QUEUE_ENABLE = 0x1c,
    QUEUE_DESC = 0x20,
    QUEUE_DRIVER = 0x28,
    QUEUE_DEVICE = 0x30,
};

volatile struct gpu_queue gpu_queue[GPU_QUEUES] __attribute__((aligned(4096)));
volatile u64 gpu_interrupts;
struct gpu_at gpu_at;
static enum gpu_irq irq;

u32 pci_read(u16 slot, u8 reg)
{
    outl(0xcf8, 0x80000000u | (u32)slot << 11 | (reg & 0xfcu));
    return inl(0xcfc);
}

void pci_write(u16 slot, u8 reg, u32 v)
{
    outl(0xcf8, 0x80000000u | (u32)slot << 11 | (reg & 0xfcu));
    outl(0xcfc, v);
}

static bool on_interrupt(struct frame *f)
{
    (void)f;
    if (irq == GPU_INTX)
        (void)MMIO(u8, gpu_at.isr);
    gpu_interrupts++;
    lapic_eoi();
    return true;
}

static void find_registers(u16 slot)
{
    struct gpu_at *a = &gpu_at;

    a->slot = slot;
    a->bar = pci_read(slot, 0x10) & ~0xfu;
    for (u8 cap = (u8)pci_read(slot, 0x34); cap; cap = (u8)(pci_read(slot, cap) >> 8)) {
        u32 head = pci_read(slot, cap);
        u64 at = a->bar + pci_read(slot, (u8)(cap + 8));

        if ((u8)head == 0x11) {
            a->msix_cap = cap;
            a->msix = a->bar + (pci_read(slot, (u8)(cap + 4)) & ~7u);
        }
        if ((u8)head != 0x09)
            continue;
        switch (head >> 24) {
        case 1: a->common = at; break;
        case 2:
            a->notify = at;
            a->notify_step = pci_read(slot, (u8)(cap + 16));
            break;
        case 3: a->isr = at; break;
        case 4: a->device = at; break;
        case 5: a->cfg_cap = cap; break;
        }
    }
}

bool gpu_find(void)
{
    for (u16 slot = 0; slot < 32; slot++)
        if (pci_read(slot, 0) == DEVICE_ID) {
            pci_write(slot, 4, (pci_read(slot, 4) & 0xffffu) | 6);
            find_registers(slot);
            lapic_enable();
            set_handler(VECTOR, on_interrupt);
            return true;
        }
    return false;
}

u8 gpu_status(void)
{
    return MMIO(u8, gpu_at.common + STATUS);
}

static void route(void)
{
    u32 control = irq == GPU_MSIX ? 0x80000000u : 0;

    pci_write(gpu_at.slot, 4, (pci_read(gpu_at.slot, 4) & 0xfbffu) | (irq == GPU_POLLED) << 10);
    pci_write(gpu_at.slot, gpu_at.msix_cap, control);
    ioapic_route(16 + gpu_at.slot % 8, VECTOR, 1 << 15 | (irq == GPU_INTX ? 0 : 1 << 16));
    MMIO(u32, gpu_at.msix) = (u32)LAPIC;
    MMIO(u32, gpu_at.msix + 4) = 0;
    MMIO(u32, gpu_at.msix + 8) = VECTOR;
    MMIO(u32, gpu_at.msix + 12) = 0;
}

bool gpu_start(u64 features, enum gpu_irq how)
{
    u64 c = gpu_at.common;

    irq = how;
    features |= F_VERSION_1;
    MMIO(u8, c + STATUS) = 0;
    memset((void *)gpu_queue, 0, sizeof gpu_queue);
    route();
    MMIO(u8, c + STATUS) = 3;
    for (u32 i = 0; i < 2; i++) {
        MMIO(u32, c + DRIVER_FEATURE_SELECT) = i;
        MMIO(u32, c + DRIVER_FEATURE) = (u32)(features >> 32 * i);
    }
    MMIO(u8, c + STATUS) = 11;
    if (!(gpu_status() & 8))
        return false;
    MMIO(u16, c + CONFIG_VECTOR) = irq == GPU_MSIX ? 0 : 0xffff;
    for (u16 q = 0; q < GPU_QUEUES; q++) {
        MMIO(u16, c + QUEUE_SELECT) = q;
        MMIO(u16, c + QUEUE_SIZE) = GPU_QUEUE;
        MMIO(u16, c + QUEUE_VECTOR) = irq == GPU_MSIX ? 0 : 0xffff;
        MMIO(u64, c + QUEUE_DESC) = (u64)gpu_queue[q].desc;
        MMIO(u64, c + QUEUE_DRIVER) = (u64)&gpu_queue[q].avail_flags;
        MMIO(u64, c + QUEUE_DEVICE) = (u64)&gpu_queue[q].used_flags;
        MMIO(u16, c + QUEUE_ENABLE) = 1;
    }
    MMIO(u8, c + STATUS) = 15;
    return true;
}

void gpu_offer(unsigned queue, u16 head)
{
    volatile struct gpu_queue *q = &gpu_queue[queue];

    q->avail[q->avail_idx % GPU_QUEUE] = head;
    q->avail_idx++;
    q->used_event = (u16)(q->avail_idx - 1);
    MMIO(u16, gpu_at.notify + queue * gpu_at.notify_step) = (u16)queue;
}

bool gpu_wait(unsigned queue)
{
    volatile struct gpu_queue *q = &gpu_queue[queue];

    for (u32 i = 0; i < LOOKS && q->used_idx != q->avail_idx; i++) {
        if (gpu_status() & STATUS_NEEDS_RESET)
            return false;
        if (irq != GPU_POLLED)
            sti_hlt_cli();
    }
    if (irq != GPU_POLLED)
        window();
    return q->used_idx == q->avail_idx;
}

u32 gpu_ask(const void *request, u32 len, void *answer, u32 room)
{
    volatile struct gpu_queue *q = &gpu_queue[GPU_CONTROL];

    memset(answer, 0, room);
    q->desc[0] = (struct gpu_desc){(u64)request, len, DESC_NEXT, 1};
    q->desc[1] = (struct gpu_desc){(u64)answer, room, DESC_WRITE, 0};
    gpu_offer(GPU_CONTROL, 0);
    return gpu_wait(GPU_CONTROL) ? *(volatile u32 *)answer : 0;
}

bool gpu_cursor(const struct virtio_gpu_update_cursor *c)
{
    gpu_queue[GPU_CURSOR].desc[0] = (struct gpu_desc){(u64)c, sizeof *c, 0, 0};
    gpu_offer(GPU_CURSOR, 0);
    return gpu_wait(GPU_CURSOR);
}
