/*
 * The engine's side: a guest whose user half has the same pages at the same linear addresses as
 * native.c, and whose kernel half is descriptor tables, a stack, and one HLT per vector. A fault
 * or INT3 under test thus ends in ENGINE_HALT with its frame on the stack and the vector in RIP.
 * All page-table entries have their A and D bits set, so that nothing but data changes in memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include "board/ram.h"
#include "cpu/engine.h"
#include "tests/insn/insn.h"

#define G_RAM    (16u << 20)
#define G_PML4   0x1000u
#define G_GDT    0x10000u /* from here: system pages, contiguous, at SYS */
#define G_IDT    0x11000u
#define G_TSS    0x12000u
#define G_STUBS  0x13000u
#define G_STACK  0x15000u /* top */
#define G_COMMON 0x16000u
#define G_LDT    0x17000u
#define G_SYSPG  8u
#define G_CODE   0x200000u
#define G_LAND   0x240000u
#define G_DATA   0x280000u
#define G_DEVICE 0xfe000000u
#define SYS      0xffff800000000000ull
#define LONGEST  200000            /* positions: a REP over all the code pages */
#define NO_CR2   0x5a5a5a5a5000ull /* CR2 before the case: only a page fault may change it */

#define PTE_P  1ull
#define PTE_W  2ull
#define PTE_U  4ull
#define PTE_AD 0x60ull
#define PTE_NX (1ull << 63)

struct guest {
    struct ram ram;
    struct engine *engine;
    struct engine_env env;
    gpa_t next_table;
    enum cpu_model model;
    bool xsave, handlers, kernel, quiet;
    u64 cr4;
    enum engine_exit last; /* stops.c: how the last run ended */
    u8 asked;              /* how the device is to write after the instruction */
    struct err err;
    void (*pmi)(void *opaque, struct guest *g);
    void *pmi_opaque;
};

bool guest_in_code(const struct guest *g)
{
    return engine_vcpu(g->engine)->rip - T_CODE < CODE_SIZE;
}

void guest_device(struct guest *g, u8 how)
{
    static const u8 bytes[] = {0x9c, 0x9c, 0x9c, 0x9c};
    u64 at = engine_vcpu(g->engine)->rip - T_CODE + (how & 15);
    size_t len = 1 + (how >> 4 & 3);

    if (at < CODE_SIZE - sizeof bytes) {
        engine_ram_writing(g->engine);
        guest_code(g, at, bytes, len);
        engine_ram_written(g->engine, G_CODE + at, len);
    }
}

static u32 guest_pio_read(void *m, u16 port, unsigned size)
{
    struct guest *g = m;

    if (g->handlers)
        guest_device(g, (u8)port);
    return ~0u;
}

static void guest_pio_write(void *m, u16 port, unsigned size, u32 value)
{
    struct guest *g = m;

    if (!g->handlers)
        return;
    guest_device(g, (u8)port);
    /* Now and then it writes once more, after the instruction. */
    u64 now = engine_count(g->engine);
    if (!g->quiet && now * 0x9e3779b97f4a7c15 >> 62 == 0) {
        g->asked = (u8)(now | 0x80);
        engine_attention(g->engine);
    }
}

static u64 guest_mmio_read(void *m, gpa_t gpa, unsigned size)
{
    struct guest *g = m;

    if (g->handlers)
        guest_device(g, (u8)gpa);
    return ~0ull;
}

static void guest_mmio_write(void *m, gpa_t gpa, unsigned size, u64 value)
{
    struct guest *g = m;

    if (g->handlers)
        guest_device(g, (u8)value);
}

static bool no_rdmsr(void *m, u32 msr, u64 *value)
{
    return false;
}

static bool no_wrmsr(void *m, u32 msr, u64 value)
{
    return false;
}

static u64 no_get_cr8(void *m)
{
    return 0;
}

static void no_set_cr8(void *m, u64 value)
{
}

