/*
 * The CPU models. A row that was released never changes: recordings name it, and a guest decides at
 * boot by what it says (tests/unit/test_model.c has a hash of each).
 *
 * x86-64-v1 to x86-64-v4 are nobody's: GenuineIntel, family 6, model 0x12, stepping 1.
 * No Intel CPU has that number, so it is on none of the lists that Linux matches by model:
 * cpu_vuln_blacklist, cpu_vuln_whitelist, deadline_match, invlpg_miss_ids, spectre_bad_microcodes,
 * the RTM quirks. It is above 0x0e, since below that Linux uses four PAT entries only and no fast
 * strings; and far below what Intel numbers now, so that no future list meets it.
 *
 * The others have a maker's numbers, by which perf, rr and libraries know them. They show of that
 * CPU's features what is executed here, and four kinds of things that it has not:
 * - what a hypervisor adds to it on any host (KVM does): x2APIC, the APIC's TSC deadline and
 *   IA32_TSC_ADJUST, so that Linux calibrates nothing;
 * - the TSC's frequency in leaves 0x15 and 0x16 of Intel's;
 * - by which Linux mitigates nothing in them: IA32_ARCH_CAPABILITIES (as KVM's guests have it,
 * AMD's too), SSB_NO, BTC_NO, SRSO_NO;
 * - 1 GiB pages, which our walks know in each of them, and FCS and FDS that are gone.
 */
#include "cpu/model_table.h"

#define B(feature) (1u << FEAT_##feature % 32)

#define ALL_1D                                                                                     \
    (B(FPU) | B(DE) | B(PSE) | B(TSC) | B(MSR) | B(PAE) | B(MCE) | B(CX8) | B(SEP) | B(MTRR) |     \
     B(PGE) | B(CMOV) | B(PAT) | B(CLFSH) | B(MMX) | B(FXSR) | B(SSE) | B(SSE2))
#define ALL_1C                                                                                     \
    (B(SSE3) | B(SSSE3) | B(CX16) | B(SSE41) | B(SSE42) | B(X2APIC) | B(POPCNT) | B(TSCDL) |       \
     B(HYPERVISOR))
#define AVX_1C  (B(FMA) | B(MOVBE) | B(AVX) | B(F16C))
#define ALL_7B  (B(TSC_ADJUST) | B(NO_FCS_FDS))
#define BMI_7B  (B(BMI1) | B(AVX2) | B(BMI2))
#define V4_7B   (B(AVX512F) | B(AVX512DQ) | B(AVX512CD) | B(AVX512BW) | B(AVX512VL))
#define SPEC_7D (B(SPEC_CTRL) | B(ARCH_CAP))
#define ALL_X1D (B(SYSCALL) | B(NX) | B(PAGE_1GB) | B(RDTSCP) | B(LM))
/* What all have in the same way. */
#define ALL                                                                                        \
    [CPU_WORD_1D] = ALL_1D, [CPU_WORD_6A] = B(ARAT), [CPU_WORD_X1D] = ALL_X1D,                     \
    [CPU_WORD_X7D] = B(INVARIANT_TSC)
#define INTEL ALL, [CPU_WORD_7D] = SPEC_7D, [CPU_WORD_72D] = B(BHI_CTRL) | B(MCDT_NO)

#define PLAIN_1C (ALL_1C | B(PCID) | B(XSAVE))
#define PLAIN_7B                                                                                   \
    (ALL_7B | B(FSGSBASE) | B(SMEP) | B(ERMS) | B(INVPCID) | B(SMAP) | B(CLFLUSHOPT) | B(CLWB))
/* What psABI's baseline has not. */
#define V2_1C (B(SSE3) | B(SSSE3) | B(CX16) | B(SSE41) | B(SSE42) | B(POPCNT))
#define PLAIN_CACHES                                                                               \
    {                                                                                              \
        {1, 1, 8, 64, false}, {2, 1, 8, 64, false}, {3, 2, 16, 1024, false},                       \
        {                                                                                          \
            3, 3, 16, 8192, false                                                                  \
        }                                                                                          \
    }

