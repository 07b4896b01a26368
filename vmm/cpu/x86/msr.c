/*
 * Model-specific registers. An MSR that is not listed raises #GP(0), as on a CPU that lacks it.
 * The local APIC's are the machine's. SDM vol. 4.
 */
#include "cpu/x86/msr.h"
#include "cpu/x86/exec.h"
#include "cpu/x86/park.h"
#include "cpu/x86/pmu.h"
#include "cpu/x86/tlb.h"

#define MSR_TSC          0x10
#define MSR_PLATFORM_ID  0x17
#define MSR_APIC_BASE    0x1b
#define MSR_TSC_ADJUST   0x3b
#define MSR_SPEC_CTRL    0x48
#define MSR_PRED_CMD     0x49
#define MSR_BIOS_SIGN_ID 0x8b
#define MSR_MTRRCAP      0xfe
#define MSR_ARCH_CAP     0x10a
#define MSR_SYSENTER_CS  0x174
#define MSR_SYSENTER_ESP 0x175
#define MSR_SYSENTER_EIP 0x176
#define MSR_MCG_CAP      0x179
#define MSR_MCG_STATUS   0x17a
#define MSR_MISC_ENABLE  0x1a0
#define MSR_MTRR_PHYS    0x200
#define MSR_PAT          0x277
#define MSR_MTRR_DEF     0x2ff
#define MSR_TSC_DEADLINE 0x6e0
#define MSR_X2APIC       0x800
#define MSR_GUEST_TSC    0x40000200 /* ours: guest-agent/tsc */
#define MSR_EFER         0xc0000080
#define MSR_STAR         0xc0000081
#define MSR_LSTAR        0xc0000082
#define MSR_CSTAR        0xc0000083
#define MSR_SFMASK       0xc0000084
#define MSR_FS_BASE      0xc0000100
#define MSR_GS_BASE      0xc0000101
#define MSR_KERNEL_GS    0xc0000102
#define MSR_TSC_AUX      0xc0000103

static const u32 mtrr_fixed[11] = {0x250, 0x258, 0x259, 0x268, 0x269, 0x26a,
                                   0x26b, 0x26c, 0x26d, 0x26e, 0x26f};

/* Plain 64-bit registers, and what a write must satisfy. */
enum rule { ANY, CANONICAL, LOW32, READONLY };

static u64 *plain(struct core *d, u32 msr, enum rule *rule)
{
    struct vcpu *c = &d->cpu;
    *rule = ANY;
    if (msr >= MSR_MTRR_PHYS && msr < MSR_MTRR_PHYS + 2 * MTRR_VARIABLE)
        return msr & 1 ? &c->mtrr_mask[(msr - MSR_MTRR_PHYS) / 2]
                       : &c->mtrr_base[(msr - MSR_MTRR_PHYS) / 2];
    for (unsigned i = 0; i < ARRAY_SIZE(mtrr_fixed); i++)
        if (msr == mtrr_fixed[i])
            return &c->mtrr_fixed[i];
    switch (msr) {
    case MSR_BIOS_SIGN_ID: return &c->bios_sign;
    case MSR_SYSENTER_CS: *rule = LOW32; return &c->sysenter_cs;
    case MSR_SYSENTER_ESP: *rule = CANONICAL; return &c->sysenter_esp;
    case MSR_SYSENTER_EIP: *rule = CANONICAL; return &c->sysenter_eip;
    case MSR_MCG_STATUS: return &c->mcg_status;
    case MSR_STAR: return &c->star;
    case MSR_LSTAR: *rule = CANONICAL; return &c->lstar;
    case MSR_CSTAR: *rule = CANONICAL; return &c->cstar;
    case MSR_SFMASK: *rule = LOW32; return &c->sfmask;
    case MSR_FS_BASE: *rule = CANONICAL; return &c->seg_base[SEG_FS];
    case MSR_GS_BASE: *rule = CANONICAL; return &c->seg_base[SEG_GS];
    case MSR_KERNEL_GS: *rule = CANONICAL; return &c->kernel_gs_base;
    case MSR_TSC_AUX: *rule = LOW32; return &c->tsc_aux;
    default: return NULL;
    }
}

static bool is_apic(u32 msr)
{
    return msr == MSR_APIC_BASE || msr == MSR_TSC_DEADLINE ||
           (msr >= MSR_X2APIC && msr <= MSR_X2APIC + 0xff);
}

static u64 tsc(struct core *d)
{
    core_set_aside(d);
    return d->env->now(d->env->cpu) + d->cpu.tsc_adjust;
}

static bool get(struct core *d, u32 msr, u64 *v)
{
    struct vcpu *c = &d->cpu;
    if (is_apic(msr)) {
        core_set_aside(d);
        return d->env->rdmsr(d->env->cpu, msr, v);
    }
    if (msr_missing(d, msr))
        return false;
    if (msr_named_read(d, msr, v))
        return true;
    bool ok;
    if (pmu_rdmsr(d, msr, v, &ok))
        return ok;
    enum rule rule;
    u64 *p = plain(d, msr, &rule);
    if (p) {
        *v = *p;
        return true;
    }
    switch (msr) {
    case MSR_TSC: *v = tsc(d); return true;
    case MSR_TSC_ADJUST: *v = c->tsc_adjust; return true;
    case MSR_PLATFORM_ID: *v = 0; return true;
    case MSR_SPEC_CTRL: *v = c->spec_ctrl; return true;
    case MSR_MTRRCAP: *v = 0x500 | MTRR_VARIABLE; return true; /* WC, fixed, variable count */
    case MSR_ARCH_CAP: *v = ARCH_CAPABILITIES_VALUE; return true;
    case MSR_MCG_CAP: *v = 0; return true;
    case MSR_MISC_ENABLE: *v = c->misc_enable; return true;
    case MSR_PAT: *v = c->pat; return true;
    case MSR_MTRR_DEF: *v = c->mtrr_def_type; return true;
    case MSR_EFER: *v = c->efer; return true;
    case MSR_GUEST_TSC: *v = c->guest_tsc; return true;
    default: return false;
    }
}