static void guest_pmi(void *m, bool mask)
{
    struct guest *g = m;

    (void)mask;
    if (g->pmi)
        g->pmi(g->pmi_opaque, g);
}

/* Of the position alone: however a program is run it gets the same. */
static u64 guest_random_number(void *opaque, bool seed)
{
    struct guest *g = opaque;
    return (engine_count(g->engine) + seed) * 0x9e3779b97f4a7c15ull;
}

static vns_t guest_now(void *m)
{
    struct guest *g = m;

    return engine_count(g->engine);
}

/* What is called may use vector registers: the guest's are not there. */
static void guest_sync(void *m)
{
    (void)m;
    __asm__ volatile("pcmpeqd %%xmm0, %%xmm0; pcmpeqd %%xmm7, %%xmm7; pxor %%xmm15, %%xmm15"
                     :
                     :
                     : "xmm0", "xmm7", "xmm15");
}

static void guest_counted(void *m)
{
    (void)m;
}

static u64 *gptr(struct guest *g, gpa_t gpa)
{
    return ram_ptr(&g->ram, gpa, 8);
}

static void map_page(struct guest *g, gva_t va, gpa_t pa, u64 flags)
{
    gpa_t table = G_PML4;

    for (unsigned level = 3; level > 0; level--) {
        u64 *e = gptr(g, table + (va >> (12 + 9 * level) & 511) * 8);

        if (!*e) {
            *e = g->next_table | PTE_P | PTE_W | PTE_U | (g->handlers ? 0 : PTE_AD);
            g->next_table += PAGE_SIZE;
        }
        table = *e & 0xffffffffff000;
    }
    *gptr(g, table + (va >> 12 & 511) * 8) = pa | PTE_P | (g->handlers ? 0 : PTE_AD) | flags;
}

/* A page of the program is itself the table of 2 MiB. */
static void map_by_code(struct guest *g, gva_t va, gpa_t page)
{
    map_page(g, va, page, 0);
    gpa_t table = G_PML4;
    for (unsigned level = 3; level > 1; level--)
        table = *gptr(g, table + (va >> (12 + 9 * level) & 511) * 8) & 0xffffffffff000;
    *gptr(g, table + (va >> 21 & 511) * 8) = page | PTE_P | PTE_W | PTE_U;
}

static void put_gate(struct guest *g, unsigned vector)
{
    u64 target = SYS + (G_STUBS - G_GDT) + vector * 16;
    /* As in Linux: user code may raise #BP and #OF by INT n. */
    u64 dpl = vector == EXC_BP || vector == EXC_OF ? 3 : 0;
    u64 *e = gptr(g, G_IDT + vector * 16);

    e[0] = (target & 0xffff) | 0x10ull << 16 | (0x8e00ull | dpl << 13) << 32 |
           (target >> 16 & 0xffff) << 48;
    e[1] = target >> 32;
    *(u8 *)gptr(g, G_STUBS + vector * 16) = 0xf4;
    if (g->handlers) {
        u8 *p = (u8 *)gptr(g, G_STUBS + vector * 16);
        i32 d = (i32)(G_COMMON - (G_STUBS + vector * 16 + 7));

        memcpy(p, (vector < 32 && HAS_ERROR >> vector & 1) ? "\x66\x90" : "\x6a\x00", 2);
        p[2] = 0xe9;
        memcpy(p + 3, &d, 4);
    }
}

