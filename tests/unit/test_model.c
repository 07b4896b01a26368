/* cpu/model.h: the facts Linux and the engine rely on, and what must never appear. */
#include "cpu/features.h"
#include "cpu/model.h"
#include "cpu/vcpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <xxhash.h>

#include <cmocka.h>

static struct cpuid_result id(enum cpu_model m, u32 leaf, u32 subleaf)
{
    struct cpuid_live live = {.cr4 = 0, .xcr0 = 1, .apic_enabled = true, .apic_id = 0};
    struct cpuid_result r;
    cpu_model_cpuid(m, leaf, subleaf, &live, &r);
    return r;
}

static void names(void **state)
{
    assert_string_equal(cpu_model_name(CPU_X86_64_V2), "x86-64-v2");
    assert_int_equal(cpu_model_find("x86-64-v3"), CPU_X86_64_V3);
    assert_int_equal(cpu_model_find("x86-64-v4"), CPU_X86_64_V4);
    assert_int_equal(cpu_model_find("x86-64-v5"), CPU_MODEL_NONE);
    assert_int_equal(cpu_model_find(""), CPU_MODEL_NONE);
    assert_null(cpu_model_name(CPU_MODEL_NONE));
    assert_null(cpu_model_name(99));
    assert_null(cpu_host_lacks(cpu_model_words(CPU_X86_64_V2))); /* or no test could run */
    for (enum cpu_model m = CPU_MODEL_FIRST; m <= CPU_MODEL_LAST; m++) {
        assert_int_equal(cpu_model_find(cpu_model_name(m)), m);
        assert_true(strlen(cpu_model_name(m)) < 32 && strlen(cpu_model_brand(m)) < 48);
        if (cpu_model_alias(m))
            assert_int_equal(cpu_model_find(cpu_model_alias(m)), m);
    }
    assert_int_equal(cpu_model_find("skylake"), CPU_SKYLAKE_SERVER);
    assert_int_equal(cpu_model_find("zen"), CPU_ZEN2);
    assert_null(cpu_model_name(CPU_MODEL_LAST + 1));
    assert_int_equal(cpu_model_pmu(CPU_MODEL_NONE)->kind, PMU_KIND_NONE);
    assert_false(cpu_model_has(CPU_MODEL_NONE, FEAT_FPU));
}

/* Where Linux, perf and rr look for who this is. */
static void known(void **state)
{
    static const struct {
        enum cpu_model model;
        u32 family, number, stepping;
        const char *maker;
    } rows[] = {{CPU_NEHALEM, 6, 0x1a, 5, "GenuineIntel"},
                {CPU_HASWELL, 6, 0x3f, 2, "GenuineIntel"},
                {CPU_SKYLAKE_SERVER, 6, 0x55, 4, "GenuineIntel"},
                {CPU_ICELAKE_SERVER, 6, 0x6a, 6, "GenuineIntel"},
                {CPU_ZEN2, 0x17, 0x31, 0, "AuthenticAMD"}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct cpuid_result r = id(rows[i].model, 0, 0);
        u32 name[3] = {r.ebx, r.edx, r.ecx};
        bool amd = rows[i].model == CPU_ZEN2;
        assert_memory_equal(name, rows[i].maker, 12);
        r = id(rows[i].model, 1, 0);
        u32 family = r.eax >> 8 & 15;
        assert_int_equal(family == 15 ? family + (r.eax >> 20 & 0xff) : family, rows[i].family);
        assert_int_equal((r.eax >> 4 & 15) | (r.eax >> 12 & 0xf0), rows[i].number);
        assert_int_equal(r.eax & 15, rows[i].stepping);
        assert_int_equal(id(rows[i].model, 0x80000001, 0).eax, amd ? r.eax : 0);
        /* Beyond the last leaf: nothing on AMD's, the last one's data on Intel's. */
        struct cpuid_result beyond = id(rows[i].model, 0x1000, 0);
        assert_int_equal(beyond.eax | beyond.ebx | beyond.ecx, amd ? 0 : 1000 | 1000 | 100);
        /* Caches: AMD's in leaf 8000001D, each level's type and size in KiB. */
        static const u32 sizes[][4] = {
            {32, 32, 256, 8192},   {32, 32, 256, 8192},  {32, 32, 1024, 11264},
            {48, 32, 1280, 12288}, {32, 32, 512, 16384},
        };
        for (u32 sub = 0; sub < 5; sub++) {
            r = id(rows[i].model, amd ? 0x8000001d : 4, sub);
            u32 kib = ((r.ebx >> 22) + 1) * (r.ecx + 1) * ((r.ebx & 0xfff) + 1) / 1024;
            assert_int_equal(r.eax & 31, sub == 4 ? 0 : sub == 0 ? 1 : sub == 1 ? 2 : 3);
            if (sub < 4)
                assert_int_equal(kib, sizes[i][sub]);
        }
        assert_int_equal(id(rows[i].model, 0x80000006, 0).ecx >> 16, sizes[i][2]);
    }
    struct cpuid_result l2 = id(CPU_ZEN2, 2, 0), l4 = id(CPU_ZEN2, 4, 0),
                        x = id(CPU_ZEN2, 0x80000005, 0);
    assert_int_equal(l2.eax | l2.ebx | l2.ecx | l2.edx | l4.eax | l4.ebx, 0);
    assert_int_equal(x.ecx, 32u << 24 | 8 << 16 | 1 << 8 | 64);
    assert_int_equal(id(CPU_ZEN2, 0x80000006, 0).edx >> 18, 32); /* L3: 16 MiB */
    x = id(CPU_ZEN2, 0x8000001e, 0);
    assert_int_equal(x.eax | x.ebx | x.ecx, 0);
}

