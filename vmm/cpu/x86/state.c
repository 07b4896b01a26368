/*
 * The core as an engine (cpu/engine.h): what it is at power-on, state in and out, requests. kvm/
 * takes this table and replaces some of it.
 */
#include "cpu/x86/canon.h"
#include "cpu/x86/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu/x86/except.h"
#include "cpu/x86/flags.h"
#include "cpu/x86/heads.h"
#include "cpu/x86/icache.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/park.h"
#include "cpu/x86/pmu.h"
#include "cpu/x86/points.h"
#include "cpu/x86/tlb.h"
#include "cpu/x86/xsave_image.h"
#include "cpu/features.h"

#define PARK_SIZE 8192 /* more than an XSAVE area of a host that has AVX-512 */

static void *map(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* EAX of the host's CPUID leaf 0dh; *ebx too. */
static u32 host_xsave(u32 subleaf, u32 *ebx)
{
    u32 a = 0xd, dx;
    __asm__("cpuid" : "+a"(a), "=b"(*ebx), "+c"(subleaf), "=d"(dx));
    return a;
}

/* Where vector state is parked, and what this host can save. */
static int create_park(struct core *d, struct err *err)
{
    u32 at, a = host_xsave(0, &at);
    d->xmask = a & 7;
    if ((d->xmask & 3) != 3)
        return err_set(err, -ENOTSUP,
                       "this host's CPU or kernel lacks XSAVE, which the engine needs");
    if (core_has(d, FEAT_AVX512F) && !core_host_lacks_avx512(d) && (a & XF_512) == XF_512) {
        d->xmask |= XF_512;
        for (unsigned i = 5; i < 8; i++) {
            u32 size = host_xsave(i, &at);
            d->xs_at[i - 5] = (u16)at;
            if (size != cpu_xsave_part(i).size || at + size > PARK_SIZE)
                return err_set(err, -ENOTSUP, "this host's XSAVE area is not as manuals have it");
        }
    }
    d->has_in_use = host_xsave(1, &at) >> 2 & 1;
    d->xs_park = map(PARK_SIZE);
    return d->xs_park ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static void shared_destroy(struct shared *s)
{
    if (!s || --s->users)
        return;
    if (s->written)
        munmap(s->written, s->npages * sizeof(*s->written));
    if (s->pages)
        munmap(s->pages, s->npages * sizeof(*s->pages));
    if (s->icache)
        munmap(s->icache, icache_bytes());
    if (s->heads)
        munmap(s->heads, heads_bytes());
    free(s);
}

static struct shared *shared_create(const struct ram *ram)
{
    struct shared *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->users = 1;
    s->npages = ram->size / PAGE_SIZE;
    s->pages = map(s->npages * sizeof(*s->pages));
    s->icache = map(icache_bytes());
    s->heads = map(heads_bytes());
    s->test_heads = getenv("REPRISE_TEST_HEADS");
    if (s->pages && s->icache && s->heads)
        return s;
    shared_destroy(s);
    return NULL;
}

/* The bits of CR4 that come with a feature, and those that all models have. */
static u64 cr4_bits(const struct core *d)
{
    static const struct {
        enum cpu_feature feature;
        u32 bit;
    } rows[] = {{FEAT_UMIP, CR4_UMIP},     {FEAT_FSGSBASE, CR4_FSGSBASE}, {FEAT_PCID, CR4_PCIDE},
                {FEAT_XSAVE, CR4_OSXSAVE}, {FEAT_SMEP, CR4_SMEP},         {FEAT_SMAP, CR4_SMAP}};
    u64 bits = CR4_TSD | CR4_DE | CR4_PSE | CR4_PAE | CR4_MCE | CR4_PGE | CR4_PCE | CR4_OSFXSR |
               CR4_OSXMMEXCPT;
    for (unsigned i = 0; i < ARRAY_SIZE(rows); i++)
        bits |= core_has(d, rows[i].feature) ? rows[i].bit : 0;
    return bits;
}

static size_t writer_bytes(const struct core *d)
{
    return d->ram->size / PAGE_SIZE * sizeof(*d->writer);
}

int core_init(struct core *d, const struct engine_config *config, struct err *err)
{
    d->base.ops = &core_ops;
    d->model = config->model;
    d->revision = config->revision;
    d->id = config->id;
    d->parts = config->parts;
    d->apic_id = cpu_apic_id(&d->parts, d->id);
    d->sibling = d;
    if (config->sibling) {
        struct core *other = core_of(config->sibling);
        d->sibling = other->sibling;
        other->sibling = d;
    }
    const u32 *words = config->words ? config->words : cpu_model_words(d->model);
    for (unsigned i = 0; i < CPU_WORDS; i++)
        d->words[i] = words[i];
    cpu_host_missing(d->words, d->missing);
    for (unsigned i = 0; i < CPU_WORDS; i++)
        d->host_lacks |= d->missing[i] != 0;
    d->cr4_bits = cr4_bits(d);
    d->ram = config->ram;
    d->env = config->env;
    d->unit = config->unit ? config->unit : UNIT_INSN;
    /* Where a CPU runs the guest freely, it decides. */
    if (d->sibling != d) {
        d->rules = d->sibling->rules;
        d->other_maker = d->sibling->other_maker;
        if (d->rules & RULE_APPROX)
            d->approx = d->sibling->approx;
    } else if (d->revision >= 4 && d->unit == UNIT_INSN) {
        d->rules = canon_rules(&d->other_maker, &d->approx);
    }
    struct cpuid_live live = {.words = d->words};
    struct cpuid_result r;
    cpu_model_cpuid(d->model, 0x80000008, 0, &live, &r);
    d->phys_mask = (1ull << (r.eax & 0xff)) - 1;
    d->shadow_pos = NEVER;
    d->debug.pass = NEVER;
    d->pmu.kind = cpu_model_pmu(config->pmu ? d->model : CPU_MODEL_NONE);
    d->pmu.lbrs = config->pmu ? (u8)cpu_lbr_depth(d->model, d->revision) : 0;
    vcpu_reset(&d->cpu);
    pmu_reset(d);
    d->shared = d->sibling != d ? d->sibling->shared : shared_create(d->ram);
    if (d->sibling != d)
        d->shared->users++;
    d->writer = map(writer_bytes(d));
    if (!d->shared || !d->writer)
        return err_set(err, -ENOMEM, "out of memory for the engine's tables");
    tlb_init(d);
    park_init_image(d);
    return create_park(d, err);
}

void core_fini(struct core *d)
{
    struct core *before = d->sibling;
    while (before && before->sibling != d)
        before = before->sibling;
    if (before)
        before->sibling = d->sibling;
    core_debug_free(&d->debug);
    free((void *)d->trace.only);
    shared_destroy(d->shared);
    if (d->writer)
        munmap(d->writer, writer_bytes(d));
    if (d->xs_park)
        munmap(d->xs_park, PARK_SIZE);
}

void core_destroy(struct engine *e)
{
    if (e)
        core_of(e)->translator->destroy(core_of(e));
}

/* What CPUs do not have, or each in its own way, and no guest can see. */
static void leave_out(struct vcpu *c)
{
    c->rep_resume = 0; /* only debuggers look at it */
    for (unsigned s = 0; s < SEG_COUNT; s++)
        if (!(c->seg_attr[s] & ATTR_P)) {
            c->seg_attr[s] = 0;
            c->seg_limit[s] = 0;
            c->seg_base[s] = s == SEG_FS || s == SEG_GS ? c->seg_base[s] : 0;
        }
}

void core_sync(struct engine *e)
{
    struct core *d = core_of(e);
    core_park(d);
    pmu_sync(d);
    u64 live = flags_live_at(d, code_linear(d, d->cpu.rip));
    d->cpu.position = unit_position(d);
    if (counts_branches(d))
        leave_out(&d->cpu);
    d->cpu.rflags = (d->cpu.rflags & ~(u64)FL_ARITH) | (d->flags & live & FL_ARITH);
    d->cpu.shadow = d->shadow_pos == position(d) ? (d->mov_ss ? 2 : 1) : 0;
}

u32 core_modes(const struct engine *e)
{
    return ((const struct core *)(const void *)e)->modes;
}

void core_changed(struct engine *e)
{
    struct core *d = core_of(e);
    struct vcpu *c = &d->cpu;
    if (d->unit == UNIT_BRANCH)
        d->base_pos = c->position - d->branches - d->events;
    d->target_pos = c->position;
    d->budget = 0;
    d->flags = c->rflags & FL_ARITH;
    d->cpl = real_mode(d)          ? 0
             : virtual_8086(d)     ? 3
             : c->seg_attr[SEG_SS] ? ATTR_DPL(c->seg_attr[SEG_SS])
                                   : c->seg_sel[SEG_CS] & 3;
    d->shadow_pos = c->shadow ? c->position : NEVER;
    d->mov_ss = c->shadow == 2;
    d->vectors = VECTORS_PARKED;
    d->fop = (u16)(c->xsave[6] | (c->xsave[7] & 7) << 8);
    memcpy(&d->fip, c->xsave + 8, 8);
    memcpy(&d->fdp, c->xsave + 16, 8);
    mmu_flush_all(d);
    mmu_mode_changed(d);
    pmu_changed(d);
}

void core_shut_down(struct core *d)
{
    vcpu_reset(&d->cpu);
    pmu_reset(d);
    d->cpu.position = unit_position(d);
    core_changed(&d->base);
}

struct vcpu *core_vcpu(struct engine *e)
{
    struct core *d = core_of(e);
    return &d->cpu;
}

pos_t core_count(const struct engine *e)
{
    const struct core *d = core_of_const(e);
    return unit_position(d);
}

pos_t core_branches(const struct engine *e)
{
    return branch_position(core_of_const(e));
}

void core_set_branches(struct engine *e, pos_t branches)
{
    struct core *d = core_of(e);
    d->base_pos = branches - d->branches - d->events;
}

void core_count_event(struct engine *e)
{
    count_events(core_of(e), 1);
}

void core_attention(struct engine *e)
{
    struct core *d = core_of(e);
    d->attention = true;
}

void core_kick(struct engine *e)
{
    struct core *d = core_of(e);
    d->kicked = 1;
}

void core_want_window(struct engine *e, bool interrupt, bool nmi)
{
    struct core *d = core_of(e);
    d->want_int = interrupt;
    d->want_nmi = nmi;
    d->want = interrupt || nmi;
}

void core_want_pause(struct engine *e, bool told)
{
    core_of(e)->alone = !told;
}

bool core_linear_to_physical(struct engine *e, gva_t va, gpa_t *gpa)
{
    struct core *d = core_of(e);
    return mmu_peek(d, va, gpa);
}

void core_stats(const struct engine *e, struct machine_stats *out)
{
    const struct core *d = core_of_const(e);
    *out = d->st;
}

bool core_lost(const struct engine *e, struct err *err)
{
    (void)e;
    (void)err;
    return false;
}

int core_verify(struct engine *e, struct err *err)
{
    (void)e;
    (void)err;
    return 0;
}

int core_set_code_log(struct engine *e, const struct engine_code_log *log)
{
    struct core *d = core_of(e);
    d->translator->log_code(d, log);
    return 0;
}

const u32 *core_written(const struct engine *e, size_t *n)
{
    const struct shared *s = core_of_const(e)->shared;
    *n = s->nwritten;
    return s->written;
}

int core_written_reset(struct engine *e)
{
    struct core *d = core_of(e);
    struct shared *s = d->shared;
    if (!s->written) {
        s->written = map(s->npages * sizeof(*s->written));
        if (!s->written)
            return -ENOMEM;
        for (u64 i = 0; i < s->npages; i++)
            s->pages[i].flags |= PG_CLEAN;
    } else {
        for (u64 i = 0; i < s->nwritten; i++)
            s->pages[s->written[i]].flags |= PG_CLEAN;
    }
    s->nwritten = 0;
    EACH_CPU (c, d)
        mmu_revoke_all_writes(c);
    return 0;
}

const struct engine_ops core_ops = {
#define ASK(result, name, parameters, arguments) .name = core_##name,
#include "cpu/engine_calls.def"
};
