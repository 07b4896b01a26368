/*
 * What devices ask of the machine (struct dev_env): the wires between them and to the vCPUs, DMA,
 * and the way out. Calls carry the machine as their opaque pointer.
 */
#include <string.h>

#include "dev/ioapic.h"
#include "dev/lapic.h"
#include "dev/pic8259.h"
#include "machine/internal.h"

void bus_attention(struct machine *m)
{
    for (unsigned i = 0; i < m->ncpus; i++)
        engine_attention(m->cpu[i].engine);
}

void bus_writing(struct machine *m)
{
    for (unsigned i = 0; i < m->ncpus; i++)
        engine_ram_writing(m->cpu[i].engine);
}

/* What was made of memory is all vCPUs'; a watched byte is the hit of whose turn it is. */
void bus_written(struct machine *m, gpa_t gpa, u64 len)
{
    engine_ram_written(m->turn->engine, gpa, len);
}

static vns_t dev_now(void *opaque)
{
    return machine_now(opaque);
}

static vns_t dev_late(void *opaque, vns_t due)
{
    const struct machine *m = opaque;
    return m->st.delays ? chaos_delay(m, due) : due;
}

static void dev_changed(void *opaque)
{
    bus_attention(opaque);
}

void wires_pic(struct machine *m)
{
    lapic_lint(m->cpu[0].lapic, 0, pic_pending(device_of(m, DEV_PIC)));
    bus_attention(m);
}

static void dev_irq(void *opaque, unsigned gsi, bool level)
{
    struct machine *m = opaque;
    if (gsi < 16)
        pic_set_irq(device_of(m, DEV_PIC), gsi, level);
    ioapic_set_irq(device_of(m, DEV_IOAPIC), gsi, level);
    wires_pic(m);
}

/* The CPU whose local APIC has the id; m->ncpus: none. */
static unsigned cpu_of(const struct machine *m, u32 apic_id)
{
    unsigned i = 0;
    while (i < m->ncpus && lapic_id(m->cpu[i].lapic) != apic_id)
        i++;
    return i;
}

/* Every local APIC sees the message and knows whether it is meant; of several one of which is to
 * take it, the first of the lowest priority does. */
static void dev_ipi(void *opaque, const struct lapic_message *msg, u32 but)
{
    struct machine *m = opaque;
    unsigned taker = m->ncpus;
    const unsigned skip = cpu_of(m, but);
    u32 priority, lowest = 0;
    for (unsigned i = 0; i < m->ncpus; i++)
        if (i != skip && lapic_may_take(m->cpu[i].lapic, msg, &priority) &&
            (taker == m->ncpus || priority < lowest)) {
            taker = i;
            lowest = priority;
        }
    for (unsigned i = 0; i < m->ncpus; i++)
        if (i != skip && (taker == m->ncpus || i == taker))
            lapic_take(m->cpu[i].lapic, msg);
    bus_attention(m);
}

static void dev_msi(void *opaque, u64 address, u32 data)
{
    struct lapic_message msg;
    if (lapic_message(&msg, address, data))
        dev_ipi(opaque, &msg, LAPIC_NOBODY);
}

static void dev_eoi(void *opaque, u8 vector)
{
    struct machine *m = opaque;
    ioapic_eoi(device_of(m, DEV_IOAPIC), vector);
}

static void dev_output(void *opaque, enum dev_output channel, const void *data, size_t len)
{
    struct machine *m = opaque;
    XXH3_64bits_update(&m->out[channel].hash, data, len);
    m->out[channel].bytes += len;
    if (m->output)
        m->output(m->output_opaque, channel, data, len);
}

/* A serial port that is not the console. */
static void dev_serial(void *opaque, enum dev_output channel, const void *data, size_t len)
{
    dev_output(opaque, OUT_DEBUG, data, len);
}

static void dev_emit(void *opaque, enum dev_emit kind, unsigned unit, const void *data, size_t len)
{
    struct machine *m = opaque;
    if (m->emit)
        m->emit(m->emit_opaque, kind, unit, data, len);
}

static void dev_failed(void *opaque, const struct err *why)
{
    struct machine *m = opaque;
    if (!m->failed.code)
        m->failed = *why;
    bus_attention(m);
}

static void dev_event(void *opaque, enum dev_event event, u32 arg)
{
    struct machine *m = opaque;
    switch (event) {
    case DEV_NMI: schedule_nmi(m, cpu_of(m, arg), true); break;
    case DEV_INIT: schedule_init(m, cpu_of(m, arg)); break;
    case DEV_SIPI: schedule_start(m, cpu_of(m, arg >> 8), (u8)arg); break;
    case DEV_RESET:
    case DEV_POWEROFF:
    case DEV_EXIT:
        if (!m->end_requested) {
            m->end_requested = true;
            m->end = (struct run_end){event == DEV_RESET      ? RUN_RESET
                                      : event == DEV_POWEROFF ? RUN_POWEROFF
                                                              : RUN_EXIT,
                                      arg};
        }
        break;
    }
    bus_attention(m);
}

static bool dev_dma_read(void *opaque, gpa_t gpa, void *out, size_t len)
{
    struct machine *m = opaque;
    const void *p = ram_ptr(&m->ram, gpa, len);
    if (p)
        memcpy(out, p, len);
    return p;
}

/* The one way in which anything but a CPU writes RAM. */
static bool dev_dma_write(void *opaque, gpa_t gpa, const void *in, size_t len)
{
    struct machine *m = opaque;
    void *p = ram_ptr(&m->ram, gpa, len);
    if (!p || (gpa < ROM_END && gpa + len > ROM_BASE))
        return false;
    bus_writing(m);
    memcpy(p, in, len);
    bus_written(m, gpa, len);
    return true;
}

void wires_connect(struct machine *m)
{
    m->dev_env = (struct dev_env){.machine = m,
                                  .now = dev_now,
                                  .late = m->ncpus > 1 ? dev_late : NULL,
                                  .irq = dev_irq,
                                  .msi = dev_msi,
                                  .ipi = m->ncpus > 1 ? dev_ipi : NULL,
                                  .eoi = dev_eoi,
                                  .changed = dev_changed,
                                  .output = dev_output,
                                  .event = dev_event,
                                  .emit = dev_emit,
                                  .failed = dev_failed,
                                  .dma_read = dev_dma_read,
                                  .dma_write = dev_dma_write};
    m->serial_env = m->dev_env;
    m->serial_env.output = dev_serial;
}
