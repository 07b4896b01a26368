/*
 * What CPUID says (model.h) of the models in models.c. Nothing here comes from the host, and
 * nothing may change once a recording names the model. SDM vol. 2A, CPUID, table 3-8; APM vol. 3,
 * appendix E.
 */
#include "cpu/model.h"

#include "cpu/model_table.h"
#include "base/check.h"
#include "cpu/vcpu.h"

#include <string.h>

#define MAX_HYPER 0x40000001u

#define BIT(n) (1u << (n))

/* Live bits of leaf 1. */
#define L1D_APIC    BIT(9)
#define L1D_HTT     BIT(28) /* EBX says how many ids the package has */
#define L1C_OSXSAVE BIT(27)
#define L1C_PDCM    BIT(15) /* those of the counters: shown if they are there */
#define X1C_PERFCTR BIT(23)
#define X1C_LEGACY  BIT(1) /* AMD: those ids are cores */

enum { REG_none = -1, REG_eax, REG_ebx, REG_ecx, REG_edx };

static const struct {
    u32 leaf;
    u8 subleaf;
    i8 reg;
} words[CPU_WORDS] = {
#define CPU_WORD(word, leaf, subleaf, reg) [CPU_WORD_##word] = {leaf, subleaf, REG_##reg},
#include "cpu/features.def"
};

static bool has(const struct model *m, enum cpu_feature f)
{
    return cpu_words_have(m->words, f);
}

const char *cpu_model_name(enum cpu_model model)
{
    const struct model *m = model_row(model);
    return m ? m->name : NULL;
}

const char *cpu_model_alias(enum cpu_model model)
{
    const struct model *m = model_row(model);
    return m ? m->alias : NULL;
}

const char *cpu_model_brand(enum cpu_model model)
{
    const struct model *m = model_row(model);
    return m ? m->brand : NULL;
}

enum cpu_model cpu_model_find(const char *name)
{
    for (enum cpu_model id = CPU_MODEL_FIRST; id <= CPU_MODEL_LAST; id++) {
        const struct model *m = model_row(id);
        if (!strcmp(m->name, name) || (m->alias && !strcmp(m->alias, name)))
            return id;
    }
    return CPU_MODEL_NONE;
}

const u32 *cpu_model_words(enum cpu_model model)
{
    static const u32 none[CPU_WORDS];
    const struct model *m = model_row(model);
    return m ? m->words : none;
}

unsigned cpu_lbr_depth(enum cpu_model model, u32 revision)
{
    return revision < 9 ? 0 : cpu_model_pmu(model)->lbr;
}

const struct model_pmu *cpu_model_pmu(enum cpu_model model)
{
    static const struct model_pmu none;
    const struct model *m = model_row(model);
    return m ? &m->pmu : &none;
}

u32 cpu_xsave_size(u64 xcr0)
{
    u32 size = 576;
    for (unsigned i = 2; i < 8; i++)
        if ((xcr0 >> i & 1) && cpu_xsave_part(i).size)
            size = cpu_xsave_part(i).at + (u32)cpu_xsave_part(i).size;
    return size;
}

static u32 threads(const struct cpuid_live *live)
{
    return live->parts.cores ? live->parts.threads : 1;
}

/* CPUs of a package. */
static u32 package(const struct cpuid_live *live)
{
    const struct cpu_parts *p = &live->parts;
    return p->cores ? p->cores * p->threads : MAX(1u, p->cpus);
}

static u32 bits_of(u32 n)
{
    return n > 1 ? 32 - (u32)__builtin_clz(n - 1) : 0;
}

/* Bits of an APIC id that tell a package's CPUs apart, and how many ids those are. */
static u32 id_bits(const struct cpuid_live *live)
{
    const struct cpu_parts *p = &live->parts;
    return p->cores ? bits_of(p->cores) + bits_of(p->threads) : bits_of(package(live));
}

static u32 ids(const struct cpuid_live *live)
{
    return 1u << id_bits(live);
}