/* Goes on one byte further, or at the program's start if that is outside; TF is cleared. */
static void put_common(struct guest *g)
{
    static const u8 code[] = {
        0x50, 0x51,                                     /* push rax; push rcx */
        0x48, 0x8b, 0x44, 0x24, 0x18,                   /* mov rax, [rsp+24] */
        0x48, 0xff, 0xc0,                               /* inc rax */
        0x48, 0x8d, 0x88, 0x00, 0x00, 0x00, 0xf0,       /* lea rcx, [rax - T_CODE] */
        0x48, 0x81, 0xf9, 0x00, 0x00, 0x01, 0x00,       /* cmp rcx, CODE_SIZE */
        0x72, 0x07,                                     /* jb */
        0x48, 0x8b, 0x05, 0xdf, 0x01, 0x00, 0x00,       /* mov rax, [rip + ...]: G_COMMON + 512 */
        0x48, 0x89, 0x44, 0x24, 0x18,                   /* mov [rsp+24], rax */
        0x81, 0x64, 0x24, 0x28, 0xff, 0xfe, 0xff, 0xff, /* and dword [rsp+40], ~TF */
        0x59, 0x58, 0x48, 0x83, 0xc4, 0x08, 0x48, 0xcf};

    _Static_assert(T_CODE == 0x10000000 && CODE_SIZE == 0x10000, "the code above");
    memcpy(gptr(g, G_COMMON), code, sizeof code);
}

static void build_tables(struct guest *g)
{
    static const u64 gdt[16] = {
        [1] = 0x00cf9b000000ffff, [2] = 0x00af9b000000ffff, [3] = 0x00cf93000000ffff,
        [4] = 0x00cffb000000ffff, [5] = 0x00cff3000000ffff, [6] = 0x00affb000000ffff};
    u64 tss = SYS + (G_TSS - G_GDT);

    memcpy(gptr(g, G_GDT), gdt, sizeof gdt);
    memcpy(gptr(g, G_LDT), test_ldt, sizeof test_ldt);
    gptr(g, G_GDT)[8] = 0x67 | (tss & 0xffffff) << 16 | 0x8bull << 40 | (tss >> 24 & 0xff) << 56;
    gptr(g, G_GDT)[9] = tss >> 32;
    for (unsigned i = 0; i < 256; i++)
        put_gate(g, i);
    put_common(g);
    *(u64 *)((u8 *)gptr(g, G_TSS) + 4) = SYS + (G_STACK - G_GDT); /* RSP0 */
    ((u8 *)gptr(g, G_TSS))[102] = 0x68;                           /* no I/O bitmap */

    for (unsigned i = 0; i < G_SYSPG; i++)
        map_page(g, SYS + i * PAGE_SIZE, G_GDT + i * PAGE_SIZE, PTE_W);
    for (unsigned i = 0; i < CODE_PAGES; i++)
        map_page(g, T_CODE + i * PAGE_SIZE, G_CODE + i * PAGE_SIZE,
                 PTE_U | (g->handlers ? PTE_W : 0));
    map_page(g, T_LAND, G_LAND, PTE_U);
    if (g->handlers) /* single cases have what the host's process has */
        map_page(g, T_DEVICE, G_DEVICE, PTE_U | PTE_W | PTE_NX);
    memset(gptr(g, G_LAND), 0xcc, PAGE_SIZE);
    for (unsigned i = 0; i < DATA_PAGES; i++)
        if ((DATA_RW | DATA_RO) >> i & 1)
            map_page(g, T_DATA + i * PAGE_SIZE, G_DATA + i * PAGE_SIZE,
                     PTE_U | PTE_NX | (DATA_RW >> i & 1 ? PTE_W : 0));
}

static void set_seg(struct vcpu *v, int seg, u16 sel, u16 attr, u32 limit)
{
    v->seg_sel[seg] = sel;
    v->seg_attr[seg] = attr;
    v->seg_limit[seg] = limit;
    v->seg_base[seg] = 0;
}

