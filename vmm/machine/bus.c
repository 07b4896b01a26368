/*
 * What vCPUs ask of the machine (struct engine_env): ports and memory of devices, the MSRs of the
 * local APIC, interrupts. Calls carry the vCPU that asks as their opaque pointer.
 */
#include <stdio.h>

#include "base/check.h"
#include "base/phase.h"
#include "dev/lapic.h"
#include "dev/pic8259.h"
#include "dev/virtio/rng.h"
#include "machine/internal.h"

/* Whoever polls a device is not to wait for its time branch by branch. Deadlines are nearer then:
 * an engine that went on would come to one late, unless a slice ended in between. */
static void cpu_counted(void *opaque)
{
    struct machine_cpu *c = opaque;
    clock_pass(c->m, c->m->event_ns);
    clock_move_tsc(c->m);
    engine_attention(c->engine);
}

static vns_t cpu_tsc(void *opaque)
{
    const struct machine_cpu *c = opaque;
    return clock_tsc(c->m);
}

void bus_add(struct machine *m, struct device *dev)
{
    for (size_t k = 0; k < dev->ops->nranges; k++) {
        const struct io_range *io = &dev->ops->ranges[k];
        struct bus_range range = {io->base, io->size, dev};
        if (io->mmio) {
            CHECK(m->nwindows < ARRAY_SIZE(m->windows), "%s", dev->ops->name);
            m->windows[m->nwindows++] = range;
        } else {
            CHECK(m->nports < ARRAY_SIZE(m->ports), "%s", dev->ops->name);
            m->ports[m->nports++] = range;
        }
    }
}

static struct device *find(const struct bus_range *r, unsigned n, u64 addr)
{
    for (unsigned i = 0; i < n; i++)
        if (addr - r[i].base < r[i].size)
            return r[i].dev;
    return NULL;
}

static u32 cpu_pio_read(void *opaque, u16 port, unsigned size)
{
    struct machine_cpu *c = opaque;
    struct device *d = find(c->m->ports, c->m->nports, port);
    enum phase before = phase_enter(PHASE_DEVICE);
    u32 v = d && d->ops->pio_read ? d->ops->pio_read(d, port, size) : ~0u;
    phase_leave(before);
    engine_attention(c->engine);
    return v;
}

static void cpu_pio_write(void *opaque, u16 port, unsigned size, u32 value)
{
    struct machine_cpu *c = opaque;
    struct machine *m = c->m;
    struct device *d = find(m->ports, m->nports, port);
    enum phase before = phase_enter(PHASE_DEVICE);
    if (d && d->ops->pio_write)
        d->ops->pio_write(d, port, size, value);
    phase_leave(before);
    if (d == device_of(m, DEV_PIC))
        wires_pic(m);
    engine_attention(c->engine);
}

static u64 mmio_read(struct machine_cpu *c, gpa_t gpa, unsigned size)
{
    if (lapic_mmio_active(c->lapic, gpa))
        return c->lapic->ops->mmio_read(c->lapic, gpa & 0xfff, size);
    struct device *d = find(c->m->windows, c->m->nwindows, gpa);
    return d && d->ops->mmio_read ? d->ops->mmio_read(d, gpa - d->ops->ranges[0].base, size)
                                  : ~0ull;
}

static u64 cpu_mmio_read(void *opaque, gpa_t gpa, unsigned size)
{
    enum phase before = phase_enter(PHASE_DEVICE);
    u64 value = mmio_read(opaque, gpa, size);
    phase_leave(before);
    return value;
}

static void mmio_write(struct machine_cpu *c, gpa_t gpa, unsigned size, u64 value)
{
    engine_attention(c->engine);
    if (lapic_mmio_active(c->lapic, gpa)) {
        c->lapic->ops->mmio_write(c->lapic, gpa & 0xfff, size, value);
        return;
    }
    struct device *d = find(c->m->windows, c->m->nwindows, gpa);
    if (d && d->ops->mmio_write)
        d->ops->mmio_write(d, gpa - d->ops->ranges[0].base, size, value);
}

