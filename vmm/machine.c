/*
 * The machine: wiring of RAM, vCPU and devices, virtual time, and the run loop (machine.h gives
 * its order, which is part of what a recording means). Nondeterminism enters only through the
 * input source's take() and idle(). Calls below from devices and the engine carry the machine as
 * their opaque pointer; there is no state at file scope.
 */
#include "machine_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/check.h"
#include "board/acpi.h"
#include "board/boot.h"
#include "dev/acpi_pm.h"
#include "dev/debugexit.h"
#include "dev/ioapic.h"
#include "dev/lapic.h"
#include "dev/misc.h"
#include "dev/pci.h"
#include "dev/pic8259.h"
#include "dev/pit8254.h"
#include "dev/rtc.h"
#include "dev/uart16550.h"
#include "dev/virtio/rng.h"

#define DEFAULT_SLICE 1000000u
#define LAST_EVENTS   20
#define SLOT_RNG      2
#define SLOT_DISK     3 /* the first of them */
#define SLOT_NET      7 /* the first of them */
#define SLOT_CONSOLE  11
#define SLOT_INPUT    12 /* keyboard, tablet */
#define SLOT_GPU      14
#define SEED_RNG      0x726e675f76697274ull /* so that it is not the kernel's own seed again */
#define CYCLE_LIMIT   1000 /* deadlines in a row at one virtual instant: a device is stuck */

/* ---- what devices ask ---- */

static vns_t env_now(void *opaque)
{
    return machine_now(opaque);
}

/* What the TSC shows. */
static vns_t env_tsc(void *opaque)
{
    const struct machine *m = opaque;
    return m->branch_ns ? m->st.tsc : machine_now(m);
}

/* The TSC of a machine that counts branches moves now. */
static void move_tsc(struct machine *m)
{
    m->st.tsc = machine_now(m);
}

/* Whoever polls a device is not to wait for its time branch by branch. */
static void env_counted(void *opaque)
{
    struct machine *m = opaque;
    m->st.idle_ns += m->event_ns;
    move_tsc(m);
}

static void env_changed(void *opaque)
{
    struct machine *m = opaque;
    engine_attention(m->engine);
}

static void update_pic(struct machine *m)
{
    lapic_lint(&m->dev[DEV_LAPIC], 0, pic_pending(&m->dev[DEV_PIC]));
    env_changed(m);
}

static void env_irq(void *opaque, unsigned gsi, bool level)
{
    struct machine *m = opaque;
    if (gsi < 16)
        pic_set_irq(&m->dev[DEV_PIC], gsi, level);
    ioapic_set_irq(&m->dev[DEV_IOAPIC], gsi, level);
    update_pic(m);
}

static void env_msi(void *opaque, u64 address, u32 data)
{
    struct machine *m = opaque;
    lapic_msi(&m->dev[DEV_LAPIC], address, data);
    env_changed(m);
}

static void env_eoi(void *opaque, u8 vector)
{
    struct machine *m = opaque;
    ioapic_eoi(&m->dev[DEV_IOAPIC], vector);
}

static void env_output(void *opaque, enum dev_output channel, const void *data, size_t len)
{
    struct machine *m = opaque;
    XXH3_64bits_update(&m->out[channel].hash, data, len);
    m->out[channel].bytes += len;
    if (m->output)
        m->output(m->output_opaque, channel, data, len);
}

/* A serial port that is not the console. */
static void env_serial(void *opaque, enum dev_output channel, const void *data, size_t len)
{
    env_output(opaque, OUT_DEBUG, data, len);
}

static void env_emit(void *opaque, enum dev_emit kind, unsigned unit, const void *data, size_t len)
{
    struct machine *m = opaque;
    if (m->emit)
        m->emit(m->emit_opaque, kind, unit, data, len);
}

static void env_failed(void *opaque, const struct err *why)
{
    struct machine *m = opaque;
    if (!m->failed.code)
        m->failed = *why;
    env_changed(m);
}

