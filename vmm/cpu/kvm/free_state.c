/* The whole vCPU between KVM and the core, for a guest that runs freely (free.h). */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "cpu/kvm/free.h"

#include "cpu/x86/park.h"
#include "cpu/x86/except.h"
#include "cpu/x86/run.h"
#include "cpu/x86/tlb.h"

#define MSR_PLATFORM_INFO    0xce
#define MSR_FEATURES_ENABLES 0x140
#define PLATFORM_CPUID_FAULT (1ull << 31)
#define MSR_SYSENTER_CS      0x174
#define MSR_SYSENTER_ESP     0x175
#define MSR_SYSENTER_EIP     0x176
#define MSR_PAT              0x277
#define MSR_STAR             0xc0000081
#define MSR_LSTAR            0xc0000082
#define MSR_CSTAR            0xc0000083
#define MSR_SFMASK           0xc0000084
#define MSR_KERNEL_GS        0xc0000102
#define MSR_TSC_AUX          0xc0000103

struct msr_list {
    struct kvm_msrs head;
    struct kvm_msr_entry entry[12];
};

static int failed(struct err *err, const char *what)
{
    return err_errno(err, "/dev/kvm: %s", what);
}

/* ---- out of KVM ---- */

static bool same_segment(const struct kvm_segment *a, const struct kvm_segment *b)
{
    return !memcmp(a, b, sizeof(*a));
}

/* One that the guest has not loaded since is kept as the core had it: KVM was told of something
 * that a CPU can have. */
static void take_segment(struct vcpu *c, unsigned s, const struct kvm_segment *now,
                         const struct kvm_segment *sent)
{
    if (same_segment(now, sent))
        return;
    bool null = now->unusable || !now->present;
    c->seg_sel[s] = now->selector;
    c->seg_base[s] = null && s != SEG_FS && s != SEG_GS ? 0 : now->base;
    c->seg_limit[s] = null ? 0 : now->limit;
    c->seg_attr[s] = null ? 0
                          : (u16)(now->type | now->s << 4 | now->dpl << 5 | now->present << 7 |
                                  now->avl << 12 | now->l << 13 | now->db << 14 | now->g << 15);
}

static void take_sregs(struct kvm *k, const struct kvm_sregs *s)
{
    struct vcpu *c = &k->core->cpu;
    const struct kvm_sregs *sent = &k->free->sregs;
    take_segment(c, SEG_CS, &s->cs, &sent->cs);
    take_segment(c, SEG_DS, &s->ds, &sent->ds);
    take_segment(c, SEG_ES, &s->es, &sent->es);
    take_segment(c, SEG_FS, &s->fs, &sent->fs);
    take_segment(c, SEG_GS, &s->gs, &sent->gs);
    take_segment(c, SEG_SS, &s->ss, &sent->ss);
    take_segment(c, SEG_LDTR, &s->ldt, &sent->ldt);
    take_segment(c, SEG_TR, &s->tr, &sent->tr);
    c->gdt_base = s->gdt.base;
    c->gdt_limit = s->gdt.limit;
    c->idt_base = s->idt.base;
    c->idt_limit = s->idt.limit;
    c->cr0 = s->cr0;
    c->cr2 = s->cr2;
    c->cr3 = s->cr3;
    c->cr4 = s->cr4;
    c->efer = s->efer;
    k->free->sregs = *s;
}

static void take_regs(struct vcpu *c, const struct kvm_regs *g)
{
    const u64 from[16] = {g->rax, g->rcx, g->rdx, g->rbx, g->rsp, g->rbp, g->rsi, g->rdi,
                          g->r8,  g->r9,  g->r10, g->r11, g->r12, g->r13, g->r14, g->r15};
    memcpy(c->gpr, from, sizeof(from));
    c->rip = g->rip;
    c->rflags = g->rflags | 2;
}

/*
 * An exception that was to be delivered when the vCPU left the guest. A fault comes again when its
 * instruction is executed again, so it is dropped. A debug trap would be lost.
 */
static int take_exception(struct kvm *k, struct kvm_vcpu_events *events, struct err *err)
{
    struct core *d = k->core;
    bool waits = events->exception.injected || events->exception.pending;
    if (!waits && !events->interrupt.injected && !events->nmi.injected && !events->nmi.pending)
        return 0;
    bool trap = waits && events->exception.nr == EXC_DB && (d->cpu.dr[6] & 1u << 14);
    if (!waits)
        return err_set(err, -EIO, "KVM holds an interrupt that nobody gave it");
    memset(&events->exception, 0, sizeof(events->exception));
    if (ioctl(k->h.vcpu, KVM_SET_VCPU_EVENTS, events))
        return failed(err, "KVM_SET_VCPU_EVENTS");
    if (!trap)
        return 0;
    d->fault = (struct fault){.vector = EXC_DB, .trap = true};
    k->free->kvm_general = false;
    return deliver_fault(d) == DONE ? 0 : err_set(err, -EIO, "a debug trap without a handler");
}