static void init_vcpu(struct guest *g)
{
    struct vcpu *v = engine_vcpu(g->engine);

    vcpu_reset(v);
    v->cr0 = CR0_PE | CR0_MP | CR0_ET | CR0_NE | CR0_WP | CR0_AM | CR0_PG;
    v->cr3 = G_PML4;
    v->cr4 = g->cr4;
    v->efer = (g->handlers ? 0 : EFER_SCE) | EFER_LME | EFER_LMA | EFER_NX;
    v->tsc_aux = 0x1a2b3c4d;
    v->gdt_base = SYS;
    v->gdt_limit = 16 * 8 - 1;
    v->idt_base = SYS + (G_IDT - G_GDT);
    v->idt_limit = 4095;
    set_seg(v, SEG_TR, 0x40, 0x008b, 0x67);
    v->seg_base[SEG_TR] = SYS + (G_TSS - G_GDT);
    set_seg(v, SEG_LDTR, 0, 0, 0);
    if (test_code != CODE_64) {
        set_seg(v, SEG_LDTR, 0x50, 0x82, LDT_SIZE * 8 - 1);
        v->seg_base[SEG_LDTR] = SYS + (G_LDT - G_GDT);
    }
}

static int create(struct guest **out, struct engine_config config, bool handlers, const u8 *mem,
                  char *why, size_t len)
{
    struct guest *g = calloc(1, sizeof *g);
    struct err err = {0};
    enum cpu_model model = config.model;

    config.ram = &g->ram;
    config.env = &g->env;
    config.pmu = true;
    config.revision = test_revision;
    config.words = test_cpu.words;

    g->env = (struct engine_env){.cpu = g,
                                 .pio_read = guest_pio_read,
                                 .pio_write = guest_pio_write,
                                 .mmio_read = guest_mmio_read,
                                 .mmio_write = guest_mmio_write,
                                 .rdmsr = no_rdmsr,
                                 .wrmsr = no_wrmsr,
                                 .get_cr8 = no_get_cr8,
                                 .set_cr8 = no_set_cr8,
                                 .pmi = guest_pmi,
                                 .now = guest_now,
                                 .random = guest_random_number,
                                 .pause = handlers ? guest_sync : NULL,
                                 .sync = handlers ? guest_sync : NULL,
                                 .counted = guest_counted};
    g->next_table = G_PML4 + PAGE_SIZE;
    g->model = model;
    g->handlers = handlers;
    g->xsave = feature_xsave(model);
    g->cr4 = CR4_DE | CR4_PAE | CR4_PGE | CR4_OSFXSR | CR4_OSXMMEXCPT |
             (g->xsave ? CR4_OSXSAVE : 0) | (feature_fsgsbase(model) ? CR4_FSGSBASE : 0) |
             (feature_umip(model) ? CR4_UMIP : 0);
    if (ram_create(&g->ram, G_RAM, &err) < 0) {
        snprintf(why, len, "%s", err.text);
        free(g);
        return -1;
    }
    build_tables(g);
    memcpy(gptr(g, G_DATA), mem, DATA_SIZE);
    if (engine_create(&g->engine, &config, &err) < 0) {
        snprintf(why, len, "%s", err.text);
        ram_destroy(&g->ram);
        free(g);
        return -1;
    }
    init_vcpu(g);
    engine_changed(g->engine);
    *out = g;
    return 0;
}

int guest_create(struct guest **out, enum cpu_model model, enum engine_kind engine, bool handlers,
                 const u8 *mem, char *why, size_t len)
{
    return create(out, (struct engine_config){.model = model, .kind = engine}, handlers, mem, why,
                  len);
}

int guest_create_paranoid(struct guest **out, enum cpu_model model, const u8 *mem, char *why,
                          size_t len)
{
    const struct engine_config config = {
        .model = model, .kind = ENGINE_DBT, .paranoid = {.on = true, .seed = 1}};

    return create(out, config, true, mem, why, len);
}

void guest_destroy(struct guest *g)
{
    engine_destroy(g->engine);
    ram_destroy(&g->ram);
    free(g);
}

void guest_code(struct guest *g, u64 offset, const u8 *bytes, size_t len)
{
    memcpy((u8 *)gptr(g, G_CODE) + offset, bytes, MIN(len, CODE_SIZE - offset));
}