static void env_event(void *opaque, enum dev_event event, u32 arg)
{
    struct machine *m = opaque;
    switch (event) {
    case DEV_NMI: m->st.nmi_pending = 1; break;
    case DEV_INIT:
    case DEV_SIPI: break; /* one CPU: INIT to itself is ignored, there is nobody to start */
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
    env_changed(m);
}

static bool env_dma_read(void *opaque, gpa_t gpa, void *out, size_t len)
{
    struct machine *m = opaque;
    const void *p = ram_ptr(&m->ram, gpa, len);
    if (p)
        memcpy(out, p, len);
    return p;
}

/* The one way in which anything but the CPU writes RAM. */
static bool env_dma_write(void *opaque, gpa_t gpa, const void *in, size_t len)
{
    struct machine *m = opaque;
    void *p = ram_ptr(&m->ram, gpa, len);
    if (!p || (gpa < ROM_END && gpa + len > ROM_BASE))
        return false;
    memcpy(p, in, len);
    engine_ram_written(m->engine, gpa, len);
    return true;
}

/* ---- what the engine asks ---- */

static struct device *find(const struct bus_range *r, unsigned n, u64 addr)
{
    for (unsigned i = 0; i < n; i++)
        if (addr - r[i].base < r[i].size)
            return r[i].dev;
    return NULL;
}

static u32 pio_read(void *opaque, u16 port, unsigned size)
{
    struct machine *m = opaque;
    struct device *d = find(m->ports, m->nports, port);
    u32 v = d && d->ops->pio_read ? d->ops->pio_read(d, port, size) : ~0u;
    engine_attention(m->engine);
    return v;
}

static void pio_write(void *opaque, u16 port, unsigned size, u32 value)
{
    struct machine *m = opaque;
    struct device *d = find(m->ports, m->nports, port);
    if (d && d->ops->pio_write)
        d->ops->pio_write(d, port, size, value);
    if (d == &m->dev[DEV_PIC])
        update_pic(m);
    engine_attention(m->engine);
}

static u64 mmio_read(void *opaque, gpa_t gpa, unsigned size)
{
    struct machine *m = opaque;
    if (lapic_mmio_active(&m->dev[DEV_LAPIC], gpa)) {
        struct device *l = &m->dev[DEV_LAPIC];
        return l->ops->mmio_read(l, gpa & 0xfff, size);
    }
    struct device *d = find(m->windows, m->nwindows, gpa);
    if (!d || d == &m->dev[DEV_LAPIC] || !d->ops->mmio_read)
        return ~0ull;
    return d->ops->mmio_read(d, gpa - d->ops->ranges[0].base, size);
}

static void mmio_write(void *opaque, gpa_t gpa, unsigned size, u64 value)
{
    struct machine *m = opaque;
    engine_attention(m->engine);
    if (lapic_mmio_active(&m->dev[DEV_LAPIC], gpa)) {
        struct device *l = &m->dev[DEV_LAPIC];
        l->ops->mmio_write(l, gpa & 0xfff, size, value);
        return;
    }
    struct device *d = find(m->windows, m->nwindows, gpa);
    if (d && d != &m->dev[DEV_LAPIC] && d->ops->mmio_write)
        d->ops->mmio_write(d, gpa - d->ops->ranges[0].base, size, value);
}

static bool env_rdmsr(void *opaque, u32 msr, u64 *value)
{
    struct machine *m = opaque;
    return lapic_rdmsr(&m->dev[DEV_LAPIC], msr, value);
}

static bool env_wrmsr(void *opaque, u32 msr, u64 value)
{
    struct machine *m = opaque;
    engine_attention(m->engine);
    if (msr == 0x3b) {
        lapic_set_tsc_adjust(&m->dev[DEV_LAPIC], value);
        return true;
    }
    return lapic_wrmsr(&m->dev[DEV_LAPIC], msr, value);
}

static u64 env_get_cr8(void *opaque)
{
    struct machine *m = opaque;
    return lapic_get_cr8(&m->dev[DEV_LAPIC]);
}

static void env_set_cr8(void *opaque, u64 value)
{
    struct machine *m = opaque;
    lapic_set_cr8(&m->dev[DEV_LAPIC], value);
    env_changed(m);
}

/* ---- creation ---- */

static int create_console(struct machine *m, const struct machine_config *config, struct err *err)
{
    bool wanted = config->hvc0;
    static_assert(MACHINE_PORTS == CONSOLE_PORTS, "as many as the device has");
    for (unsigned i = 1; i < MACHINE_PORTS; i++)
        wanted |= config->port[i] && *config->port[i];
    if (!wanted)
        return 0;
    int r = virtio_console_create(&m->dev[m->ndev], &m->dev_env, &m->console, &m->dev[DEV_PCI],
                                  SLOT_CONSOLE, config->hvc0, config->port, err);
    m->ndev += !r;
    return r;
}

static int create_devices(struct machine *m, const struct machine_config *config, struct err *err)
{
    const struct dev_env *env = &m->dev_env;
    struct device *d = m->dev;
    int r = 0;
    if (!r)
        r = lapic_create(&d[DEV_LAPIC], env, err);
    if (!r)
        r = ioapic_create(&d[DEV_IOAPIC], env, err);
    if (!r)
        r = pic8259_create(&d[DEV_PIC], env, err);
    if (!r)
        r = pit8254_create(&d[DEV_PIT], env, err);
    if (!r && config->revision < 1)
        pit8254_unready(&d[DEV_PIT]);
    if (!r)
        r = rtc_create(&d[DEV_RTC], env, config->wall_clock, err);
    if (!r)
        r = uart16550_create(&d[DEV_UART], config->hvc0 ? &m->serial_env : env, err);
    if (!r)
        r = acpi_pm_create(&d[DEV_ACPI], env, err);
    if (!r)
        r = debugexit_create(&d[DEV_EXIT_PORT], env, err);
    if (!r)
        r = misc_create(&d[DEV_MISC], env, err);
    if (!r)
        r = pci_create(&d[DEV_PCI], env, err);
    if (!r)
        r = virtio_rng_create(&d[DEV_RNG], env, &m->rng, &d[DEV_PCI], SLOT_RNG,
                              config->seed ^ SEED_RNG, err);
    m->ndev = DEV_FIXED;
    for (unsigned i = 0; !r && i < config->ndisks; i++) {
        char name[16];
        snprintf(name, sizeof(name), "disk%u", i);
        r = virtio_blk_create(&d[m->ndev], env, &m->blk[i], &d[DEV_PCI], SLOT_DISK + i,
                              config->disks[i], name, err);
        m->ndev += !r;
        m->ndisks += !r;
    }
    for (unsigned i = 0; !r && i < config->nnets; i++) {
        r = virtio_net_create(&d[m->ndev], env, &m->net[i], &d[DEV_PCI], SLOT_NET + i, i,
                              config->nets[i].mac, config->nets[i].mtu, err);
        m->ndev += !r;
        m->nnets += !r;
    }
    if (!r && config->gpu.width) {
        struct gpu_config gpu = {.width = config->gpu.width,
                                 .height = config->gpu.height,
                                 .hz = config->gpu.hz ? config->gpu.hz : MACHINE_GPU_HZ,
                                 .capset_id = config->gpu.capset_id,
                                 .capset_version = config->gpu.capset_version,
                                 .capset_size = config->gpu.capset_size};
        memcpy(gpu.capset, config->gpu.capset, MIN(gpu.capset_size, sizeof(gpu.capset)));
        r = virtio_gpu_create(&d[m->ndev], env, &m->gpu, &d[DEV_PCI], SLOT_GPU, &gpu, err);
        m->ndev += !r;
        m->has_gpu = !r;
    }
    if (!r)
        r = create_console(m, config, err);
    for (unsigned i = 0; !r && config->input && i < INPUT_DEVICES; i++) {
        r = virtio_input_create(&d[m->ndev], env, &m->inputs[i], &d[DEV_PCI], SLOT_INPUT + i,
                                (enum input_device)i, err);
        m->ndev += !r;
    }
    if (r)
        return r;
    for (unsigned i = 0; i < m->ndev; i++)
        for (size_t k = 0; k < d[i].ops->nranges; k++) {
            const struct io_range *io = &d[i].ops->ranges[k];
            struct bus_range range = {io->base, io->size, &d[i]};
            if (io->mmio) {
                CHECK(m->nwindows < ARRAY_SIZE(m->windows), "%s", d[i].ops->name);
                m->windows[m->nwindows++] = range;
            } else {
                CHECK(m->nports < ARRAY_SIZE(m->ports), "%s", d[i].ops->name);
                m->ports[m->nports++] = range;
            }
        }
    return 0;
}

static void start_state(struct vcpu *c, const struct boot_state *b)
{
    c->rip = b->rip;
    c->gpr[RSP] = b->rsp;
    c->gpr[RSI] = b->rsi;
    c->rflags = 2;
    c->cr0 = CR0_PE | CR0_ET | CR0_NE | CR0_WP | (u64)CR0_PG;
    c->cr3 = b->cr3;
    c->cr4 = CR4_PAE;
    c->efer = EFER_LME | EFER_LMA;
    c->gdt_base = b->gdt_base;
    c->gdt_limit = b->gdt_limit;
    c->idt_base = 0;
    c->idt_limit = 0;
    for (int s = SEG_ES; s <= SEG_GS; s++) {
        c->seg_sel[s] = s == SEG_CS ? 0x10 : 0x18;
        c->seg_attr[s] = s == SEG_CS ? ATTR_G | ATTR_L | ATTR_P | ATTR_S | 0xb
                                     : ATTR_G | ATTR_DB | ATTR_P | ATTR_S | 3;
        c->seg_limit[s] = 0xffffffff;
        c->seg_base[s] = 0;
    }
}

static void print_context(void *opaque)
{
    const struct machine *m = opaque;
    const struct vcpu *c = engine_vcpu(m->engine);
    fprintf(stderr, "reprise: at position %llu, virtual time %llu ns, RIP %llx\n",
            (unsigned long long)engine_position(m->engine),
            (unsigned long long)env_now((void *)(uintptr_t)m), (unsigned long long)c->rip);
}

int machine_create(struct machine **out, const struct machine_config *config, struct err *err)
{
    struct machine *m = calloc(1, sizeof(*m));
    if (!m)
        return err_set(err, -ENOMEM, "out of memory");
    m->dev_env = (struct dev_env){.machine = m,
                                  .now = env_now,
                                  .irq = env_irq,
                                  .msi = env_msi,
                                  .eoi = env_eoi,
                                  .changed = env_changed,
                                  .output = env_output,
                                  .event = env_event,
                                  .emit = env_emit,
                                  .failed = env_failed,
                                  .dma_read = env_dma_read,
                                  .dma_write = env_dma_write};
    m->serial_env = m->dev_env;
    m->serial_env.output = env_serial;
    m->branch_ns = config->branch_ns;
    m->event_ns = config->event_ns;
    m->tsc_step = config->tsc_step;
    m->by_insn = config->by_insn;
    m->st.tsc_at = m->tsc_step;
    m->engine_env = (struct engine_env){.machine = m,
                                        .pio_read = pio_read,
                                        .pio_write = pio_write,
                                        .mmio_read = mmio_read,
                                        .mmio_write = mmio_write,
                                        .rdmsr = env_rdmsr,
                                        .wrmsr = env_wrmsr,
                                        .get_cr8 = env_get_cr8,
                                        .set_cr8 = env_set_cr8,
                                        .now = env_tsc,
                                        .counted = env_counted};
    m->model = config->model;
    for (int i = 0; i < OUT_COUNT; i++)
        XXH3_64bits_reset(&m->out[i].hash);
    int r = ram_create(&m->ram, config->memory, err);
    if (!r) {
        struct engine_config ec = {config->model,
                                   &m->ram,
                                   &m->engine_env,
                                   config->engine,
                                   machine_by_branch(m) ? UNIT_BRANCH : UNIT_INSN,
                                   config->guest_tsc,
                                   m->branch_ns && m->by_insn};
        r = engine_create(&m->engine, &ec, err);
    }
    if (!r)
        r = create_devices(m, config, err);
    struct boot_state boot;
    if (!r) {
        struct boot_config bc = {.kernel = config->kernel,
                                 .kernel_size = config->kernel_size,
                                 .header = config->kernel_header,
                                 .header_size = config->kernel_header_size,
                                 .initrd = config->initrd,
                                 .initrd_size = config->initrd_size,
                                 .append = config->append ? config->append : "",
                                 .seed = config->seed,
                                 .acpi_rsdp = acpi_build(&m->ram, 1)};
        r = boot_load(&m->ram, &bc, &boot, err);
    }
    if (r) {
        machine_destroy(m);
        return r;
    }
    start_state(engine_vcpu(m->engine), &boot);
    engine_changed(m->engine);
    *out = m;
    return 0;
}

void machine_destroy(struct machine *m)
{
    if (!m)
        return;
    check_set_context(NULL, NULL);
    lapic_destroy(&m->dev[DEV_LAPIC]);
    ioapic_destroy(&m->dev[DEV_IOAPIC]);
    pic8259_destroy(&m->dev[DEV_PIC]);
    pit8254_destroy(&m->dev[DEV_PIT]);
    rtc_destroy(&m->dev[DEV_RTC]);
    uart16550_destroy(&m->dev[DEV_UART]);
    acpi_pm_destroy(&m->dev[DEV_ACPI]);
    debugexit_destroy(&m->dev[DEV_EXIT_PORT]);
    misc_destroy(&m->dev[DEV_MISC]);
    for (unsigned i = 0; i < m->ndisks; i++)
        virtio_blk_destroy(m->blk[i].v.dev);
    for (unsigned i = 0; i < m->nnets; i++)
        virtio_net_destroy(m->net[i].v.dev);
    if (m->has_gpu)
        virtio_gpu_destroy(m->gpu.v.dev);
    if (m->console.v.dev)
        virtio_console_destroy(m->console.v.dev);
    for (unsigned i = 0; i < INPUT_DEVICES; i++)
        if (m->inputs[i].v.dev)
            virtio_input_destroy(m->inputs[i].v.dev);
    virtio_rng_destroy(&m->dev[DEV_RNG]);
    pci_destroy(&m->dev[DEV_PCI]);
    engine_destroy(m->engine);
    ram_destroy(&m->ram);
    free(m);
}

void machine_set_output(struct machine *m,
                        void (*fn)(void *opaque, enum dev_output channel, const void *data,
                                   size_t len),
                        void *opaque)
{
    m->output = fn;
    m->output_opaque = opaque;
}

void machine_set_emit(struct machine *m,
                      void (*fn)(void *opaque, enum dev_emit kind, unsigned unit, const void *data,
                                 size_t len),
                      void *opaque)
{
    m->emit = fn;
    m->emit_opaque = opaque;
}

void machine_set_taken(struct machine *m, void (*fn)(void *opaque, const struct input *in),
                       void *opaque)
{
    m->taken = fn;
    m->taken_opaque = opaque;
}

static void trace_step(void *opaque)
{
    struct machine *m = opaque;
    m->trace(m->trace_opaque, m);
}

void machine_set_trace(struct machine *m, void (*fn)(void *opaque, struct machine *m), void *opaque)
{
    m->trace = fn;
    m->trace_opaque = opaque;
    engine_set_trace(m->engine, fn ? trace_step : NULL, m);
}

/* ---- running ---- */

static vns_t next_deadline(const struct machine *m)
{
    vns_t best = NEVER;
    for (unsigned i = 0; i < m->ndev; i++) {
        const struct device *d = &m->dev[i];
        vns_t t = d->ops->deadline ? d->ops->deadline(d) : NEVER;
        best = MIN(best, t);
    }
    return best;
}

static void expire(struct machine *m)
{
    for (unsigned n = 0; n < CYCLE_LIMIT; n++) {
        bool any = false;
        vns_t now = machine_now(m);
        for (unsigned i = 0; i < m->ndev; i++) {
            struct device *d = &m->dev[i];
            if (d->ops->deadline && d->ops->deadline(d) <= now) {
                d->ops->expire(d, now);
                any = true;
            }
        }
        if (!any)
            return;
        move_tsc(m);
    }
    CHECK(0, "a device's deadline does not move past the present");
}

static void settle(struct machine *m, const struct input *in)
{
    struct engine_place to;
    memcpy(&to, in->data, sizeof(to));
    if (engine_settle(m->engine, &to, &m->failed))
        return;
    engine_count_event(m->engine);
    m->st.idle_ns += in->arg;
    move_tsc(m);
    expire(m);
}

static void apply(struct machine *m, const struct input *in)
{
    move_tsc(m);
    if (m->taken)
        m->taken(m->taken_opaque, in);
    switch (in->kind) {
    case INPUT_CONSOLE: uart_receive(&m->dev[DEV_UART], in->data, in->len); break;
    case INPUT_BREAK: uart_break(&m->dev[DEV_UART]); break;
    case INPUT_NMI: m->st.nmi_pending = 1; break;
    case INPUT_POWER_BUTTON: acpi_power_button(&m->dev[DEV_ACPI]); break;
    case INPUT_PACKET: virtio_net_receive(m->net[in->unit].v.dev, in->data, in->len); break;
    case INPUT_LINK: virtio_net_link(m->net[in->unit].v.dev, in->arg); break;
    case INPUT_DISK_ERROR: virtio_blk_fail(m->blk[in->unit].v.dev, in->arg); break;
    case INPUT_PORT: virtio_console_receive(m->console.v.dev, in->unit, in->data, in->len); break;
    case INPUT_PORT_OPEN: virtio_console_open(m->console.v.dev, in->unit, in->arg); break;
    case INPUT_EVENTS: virtio_input_events(m->inputs[in->unit].v.dev, in->data, in->len); break;
    case INPUT_GPU: virtio_gpu_reply(m->gpu.v.dev, in->data, in->len); break;
    case INPUT_PLACE: settle(m, in); break;
    case INPUT_QUIT:
        if (!m->end_requested) {
            m->end_requested = true;
            m->end = (struct run_end){RUN_QUIT, in->arg};
        }
        break;
    }
}

/* The vector of a maskable interrupt the APIC or the PIC asks for; -1 none. */
static int interrupt_pending(struct machine *m)
{
    struct device *l = &m->dev[DEV_LAPIC];
    if (lapic_accepts_extint(l) && pic_pending(&m->dev[DEV_PIC]))
        return 256;
    return lapic_pending(l);
}

/* Delivers what the CPU takes now. 0, or the engine's exit when it shuts down. */
static int deliver(struct machine *m)
{
    if (m->st.nmi_pending && engine_can_nmi(m->engine)) {
        m->st.nmi_pending = 0;
        return engine_nmi(m->engine);
    }
    int v = interrupt_pending(m);
    if (v < 0 || !engine_can_interrupt(m->engine))
        return 0;
    if (v == 256) {
        v = pic_ack(&m->dev[DEV_PIC]);
        update_pic(m);
    } else {
        lapic_accept(&m->dev[DEV_LAPIC], (u8)v);
    }
    return engine_interrupt(m->engine, (u8)v);
}

/* A debug point that was hit stops the run once everything due here has been taken. */
static void debug_look(struct machine *m)
{
    if (engine_debug_hit(m->engine, &m->debug_hit))
        m->debug_stopped = true;
}

static int idle(struct machine *m, struct input_source *src, const struct run_limits *limits,
                struct run_end *end, struct err *err)
{
    vns_t deadline = next_deadline(m), until = deadline;
    if (!(engine_vcpu(m->engine)->rflags & FL_IF)) {
        /* Halted with interrupts off: for ever, as far as the guest can say. */
        *end = (struct run_end){RUN_HALTED, 0};
        return 1;
    }
    int r = src->ops->idle(src, m, deadline, &until, err);
    if (r < 0)
        return r;
    if (r > 0 || until == NEVER) {
        *end = (struct run_end){RUN_HALTED, 0};
        return 1;
    }
    vns_t now = machine_now(m);
    if (limits->stop_time > now && engine_position(m->engine) >= limits->stop_at)
        until = MIN(until, limits->stop_time);
    CHECK(until >= now && until <= deadline, "idle until %llu, now %llu, deadline %llu",
          (unsigned long long)until, (unsigned long long)now, (unsigned long long)deadline);
    m->st.idle_ns += until - now;
    return 0;
}

/* A guest that only looks at its TSC sees it move. */
static void step_tsc(struct machine *m)
{
    pos_t pos = engine_branches(m->engine);
    m->st.tsc_at = pos - pos % m->tsc_step + m->tsc_step;
    move_tsc(m);
}

int machine_run(struct machine *m, struct input_source *src, const struct run_limits *limits,
                struct run_end *end, struct err *err)
{
    u64 slice = limits->slice ? limits->slice : DEFAULT_SLICE;
    struct vcpu *c = engine_vcpu(m->engine);
    err->code = 0;
    check_set_context(print_context, m);
    engine_debug_pass(m->engine, m->debug_pass);
    m->debug_pass = false;
    for (;;) {
        if (m->end_requested) {
            *end = m->end;
            m->end_requested = false;
            return 0;
        }
        if (m->branch_ns && engine_branches(m->engine) >= m->st.tsc_at)
            step_tsc(m);
        expire(m);
        if (m->failed.code) {
            *err = m->failed;
            m->failed.code = 0;
            *end = (struct run_end){RUN_ERROR, 0};
            return err->code;
        }
        struct input in;
        int r;
        while ((r = src->ops->take(src, m, &in, err)) > 0)
            apply(m, &in);
        if (r < 0) {
            *end = (struct run_end){RUN_ERROR, 0};
            return r;
        }
        if (m->end_requested)
            continue;
        pos_t pos = engine_position(m->engine);
        if (m->debug_stopped) {
            m->debug_stopped = false;
            *end = (struct run_end){RUN_DEBUG, 0};
            return 0;
        }
        vns_t now = machine_now(m);
        if ((pos >= limits->stop_at && now >= limits->stop_time) || m->stop_requested ||
            (limits->pause_at && pos >= limits->pause_at)) {
            m->stop_requested = false;
            *end = (struct run_end){RUN_STOP, 0};
            return 0;
        }
        int x = deliver(m);
        debug_look(m);
        if (x == ENGINE_SHUTDOWN) {
            *end = (struct run_end){RUN_TRIPLE_FAULT, 0};
            return 0;
        }
        if (engine_position(m->engine) != pos)
            continue;
        if (c->halted) {
            r = idle(m, src, limits, end, err);
            if (r < 0) {
                *end = (struct run_end){RUN_ERROR, 0};
                return r;
            }
            if (r > 0)
                return 0;
            continue;
        }
        engine_want_window(m->engine, interrupt_pending(m) >= 0, m->st.nmi_pending);
        vns_t deadline = next_deadline(m);
        pos_t stop = limits->stop_at;
        if (limits->stop_time > now)
            stop = MAX(stop, pos + machine_positions(m, limits->stop_time - now));
        stop = MIN(stop, pos + slice);
        /* Of instructions there are as many at least as of branches. */
        if (m->branch_ns)
            stop = MIN(stop, pos + (m->st.tsc_at - engine_branches(m->engine)));
        if (limits->pause_at)
            stop = MIN(stop, limits->pause_at);
        stop = MIN(stop, src->ops->next_position(src, m));
        if (deadline != NEVER)
            stop = MIN(stop, pos + machine_positions(m, deadline - now));
        CHECK(stop > pos, "stop %llu at position %llu", (unsigned long long)stop,
              (unsigned long long)pos);
        switch (engine_run(m->engine, stop, err)) {
        case ENGINE_SHUTDOWN: *end = (struct run_end){RUN_TRIPLE_FAULT, 0}; return 0;
        case ENGINE_FAILED: *end = (struct run_end){RUN_QUIT, QUIT_ENGINE}; return err->code;
        case ENGINE_UNSUPPORTED: *end = (struct run_end){RUN_UNSUPPORTED, 0}; return -1;
        case ENGINE_LOST: *end = (struct run_end){RUN_LOST, 0}; return err->code;
        case ENGINE_BETWEEN:
            r = src->ops->between ? src->ops->between(src, m, &in, err) : 0;
            if (r > 0)
                apply(m, &in);
            if (r >= 0)
                break;
            *end = (struct run_end){RUN_ERROR, 0};
            return r;
        default: debug_look(m); break;
        }
    }
}

void machine_stop(struct machine *m)
{
    m->stop_requested = true;
    engine_attention(m->engine);
}

void machine_kick(struct machine *m)
{
    engine_kick(m->engine);
}

/* ---- looking at it ---- */

pos_t machine_position(const struct machine *m)
{
    return engine_position(m->engine);
}

vns_t machine_now(const struct machine *m)
{
    if (m->branch_ns)
        return engine_branches(m->engine) * m->branch_ns + m->st.idle_ns;
    return engine_position(m->engine) + m->st.idle_ns;
}

bool machine_by_branch(const struct machine *m)
{
    return m->branch_ns && !m->by_insn;
}

const char *machine_positions_name(const struct machine *m)
{
    return machine_by_branch(m) ? "branches and events" : "instructions";
}

u64 machine_positions(const struct machine *m, vns_t ns)
{
    return m->branch_ns ? ns / m->branch_ns + (ns % m->branch_ns != 0) : ns;
}

void machine_place(struct machine *m, struct engine_place *out)
{
    engine_place(m->engine, out);
}

int machine_settle(struct machine *m, const struct engine_place *to, struct err *err)
{
    return engine_settle(m->engine, to, err);
}

pos_t machine_branches(const struct machine *m)
{
    return engine_branches(m->engine);
}

bool machine_idle(const struct machine *m)
{
    return engine_vcpu(m->engine)->halted;
}

u32 machine_room(const struct machine *m, enum input_kind kind, u32 unit)
{
    switch (kind) {
    case INPUT_CONSOLE: return unit ? 0 : uart_room(&m->dev[DEV_UART]);
    case INPUT_PACKET: return unit < m->nnets ? virtio_net_room(m->net[unit].v.dev) : 0;
    case INPUT_LINK: return unit < m->nnets;
    case INPUT_DISK_ERROR: return unit < m->ndisks;
    case INPUT_PORT: return m->console.v.dev ? virtio_console_room(m->console.v.dev, unit) : 0;
    case INPUT_PORT_OPEN:
        return m->console.v.dev && unit && virtio_console_has(m->console.v.dev, unit);
    case INPUT_EVENTS:
        if (unit >= INPUT_DEVICES || !m->inputs[unit].v.dev)
            return 0;
        return virtio_input_room(m->inputs[unit].v.dev);
    case INPUT_PLACE: return m->branch_ns ? INPUT_MAX : 0;
    case INPUT_GPU: {
        u64 number;
        return machine_gpu_waiting(m, &number) && !unit ? INPUT_MAX : 0;
    }
    case INPUT_BREAK:
    case INPUT_NMI:
    case INPUT_POWER_BUTTON:
    case INPUT_QUIT: break;
    }
    return 1;
}

bool machine_gpu_waiting(const struct machine *m, u64 *number)
{
    return m->has_gpu && virtio_gpu_waiting(m->gpu.v.dev, number);
}

bool machine_disk_failing(struct machine *m, struct input *in)
{
    for (unsigned i = 0; i < m->ndisks; i++) {
        u32 request;
        if (virtio_blk_failing(m->blk[i].v.dev, &request)) {
            *in = (struct input){.kind = INPUT_DISK_ERROR, .unit = i, .arg = request};
            return true;
        }
    }
    return false;
}