#define HASWELL_1C (ALL_1C | B(PCID) | B(XSAVE) | AVX_1C | B(AES) | B(PCLMULQDQ))
#define HASWELL_7B (ALL_7B | BMI_7B | B(FSGSBASE) | B(SMEP) | B(ERMS) | B(INVPCID))
#define SKYLAKE_7B (HASWELL_7B | B(ADX) | B(SMAP) | B(CLFLUSHOPT) | B(CLWB))

static const struct model models[] = {
    {.id = CPU_X86_64_V2,
     .name = "x86-64-v2",
     .brand = "Reprise x86-64-v2",
     .signature = 0x00010621,
     .max_basic = 0x16,
     .max_extended = 0x80000008,
     .words = {INTEL, [CPU_WORD_1C] = PLAIN_1C, [CPU_WORD_7B] = PLAIN_7B, [CPU_WORD_7C] = B(UMIP),
               [CPU_WORD_X1C] = B(LAHF)},
     .caches = PLAIN_CACHES},
    {.id = CPU_X86_64_V3,
     .name = "x86-64-v3",
     .brand = "Reprise x86-64-v3",
     .signature = 0x00010621,
     .max_basic = 0x16,
     .max_extended = 0x80000008,
     .words = {INTEL, [CPU_WORD_1C] = PLAIN_1C | AVX_1C, [CPU_WORD_7B] = PLAIN_7B | BMI_7B,
               [CPU_WORD_7C] = B(UMIP), [CPU_WORD_X1C] = B(LAHF) | B(LZCNT)},
     .caches = PLAIN_CACHES},
    {.id = CPU_X86_64_V4,
     .name = "x86-64-v4",
     .brand = "Reprise x86-64-v4",
     .signature = 0x00010621,
     .max_basic = 0x16,
     .max_extended = 0x80000008,
     .words = {INTEL, [CPU_WORD_1C] = PLAIN_1C | AVX_1C, [CPU_WORD_7B] = PLAIN_7B | BMI_7B | V4_7B,
               [CPU_WORD_7C] = B(UMIP), [CPU_WORD_X1C] = B(LAHF) | B(LZCNT)},
     .caches = PLAIN_CACHES},
    {.id = CPU_NEHALEM,
     .name = "nehalem",
     .brand = "Intel Xeon Processor (Nehalem, Reprise)",
     .signature = 0x000106a5,
     .max_basic = 0x16,
     .max_extended = 0x80000008,
     .words = {INTEL, [CPU_WORD_1C] = ALL_1C, [CPU_WORD_7B] = ALL_7B, [CPU_WORD_X1C] = B(LAHF),
               [CPU_WORD_OWN] = B(NAMED)},
     .caches = {{1, 1, 8, 64, false},
                {2, 1, 4, 128, false},
                {3, 2, 8, 512, false},
                {3, 3, 16, 8192, true}},
     .pmu = {PMU_KIND_INTEL, 3, 4, 3, 48, 16, LBR_FLAG}},
    {.id = CPU_HASWELL,
     .name = "haswell",
     .brand = "Intel Xeon Processor (Haswell, Reprise)",
     .signature = 0x000306f2,
     .max_basic = 0x16,
     .max_extended = 0x80000008,
     .words = {INTEL, [CPU_WORD_1C] = HASWELL_1C, [CPU_WORD_7B] = HASWELL_7B,
               [CPU_WORD_X1C] = B(LAHF) | B(LZCNT), [CPU_WORD_OWN] = B(NAMED) | B(CPUID_FAULT)},
     .caches = {{1, 1, 8, 64, false},
                {2, 1, 8, 64, false},
                {3, 2, 8, 512, false},
                {3, 3, 16, 8192, true}},
     .pmu = {PMU_KIND_INTEL, 3, 4, 3, 48, 16, LBR_FLAGS}},
    {.id = CPU_SKYLAKE_SERVER,
     .name = "skylake-server",
     .alias = "skylake",
     .brand = "Intel Xeon Processor (Skylake server, Reprise)",
     .signature = 0x00050654,
     .max_basic = 0x16,
     .max_extended = 0x80000008,
     .words = {INTEL, [CPU_WORD_1C] = HASWELL_1C, [CPU_WORD_7B] = SKYLAKE_7B,
               [CPU_WORD_X1C] = B(LAHF) | B(LZCNT), [CPU_WORD_OWN] = B(NAMED) | B(CPUID_FAULT)},
     .caches = {{1, 1, 8, 64, false},
                {2, 1, 8, 64, false},
                {3, 2, 16, 1024, false},
                {3, 3, 11, 16384, false}},
     .pmu = {PMU_KIND_INTEL, 4, 4, 3, 48, 32, LBR_INFO}},
    {.id = CPU_ICELAKE_SERVER,
     .name = "icelake-server",
     .alias = "icelake",
     .brand = "Intel Xeon Processor (Ice Lake server, Reprise)",
     .signature = 0x000606a6,
     .max_basic = 0x16,
     .max_extended = 0x80000008,
     .words = {INTEL, [CPU_WORD_1C] = HASWELL_1C, [CPU_WORD_7B] = SKYLAKE_7B | B(SHA),
               [CPU_WORD_7C] = B(UMIP) | B(GFNI) | B(VAES) | B(VPCLMULQDQ) | B(RDPID),
               [CPU_WORD_X1C] = B(LAHF) | B(LZCNT), [CPU_WORD_OWN] = B(NAMED) | B(CPUID_FAULT)},
     .caches = {{1, 1, 12, 64, false},
                {2, 1, 8, 64, false},
                {3, 2, 20, 1024, false},
                {3, 3, 12, 16384, false}},
     .pmu = {PMU_KIND_INTEL, 5, 4, 3, 48, 32, LBR_INFO}},
    {.id = CPU_ZEN2,
     .name = "zen2",
     .alias = "zen",
     .brand = "AMD EPYC Processor (Zen 2, Reprise)",
     .signature = 0x00830f10,
     .max_basic = 0x10,
     .max_extended = 0x80000021,
     .words = {ALL, [CPU_WORD_1C] = ALL_1C | B(XSAVE) | AVX_1C | B(AES) | B(PCLMULQDQ),
               [CPU_WORD_7B] = ALL_7B | BMI_7B | B(FSGSBASE) | B(SMEP) | B(ADX) | B(SMAP) |
                               B(CLFLUSHOPT) | B(CLWB) | B(SHA),
               [CPU_WORD_7C] = B(UMIP) | B(RDPID), [CPU_WORD_7D] = B(ARCH_CAP),
               [CPU_WORD_X1C] = B(LAHF) | B(LZCNT) | B(TOPOEXT),
               [CPU_WORD_X8B] = B(XSAVEERPTR) | B(AMD_IBPB) | B(AMD_IBRS) | B(AMD_SSB_NO) |
                                B(BTC_NO) | B(IBPB_RET),
               [CPU_WORD_X21A] = B(LFENCE_RDTSC) | B(NULL_SEG_BASE) | B(SRSO_NO),
               [CPU_WORD_OWN] = B(NAMED) | B(AMD)},
     .caches = {{1, 1, 8, 64, false},
                {2, 1, 8, 64, false},
                {3, 2, 8, 1024, true},
                {3, 3, 16, 16384, false}},
     .pmu = {PMU_KIND_AMD, 0, 6, 0, 48, 0, 0}},
    {.id = CPU_X86_64_V1,
     .name = "x86-64-v1",
     .alias = "x86-64",
     .brand = "Reprise x86-64-v1",
     .signature = 0x00010621,
     .max_basic = 0x16,
     .max_extended = 0x80000008,
     .words = {INTEL, [CPU_WORD_1C] = PLAIN_1C & ~V2_1C, [CPU_WORD_7B] = PLAIN_7B,
               [CPU_WORD_7C] = B(UMIP)},
     .caches = PLAIN_CACHES},
};

const struct model *model_row(enum cpu_model id)
{
    for (size_t i = 0; i < ARRAY_SIZE(models); i++)
        if (models[i].id == id)
            return &models[i];
    return NULL;
}
