/*
 * The machine: made of RAM, vCPUs and devices, at power-on; and who listens to what leaves it.
 * There is no state at file scope: several fit in a process.
 */
#include "machine/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "board/acpi.h"
#include "board/boot.h"

/* As after a reset (SDM vol. 3, table 10-1) and the jump that firmware begins with. */
static void start_real(struct vcpu *c, const struct boot_state *b)
{
    c->rip = b->rip;
    c->rflags = 2;
    c->cr0 = CR0_ET;
    c->gdt_limit = c->idt_limit = 0xffff;
    for (int s = SEG_ES; s <= SEG_GS; s++) {
        c->seg_sel[s] = s == SEG_CS ? b->cs : 0;
        c->seg_base[s] = (u64)c->seg_sel[s] << 4;
        c->seg_limit[s] = 0xffff;
        c->seg_attr[s] = ATTR_P | ATTR_S | (s == SEG_CS ? 0xb : 3);
    }
}

static void start_state(struct vcpu *c, const struct boot_state *b)
{
    if (b->real) {
        start_real(c, b);
        return;
    }
    const u16 code = b->wide ? ATTR_L : ATTR_DB;
    c->rip = b->rip;
    c->gpr[RAX] = b->rax;
    c->gpr[RBX] = b->rbx;
    c->gpr[RSP] = b->rsp;
    c->gpr[RSI] = b->rsi;
    c->rflags = 2;
    c->cr0 = CR0_PE | CR0_ET;
    if (b->wide) {
        c->cr0 |= CR0_NE | CR0_WP | (u64)CR0_PG;
        c->cr3 = b->cr3;
        c->cr4 = CR4_PAE;
        c->efer = EFER_LME | EFER_LMA;
    }
    c->gdt_base = b->gdt_base;
    c->gdt_limit = b->gdt_limit;
    c->idt_base = 0;
    c->idt_limit = 0;
    for (int s = SEG_ES; s <= SEG_GS; s++) {
        c->seg_sel[s] = s == SEG_CS ? 0x10 : 0x18;
        c->seg_attr[s] = s == SEG_CS ? ATTR_G | code | ATTR_P | ATTR_S | 0xb
                                     : ATTR_G | ATTR_DB | ATTR_P | ATTR_S | 3;
        c->seg_limit[s] = 0xffffffff;
        c->seg_base[s] = 0;
    }
}

static_assert(DESCRIPTION_CPUS_MAX == MACHINE_CPUS_MAX, "as many as there may be");
static_assert(DESCRIPTION_REVISION == ENGINE_REVISION, "a revision is the whole machine's");

static int create_cpus(struct machine *m, const struct machine_config *config, struct err *err)
{
    int r = 0;
    for (unsigned i = 0; !r && i < m->ncpus; i++) {
        const struct engine_config ec = {.model = m->cpu_kind.model,
                                         .words = m->cpu_kind.words,
                                         .partly = config->partly,
                                         .ram = &m->ram,
                                         .env = &m->cpu[i].env,
                                         .kind = config->engine,
                                         .paranoid = config->paranoid,
                                         .unit = m->unit,
                                         .revision = config->is->revision,
                                         .pmu = !strcmp(config->is->pmu, "on"),
                                         .guest_tsc = config->is->guest_tsc,
                                         .id = i,
                                         .parts = description_cpu_parts(config->is),
                                         .sibling = i ? m->cpu[0].engine : NULL,
                                         .code_cache = config->code_cache};
        r = engine_create(&m->cpu[i].engine, &ec, err);
    }
    m->turn = &m->cpu[0];
    return r;
}