static int pull_general(struct kvm *k, struct err *err)
{
    struct kvm_free *f = k->free;
    struct core *d = k->core;
    struct kvm_regs regs;
    struct kvm_sregs sregs;
    struct kvm_vcpu_events events;
    struct msr_list msrs = {.head = {.nmsrs = 1}, .entry = {{.index = MSR_KERNEL_GS}}};
    if (ioctl(k->h.vcpu, KVM_GET_REGS, &regs))
        return failed(err, "KVM_GET_REGS");
    if (ioctl(k->h.vcpu, KVM_GET_SREGS, &sregs))
        return failed(err, "KVM_GET_SREGS");
    if (ioctl(k->h.vcpu, KVM_GET_VCPU_EVENTS, &events))
        return failed(err, "KVM_GET_VCPU_EVENTS");
    if (ioctl(k->h.vcpu, KVM_GET_DEBUGREGS, &f->dr))
        return failed(err, "KVM_GET_DEBUGREGS");
    if (ioctl(k->h.vcpu, KVM_GET_MSRS, &msrs) != 1)
        return failed(err, "KVM_GET_MSRS");
    struct vcpu *c = &d->cpu;
    take_regs(c, &regs);
    take_sregs(k, &sregs);
    c->kernel_gs_base = f->kernel_gs = msrs.entry[0].data;
    memcpy(c->dr, f->dr.db, sizeof(f->dr.db));
    c->dr[6] = f->dr.dr6;
    c->dr[7] = f->dr.dr7;
    c->nmi_blocked = events.nmi.masked;
    c->shadow = events.interrupt.shadow & KVM_X86_SHADOW_INT_MOV_SS ? 2
                : events.interrupt.shadow & KVM_X86_SHADOW_INT_STI  ? 1
                                                                    : 0;
    c->position = unit_position(d);
    f->core_general = true;
    core_changed(&d->base);
    d->modes |= 1u << vcpu_mode(c);
    return take_exception(k, &events, err);
}

static int pull_fpu(struct kvm *k, struct err *err)
{
    struct core *d = k->core;
    struct kvm_xcrs xcrs;
    const u8 *image = (const u8 *)k->image->region;
    if (ioctl(k->h.vcpu, KVM_GET_XCRS, &xcrs) || !xcrs.nr_xcrs)
        return failed(err, "KVM_GET_XCRS");
    if (ioctl(k->h.vcpu, KVM_GET_XSAVE, k->image))
        return failed(err, "KVM_GET_XSAVE");
    d->cpu.xcr0 = k->xcr0 = xcrs.xcrs[0].value;
    memcpy(&d->fop, image + 6, 2);
    memcpy(&d->fip, image + 8, 8);
    memcpy(&d->fdp, image + 16, 8);
    park_take_image(d, image);
    mmu_mode_changed(d);
    memcpy(k->fpu, d->cpu.xsave, XSAVE_SIZE);
    k->free->core_fpu = true;
    return 0;
}

int free_pull(struct kvm *k, bool fpu, struct err *err)
{
    int r = k->free->core_general ? 0 : pull_general(k, err);
    if (!r && fpu && !k->free->core_fpu)
        r = pull_fpu(k, err);
    return r;
}

void free_changed(struct kvm *k, bool fpu)
{
    k->free->kvm_general = false;
    if (fpu)
        k->free->kvm_fpu = false;
}

/* ---- into KVM ---- */

static int push_sregs(struct kvm *k, struct err *err)
{
    struct core *d = k->core;
    struct kvm_sregs s;
    kvm_sregs_of(&d->cpu, d->cpl, &s);
    s.cr3 = d->cpu.cr3;
    s.cr4 = d->cpu.cr4;
    s.idt.base = d->cpu.idt_base;
    s.idt.limit = d->cpu.idt_limit;
    s.cr8 = d->env->get_cr8(d->env->cpu);
    if (!memcmp(&s, &k->free->sregs, sizeof(s)))
        return 0;
    int r = kvm_send_sregs(k, &s, err);
    /* As KVM gives them back: it is free to tidy up what it was told. */
    if (!r && ioctl(k->h.vcpu, KVM_GET_SREGS, &k->free->sregs))
        r = failed(err, "KVM_GET_SREGS");
    return r;
}

