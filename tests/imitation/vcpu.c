/* The vCPU's ioctls but KVM_RUN. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "imitation.h"

struct im_vcpu *im_vcpu_new(struct im_vm *vm, int *fd)
{
    struct im_vcpu *v = calloc(1, sizeof(*v));
    if (!v)
        return NULL;
    *fd = im_fd_new(IM_VCPU, v);
    if (*fd < 0 || ftruncate(*fd, 3 * PAGE_SIZE)) {
        free(v);
        return NULL;
    }
    /* The program maps the same file. */
    v->run = mmap(NULL, 3 * PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    CHECK(v->run != MAP_FAILED, "no memory for struct kvm_run");
    v->vm = vm;
    v->model = CPU_X86_64_V2;
    v->apic_base = 0xfee00900;
    v->khz = vm->khz;
    im_clock_begin();
    v->tsc_offset = -im_host_ticks(v->khz);
    return v;
}

void im_vcpu_free(struct im_vcpu *v)
{
    im_hw_drop(v);
    if (v->stack)
        munmap(v->stack, 1u << 20);
    munmap(v->run, 3 * PAGE_SIZE);
    free(v->cpuid);
    v->vm->vcpu = NULL;
    im_vm_release(v->vm);
    free(v);
}

static const struct kvm_cpuid_entry2 *entry_of(const struct kvm_cpuid2 *in, u32 leaf)
{
    for (u32 i = 0; i < in->nent; i++)
        if (in->entries[i].function == leaf && in->entries[i].index == 0)
            return &in->entries[i];
    return NULL;
}

/* The model of the hardware is the one whose numbers and instructions were promised. */
static enum cpu_model promised(const struct kvm_cpuid2 *in)
{
    const struct kvm_cpuid_entry2 *leaf1 = entry_of(in, 1), *leaf7 = entry_of(in, 7);
    const struct cpuid_live live = {.xcr0 = 1, .apic_enabled = true};
    for (enum cpu_model m = CPU_MODEL_FIRST; leaf1 && leaf7 && m <= CPU_MODEL_LAST; m++) {
        struct cpuid_result r1, r7;
        cpu_model_cpuid(m, 1, 0, &live, &r1);
        cpu_model_cpuid(m, 7, 0, &live, &r7);
        if (r1.eax == leaf1->eax && r7.ebx == leaf7->ebx)
            return m;
    }
    return CPU_X86_64_V2;
}

static int set_cpuid(struct im_vcpu *v, const struct kvm_cpuid2 *in)
{
    struct kvm_cpuid_entry2 *copy = calloc(in->nent + 1, sizeof(*copy));
    enum cpu_model model = promised(in);
    if (!copy)
        return -1;
    memcpy(copy, in->entries, in->nent * sizeof(*copy));
    free(v->cpuid);
    v->cpuid = copy;
    v->ncpuid = in->nent;
    v->stale = v->stale || model != v->model;
    v->model = model;
    return 0;
}

static int get_msrs(struct im_vcpu *v, struct kvm_msrs *m)
{
    u32 i = 0;
    while (i < m->nmsrs && im_msr_get(v, m->entries[i].index, (u64 *)&m->entries[i].data))
        i++;
    return (int)i;
}

static int set_msrs(struct im_vcpu *v, const struct kvm_msrs *m)
{
    u32 i = 0;
    im_sync(v);
    while (i < m->nmsrs && im_msr_set(v, m->entries[i].index, m->entries[i].data, false))
        i++;
    core_changed(&v->hw->base);
    return (int)i;
}

static int set_xcrs(struct im_vcpu *v, const struct kvm_xcrs *x)
{
    u64 value = x->nr_xcrs == 1 && x->xcrs[0].xcr == 0 ? x->xcrs[0].value : 0;
    if (!(value & 1) || (value & ~cpu_words_xcr0(cpu_model_words(v->model))) || (value & 6) == 4) {
        errno = EINVAL;
        return -1;
    }
    im_sync(v);
    v->hw->cpu.xcr0 = value;
    core_changed(&v->hw->base);
    return 0;
}

static int get_xcrs(struct im_vcpu *v, struct kvm_xcrs *x)
{
    memset(x, 0, sizeof(*x));
    x->nr_xcrs = 1;
    x->xcrs[0].value = v->hw->cpu.xcr0;
    return 0;
}

static int get_debugregs(struct im_vcpu *v, struct kvm_debugregs *out)
{
    memset(out, 0, sizeof(*out));
    memcpy(out->db, v->hw->cpu.dr, sizeof(out->db));
    out->dr6 = v->hw->cpu.dr[6];
    out->dr7 = v->hw->cpu.dr[7];
    return 0;
}

static int set_debugregs(struct im_vcpu *v, const struct kvm_debugregs *in)
{
    if (in->flags || in->dr6 >> 32 || in->dr7 >> 32) {
        errno = EINVAL;
        return -1;
    }
    im_sync(v);
    memcpy(v->hw->cpu.dr, in->db, sizeof(in->db));
    v->hw->cpu.dr[6] = in->dr6;
    v->hw->cpu.dr[7] = in->dr7;
    core_changed(&v->hw->base);
    return 0;
}