static void cpu_mmio_write(void *opaque, gpa_t gpa, unsigned size, u64 value)
{
    enum phase before = phase_enter(PHASE_DEVICE);
    mmio_write(opaque, gpa, size, value);
    phase_leave(before);
}

static bool cpu_rdmsr(void *opaque, u32 msr, u64 *value)
{
    struct machine_cpu *c = opaque;
    return lapic_rdmsr(c->lapic, msr, value);
}

static bool cpu_wrmsr(void *opaque, u32 msr, u64 value)
{
    struct machine_cpu *c = opaque;
    engine_attention(c->engine);
    if (msr == 0x3b) {
        lapic_set_tsc_adjust(c->lapic, value);
        return true;
    }
    return lapic_wrmsr(c->lapic, msr, value);
}

static u64 cpu_get_cr8(void *opaque)
{
    struct machine_cpu *c = opaque;
    return lapic_get_cr8(c->lapic);
}

static void cpu_set_cr8(void *opaque, u64 value)
{
    struct machine_cpu *c = opaque;
    lapic_set_cr8(c->lapic, value);
    bus_attention(c->m);
}

static void cpu_pmi(void *opaque, bool mask)
{
    struct machine_cpu *c = opaque;
    lapic_pmi(c->lapic, mask);
    bus_attention(c->m);
}

static u64 cpu_random(void *opaque, bool seed)
{
    struct machine *m = ((struct machine_cpu *)opaque)->m;
    return rng_number(device_find(m, DEV_RNG, 0), machine_position(m), seed);
}

static void cpu_sync(void *opaque)
{
    schedule_sync(opaque);
}

void bus_sync(struct machine *m, bool on)
{
    on = on && schedule_hears(m);
    for (unsigned i = 0; i < m->ncpus; i++) {
        struct machine_cpu *c = &m->cpu[i];
        if (!c->env.sync == !on)
            continue;
        engine_sync(c->engine);
        c->env.sync = on ? cpu_sync : NULL;
        engine_changed(c->engine);
    }
}

static void cpu_pause(void *opaque)
{
    schedule_pause(opaque);
}

/* ---- interrupts ---- */

#define EXTINT 256 /* the 8259s have one, and say which when they are asked */

int bus_interrupt(const struct machine_cpu *c)
{
    if (c == c->m->cpu && lapic_accepts_extint(c->lapic) && pic_pending(device_of(c->m, DEV_PIC)))
        return EXTINT;
    return lapic_pending(c->lapic);
}

u8 bus_acknowledge(struct machine_cpu *c)
{
    int v = bus_interrupt(c);
    if (v == EXTINT) {
        v = pic_ack(device_of(c->m, DEV_PIC));
        wires_pic(c->m);
    } else {
        lapic_accept(c->lapic, (u8)v);
    }
    return (u8)v;
}

void bus_connect(struct machine *m)
{
    for (unsigned i = 0; i < m->ncpus; i++) {
        struct machine_cpu *c = &m->cpu[i];
        c->m = m;
        snprintf(c->name, sizeof(c->name), "cpu%u", i);
        c->env = (struct engine_env){.cpu = c,
                                     .pio_read = cpu_pio_read,
                                     .pio_write = cpu_pio_write,
                                     .mmio_read = cpu_mmio_read,
                                     .mmio_write = cpu_mmio_write,
                                     .rdmsr = cpu_rdmsr,
                                     .wrmsr = cpu_wrmsr,
                                     .get_cr8 = cpu_get_cr8,
                                     .set_cr8 = cpu_set_cr8,
                                     .pmi = cpu_pmi,
                                     .pause = m->ncpus > 1 ? cpu_pause : NULL,
                                     .now = cpu_tsc,
                                     .random = cpu_random,
                                     .counted = cpu_counted};
    }
}