void guest_code_changed(struct guest *g)
{
    engine_ram_written(g->engine, G_CODE, CODE_SIZE);
}

static void load_segment(struct guest *g, int seg, u16 sel)
{
    u64 raw = gptr(g, sel & 4 ? G_LDT : G_GDT)[sel >> 3];
    u32 limit = (u32)((raw & 0xffff) | (raw >> 32 & 0xf0000));

    set_seg(engine_vcpu(g->engine), seg, sel, (u16)(raw >> 40 & 0xf0ff),
            raw >> 55 & 1 ? limit << 12 | 0xfff : limit);
    engine_vcpu(g->engine)->seg_base[seg] = test_base(sel);
}

static void load_state(struct guest *g, const struct cpu_state *st)
{
    struct vcpu *v = engine_vcpu(g->engine);

    memcpy(v->gpr, st->gpr, sizeof v->gpr);
    v->rip = st->rip;
    v->rflags = st->rflags;
    v->cr2 = NO_CR2;
    v->halted = v->shadow = v->nmi_blocked = v->rep_resume = 0;
    v->dr[6] = 0xffff0ff0;
    v->dr[7] = 0x400;
    v->xcr0 = g->xsave ? st->xsave[512] & 0xe7 : 1;
    for (int i = 0; i < 6; i++)
        load_segment(g, i, st->sel[i]);
    v->seg_base[SEG_FS] = st->fs_base;
    v->seg_base[SEG_GS] = st->gs_base;
    memcpy(v->xsave, st->xsave, XSAVE_SIZE);
    memcpy(v->mask, st->mask, sizeof v->mask);
    memcpy(v->zmm_high, st->zmm_high, sizeof v->zmm_high);
    memcpy(v->zmm_above, st->zmm_above, sizeof v->zmm_above);
    /* XSTATE_BV says "differs from init"; a random image does, as good as always, in all parts. */
    engine_changed(g->engine);
}

static void store_state(struct guest *g, struct outcome *out)
{
    struct vcpu *v = engine_vcpu(g->engine);

    memcpy(out->st.gpr, v->gpr, sizeof v->gpr);
    out->st.rip = v->rip;
    out->st.rflags = v->rflags;
    out->st.fs_base = v->seg_base[SEG_FS];
    out->st.gs_base = v->seg_base[SEG_GS];
    memcpy(out->st.sel, v->seg_sel, sizeof out->st.sel);
    memcpy(out->st.xsave, v->xsave, XSAVE_SIZE);
    memcpy(out->st.mask, v->mask, sizeof v->mask);
    memcpy(out->st.zmm_high, v->zmm_high, sizeof v->zmm_high);
    memcpy(out->st.zmm_above, v->zmm_above, sizeof v->zmm_above);
    out->cr2 = v->cr2;
}

u32 guest_live(struct guest *g, u64 rip)
{
    gpa_t page;

    if (rip - T_CODE < CODE_SIZE)
        page = G_CODE + ((rip - T_CODE) & ~(u64)(PAGE_SIZE - 1));
    else if (rip - T_DATA < DATA_SIZE && (DATA_RW | DATA_RO) >> ((rip - T_DATA) / PAGE_SIZE) & 1)
        page = G_DATA + ((rip - T_DATA) & ~(u64)(PAGE_SIZE - 1));
    else
        return FL_ARITH;
    return rule_live(g->model, (const u8 *)gptr(g, page), rip & (PAGE_SIZE - 1));
}

