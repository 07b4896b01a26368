/*
 * What CPUID says (model.h). Nothing here comes from the host, and nothing may change once a
 * recording names the model: a guest decides at boot by these bits. SDM vol. 2A, CPUID, table 3-8.
 *
 * The identity is GenuineIntel, family 6, model 0x12, stepping 1. No Intel CPU has that number, so
 * it is on none of the lists that Linux matches by model: cpu_vuln_blacklist, cpu_vuln_whitelist,
 * deadline_match, invlpg_miss_ids, spectre_bad_microcodes, the RTM quirks. It is above 0x0e, since
 * below that Linux uses four PAT entries only and no fast strings; and far below what Intel numbers
 * now, so that no future list meets it.
 */
#include "cpu/model.h"

#include "cpu/vcpu.h"

#include <cpuid.h>
#include <string.h>

#define SIGNATURE    0x00010621u /* extended model 1, family 6, model 2, stepping 1 */
#define MAX_BASIC    0x16u
#define MAX_HYPER    0x40000001u
#define MAX_EXTENDED 0x80000008u

#define XCR0_X87 1u
#define XCR0_SSE 2u
#define XCR0_AVX 4u

#define BIT(n) (1u << (n))

/* Leaf 1 EDX. Not there: VME (no virtual-8086 mode under a 64-bit kernel), MCA (CR4.MCE without
 * banks: Linux then leaves machine checks alone), SS, HTT (one thread), ACPI and TM (thermal). */
#define L1D_FPU   BIT(0)
#define L1D_DE    BIT(2)
#define L1D_PSE   BIT(3)
#define L1D_TSC   BIT(4)
#define L1D_MSR   BIT(5)
#define L1D_PAE   BIT(6)
#define L1D_MCE   BIT(7)
#define L1D_CX8   BIT(8)
#define L1D_APIC  BIT(9) /* live */
#define L1D_SEP   BIT(11)
#define L1D_MTRR  BIT(12)
#define L1D_PGE   BIT(13)
#define L1D_CMOV  BIT(15)
#define L1D_PAT   BIT(16)
#define L1D_CLFSH BIT(19)
#define L1D_MMX   BIT(23)
#define L1D_FXSR  BIT(24)
#define L1D_SSE   BIT(25)
#define L1D_SSE2  BIT(26)
/* Leaf 1 ECX. Not there: PCLMULQDQ, AES (not in the psABI levels), MONITOR, RDRAND. */
#define L1C_SSE3    BIT(0)
#define L1C_SSSE3   BIT(9)
#define L1C_FMA     BIT(12)
#define L1C_CX16    BIT(13)
#define L1C_PCID    BIT(17)
#define L1C_SSE41   BIT(19)
#define L1C_SSE42   BIT(20)
#define L1C_X2APIC  BIT(21)
#define L1C_MOVBE   BIT(22)
#define L1C_POPCNT  BIT(23)
#define L1C_TSCDL   BIT(24)
#define L1C_XSAVE   BIT(26)
#define L1C_OSXSAVE BIT(27) /* live */
#define L1C_AVX     BIT(28)
#define L1C_F16C    BIT(29)
#define L1C_HYPER   BIT(31)
/* Leaf 7.0 EBX. FDP_EXCPTN_ONLY (bit 6) is 0: FDP is a value we keep. FCS and FDS are gone (13):
 * what the host's FXSAVE says about them differs. Not there: RTM, HLE, RDSEED, ADX, SHA. */
#define L7B_FSGSBASE   BIT(0)
#define L7B_TSC_ADJUST BIT(1)
#define L7B_BMI1       BIT(3)
#define L7B_AVX2       BIT(5)
#define L7B_SMEP       BIT(7)
#define L7B_BMI2       BIT(8)
#define L7B_ERMS       BIT(9)
#define L7B_INVPCID    BIT(10)
#define L7B_NO_FCS_FDS BIT(13)
#define L7B_SMAP       BIT(20)
#define L7B_CLFLUSHOPT BIT(23)
#define L7B_CLWB       BIT(24)
/* Leaf 7.0 ECX, EDX. Not there: FSRM (EDX bit 4). With it Linux copies even 16 bytes by REP MOVSB,
 * which here is a call and a position for each byte instead of two moves. STIBP and SSBD are not
 * needed with IBRS_ALL, SSB_NO and one thread. */