/* Of these, ids of cores. Before revision 7 of the machine leaf 4 had all of them. */
static u32 core_ids(const struct cpuid_live *live)
{
    return live->revision >= 7 ? ids(live) >> bits_of(threads(live)) : ids(live);
}

u32 cpu_apic_id(const struct cpu_parts *p, u32 cpu)
{
    if (!p->cores)
        return cpu;
    u32 core = cpu / p->threads;
    u32 id = core / p->cores << bits_of(p->cores) | core % p->cores;
    return id << bits_of(p->threads) | cpu % p->threads;
}

/* Deterministic cache parameters, leaf 4 of Intel's and 8000001D of AMD's. Only software tuning
 * reads them. */
static void cache_leaf(const struct model *m, u32 subleaf, const struct cpuid_live *live,
                       struct cpuid_result *out)
{
    if (subleaf >= MODEL_CACHES || !m->caches[subleaf].level)
        return;
    const struct model_cache *c = &m->caches[subleaf];
    out->eax = c->type | (u32)c->level << 5 | BIT(8); /* self-initialising */
    /* The package's; the others are a core's own. */
    out->eax |= ((c->level == 3 ? ids(live) : BIT(bits_of(threads(live)))) - 1) << 14;
    out->ebx = (c->ways - 1u) << 22 | 63; /* 64-byte lines */
    out->ecx = c->sets - 1;
    out->edx = c->inclusive ? BIT(1) : 0;
}

static u32 cache_kib(const struct model_cache *c)
{
    return c->ways * c->sets / 16;
}

static const struct model_cache *cache_of(const struct model *m, u8 level, u8 type)
{
    for (size_t i = 0; i < MODEL_CACHES; i++)
        if (m->caches[i].level == level && m->caches[i].type == type)
            return &m->caches[i];
    CHECK(false, "model %s lacks a cache of level %u", m->name, level);
    return NULL;
}

/* Associativity as leaf 80000006 has it. */
static u32 ways_code(u16 ways)
{
    switch (ways) {
    case 8: return 6;
    case 16: return 8;
    default: return 7; /* Intel: "see leaf 4" */
    }
}

/* Extended topology. */
static void leaf_b(u32 subleaf, const struct cpuid_live *live, struct cpuid_result *out)
{
    out->ecx = subleaf & 0xff;
    out->edx = live->apic_id;
    if (subleaf < 2) {
        out->eax = subleaf ? id_bits(live) : bits_of(threads(live));
        out->ebx = subleaf ? package(live) : threads(live);
        out->ecx |= (subleaf + 1) << 8; /* 1: SMT, 2: core */
    }
}

static void leaf_d(const struct model *m, u32 subleaf, const struct cpuid_live *live,
                   struct cpuid_result *out)
{
    if (!has(m, FEAT_XSAVE))
        return;
    if (subleaf == 0) {
        out->eax = (u32)cpu_words_xcr0(m->words);
        out->ebx = cpu_xsave_size(live->xcr0);
        out->ecx = cpu_xsave_size(cpu_words_xcr0(m->words));
    } else if (subleaf >= 2 && subleaf < 8 && (cpu_words_xcr0(m->words) >> subleaf & 1)) {
        out->eax = cpu_xsave_part(subleaf).size;
        out->ebx = cpu_xsave_part(subleaf).at;
    }
    /* Subleaf 1 is zero: no XSAVEOPT, XSAVEC, XGETBV(1), XSAVES. */
}

/* Architectural performance monitoring: all seven events are there (SDM vol. 2A, leaf 0xa). */
static void leaf_a(const struct model_pmu *p, struct cpuid_result *out)
{
    out->eax = p->version | (u32)p->general << 8 | (u32)p->width << 16 | 7u << 24;
    out->ecx = p->version >= 5 ? BIT(p->fixed) - 1 : 0;
    out->edx = p->fixed | (u32)p->width << 5 | (p->version >= 5 ? BIT(15) : 0);
}