/* In the handler of a vector (before or after its HLT): the interrupted state is in the frame. */
static bool take_frame(struct guest *g, struct outcome *out)
{
    u64 off = out->st.rip - (SYS + (G_STUBS - G_GDT));
    u64 size = 5 * 8;
    const u64 *f;

    if (off >= 4096 || off % 16 > 1)
        return false;
    out->vector = (u8)(off / 16);
    if (out->vector < 32 && HAS_ERROR >> out->vector & 1)
        size += 8;
    if (out->st.gpr[RSP] != SYS + (G_STACK - G_GDT) - size) {
        snprintf(out->note, sizeof out->note, "vector %u with RSP %llx: no frame of %llu bytes",
                 out->vector, (unsigned long long)out->st.gpr[RSP], (unsigned long long)size);
        out->kind = OUT_ODD;
        return true;
    }
    f = gptr(g, G_STACK - size);
    out->err = 0;
    if (size == 48)
        out->err = (u32)*f++;
    out->st.rip = f[0];
    out->st.sel[SEG_CS] = (u16)f[1];
    out->st.rflags = f[2];
    out->st.gpr[RSP] = f[3];
    out->st.sel[SEG_SS] = (u16)f[4];
    out->live = guest_live(g, out->st.rip);
    out->kind = OUT_EXCEPTION;
    if (out->vector != EXC_PF && out->cr2 != NO_CR2) {
        snprintf(out->note, sizeof out->note, "vector %u changed CR2", out->vector);
        out->kind = OUT_ODD;
    }
    return true;
}

/* An engine may come back before its time. */
static enum engine_exit run_to(struct guest *g, pos_t until, struct err *err)
{
    enum engine_exit x;

    do
        x = engine_run(g->engine, until, err);
    while (x == ENGINE_STOP && engine_count(g->engine) < until);
    return x;
}

/*
 * One at a time: each engine_run may retire one instruction or REP iteration, or deliver one
 * exception. What has been left without an exception must next meet the INT3 or fault that ended
 * the native run, so it simply goes on, still one at a time, for as long as it may take.
 */
static enum engine_exit run_single(struct guest *g, unsigned insns, struct err *err)
{
    enum engine_exit x = ENGINE_STOP;
    u64 stubs = SYS + (G_STUBS - G_GDT);

    for (unsigned n = 0; x == ENGINE_STOP && n < insns + 400; n++) {
        pos_t before = engine_count(g->engine);

        x = run_to(g, before + 1, err);
        if (x == ENGINE_STOP) {
            engine_sync(g->engine);
            if (engine_count(g->engine) != before + 1) {
                err->code = 1;
                snprintf(err->text, sizeof err->text, "stop at +1 stopped at +%llu",
                         (unsigned long long)(engine_count(g->engine) - before));
                return x;
            }
            if (engine_vcpu(g->engine)->rip - stubs < 4096)
                return x;
        }
    }
    if (x == ENGINE_STOP) /* a long REP: the rest at once */
        x = run_to(g, engine_count(g->engine) + LONGEST, err);
    return x;
}

void guest_run(struct guest *g, const struct cpu_state *st, const u8 *mem, bool single,
               unsigned insns, struct outcome *out)
{
    struct err err = {0};
    enum engine_exit x;
    u8 *data = (u8 *)gptr(g, G_DATA);

    for (unsigned i = 0; i < DATA_PAGES; i++)
        if (DATA_RW >> i & 1)
            memcpy(data + i * PAGE_SIZE, mem + i * PAGE_SIZE, PAGE_SIZE);
    engine_ram_written(g->engine, G_DATA, DATA_SIZE);
    load_state(g, st);
    out->note[0] = 0;
    x = single ? run_single(g, insns, &err) : run_to(g, engine_count(g->engine) + LONGEST, &err);
    engine_sync(g->engine);
    store_state(g, out);
    for (unsigned i = 0; i < DATA_PAGES; i++)
        if ((DATA_RW | DATA_RO) >> i & 1)
            memcpy(out->mem + i * PAGE_SIZE, data + i * PAGE_SIZE, PAGE_SIZE);

    if (x == ENGINE_UNSUPPORTED) {
        out->kind = OUT_UNSUPPORTED;
        snprintf(out->note, sizeof out->note, "%.150s", err.text);
    } else if (err.code > 0) {
        out->kind = OUT_ODD;
        snprintf(out->note, sizeof out->note, "%.150s", err.text);
    } else if ((x == ENGINE_HALT || x == ENGINE_STOP) && take_frame(g, out)) {
        return;
    } else if (x == ENGINE_STOP) {
        out->kind = OUT_HANG;
    } else {
        out->kind = OUT_ODD;
        snprintf(out->note, sizeof out->note, "engine_run returned %d at rip %llx", x,
                 (unsigned long long)out->st.rip);
    }
}

