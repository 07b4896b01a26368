/* MSRs as KVM has them: the machine's filter, user space, or the processor. And CPUID. */
#include <errno.h>
#include <string.h>

#include "imitation.h"

#define MSR_TSC        0x10
#define MSR_TSC_ADJUST 0x3b
#define MSR_PLATFORM   0xce
#define MSR_X2APIC     0x800
#define MSR_EFER       0xc0000080

static bool x2apic(u32 msr)
{
    return msr >= MSR_X2APIC && msr < MSR_X2APIC + 0x100;
}

bool im_msr_get(struct im_vcpu *v, u32 msr, u64 *value)
{
    if (x2apic(msr))
        return false;
    switch (msr) {
    case MSR_TSC: *value = im_tsc(v); return true;
    case MSR_TSC_ADJUST: *value = v->tsc_adjust; return true;
    default: return msr_read(v->hw, msr, value);
    }
}

bool im_msr_set(struct im_vcpu *v, u32 msr, u64 value, bool guest)
{
    if (x2apic(msr))
        return false;
    switch (msr) {
    case MSR_TSC: {
        u64 by = value - im_tsc(v);
        v->tsc_offset += by;
        v->tsc_adjust += guest ? by : 0;
        return true;
    }
    case MSR_TSC_ADJUST:
        v->tsc_offset += guest ? value - v->tsc_adjust : 0;
        v->tsc_adjust = value;
        return true;
    case MSR_PLATFORM: return !guest && value == 1ull << 31; /* says that CPUID may fault */
    case MSR_EFER:
        if (!guest) {
            v->hw->cpu.efer = value;
            return true;
        }
        return msr_write(v->hw, msr, value);
    default: return msr_write(v->hw, msr, value);
    }
}

bool im_msr_allowed(const struct im_vm *vm, u32 msr, bool write)
{
    u32 kind = write ? KVM_MSR_FILTER_WRITE : KVM_MSR_FILTER_READ;
    if (!vm->filtered || x2apic(msr))
        return true;
    for (unsigned i = 0; i < IM_RANGES; i++) {
        const struct im_range *r = &vm->range[i];
        if (r->n && (r->flags & kind) && msr - r->base < r->n)
            return r->bitmap[(msr - r->base) / 8] >> (msr - r->base) % 8 & 1;
    }
    return !vm->deny;
}

/* The program's answer: DONE; an error becomes a #GP, which waits for the next entry. */
static int ask(struct im_vcpu *v, bool write, u32 reason, u64 *value)
{
    struct kvm_run *run = v->run;
    run->exit_reason = write ? KVM_EXIT_X86_WRMSR : KVM_EXIT_X86_RDMSR;
    run->msr.error = 0;
    memset(run->msr.pad, 0, sizeof(run->msr.pad));
    run->msr.reason = reason;
    run->msr.index = (u32)v->hw->cpu.gpr[RCX];
    run->msr.data = write ? *value : 0;
    v->hw->attention = true;
    im_hw_leave(v);
    if (run->msr.error) {
        v->exception =
            (struct im_event){.pending = true, .vector = EXC_GP, .has_error = true, .error = 0};
        im_hw_abort(v);
    }
    *value = run->msr.data;
    return DONE;
}

int im_msr_insn(struct im_vcpu *v, bool write)
{
    u64 *r = v->hw->cpu.gpr, value = (u32)r[RAX] | r[RDX] << 32;
    u32 msr = (u32)r[RCX], reason = 0;
    if (!im_msr_allowed(v->vm, msr, write))
        reason = KVM_MSR_EXIT_REASON_FILTER;
    else if (!(write ? im_msr_set(v, msr, value, true) : im_msr_get(v, msr, &value)))
        reason = x2apic(msr) ? KVM_MSR_EXIT_REASON_INVAL : KVM_MSR_EXIT_REASON_UNKNOWN;
    if (reason & ~v->vm->user_msr)
        return raise_error(v->hw, EXC_GP, 0);
    if (reason)
        ask(v, write, reason, &value);
    if (!write) {
        r[RAX] = (u32)value;
        r[RDX] = value >> 32;
    }
    return DONE;
}

static const struct kvm_cpuid_entry2 *find(const struct im_vcpu *v, u32 leaf, u32 subleaf)
{
    for (u32 i = 0; i < v->ncpuid; i++) {
        const struct kvm_cpuid_entry2 *e = &v->cpuid[i];
        if (e->function == leaf &&
            (!(e->flags & KVM_CPUID_FLAG_SIGNIFCANT_INDEX) || e->index == subleaf))
            return e;
    }
    return NULL;
}

/* What was set, with the live bits. A leaf beyond the last is the last basic one, as Intel's. */
void im_cpuid(struct im_vcpu *v, u32 leaf, u32 subleaf, struct cpuid_result *out)
{
    const struct vcpu *c = &v->hw->cpu;
    const struct kvm_cpuid_entry2 *e = find(v, leaf, subleaf),
                                  *most = find(v, leaf & 0xffff0000, 0);
    if (!e && (!most || leaf > most->eax) && (most = find(v, 0, 0)) &&
        find(v, leaf = most->eax, subleaf))
        e = find(v, leaf, subleaf);
    *out = e ? (struct cpuid_result){e->eax, e->ebx, e->ecx, e->edx} : (struct cpuid_result){0};
    if (!e)
        return;
    if (leaf == 1) {
        out->ecx = (out->ecx & ~(1u << 27)) | (c->cr4 & CR4_OSXSAVE ? 1u << 27 : 0);
        out->edx = (out->edx & ~(1u << 9)) | (v->apic_base & 0x800 ? 1u << 9 : 0);
    }
    if (leaf == 0xd && subleaf == 0)
        out->ebx = cpu_xsave_size(c->xcr0);
}
