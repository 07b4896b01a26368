/*
 * CPU models: what CPUID says and which instructions exist. A model is fixed for ever once
 * released: recordings name it. Nothing here comes from the host.
 */
#ifndef REPRISE_CPU_MODEL_H
#define REPRISE_CPU_MODEL_H

#include "base/types.h"

enum cpu_model {
    CPU_MODEL_NONE,
    CPU_X86_64_V2 = 1, /* psABI x86-64-v2 */
    CPU_X86_64_V3 = 2, /* psABI x86-64-v3 */
    CPU_NEHALEM = 3,
    CPU_HASWELL = 4,
    CPU_SKYLAKE_SERVER = 5,
    CPU_ICELAKE_SERVER = 6,
    CPU_ZEN2 = 7,
    CPU_X86_64_V1 = 8, /* psABI x86-64: the baseline */
    CPU_X86_64_V4 = 9, /* psABI x86-64-v4: AVX-512 */
};

#define CPU_MODEL_FIRST CPU_X86_64_V2
#define CPU_MODEL_LAST  CPU_X86_64_V4

/* "x86-64-v2" etc.; NULL for an unknown number. */
const char *cpu_model_name(enum cpu_model model);
/* By its name, or by another one (`skylake`); CPU_MODEL_NONE if there is no such. */
enum cpu_model cpu_model_find(const char *name);
/* Its other name, or NULL; a line about it for people. */
const char *cpu_model_alias(enum cpu_model model);
const char *cpu_model_brand(enum cpu_model model);

/* Features (features.def): bit `f % 32` of word `f / 32`. */
enum cpu_word {
#define CPU_WORD(word, leaf, subleaf, reg) CPU_WORD_##word,
#include "cpu/features.def"
    CPU_WORDS
};
enum cpu_feature {
#define FEATURE(name, word, bit, host, how, names, text) FEAT_##name = CPU_WORD_##word * 32 + (bit),
#include "cpu/features.def"
};

/* The CPU_WORDS words of an existing model. */
const u32 *cpu_model_words(enum cpu_model model);

static inline bool cpu_words_have(const u32 *words, enum cpu_feature f)
{
    return words[f / 32] >> f % 32 & 1;
}

static inline bool cpu_model_has(enum cpu_model model, enum cpu_feature f)
{
    return cpu_words_have(cpu_model_words(model), f);
}

struct cpuid_result {
    u32 eax, ebx, ecx, edx;
};

/* What the CPUs of a machine, numbered from 0, are parts of: packages of so many cores of so many
 * threads. No cores: each CPU is one, of one package. */
struct cpu_parts {
    u32 cpus, cores, threads; /* cpus: 0 is one */
};

/* SDM vol. 3, 9.9.1: in an APIC id thread, core and package have fields of their own, as wide as
 * their numbers need. So where cores or threads are no power of two there are gaps. */
u32 cpu_apic_id(const struct cpu_parts *p, u32 cpu);

/* What the few live bits of CPUID depend on, and what was turned on and off (features.h). */
struct cpuid_live {
    const u32 *words; /* of the CPU; NULL: its model's */
    u64 cr4;
    u64 xcr0;
    bool apic_enabled; /* IA32_APIC_BASE bit 11 */
    u32 apic_id;
    u32 revision; /* of the machine: before 7 leaf 4 counted threads as cores */
    struct cpu_parts parts;
    bool pmu; /* its counters are shown */
};

void cpu_model_cpuid(enum cpu_model model, u32 leaf, u32 subleaf, const struct cpuid_live *live,
                     struct cpuid_result *out);

/* What a counter of the guest can count. The manuals' names differ, these are what they mean here.
 */
enum pmu_counts {
    PMU_NOTHING,        /* an unknown code, or one that nothing here makes happen */
    PMU_INSNS,          /* instructions retired */
    PMU_CYCLES,         /* core cycles while not halted */
    PMU_REF_CYCLES,     /* cycles of a fixed frequency while not halted */
    PMU_BRANCHES,       /* all of the following together: instructions, no deliveries */
    PMU_COND,           /* Jcc, LOOPcc, JRCXZ, taken or not */
    PMU_COND_TAKEN,     /* those that jumped */
    PMU_COND_NOT_TAKEN, /* and those that did not */
    PMU_NEAR_TAKEN,     /* near branches that went elsewhere: all but far and not taken ones */
    PMU_NEAR_CALLS,     /* CALL near, direct and indirect */
    PMU_NEAR_RETURNS,   /* RET near */
    PMU_NEAR_INDIRECT,  /* JMP and CALL near through a register or memory, no RET */
    PMU_FAR,            /* far JMP, CALL, RET, INT n, IRET, SYSCALL, SYSRET, SYSENTER, SYSEXIT */
    PMU_BRANCHES_OR_DELIVERIES, /* AMD's: PMU_BRANCHES, exceptions and interrupts delivered */
    PMU_TAKEN_OR_DELIVERIES,    /* AMD's: of these, all but conditional ones that did not jump */
    PMU_FAR_OR_DELIVERIES,      /* AMD's: PMU_FAR, exceptions and interrupts delivered */
    PMU_INTERRUPTS,             /* external interrupts delivered */
    PMU_BRANCH_MISSES,          /* branches predicted wrongly, of all kinds */
    PMU_COND_MISSES,            /* of these the conditional ones */
    PMU_LLC_REFS,               /* there are no caches: zero */
    PMU_LLC_MISSES,             /* zero */
};