/* ---- for stops.c ---- */

void guest_program(struct guest *g, const struct program *p)
{
    /* Programs in ring 0 may have ruined anything. */
    memset(gptr(g, 0), 0, G_RAM);
    g->next_table = G_PML4 + PAGE_SIZE;
    g->kernel = p->kernel;
    g->last = ENGINE_STOP;
    build_tables(g);
    memset(gptr(g, G_CODE), 0xcc, CODE_SIZE);
    guest_code(g, p->at, p->code, p->len);
    map_by_code(g, T_TABLED, G_CODE + (p->at & ~(u64)(PAGE_SIZE - 1)));
    memcpy(gptr(g, G_DATA), p->data, DATA_SIZE);
    *gptr(g, G_COMMON + 512) = p->st.rip;
    engine_ram_written(g->engine, 0, G_RAM);
    init_vcpu(g);
    load_state(g, &p->st);
    if (p->kernel) {
        if (test_code == CODE_64)
            set_seg(engine_vcpu(g->engine), SEG_CS, 0x10, 0xa09b, ~0u);
        else
            set_seg(engine_vcpu(g->engine), SEG_CS, 0x08, 0xc09b, ~0u);
        set_seg(engine_vcpu(g->engine), SEG_SS, 0x18, 0xc093, ~0u);
        engine_changed(g->engine);
    }
}

void guest_services(struct guest *g, bool pce, u64 sfmask)
{
    /* SYSCALL has the MSR in R10 and loses R8. */
    static const u8 write[] = {0x0f, 0x30, 0x48, 0xcf};           /* wrmsr; iretq */
    static const u8 read[] = {0x0f, 0x32, 0x48, 0xcf};            /* rdmsr; iretq */
    static const u8 call[] = {0x49, 0x89, 0xc8, 0x44, 0x89, 0xd1, /* mov r8, rcx; r10d */
                              0x0f, 0x30, 0x4c, 0x89, 0xc1, 0x48, 0x0f, 0x07}; /* sysretq */
    struct vcpu *v = engine_vcpu(g->engine);

    for (unsigned vector = SERVICE_WRITE; vector <= SERVICE_READ; vector++) {
        memcpy(gptr(g, G_STUBS + vector * 16), vector == SERVICE_WRITE ? write : read,
               sizeof write);
        *gptr(g, G_IDT + vector * 16) |= 3ull << 45; /* DPL */
    }
    memcpy(gptr(g, G_COMMON + 1024), call, sizeof call);
    engine_ram_written(g->engine, G_IDT, G_LDT - G_IDT);
    v->efer |= EFER_SCE;
    v->star = 0x0020ull << 48 | 0x0010ull << 32;
    v->lstar = SYS + (G_COMMON + 1024 - G_GDT);
    v->sfmask = sfmask;
    v->cr4 |= pce ? CR4_PCE : 0;
    engine_changed(g->engine);
}

int guest_vector(struct guest *g)
{
    u64 at = engine_vcpu(g->engine)->rip - (SYS + (G_STUBS - G_GDT));

    return at < 4096 && at % 16 == 0 ? (int)(at / 16) : -1;
}

void guest_on_pmi(struct guest *g, void (*pmi)(void *opaque, struct guest *g), void *opaque)
{
    g->pmi = pmi;
    g->pmi_opaque = opaque;
}