static int push_events(struct kvm *k, struct err *err)
{
    const struct vcpu *c = &k->core->cpu;
    struct core *d = k->core;
    bool shadow = d->shadow_pos == position(d);
    struct kvm_vcpu_events e = {.flags =
                                    KVM_VCPUEVENT_VALID_SHADOW | KVM_VCPUEVENT_VALID_NMI_PENDING};
    e.interrupt.shadow = !shadow     ? 0
                         : d->mov_ss ? KVM_X86_SHADOW_INT_MOV_SS
                                     : KVM_X86_SHADOW_INT_STI;
    e.nmi.masked = c->nmi_blocked;
    return ioctl(k->h.vcpu, KVM_SET_VCPU_EVENTS, &e) ? failed(err, "KVM_SET_VCPU_EVENTS") : 0;
}

static int push_general(struct kvm *k, struct err *err)
{
    struct kvm_free *f = k->free;
    struct core *d = k->core;
    struct kvm_regs regs;
    kvm_regs_of(d, &regs);
    regs.rflags = get_rflags(d) | 2;
    int r = push_sregs(k, err);
    if (r)
        return r;
    if (ioctl(k->h.vcpu, KVM_SET_REGS, &regs))
        return failed(err, "KVM_SET_REGS");
    struct kvm_debugregs dr = {.dr6 = d->cpu.dr[6], .dr7 = d->cpu.dr[7]};
    memcpy(dr.db, d->cpu.dr, sizeof(dr.db));
    if (memcmp(&dr, &f->dr, sizeof(dr)) && ioctl(k->h.vcpu, KVM_SET_DEBUGREGS, &dr))
        return failed(err, "KVM_SET_DEBUGREGS");
    f->dr = dr;
    if (f->kernel_gs != d->cpu.kernel_gs_base)
        f->kvm_msrs = false;
    return push_events(k, err);
}

static int push_msrs(struct kvm *k, struct err *err)
{
    const struct vcpu *c = &k->core->cpu;
    struct msr_list m = {.entry = {{.index = MSR_SYSENTER_CS, .data = c->sysenter_cs},
                                   {.index = MSR_SYSENTER_ESP, .data = c->sysenter_esp},
                                   {.index = MSR_SYSENTER_EIP, .data = c->sysenter_eip},
                                   {.index = MSR_PAT, .data = c->pat},
                                   {.index = MSR_STAR, .data = c->star},
                                   {.index = MSR_LSTAR, .data = c->lstar},
                                   {.index = MSR_CSTAR, .data = c->cstar},
                                   {.index = MSR_SFMASK, .data = c->sfmask},
                                   {.index = MSR_KERNEL_GS, .data = c->kernel_gs_base},
                                   {.index = MSR_TSC_AUX, .data = c->tsc_aux}}};
    m.head.nmsrs = 10;
    int n = ioctl(k->h.vcpu, KVM_SET_MSRS, &m);
    if (n < 0)
        return failed(err, "KVM_SET_MSRS");
    /* The last one is not there on every CPU. */
    if (n < (int)m.head.nmsrs - 1 || (n < (int)m.head.nmsrs && c->tsc_aux))
        return err_set(err, -ENOTSUP, "KVM does not take MSR %x = %llx", m.entry[n].index,
                       (unsigned long long)m.entry[n].data);
    k->free->kernel_gs = c->kernel_gs_base;
    return 0;
}

/* KVM has it in every CPU, for guests of any maker. */
static int push_cpuid_fault(struct kvm *k, struct err *err)
{
    u64 wanted = k->core->cpu.features;
    struct msr_list m = {.entry = {{.index = MSR_PLATFORM_INFO, .data = PLATFORM_CPUID_FAULT},
                                   {.index = MSR_FEATURES_ENABLES, .data = wanted}}};
    if (!core_has(k->core, FEAT_CPUID_FAULT) || wanted == k->free->features_enables)
        return 0;
    m.head.nmsrs = 2;
    if (ioctl(k->h.vcpu, KVM_SET_MSRS, &m) != 2)
        return err_set(err, -ENOTSUP, "this host's KVM cannot make CPUID fault");
    k->free->features_enables = wanted;
    return 0;
}

int free_push(struct kvm *k, struct err *err)
{
    struct kvm_free *f = k->free;
    int r = 0;
    if (!f->kvm_general)
        r = push_general(k, err);
    if (!r && !f->kvm_fpu)
        r = kvm_send_fpu(k, err);
    /* Of these KVM has one that the guest changes by itself, so the core's must be the present. */
    if (!r && !f->kvm_msrs)
        r = free_pull(k, false, err);
    if (!r && !f->kvm_msrs)
        r = push_msrs(k, err);
    if (!r)
        r = push_cpuid_fault(k, err);
    if (!r)
        f->kvm_general = f->kvm_fpu = f->kvm_msrs = true;
    return r;
}