static int load_kernel(struct machine *m, const struct machine_config *config, struct err *err)
{
    struct boot_state boot;
    u8 generation[ACPI_GENERATION_SIZE];
    const struct cpu_parts parts = description_cpu_parts(config->is);
    acpi_generation(config->is->seed, generation);
    m->generation = config->is->revision >= 3;
    struct boot_config bc = {.protocol = config->is->protocol,
                             .kernel = config->kernel,
                             .kernel_size = config->kernel_size,
                             .header = config->kernel_header,
                             .header_size = config->kernel_header_size,
                             .initrd = config->initrd,
                             .initrd_size = config->initrd_size,
                             .append = config->is->append,
                             .seed = config->is->seed,
                             .bios_data = config->is->revision >= 2,
                             .acpi_rsdp =
                                 acpi_build(&m->ram, &parts, m->generation ? generation : NULL)};
    int r = boot_load(&m->ram, &bc, &boot, err);
    if (r)
        return r;
    start_state(engine_vcpu(m->cpu[0].engine), &boot);
    engine_changed(m->cpu[0].engine);
    for (unsigned i = 1; i < m->ncpus; i++)
        engine_vcpu(m->cpu[i].engine)->halted = VCPU_WAITS_FOR_SIPI;
    return 0;
}

int machine_create(struct machine **out, const struct machine_config *config, struct err *err)
{
    struct machine *m = calloc(1, sizeof(*m));
    if (!m)
        return err_set(err, -ENOMEM, "out of memory");
    m->ncpus = config->is->cpus;
    m->revision = config->is->revision;
    clock_create(m, config->is);
    wires_connect(m);
    bus_connect(m);
    state_init(m);
    int r = description_cpu(config->is, &m->cpu_kind, err);
    m->has_lbr =
        !r && !strcmp(config->is->pmu, "on") && cpu_lbr_depth(m->cpu_kind.model, m->revision);
    if (!r)
        r = ram_create(&m->ram, config->is->memory, err);
    if (!r)
        r = create_cpus(m, config, err);
    if (!r)
        r = devices_create(m, config, err);
    if (!r)
        r = load_kernel(m, config, err);
    if (r)
        machine_destroy(m);
    else
        *out = m;
    return r;
}

void machine_destroy(struct machine *m)
{
    if (!m)
        return;
    check_set_context(NULL, NULL);
    devices_destroy(m);
    for (unsigned i = m->ncpus; i-- > 0;) /* the first has what others borrow */
        engine_destroy(m->cpu[i].engine);
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

void machine_set_switched(struct machine *m,
                          void (*fn)(void *opaque, const struct machine_switch *s), void *opaque)
{
    m->switched = fn;
    m->switched_opaque = opaque;
}

void machine_set_recording(struct machine *m, const char *dir)
{
    m->recording = dir;
}

static void cpu_lacking(void *opaque, const char *text, const char *has)
{
    struct machine *m = ((struct machine_cpu *)opaque)->m;
    if (m->lacking)
        m->lacking(m->lacking_opaque, m, text, has);
}

void machine_set_lacking(struct machine *m,
                         void (*fn)(void *opaque, struct machine *m, const char *text,
                                    const char *has),
                         void *opaque)
{
    m->lacking = fn;
    m->lacking_opaque = opaque;
    for (unsigned i = 0; i < m->ncpus; i++)
        m->cpu[i].env.lacking = fn ? cpu_lacking : NULL;
}

static void trace_before(void *opaque)
{
    struct machine *m = opaque;
    m->trace.before(m->trace.opaque, m);
}

static void trace_after(void *opaque)
{
    struct machine *m = opaque;
    m->trace.after(m->trace.opaque, m);
}

int machine_set_trace(struct machine *m, const struct machine_trace *trace)
{
    struct engine_trace t = {.before = trace_before, .after = trace_after, .opaque = m};
    int r = 0;
    if (trace) {
        m->trace = *trace;
        m->trace.only = NULL; /* the engine has it */
        t.only = trace->only;
        t.n = trace->n;
    }
    for (unsigned i = 0; !r && i < m->ncpus; i++)
        r = engine_set_trace(m->cpu[i].engine, trace ? &t : NULL);
    return r;
}

const struct engine_accesses *machine_accesses(const struct machine *m)
{
    return engine_accesses(m->turn->engine);
}