void guest_copy(struct guest *to, struct guest *from)
{
    engine_sync(from->engine);
    memcpy(gptr(to, 0), gptr(from, 0), G_RAM);
    engine_ram_written(to->engine, 0, G_RAM);
    *engine_vcpu(to->engine) = *engine_vcpu(from->engine);
    engine_changed(to->engine);
    to->kernel = from->kernel;
    to->last = from->last;
    to->asked = from->asked;
    to->next_table = from->next_table;
}

void guest_quiet(struct guest *g)
{
    g->quiet = true;
}

bool guest_ended(const struct guest *g)
{
    return g->last == ENGINE_SHUTDOWN || g->last == ENGINE_UNSUPPORTED;
}

struct engine *guest_engine(struct guest *g)
{
    return g->engine;
}

static void go(struct guest *g, pos_t until)
{
    pos_t now = engine_count(g->engine);
    g->last = engine_run(g->engine, MAX(until, now), &g->err);
    if (g->asked) {
        guest_device(g, g->asked);
        g->asked = 0;
    }
    if (g->last == ENGINE_FAILED) {
        fprintf(stderr, "insn: %s\n", g->err.text);
        exit(2);
    }
}

void guest_go(struct guest *g, pos_t until)
{
    /* HLT is over at once; a shutdown, or code that the engine cannot run, is for ever. */
    while (engine_count(g->engine) < until && !guest_ended(g))
        go(g, until);
}

/* A maskable interrupt, if the CPU takes one now. */
void guest_external(struct guest *g)
{
    if (!guest_ended(g) && engine_can_interrupt(g->engine))
        if (engine_interrupt(g->engine, 0x40))
            g->last = ENGINE_SHUTDOWN;
}

struct report {
    char *text;
    size_t len, used;
};

static void differs(void *opaque, const struct state_field *field, unsigned index, u64 a, u64 b)
{
    struct report *r = opaque;

    if (r->used + 80 < r->len)
        r->used += (size_t)snprintf(r->text + r->used, r->len - r->used,
                                    "    %s[%u] expected %llx got %llx\n", field->name, index,
                                    (unsigned long long)a, (unsigned long long)b);
}

bool guest_equal(struct guest *a, struct guest *b, char *text, size_t len)
{
    static const struct {
        gpa_t from, to;
    } parts[] = {{0, 0x18000}, {G_CODE, G_CODE + CODE_SIZE}, {G_DATA, G_DATA + DATA_SIZE}};
    struct report r = {text, len, 0};

    text[0] = 0;
    bool a_ends = a->last == ENGINE_UNSUPPORTED || a->last == ENGINE_SHUTDOWN;

    if ((a->last == ENGINE_UNSUPPORTED && !a->kernel) || (a_ends && a->last != b->last))
        r.used = (size_t)snprintf(text, len, "    engine_run returned %d and %d %.120s\n", a->last,
                                  b->last, a->err.text);
    engine_sync(a->engine);
    engine_sync(b->engine);
    state_diff(vcpu_state_of(feature_avx512(test_cpu.model), true), engine_vcpu(a->engine),
               engine_vcpu(b->engine), differs, &r);
    for (unsigned i = 0; i < ARRAY_SIZE(parts); i++) {
        const u8 *p = (u8 *)gptr(a, parts[i].from), *q = (u8 *)gptr(b, parts[i].from);
        size_t n = parts[i].to - parts[i].from;

        if (memcmp(p, q, n) == 0)
            continue;
        for (size_t k = 0; k < n && r.used + 80 < len; k++)
            if (p[k] != q[k])
                r.used += (size_t)snprintf(text + r.used, len - r.used,
                                           "    RAM %llx expected %02x got %02x\n",
                                           (unsigned long long)(parts[i].from + k), p[k], q[k]);
    }
    return r.used == 0;
}