#define L7C_UMIP BIT(2)
/* Linux 6.1 does not look at BHI_NO: without BHI_DIS_S it clears the branch history in a loop at
 * every system call. */
#define L72D_BHI_CTRL BIT(4)
#define L72D_MCDT_NO  BIT(5)
#define L7D_SPEC_CTRL BIT(26) /* IBRS and IBPB: MSRs 0x48 and 0x49 */
#define L7D_ARCH_CAP  BIT(29)
/* Leaf 0x80000001. */
#define X1C_LAHF    BIT(0)
#define X1C_LZCNT   BIT(5)
#define X1D_SYSCALL BIT(11)
#define X1D_NX      BIT(20)
#define X1D_1GB     BIT(26)
#define X1D_RDTSCP  BIT(27)
#define X1D_LM      BIT(29)

static const struct model {
    enum cpu_model id;
    const char *name;
    const char *brand; /* at most 47 characters */
    u64 xcr0;
    u32 l1c, l7b, x1c; /* added to what all models have */
} models[] = {
    {CPU_X86_64_V2, "x86-64-v2", "Reprise x86-64-v2", XCR0_X87 | XCR0_SSE, 0, 0, 0},
    {CPU_X86_64_V3, "x86-64-v3", "Reprise x86-64-v3", XCR0_X87 | XCR0_SSE | XCR0_AVX,
     L1C_FMA | L1C_MOVBE | L1C_AVX | L1C_F16C, L7B_BMI1 | L7B_AVX2 | L7B_BMI2, X1C_LZCNT},
};

#define ALL_L1C                                                                                    \
    (L1C_SSE3 | L1C_SSSE3 | L1C_CX16 | L1C_PCID | L1C_SSE41 | L1C_SSE42 | L1C_X2APIC |             \
     L1C_POPCNT | L1C_TSCDL | L1C_XSAVE | L1C_HYPER)
#define ALL_L1D                                                                                    \
    (L1D_FPU | L1D_DE | L1D_PSE | L1D_TSC | L1D_MSR | L1D_PAE | L1D_MCE | L1D_CX8 | L1D_SEP |      \
     L1D_MTRR | L1D_PGE | L1D_CMOV | L1D_PAT | L1D_CLFSH | L1D_MMX | L1D_FXSR | L1D_SSE |          \
     L1D_SSE2)
#define ALL_L7B                                                                                    \
    (L7B_FSGSBASE | L7B_TSC_ADJUST | L7B_SMEP | L7B_ERMS | L7B_INVPCID | L7B_NO_FCS_FDS |          \
     L7B_SMAP | L7B_CLFLUSHOPT | L7B_CLWB)

static const struct model *find(enum cpu_model id)
{
    for (size_t i = 0; i < ARRAY_SIZE(models); i++)
        if (models[i].id == id)
            return &models[i];
    return NULL;
}

const char *cpu_model_name(enum cpu_model model)
{
    const struct model *m = find(model);
    return m ? m->name : NULL;
}

enum cpu_model cpu_model_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(models); i++)
        if (!strcmp(models[i].name, name))
            return models[i].id;
    return CPU_MODEL_NONE;
}

u64 cpu_model_xcr0(enum cpu_model model)
{
    const struct model *m = find(model);
    return m ? m->xcr0 : XCR0_X87;
}

u32 cpu_xsave_size(u64 xcr0)
{
    return xcr0 & XCR0_AVX ? 832 : 576;
}

/* Deterministic cache parameters: what a small server core has. Only software tuning reads them. */
static void leaf4(u32 subleaf, struct cpuid_result *out)
{
    static const struct {
        u8 type, level; /* 1 data, 2 instruction, 3 unified */
        u16 ways;
        u32 sets;
    } caches[] = {
        {1, 1, 8, 64},    /* 32 KiB */
        {2, 1, 8, 64},    /* 32 KiB */
        {3, 2, 16, 1024}, /* 1 MiB */
        {3, 3, 16, 8192}, /* 8 MiB */
    };
    if (subleaf >= ARRAY_SIZE(caches))
        return;
    out->eax =
        caches[subleaf].type | (u32)caches[subleaf].level << 5 | BIT(8); /* self-initialising */
    out->ebx = (caches[subleaf].ways - 1u) << 22 | 63;                   /* 64-byte lines */
    out->ecx = caches[subleaf].sets - 1;
}