struct model_event {
    u16 select;       /* IA32_PERFEVTSELx bits 0-7; AMD: PERF_CTL bits 0-7 and 32-35 */
    u8 umask;         /* bits 8-15 */
    u8 counts;        /* enum pmu_counts */
    const char *name; /* the vendor's, as `perf list` has it */
};

/* What the code means on that model (model_events.def); NULL: nothing that is counted here. */
const struct model_event *cpu_model_event(enum cpu_model model, u16 select, u8 umask);

enum pmu_kind { PMU_KIND_NONE, PMU_KIND_INTEL, PMU_KIND_AMD };

/* The counters that a CPU of that name has. */
struct model_pmu {
    u8 kind;    /* enum pmu_kind */
    u8 version; /* Intel: of architectural performance monitoring (leaf 0xa) */
    u8 general; /* counters of any event */
    u8 fixed;   /* Intel: instructions, core cycles, reference cycles */
    u8 width;   /* bits of each */
    /* Intel: last-branch records, a power of two (0: none), and how they look: IA32_PERF_
     * CAPABILITIES, bits 5 to 0 (SDM vol. 3, 18.4.8.1). */
    u8 lbr, lbr_format;
};
enum { LBR_FLAG = 3, LBR_FLAGS = 4, LBR_INFO = 5 };

/* As many as that CPU has in a machine of that revision: before 9 none. */
unsigned cpu_lbr_depth(enum cpu_model model, u32 revision);

/* Never NULL: PMU_KIND_NONE where the model has no counters. */
const struct model_pmu *cpu_model_pmu(enum cpu_model model);

#define TSC_HZ  1000000000ull /* one tick = one position = one virtual ns */
#define APIC_HZ 25000000ull   /* crystal clock of CPUID leaf 0x15, local APIC timer input */

#define CPU_PHYS_BITS   40 /* CPUID 0x80000008: width of physical addresses, MTRR masks and PTEs */
#define CPU_LINEAR_BITS 48

/* XCR0 bits that XSETBV accepts: 3 (x87, SSE), 7 (and AVX) or e7 (and AVX-512's three, which come
 * together). */
#define XCR0_X87    1u
#define XCR0_SSE    2u
#define XCR0_AVX    4u
#define XCR0_AVX512 0xe0u
static inline u64 cpu_words_xcr0(const u32 *words)
{
    if (!cpu_words_have(words, FEAT_XSAVE))
        return XCR0_X87;
    return XCR0_X87 | XCR0_SSE | (cpu_words_have(words, FEAT_AVX) ? XCR0_AVX : 0) |
           (cpu_words_have(words, FEAT_AVX512F) ? XCR0_AVX512 : 0);
}
/* A component of the XSAVE area (standard format): where it is and how long. 0 bytes: there is none
 * of that number, or it is of the part that all have. Ours are where Intel's CPUs have them. */
struct cpu_xsave_part {
    u16 size, at;
};
static inline struct cpu_xsave_part cpu_xsave_part(unsigned component)
{
    static const struct cpu_xsave_part parts[] = {
        [2] = {256, 576},   /* upper halves of YMM */
        [5] = {64, 1088},   /* masks */
        [6] = {512, 1152},  /* upper halves of ZMM0 to ZMM15 */
        [7] = {1024, 1664}, /* ZMM16 to ZMM31 */
    };
    return component < ARRAY_SIZE(parts) ? parts[component] : (struct cpu_xsave_part){0, 0};
}
/* Bytes of the XSAVE area (standard format) of the components in `xcr0`. */
u32 cpu_xsave_size(u64 xcr0);

/* IA32_ARCH_CAPABILITIES (MSR 0x10a): which speculation faults this CPU does not have. */
#define ARCH_CAP_RDCL_NO        (1ull << 0)
#define ARCH_CAP_IBRS_ALL       (1ull << 1)
#define ARCH_CAP_SKIP_L1DFL     (1ull << 3)
#define ARCH_CAP_SSB_NO         (1ull << 4)
#define ARCH_CAP_MDS_NO         (1ull << 5)
#define ARCH_CAP_PSCHANGE_MC_NO (1ull << 6)
#define ARCH_CAP_TAA_NO         (1ull << 8)
#define ARCH_CAP_SBDR_SSDP_NO   (1ull << 13)
#define ARCH_CAP_FBSDP_NO       (1ull << 14)
#define ARCH_CAP_PSDP_NO        (1ull << 15)
#define ARCH_CAP_BHI_NO         (1ull << 20)
#define ARCH_CAP_PBRSB_NO       (1ull << 24)
#define ARCH_CAP_GDS_NO         (1ull << 26)
#define ARCH_CAP_RFDS_NO        (1ull << 27)
#define ARCH_CAP_ITS_NO         (1ull << 62)
#define ARCH_CAPABILITIES_VALUE                                                                    \
    (ARCH_CAP_RDCL_NO | ARCH_CAP_IBRS_ALL | ARCH_CAP_SKIP_L1DFL | ARCH_CAP_SSB_NO |                \
     ARCH_CAP_MDS_NO | ARCH_CAP_PSCHANGE_MC_NO | ARCH_CAP_TAA_NO | ARCH_CAP_SBDR_SSDP_NO |         \
     ARCH_CAP_FBSDP_NO | ARCH_CAP_PSDP_NO | ARCH_CAP_BHI_NO | ARCH_CAP_PBRSB_NO |                  \
     ARCH_CAP_GDS_NO | ARCH_CAP_RFDS_NO | ARCH_CAP_ITS_NO)

#endif
