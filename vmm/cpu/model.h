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
};

/* "x86-64-v2" etc.; NULL for an unknown number. */
const char *cpu_model_name(enum cpu_model model);
/* CPU_MODEL_NONE if there is no such name. */
enum cpu_model cpu_model_find(const char *name);

struct cpuid_result {
    u32 eax, ebx, ecx, edx;
};

/* What the few live bits of CPUID depend on. */
struct cpuid_live {
    u64 cr4;
    u64 xcr0;
    bool apic_enabled; /* IA32_APIC_BASE bit 11 */
    u32 apic_id;
};

void cpu_model_cpuid(enum cpu_model model, u32 leaf, u32 subleaf, const struct cpuid_live *live,
                     struct cpuid_result *out);

/* NULL if this host can execute the model's instructions, else the feature it lacks. */
const char *cpu_model_host_lacks(enum cpu_model model);

#define TSC_HZ  1000000000ull /* one tick = one position = one virtual ns */
#define APIC_HZ 25000000ull   /* crystal clock of CPUID leaf 0x15, local APIC timer input */

#define CPU_PHYS_BITS   40 /* CPUID 0x80000008: width of physical addresses, MTRR masks and PTEs */
#define CPU_LINEAR_BITS 48

/* XCR0 bits that XSETBV accepts: 3 (x87, SSE) or 7 (and AVX). */
u64 cpu_model_xcr0(enum cpu_model model);
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