/* What is executed, and no more. */
static void features(void **state)
{
    static const struct {
        enum cpu_model model;
        enum cpu_feature has[8], lacks[8];
    } rows[] = {
        {CPU_NEHALEM,
         {FEAT_SSE42, FEAT_POPCNT},
         {FEAT_AVX, FEAT_XSAVE, FEAT_AES, FEAT_FSGSBASE, FEAT_PCID, FEAT_SMEP, FEAT_CPUID_FAULT}},
        {CPU_HASWELL,
         {FEAT_AVX2, FEAT_FMA, FEAT_AES, FEAT_PCLMULQDQ, FEAT_INVPCID, FEAT_CPUID_FAULT},
         {FEAT_ADX, FEAT_SMAP, FEAT_SHA, FEAT_CLWB, FEAT_UMIP}},
        {CPU_SKYLAKE_SERVER,
         {FEAT_ADX, FEAT_SMAP, FEAT_CLWB, FEAT_CPUID_FAULT},
         {FEAT_SHA, FEAT_UMIP, FEAT_GFNI}},
        {CPU_ICELAKE_SERVER,
         {FEAT_SHA, FEAT_GFNI, FEAT_VAES, FEAT_VPCLMULQDQ, FEAT_RDPID, FEAT_UMIP},
         {FEAT_AMD}},
        {CPU_ZEN2,
         {FEAT_SHA, FEAT_AES, FEAT_ADX, FEAT_RDPID, FEAT_AMD},
         {FEAT_PCID, FEAT_INVPCID, FEAT_ERMS, FEAT_GFNI, FEAT_VAES, FEAT_CPUID_FAULT}},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        for (size_t k = 0; k < 8; k++) {
            if (rows[i].has[k])
                assert_true(cpu_model_has(rows[i].model, rows[i].has[k]));
            if (rows[i].lacks[k])
                assert_false(cpu_model_has(rows[i].model, rows[i].lacks[k]));
        }
    struct cpuid_result d = id(CPU_NEHALEM, 0xd, 0);
    assert_int_equal(d.eax | d.ebx | d.ecx | d.edx, 0);
    assert_int_equal(cpu_words_xcr0(cpu_model_words(CPU_NEHALEM)), 1);
    assert_int_equal(cpu_words_xcr0(cpu_model_words(CPU_ZEN2)), 7);
    /* Linux mitigates by these. */
    for (enum cpu_model m = CPU_MODEL_FIRST; m <= CPU_MODEL_LAST; m++)
        assert_true(id(m, 7, 0).edx & 1u << 29); /* IA32_ARCH_CAPABILITIES */
    assert_int_equal(id(CPU_ZEN2, 0x80000021, 0).eax, 1u << 2 | 1u << 6 | 1u << 29);
}

static unsigned counts(enum cpu_model m, u16 select, u8 umask)
{
    const struct model_event *e = cpu_model_event(m, select, umask);
    return e ? e->counts : PMU_NOTHING;
}

/* The codes that perf and rr program (arch/x86/events, rr's table), and that no other model has
 * them. */
static void events(void **state)
{
    for (enum cpu_model m = CPU_NEHALEM; m <= CPU_ICELAKE_SERVER; m++) {
        assert_int_equal(counts(m, 0xc0, 0x00), PMU_INSNS);
        assert_int_equal(counts(m, 0x3c, 0x00), PMU_CYCLES);
        assert_int_equal(counts(m, 0x3c, 0x01), PMU_REF_CYCLES);
        assert_int_equal(counts(m, 0x2e, 0x4f), PMU_LLC_REFS);
        assert_int_equal(counts(m, 0x2e, 0x41), PMU_LLC_MISSES);
        assert_int_equal(counts(m, 0xc4, 0x00), PMU_BRANCHES);
        assert_int_equal(counts(m, 0xc5, 0x00), PMU_BRANCH_MISSES);
        assert_int_equal(counts(m, 0xc4, 0x01),
                         m == CPU_ICELAKE_SERVER ? PMU_COND_TAKEN : PMU_COND);
        assert_int_equal(cpu_model_pmu(m)->kind, PMU_KIND_INTEL);
        assert_true(cpu_model_pmu(m)->version >= 2 && cpu_model_pmu(m)->general >= 4 &&
                    cpu_model_pmu(m)->fixed == 3 && cpu_model_pmu(m)->width == 48);
    }
    assert_int_equal(counts(CPU_ICELAKE_SERVER, 0xc4, 0x11), PMU_COND);
    assert_int_equal(counts(CPU_HASWELL, 0xc4, 0x11), PMU_NOTHING);
    assert_int_equal(counts(CPU_ZEN2, 0xd1, 0), PMU_COND);
    assert_int_equal(counts(CPU_ZEN2, 0x76, 0), PMU_CYCLES);
    assert_int_equal(counts(CPU_ZEN2, 0xc0, 0), PMU_INSNS);
    assert_int_equal(counts(CPU_ZEN2, 0xc2, 0), PMU_BRANCHES_OR_DELIVERIES);
    assert_int_equal(counts(CPU_ZEN2, 0xc3, 0), PMU_BRANCH_MISSES);
    assert_int_equal(counts(CPU_ZEN2, 0x25, 8), PMU_NOTHING); /* rr: SpecLockMap is off */
    assert_int_equal(counts(CPU_ZEN2, 0x1c0, 0), PMU_NOTHING);
    assert_int_equal(counts(CPU_ZEN2, 0x3c, 0), PMU_NOTHING);
    assert_int_equal(cpu_model_pmu(CPU_ZEN2)->kind, PMU_KIND_AMD);
    for (u32 code = 0; code < 0x10000; code++) {
        assert_null(cpu_model_event(CPU_X86_64_V2, code & 0xff, (u8)(code >> 8)));
        assert_null(cpu_model_event(CPU_X86_64_V3, code & 0xff, (u8)(code >> 8)));
        assert_null(cpu_model_event(CPU_MODEL_NONE, code & 0xff, (u8)(code >> 8)));
        for (enum cpu_model m = CPU_NEHALEM; m <= CPU_ZEN2; m++) {
            const struct model_event *e = cpu_model_event(m, code & 0xff, (u8)(code >> 8));
            assert_true(!e || (e->select == (code & 0xff) && e->umask == code >> 8 && e->name[0] &&
                               e->counts > PMU_NOTHING && e->counts <= PMU_LLC_MISSES));
        }
    }
    assert_null(cpu_model_event(CPU_MODEL_LAST + 1, 0xc0, 0));
}

static void identity(void **state)
{
    for (enum cpu_model m = CPU_X86_64_V2; m <= CPU_X86_64_V3; m++) {
        struct cpuid_result r = id(m, 0, 0);
        char text[49] = {0};
        assert_true(r.eax >= 0x16);
        memcpy(text, &r.ebx, 4);
        memcpy(text + 4, &r.edx, 4);
        memcpy(text + 8, &r.ecx, 4);
        assert_string_equal(text, "GenuineIntel");
        r = id(m, 1, 0);
        assert_int_equal(r.eax >> 8 & 15, 6);
        assert_true((r.eax >> 12 & 0xf0) + (r.eax >> 4 & 15) > 0xe);
        memset(text, 0, sizeof(text));
        for (u32 i = 0; i < 3; i++) {
            r = id(m, 0x80000002 + i, 0);
            memcpy(text + 16 * i, &r, 16);
        }
        assert_memory_equal(text, "Reprise x86-64-v", 16);
        r = id(m, 0x40000000, 0);
        assert_memory_equal(&r.ebx, "KVMKVMKVM\0\0\0", 12);
        r = id(m, 0x40000001, 0);
        assert_int_equal(r.eax | r.ebx | r.ecx | r.edx, 0);
    }
}

static void clocks(void **state)
{
    struct cpuid_result r = id(CPU_X86_64_V2, 0x15, 0);
    assert_int_equal((u64)r.ecx * r.ebx / r.eax, TSC_HZ);
    assert_int_equal(r.eax, 1);
    assert_int_equal(r.ebx, 40);
    assert_int_equal(r.ecx, 25000000);
    assert_int_equal(id(CPU_X86_64_V2, 0x16, 0).eax, 1000);
    assert_true(id(CPU_X86_64_V2, 6, 0).eax & 4);               /* ARAT */
    assert_true(id(CPU_X86_64_V2, 0x80000007, 0).edx & 1 << 8); /* invariant TSC */
    assert_true(id(CPU_X86_64_V2, 1, 0).ecx & 1 << 24);         /* TSC deadline */
    assert_true(id(CPU_X86_64_V2, 7, 0).ebx & 1 << 1);          /* TSC_ADJUST */
    /* Beyond the last basic leaf: the last one's data. */
    struct cpuid_result b = id(CPU_X86_64_V2, 0x17, 0);
    assert_int_equal(b.eax, 1000);
}

static void never(void **state)
{
    for (enum cpu_model m = CPU_MODEL_FIRST; m <= CPU_MODEL_LAST; m++) {
        struct cpuid_result l1 = id(m, 1, 0), l7 = id(m, 7, 0), d1 = id(m, 0xd, 1);
        assert_false(l1.ecx & (1u << 3 | 1u << 30));            /* MONITOR, RDRAND */
        assert_false(l7.ebx & (1u << 4 | 1u << 11 | 1u << 18)); /* HLE, RTM, RDSEED */
        assert_false(l7.ebx & 1u << 6);                         /* FDP_EXCPTN_ONLY */
        assert_true(l7.ebx & 1u << 13);                         /* no FCS, FDS */
        assert_false(l7.ecx & (1u << 3 | 1u << 4));             /* PKU */
        assert_false(l7.edx & 1u << 20);                        /* CET */
        assert_int_equal(d1.eax | d1.ebx | d1.ecx | d1.edx, 0);
        assert_true(l1.ecx & 1u << 31);
        assert_int_equal(id(m, 0xa, 0).eax, 0);
        assert_int_equal(id(m, 5, 0).edx, 0);
    }
}

static void levels(void **state)
{
    const u32 v3_1c = 1u << 12 | 1u << 22 | 1u << 28 | 1u << 29;
    const u32 v3_7b = 1u << 3 | 1u << 5 | 1u << 8;
    struct cpuid_result a = id(CPU_X86_64_V2, 1, 0), b = id(CPU_X86_64_V3, 1, 0);
    assert_int_equal(a.ecx & v3_1c, 0);
    assert_int_equal(b.ecx, a.ecx | v3_1c);
    assert_int_equal(b.edx, a.edx);
    a = id(CPU_X86_64_V2, 7, 0), b = id(CPU_X86_64_V3, 7, 0);
    assert_int_equal(a.ebx & v3_7b, 0);
    assert_int_equal(b.ebx, a.ebx | v3_7b);
    assert_int_equal(id(CPU_X86_64_V2, 0x80000001, 0).ecx, 1);
    assert_int_equal(id(CPU_X86_64_V3, 0x80000001, 0).ecx, 1 | 1 << 5);
    assert_int_equal(id(CPU_X86_64_V2, 0xd, 0).ecx, 576);
    assert_int_equal(id(CPU_X86_64_V3, 0xd, 0).ecx, 832);
    assert_int_equal(id(CPU_X86_64_V3, 0xd, 0).ebx, 576); /* XCR0 is 1 */
    assert_int_equal(id(CPU_X86_64_V3, 0xd, 2).eax, 256);
    assert_int_equal(id(CPU_X86_64_V2, 0xd, 2).eax, 0);
    a = id(CPU_X86_64_V3, 7, 0), b = id(CPU_X86_64_V4, 7, 0);
    assert_int_equal(b.ebx, a.ebx | 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31);
    assert_int_equal(b.ecx, a.ecx);
    assert_int_equal(id(CPU_X86_64_V4, 1, 0).ecx, id(CPU_X86_64_V3, 1, 0).ecx);
    assert_int_equal(id(CPU_X86_64_V4, 0xd, 0).ecx, 2688);
    assert_int_equal(id(CPU_X86_64_V4, 0xd, 0).eax, 0xe7);
    assert_int_equal(id(CPU_X86_64_V4, 0xd, 5).ebx, 1088); /* where Intel's CPUs have them */
    assert_int_equal(id(CPU_X86_64_V4, 0xd, 7).ebx, 1664);
    assert_int_equal(id(CPU_X86_64_V3, 0xd, 7).eax, 0);
    assert_int_equal(cpu_xsave_size(0x1f), 832);
    assert_int_equal(cpu_words_xcr0(cpu_model_words(CPU_X86_64_V2)), 3);
    assert_int_equal(cpu_words_xcr0(cpu_model_words(CPU_X86_64_V3)), 7);
}

static void live_bits(void **state)
{
    struct cpuid_live live = {.cr4 = CR4_OSXSAVE, .xcr0 = 7, .apic_enabled = false, .apic_id = 5};
    struct cpuid_result r;
    cpu_model_cpuid(CPU_X86_64_V3, 1, 0, &live, &r);
    assert_true(r.ecx & 1u << 27);
    assert_false(r.edx & 1u << 9);
    assert_int_equal(r.ebx >> 24, 5);
    cpu_model_cpuid(CPU_X86_64_V3, 0xb, 1, &live, &r);
    assert_int_equal(r.edx, 5);
    assert_int_equal(r.ecx, 0x201);
    cpu_model_cpuid(CPU_X86_64_V3, 0xd, 0, &live, &r);
    assert_int_equal(r.ebx, 832);
}

/* Of each CPU, what leaves say of where it is: bits of its id that are the thread's, and the
 * package's CPUs. */
static void is_part(enum cpu_model model, const struct cpu_parts *p, u32 cpu, u32 apic_id,
                    u32 thread_bits, u32 bits)
{
    const u32 threads = p->threads, package = p->cores * threads;
    struct cpuid_live live = {.apic_id = cpu_apic_id(p, cpu), .revision = 7, .parts = *p};
    struct cpuid_result r;
    assert_int_equal(live.apic_id, apic_id);
    cpu_model_cpuid(model, 1, 0, &live, &r);
    assert_int_equal(r.ebx >> 24, apic_id);
    assert_int_equal(r.ebx >> 16 & 0xff, model == CPU_ZEN2 ? package : 1u << bits);
    assert_int_equal(!!(r.edx & 1u << 28), package > 1);
    for (u32 sub = 0; sub < 2; sub++) {
        cpu_model_cpuid(model, 0xb, sub, &live, &r);
        assert_int_equal(r.eax, sub ? bits : thread_bits);
        assert_int_equal(r.ebx, sub ? package : threads);
        assert_int_equal(r.edx, apic_id);
    }
    for (u32 sub = 0; sub < 4; sub++) { /* L1d, L1i, L2, L3 */
        cpu_model_cpuid(model, model == CPU_ZEN2 ? 0x8000001d : 4, sub, &live, &r);
        assert_int_equal((r.eax >> 14 & 0xfff) + 1, 1u << (sub == 3 ? bits : thread_bits));
        if (model != CPU_ZEN2)
            assert_int_equal((r.eax >> 26) + 1, 1u << (bits - thread_bits));
    }
    if (model != CPU_ZEN2)
        return;
    cpu_model_cpuid(model, 0x80000008, 0, &live, &r);
    assert_int_equal(r.ecx, bits << 12 | (package - 1));
    cpu_model_cpuid(model, 0x8000001e, 0, &live, &r);
    assert_int_equal(r.eax, apic_id);
    assert_int_equal(r.ebx, (threads - 1) << 8 | apic_id >> thread_bits);
    assert_int_equal(r.ecx, apic_id >> bits);
}

static void parts(void **state)
{
    static const struct {
        struct cpu_parts parts;
        u32 cpu, apic_id, thread_bits, bits;
    } cases[] = {
        {{8, 2, 2}, 7, 7, 1, 2},     {{12, 3, 2}, 5, 5, 1, 3},   {{12, 3, 2}, 6, 8, 1, 3},
        {{12, 3, 2}, 11, 13, 1, 3},  {{6, 3, 1}, 3, 4, 0, 2},    {{18, 3, 3}, 4, 5, 2, 4},
        {{18, 3, 3}, 17, 26, 2, 4},  {{30, 5, 3}, 15, 32, 2, 5}, {{30, 1, 3}, 29, 38, 2, 2},
        {{30, 15, 2}, 29, 29, 1, 5}, {{27, 3, 3}, 26, 42, 2, 4}, {{10, 5, 1}, 9, 12, 0, 3},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        is_part(CPU_SKYLAKE_SERVER, &cases[i].parts, cases[i].cpu, cases[i].apic_id,
                cases[i].thread_bits, cases[i].bits);
        is_part(CPU_ZEN2, &cases[i].parts, cases[i].cpu, cases[i].apic_id, cases[i].thread_bits,
                cases[i].bits);
    }
    /* Of powers of two the id is the number, and nothing but these was there before revision 7,
     * whose leaf 4 had threads as cores. */
    for (u32 cores = 1; cores <= 32; cores *= 2)
        for (u32 threads = 1; threads * cores <= 32; threads *= 2)
            for (u32 cpu = 0; cpu < 32; cpu++)
                assert_int_equal(cpu_apic_id(&(struct cpu_parts){32, cores, threads}, cpu), cpu);
    struct cpuid_live live = {.revision = 6, .parts = {8, 2, 2}};
    struct cpuid_result r;
    cpu_model_cpuid(CPU_X86_64_V2, 4, 0, &live, &r);
    assert_int_equal(r.eax >> 26, 3);
    live = (struct cpuid_live){.revision = 6, .parts = {6, 0, 1}};
    cpu_model_cpuid(CPU_ZEN2, 1, 0, &live, &r);
    assert_int_equal(r.ebx >> 16 & 0xff, 8);
}

/* Released models do not change: a hash over every leaf. */
static void frozen(void **state)
{
    static const u64 hashes[] = {
        0x9cf7ddf7b4303354ull, 0xe797bea0209c633full, 0x5aec6a1ddb1b14abull,
        0xf50f33c18701e3bbull, 0xf59b59c703973fe1ull, 0x141031fb9b4b4094ull,
        0xa33005c55c20d558ull, 0xab6cdc571d3e97d2ull, 0x46033427da71687cull};
    for (enum cpu_model m = CPU_MODEL_FIRST; m <= CPU_MODEL_LAST; m++) {
        static const u32 bases[] = {0, 0x40000000, 0x80000000};
        u64 h = ARCH_CAPABILITIES_VALUE;
        for (size_t b = 0; b < ARRAY_SIZE(bases); b++)
            for (u32 leaf = 0; leaf < 0x30; leaf++)
                for (u32 sub = 0; sub < 8; sub++) {
                    struct cpuid_result r = id(m, bases[b] + leaf, sub);
                    h = XXH3_64bits_withSeed(&r, sizeof(r), h);
                }
        assert_int_equal(h, hashes[m - CPU_X86_64_V2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),  cmocka_unit_test(identity), cmocka_unit_test(clocks),
        cmocka_unit_test(never),  cmocka_unit_test(levels),   cmocka_unit_test(live_bits),
        cmocka_unit_test(frozen), cmocka_unit_test(known),    cmocka_unit_test(features),
        cmocka_unit_test(events), cmocka_unit_test(parts),
    };
    return cmocka_run_group_tests_name("cpu/model", tests, NULL, NULL);
}