/* One thread in one core: each level's APIC id shift is 0. */
static void leaf_b(u32 subleaf, const struct cpuid_live *live, struct cpuid_result *out)
{
    out->ecx = subleaf & 0xff;
    out->edx = live->apic_id;
    if (subleaf < 2) {
        out->ebx = 1;
        out->ecx |= (subleaf + 1) << 8; /* 1: SMT, 2: core */
    }
}

static void leaf_d(const struct model *m, u32 subleaf, const struct cpuid_live *live,
                   struct cpuid_result *out)
{
    if (subleaf == 0) {
        out->eax = (u32)m->xcr0;
        out->ebx = cpu_xsave_size(live->xcr0);
        out->ecx = cpu_xsave_size(m->xcr0);
    } else if (subleaf == 2 && (m->xcr0 & XCR0_AVX)) {
        out->eax = 256; /* size and offset of YMM_Hi128 in the standard format */
        out->ebx = 576;
    }
    /* Subleaf 1 is zero: no XSAVEOPT, XSAVEC, XGETBV(1), XSAVES. */
}

static void basic(const struct model *m, u32 leaf, u32 subleaf, const struct cpuid_live *live,
                  struct cpuid_result *out)
{
    switch (leaf) {
    case 0x0:
        *out =
            (struct cpuid_result){MAX_BASIC, 0x756e6547, 0x6c65746e, 0x49656e69}; /* GenuineIntel */
        break;
    case 0x1:
        out->eax = SIGNATURE;
        out->ebx = live->apic_id << 24 | 1 << 16 | 8 << 8; /* CLFLUSH line of 8 quadwords */
        out->ecx = ALL_L1C | m->l1c | (live->cr4 & CR4_OSXSAVE ? L1C_OSXSAVE : 0);
        out->edx = ALL_L1D | (live->apic_enabled ? L1D_APIC : 0);
        break;
    case 0x2: /* TLB descriptors; 0xff: caches are in leaf 4 */
        *out = (struct cpuid_result){0x55035a01, 0x00f0b2ff, 0, 0x00ca0000};
        break;
    case 0x4: leaf4(subleaf, out); break;
    case 0x6: out->eax = BIT(2); break; /* ARAT */
    case 0x7:
        if (subleaf == 0)
            *out =
                (struct cpuid_result){2, ALL_L7B | m->l7b, L7C_UMIP, L7D_SPEC_CTRL | L7D_ARCH_CAP};
        if (subleaf == 2)
            out->edx = L72D_BHI_CTRL | L72D_MCDT_NO;
        break;
    case 0xb: leaf_b(subleaf, live, out); break;
    case 0xd: leaf_d(m, subleaf, live, out); break;
    case 0x15: /* TSC = crystal * ebx / eax */
        *out = (struct cpuid_result){1, (u32)(TSC_HZ / APIC_HZ), (u32)APIC_HZ, 0};
        break;
    case 0x16: /* base, maximum and bus frequency in MHz */
        *out = (struct cpuid_result){(u32)(TSC_HZ / 1000000), (u32)(TSC_HZ / 1000000), 100, 0};
        break;
    }
}

static void brand(const struct model *m, u32 part, struct cpuid_result *out)
{
    char text[48] = {0};
    strncpy(text, m->brand, sizeof(text) - 1);
    memcpy(out, text + 16 * part, 16);
}

static void extended(const struct model *m, u32 leaf, struct cpuid_result *out)
{
    switch (leaf) {
    case 0x80000000: out->eax = MAX_EXTENDED; break;
    case 0x80000001:
        out->ecx = X1C_LAHF | m->x1c;
        out->edx = X1D_SYSCALL | X1D_NX | X1D_1GB | X1D_RDTSCP | X1D_LM;
        break;
    case 0x80000002:
    case 0x80000003:
    case 0x80000004: brand(m, leaf - 0x80000002, out); break;
    case 0x80000006: out->ecx = 1024u << 16 | 8u << 12 | 64; break; /* L2: 1 MiB, 16 ways, 64 */
    case 0x80000007: out->edx = BIT(8); break;                      /* invariant TSC */
    case 0x80000008: out->eax = CPU_LINEAR_BITS << 8 | CPU_PHYS_BITS; break;
    }
}