static bool pat_ok(u64 v)
{
    for (unsigned i = 0; i < 8; i++) {
        unsigned t = v >> 8 * i & 0xff;
        if (t > 7 || t == 2 || t == 3)
            return false;
    }
    return true;
}

/* Uncacheable, write combining, write through, write protected, write back. */
static bool mtrr_type_ok(unsigned type)
{
    return type < 7 && type != 2 && type != 3;
}

static bool mtrr_ok(struct core *d, u32 msr, u64 v)
{
    if (msr >= MSR_MTRR_PHYS && msr < MSR_MTRR_PHYS + 2 * MTRR_VARIABLE) {
        u64 reserved = ~d->phys_mask | (msr & 1 ? 0x7ff : 0xf00);
        return !(v & reserved) && ((msr & 1) || mtrr_type_ok(v & 0xff));
    }
    for (unsigned i = 0; i < ARRAY_SIZE(mtrr_fixed); i++)
        if (msr == mtrr_fixed[i])
            for (unsigned k = 0; k < 8; k++)
                if (!mtrr_type_ok(v >> 8 * k & 0xff))
                    return false;
    return true;
}

static bool set_adjust(struct core *d, u64 adjust)
{
    d->cpu.tsc_adjust = adjust;
    core_set_aside(d);
    d->env->wrmsr(d->env->cpu, MSR_TSC_ADJUST, adjust); /* the APIC's deadline is in TSC ticks */
    return true;
}

static bool set(struct core *d, u32 msr, u64 v)
{
    struct vcpu *c = &d->cpu;
    if (is_apic(msr)) {
        core_set_aside(d);
        return d->env->wrmsr(d->env->cpu, msr, v);
    }
    if (msr_missing(d, msr))
        return false;
    bool ok;
    if (pmu_wrmsr(d, msr, v, &ok))
        return ok;
    enum rule rule;
    u64 *p = plain(d, msr, &rule);
    if (p) {
        if (!mtrr_ok(d, msr, v))
            return false;
        if ((rule == CANONICAL && !is_canonical(v)) || (rule == LOW32 && (v >> 32)))
            return false;
        *p = v;
        if (p == &c->sfmask)
            mmu_crossing_changed(d);
        return true;
    }
    switch (msr) {
    case MSR_TSC: return set_adjust(d, c->tsc_adjust + (v - tsc(d)));
    case MSR_TSC_ADJUST: return set_adjust(d, v);
    case MSR_SPEC_CTRL:
        if (v & ~0x407ull) /* IBRS, STIBP, SSBD, BHI_DIS_S */
            return false;
        c->spec_ctrl = v;
        return true;
    case MSR_GUEST_TSC:
        if (v > 1)
            return false;
        c->guest_tsc = v;
        return true;
    case MSR_PRED_CMD: return !(v & ~1ull);
    case MSR_MISC_ENABLE: c->misc_enable = v; return true;
    case MSR_PAT:
        if (!pat_ok(v))
            return false;
        c->pat = v;
        return true;
    case MSR_MTRR_DEF:
        if ((v & ~0xcffull) || !mtrr_type_ok(v & 0xff))
            return false;
        c->mtrr_def_type = v;
        return true;
    case MSR_EFER: {
        u64 allowed = EFER_SCE | EFER_LME | EFER_LMA | EFER_NX;
        if ((v & ~allowed) || ((c->cr0 & CR0_PG) && ((v ^ c->efer) & EFER_LME)))
            return false;
        u64 changed = (v ^ c->efer) & EFER_NX;
        c->efer = (v & ~(u64)EFER_LMA) | (c->efer & EFER_LMA);
        if (changed)
            mmu_flush_all(d);
        mmu_crossing_changed(d);
        return true;
    }
    default: return msr_named_write(d, msr, v);
    }
}

/* Segment bases change too often to leave the guest for them. */
static bool is_event(u32 msr)
{
    return msr != MSR_FS_BASE && msr != MSR_GS_BASE && msr != MSR_KERNEL_GS;
}

bool msr_read(struct core *d, u32 msr, u64 *v)
{
    bool ok = get(d, msr, v);
    count_events(d, ok && is_event(msr));
    return ok;
}

bool msr_write(struct core *d, u32 msr, u64 v)
{
    bool ok = set(d, msr, v);
    count_events(d, ok && is_event(msr));
    return ok;
}

HELPER(rdmsr)
{
    u64 v = 0;
    if (d->cpl || !msr_read(d, (u32)d->cpu.gpr[RCX], &v))
        return raise_error(d, EXC_GP, 0);
    d->cpu.gpr[RAX] = (u32)v;
    d->cpu.gpr[RDX] = v >> 32;
    return DONE;
}

HELPER(wrmsr)
{
    u64 v = (u32)d->cpu.gpr[RAX] | d->cpu.gpr[RDX] << 32;
    if (d->cpl || !msr_write(d, (u32)d->cpu.gpr[RCX], v))
        return raise_error(d, EXC_GP, 0);
    return DONE;
}