/* struct kvm_sregs2 begins as kvm_sregs does; it has no interrupts, but PDPTRs. */
static int sregs2(struct im_vcpu *v, struct kvm_sregs2 *s, bool set)
{
    struct kvm_sregs old;
    const size_t common = offsetof(struct kvm_sregs2, flags);
    _Static_assert(offsetof(struct kvm_sregs2, flags) ==
                       offsetof(struct kvm_sregs, interrupt_bitmap),
                   "the common part");
    memset(&old, 0, sizeof(old));
    if (set) {
        memcpy(&old, s, common);
        return im_set_sregs(v, &old);
    }
    im_get_sregs(v, &old);
    memset(s, 0, sizeof(*s));
    memcpy(s, &old, common);
    return 0;
}

static int set_mask(struct im_vcpu *v, const struct kvm_signal_mask *in)
{
    v->masked = in;
    if (in && in->len != 8) {
        errno = EINVAL;
        return -1;
    }
    if (in)
        memcpy(&v->mask, in->sigset, 8);
    return 0;
}

static int set_khz(struct im_vcpu *v, u32 khz)
{
    if (!khz)
        khz = IM_HOST_KHZ;
    if (im_options()->noscale && khz < IM_HOST_KHZ) {
        errno = EINVAL;
        return -1;
    }
    v->khz = khz;
    return 0;
}

static int device_attr(struct im_vcpu *v, unsigned long request, const struct kvm_device_attr *a)
{
    if (a->group != KVM_VCPU_TSC_CTRL || a->attr != KVM_VCPU_TSC_OFFSET) {
        errno = ENXIO;
        return -1;
    }
    u64 *at = (u64 *)a->addr;
    if (request == KVM_GET_DEVICE_ATTR)
        *at = v->tsc_offset;
    if (request == KVM_SET_DEVICE_ATTR)
        v->tsc_offset = *at;
    return 0;
}

static int interrupt(struct im_vcpu *v, const struct kvm_interrupt *in)
{
    if (in->irq > 255) {
        errno = EINVAL;
        return -1;
    }
    v->irq = true;
    v->irq_vector = (u8)in->irq;
    return 0;
}

/* What changes registers has no place between an exit and its completion. */
static bool sets_state(unsigned long request)
{
    switch (request) {
    case KVM_SET_REGS:
    case KVM_SET_SREGS:
    case KVM_SET_SREGS2:
    case KVM_SET_FPU:
    case KVM_SET_XSAVE:
    case KVM_SET_XCRS:
    case KVM_SET_DEBUGREGS:
    case KVM_SET_VCPU_EVENTS:
    case KVM_SET_GUEST_DEBUG:
    case KVM_SET_MSRS: return true;
    default: return false;
    }
}

int im_vcpu_ioctl(struct im_vcpu *v, unsigned long request, void *arg)
{
    switch (request) {
    case KVM_SET_CPUID2: return set_cpuid(v, arg);
    case KVM_SET_SIGNAL_MASK: return set_mask(v, arg);
    case KVM_SET_TSC_KHZ: return set_khz(v, (u32)(u64)arg);
    case KVM_GET_TSC_KHZ: return (int)v->khz;
    case KVM_HAS_DEVICE_ATTR:
    case KVM_GET_DEVICE_ATTR:
    case KVM_SET_DEVICE_ATTR: return device_attr(v, request, arg);
    case KVM_INTERRUPT: return interrupt(v, arg);
    case KVM_NMI: v->nmi = true; return 0;
    default: break;
    }
    if (!im_hw_ready(v)) {
        errno = EINVAL;
        return -1;
    }
    if (v->mid && sets_state(request))
        return im_refuse(EBUSY, "ioctl %lx while an instruction waits for its answer", request);
    switch (request) {
    case KVM_RUN: return im_run(v);
    case KVM_GET_REGS: im_get_regs(v, arg); return 0;
    case KVM_SET_REGS: im_set_regs(v, arg); return 0;
    case KVM_GET_SREGS: im_get_sregs(v, arg); return 0;
    case KVM_SET_SREGS: return im_set_sregs(v, arg);
    case KVM_GET_SREGS2: return sregs2(v, arg, false);
    case KVM_SET_SREGS2: return sregs2(v, arg, true);
    case KVM_GET_FPU: im_get_fpu(v, arg); return 0;
    case KVM_SET_FPU: im_set_fpu(v, arg); return 0;
    case KVM_GET_XSAVE2:
    case KVM_GET_XSAVE: im_get_xsave(v, arg); return 0;
    case KVM_SET_XSAVE: return im_set_xsave(v, arg);
    case KVM_GET_XCRS: return get_xcrs(v, arg);
    case KVM_SET_XCRS: return set_xcrs(v, arg);
    case KVM_GET_DEBUGREGS: return get_debugregs(v, arg);
    case KVM_SET_DEBUGREGS: return set_debugregs(v, arg);
    case KVM_GET_VCPU_EVENTS: im_get_events(v, arg); return 0;
    case KVM_SET_VCPU_EVENTS: return im_set_events(v, arg);
    case KVM_GET_MSRS: return get_msrs(v, arg);
    case KVM_SET_MSRS: return set_msrs(v, arg);
    case KVM_SET_GUEST_DEBUG: return im_set_debug(v, arg);
    default: return im_refuse(ENOTTY, "a vCPU does not know ioctl %lx", request);
    }
}