void cpu_model_cpuid(enum cpu_model model, u32 leaf, u32 subleaf, const struct cpuid_live *live,
                     struct cpuid_result *out)
{
    const struct model *m = find(model);
    *out = (struct cpuid_result){0, 0, 0, 0};
    if (!m)
        return;
    if (leaf >= 0x40000000 && leaf < 0x40000100) {
        /* KVM's signature and no feature: makes Linux use x2APIC without interrupt remapping. */
        if (leaf == 0x40000000)
            *out = (struct cpuid_result){MAX_HYPER, 0x4b4d564b, 0x564b4d56, 0x0000004d};
    } else if (leaf >= 0x80000000 && leaf <= MAX_EXTENDED) {
        extended(m, leaf, out);
    } else {
        /* A leaf beyond the maximum gives the data of the highest basic leaf, as on any Intel. */
        basic(m, leaf > MAX_BASIC ? MAX_BASIC : leaf, subleaf, live, out);
    }
}

static u64 host_xcr0(void)
{
    u32 lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return lo | (u64)hi << 32;
}

const char *cpu_model_host_lacks(enum cpu_model model)
{
    static const struct {
        enum cpu_model from; /* models from this on need it */
        u32 leaf;
        u8 reg, bit; /* reg: 1 ebx, 2 ecx, 3 edx */
        const char *name;
    } needs[] = {
        {CPU_X86_64_V2, 1, 3, 8, "CMPXCHG8B"},
        {CPU_X86_64_V2, 1, 3, 15, "CMOV"},
        {CPU_X86_64_V2, 1, 3, 24, "FXSAVE"},
        {CPU_X86_64_V2, 1, 3, 25, "SSE"},
        {CPU_X86_64_V2, 1, 3, 26, "SSE2"},
        {CPU_X86_64_V2, 1, 2, 0, "SSE3"},
        {CPU_X86_64_V2, 1, 2, 9, "SSSE3"},
        {CPU_X86_64_V2, 1, 2, 13, "CMPXCHG16B"},
        {CPU_X86_64_V2, 1, 2, 19, "SSE4.1"},
        {CPU_X86_64_V2, 1, 2, 20, "SSE4.2"},
        {CPU_X86_64_V2, 1, 2, 23, "POPCNT"},
        {CPU_X86_64_V2, 0x80000001, 2, 0, "LAHF in 64-bit mode"},
        {CPU_X86_64_V3, 1, 2, 27, "XSAVE (enabled by the host's kernel)"},
        {CPU_X86_64_V3, 1, 2, 28, "AVX"},
        {CPU_X86_64_V3, 7, 1, 5, "AVX2"},
        {CPU_X86_64_V3, 7, 1, 3, "BMI1"},
        {CPU_X86_64_V3, 7, 1, 8, "BMI2"},
        {CPU_X86_64_V3, 1, 2, 12, "FMA"},
        {CPU_X86_64_V3, 1, 2, 29, "F16C"},
        {CPU_X86_64_V3, 0x80000001, 2, 5, "LZCNT"},
        {CPU_X86_64_V3, 1, 2, 22, "MOVBE"},
    };
    if (!find(model))
        return "a known CPU model";
    for (size_t i = 0; i < ARRAY_SIZE(needs); i++) {
        u32 r[4] = {0};
        if (model < needs[i].from)
            continue;
        if (!__get_cpuid_count(needs[i].leaf, 0, &r[0], &r[1], &r[2], &r[3]) ||
            !(r[needs[i].reg] >> needs[i].bit & 1))
            return needs[i].name;
    }
    if (model >= CPU_X86_64_V3 && (host_xcr0() & 6) != 6)
        return "AVX state (enabled by the host's kernel)";
    return NULL;
}
