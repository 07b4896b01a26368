/*
 * MSRs of models that are made after a CPU that there is: those by which Linux, perf and rr know
 * it. What a model does not have raises #GP(0). SDM vol. 4; AMD's PPR for family 17h, model 31h,
 * MSRs.
 */
#include "cpu/x86/msr.h"

#define MSR_PLATFORM_ID      0x17
#define MSR_PLATFORM_INFO    0xce
#define MSR_FEATURES_ENABLES 0x140
#define MSR_MISC_ENABLE      0x1a0
#define MSR_SYSCFG           0xc0010010
#define MSR_HWCR             0xc0010015
#define MSR_NB_CFG           0xc001001f
#define MSR_DE_CFG           0xc0011029

#define PLATFORM_CPUID_FAULT (1ull << 31)
#define PLATFORM_RATIO       (TSC_HZ / 100000000) /* of the TSC to a bus of 100 MHz: leaf 0x16 */
#define MISC_NO_BTS          (1ull << 11)
#define MISC_NO_PEBS         (1ull << 12)
#define SYSCFG_FIXED_DRAM    (1ull << 18) /* the fixed MTRRs' RdMem and WrMem */
#define HWCR_TSC_AT_P0       (1ull << 24) /* read-only: the TSC counts at the rate of P0 */
#define HWCR_IGNORED         (1ull << 3 | 1ull << 6 | 1ull << 8) /* of caches, FERR and monitors */
#define HWCR_KEPT            (1ull << 18)                        /* of banks of machine checks */
#define DE_CFG_LFENCE        (1ull << 1) /* LFENCE serializes: it always does */

static bool is_intel(const struct core *d)
{
    return core_has(d, FEAT_NAMED) && !core_has(d, FEAT_AMD);
}

bool msr_missing(const struct core *d, u32 msr)
{
    return core_has(d, FEAT_AMD) && (msr == MSR_PLATFORM_ID || msr == MSR_MISC_ENABLE);
}

bool msr_named_read(const struct core *d, u32 msr, u64 *v)
{
    const struct vcpu *c = &d->cpu;
    bool fault = core_has(d, FEAT_CPUID_FAULT), amd = core_has(d, FEAT_AMD);
    switch (msr) {
    case MSR_PLATFORM_INFO:
        *v = (fault ? PLATFORM_CPUID_FAULT : 0) | PLATFORM_RATIO << 8 | PLATFORM_RATIO << 40;
        return is_intel(d);
    case MSR_FEATURES_ENABLES: *v = c->features; return fault;
    case MSR_MISC_ENABLE: *v = c->misc_enable | MISC_NO_BTS | MISC_NO_PEBS; return is_intel(d);
    case MSR_SYSCFG: *v = SYSCFG_FIXED_DRAM; return amd;
    case MSR_HWCR: *v = c->features | HWCR_TSC_AT_P0; return amd;
    case MSR_NB_CFG: *v = 0; return amd;
    case MSR_DE_CFG: *v = DE_CFG_LFENCE; return amd;
    default: return false;
    }
}

bool msr_named_write(struct core *d, u32 msr, u64 v)
{
    bool amd = core_has(d, FEAT_AMD);
    switch (msr) {
    case MSR_FEATURES_ENABLES:
        if (!core_has(d, FEAT_CPUID_FAULT) || (v & ~(u64)FEATURES_CPUID_FAULT))
            return false;
        d->cpu.features = v;
        return true;
    case MSR_SYSCFG: return amd && v == SYSCFG_FIXED_DRAM;
    case MSR_HWCR:
        if (!amd || (v & ~(HWCR_IGNORED | HWCR_KEPT | HWCR_TSC_AT_P0)))
            return false;
        d->cpu.features = v & HWCR_KEPT;
        return true;
    case MSR_NB_CFG: return amd; /* there is no northbridge: nothing of it stays, as with KVM */
    case MSR_DE_CFG: return amd; /* LFENCE stays as it is, the other bits are of no use here */
    default: return false;
    }
}