/* Leaves that AMD's CPUs do not have. */
static void intel(const struct model *m, u32 leaf, u32 subleaf, const struct cpuid_live *live,
                  struct cpuid_result *out)
{
    switch (leaf) {
    case 0x2: /* TLB descriptors; 0xff: caches are in leaf 4 */
        *out = (struct cpuid_result){0x55035a01, 0x00f0b2ff, 0, 0x00ca0000};
        break;
    case 0x4:
        cache_leaf(m, subleaf, live, out);
        out->eax |= out->eax ? (core_ids(live) - 1) << 26 : 0;
        break;
    case 0x15: /* TSC = crystal * ebx / eax */
        *out = (struct cpuid_result){1, (u32)(TSC_HZ / APIC_HZ), (u32)APIC_HZ, 0};
        break;
    case 0x16: /* base, maximum and bus frequency in MHz */
        *out = (struct cpuid_result){(u32)(TSC_HZ / 1000000), (u32)(TSC_HZ / 1000000), 100, 0};
        break;
    }
}

static void basic(const struct model *m, u32 leaf, u32 subleaf, const struct cpuid_live *live,
                  struct cpuid_result *out)
{
    switch (leaf) {
    case 0x0:
        *out = has(m, FEAT_AMD)
                   ? (struct cpuid_result){m->max_basic, 0x68747541, 0x444d4163, 0x69746e65}
                   /* AuthenticAMD */
                   : (struct cpuid_result){m->max_basic, 0x756e6547, 0x6c65746e,
                                           0x49656e69}; /* GenuineIntel */
        break;
    case 0x1:
        out->eax = m->signature;
        out->ebx = live->apic_id << 24 | 8 << 8; /* CLFLUSH line of 8 quadwords */
        /* Intel: how many ids there may be; AMD: how many CPUs there are. */
        out->ebx |= (has(m, FEAT_AMD) && live->revision >= 7 ? package(live) : ids(live)) << 16;
        out->edx |= package(live) > 1 ? L1D_HTT : 0;
        out->ecx |= live->cr4 & CR4_OSXSAVE ? L1C_OSXSAVE : 0;
        out->ecx |= live->pmu && !has(m, FEAT_AMD) ? L1C_PDCM : 0;
        out->edx |= live->apic_enabled ? L1D_APIC : 0;
        break;
    case 0x7:
        if (subleaf == 0)
            out->eax = m->words[CPU_WORD_72D] ? 2 : 0; /* the last subleaf */
        break;
    case 0xa:
        if (live->pmu && !has(m, FEAT_AMD))
            leaf_a(&m->pmu, out);
        break;
    case 0xb: leaf_b(subleaf, live, out); break;
    case 0xd: leaf_d(m, subleaf, live, out); break;
    default:
        if (!has(m, FEAT_AMD))
            intel(m, leaf, subleaf, live, out);
    }
}

static void brand(const struct model *m, u32 part, struct cpuid_result *out)
{
    char text[48] = {0};
    strncpy(text, m->brand, sizeof(text) - 1);
    memcpy(out, text + 16 * part, 16);
}

/* Leaf 80000005 and the like: size in KiB, ways, one line a tag, bytes of a line. */
static u32 amd_l1(const struct model_cache *c)
{
    return cache_kib(c) << 24 | (u32)c->ways << 16 | 1 << 8 | 64;
}

/* Leaves that Intel's CPUs do not have, and what AMD's have in others besides. */
static void amd(const struct model *m, u32 leaf, u32 subleaf, const struct cpuid_live *live,
                struct cpuid_result *out)
{
    switch (leaf) {
    case 0x80000000: /* the maker's name once more */
        *out = (struct cpuid_result){m->max_extended, 0x68747541, 0x444d4163, 0x69746e65};
        break;
    case 0x80000001:
        out->eax = m->signature;
        out->ecx |= (live->pmu ? X1C_PERFCTR : 0) | (package(live) > 1 ? X1C_LEGACY : 0);
        /* Leaf 1 EDX once more, as far as AMD had it first. */
        out->edx |= (m->words[CPU_WORD_1D] | (live->apic_enabled ? L1D_APIC : 0)) & 0x0183f3ff;
        break;
    case 0x80000005:
        out->eax = out->ebx = 0xff40ff40; /* TLBs: 64 entries, fully associative */
        out->ecx = amd_l1(cache_of(m, 1, 1));
        out->edx = amd_l1(cache_of(m, 1, 2));
        break;
    case 0x80000006: /* L3 in units of 512 KiB */
        out->edx = cache_kib(cache_of(m, 3, 3)) / 512 << 18 |
                   ways_code(cache_of(m, 3, 3)->ways) << 12 | 1 << 8 | 64;
        break;
    case 0x80000008: out->ecx = id_bits(live) << 12 | (package(live) - 1); break;
    case 0x8000001d: cache_leaf(m, subleaf, live, out); break;
    case 0x8000001e: /* the core, its threads; a node a package */
        out->eax = live->apic_id;
        out->ebx = (threads(live) - 1) << 8 | (live->apic_id >> bits_of(threads(live)) & 0xff);
        out->ecx = live->parts.cores ? live->apic_id >> id_bits(live) : 0;
        break;
    }
}

static void extended(const struct model *m, u32 leaf, u32 subleaf, const struct cpuid_live *live,
                     struct cpuid_result *out)
{
    const struct model_cache *l2 = cache_of(m, 2, 3);
    switch (leaf) {
    case 0x80000000: out->eax = m->max_extended; break;
    case 0x80000002:
    case 0x80000003:
    case 0x80000004: brand(m, leaf - 0x80000002, out); break;
    case 0x80000006: out->ecx = cache_kib(l2) << 16 | ways_code(l2->ways) << 12 | 64; break;
    case 0x80000008: out->eax = CPU_LINEAR_BITS << 8 | CPU_PHYS_BITS; break;
    }
    if (has(m, FEAT_AMD))
        amd(m, leaf, subleaf, live, out);
}

static void features(const struct model *m, u32 leaf, u32 subleaf, struct cpuid_result *out)
{
    u32 *const reg[] = {&out->eax, &out->ebx, &out->ecx, &out->edx};
    for (size_t i = 0; i < CPU_WORDS; i++) {
        bool one = leaf != 0x7 || words[i].subleaf == subleaf; /* the others have no subleaves */
        if (words[i].reg >= 0 && words[i].leaf == leaf && one)
            *reg[words[i].reg] = m->words[i];
    }
}

void cpu_model_cpuid(enum cpu_model model, u32 leaf, u32 subleaf, const struct cpuid_live *live,
                     struct cpuid_result *out)
{
    const struct model *m = model_row(model);
    struct model changed;
    *out = (struct cpuid_result){0, 0, 0, 0};
    if (!m)
        return;
    if (live->words) {
        changed = *m;
        memcpy(changed.words, live->words, sizeof(changed.words));
        m = &changed;
    }
    if (leaf >= 0x40000000 && leaf < 0x40000100) {
        /* KVM's signature and no feature: makes Linux use x2APIC without interrupt remapping. */
        if (leaf == 0x40000000)
            *out = (struct cpuid_result){MAX_HYPER, 0x4b4d564b, 0x564b4d56, 0x0000004d};
    } else if (leaf >= 0x80000000 && leaf <= m->max_extended) {
        features(m, leaf, subleaf, out);
        extended(m, leaf, subleaf, live, out);
    } else if (leaf <= m->max_basic || !has(m, FEAT_AMD)) {
        /* A leaf beyond the maximum gives the data of the highest basic leaf, as on any Intel. */
        leaf = leaf > m->max_basic ? m->max_basic : leaf;
        features(m, leaf, subleaf, out);
        basic(m, leaf, subleaf, live, out);
    }
}
