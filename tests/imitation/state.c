/* Registers between KVM's structs and the hardware's. im_sync() before, core_changed() after. */
#include <errno.h>
#include <string.h>

#include "imitation.h"

/* A processor between two iterations of a REP string knows that it is (RF); core_sync() forgets. */
void im_sync(struct im_vcpu *v)
{
    u8 resume = v->hw->cpu.rep_resume;
    core_sync(&v->hw->base);
    v->hw->cpu.rep_resume = resume;
}

static bool stepping(const struct im_vcpu *v)
{
    return v->debug_control & KVM_GUESTDBG_SINGLESTEP;
}

/* KVM hides the trap flag while it is its own. */
static u64 get_flags(const struct im_vcpu *v)
{
    const struct vcpu *c = &v->hw->cpu;
    u64 f = c->rflags | 2 | (c->rep_resume ? FL_RF : 0);
    return stepping(v) ? f & ~(u64)FL_TF : f;
}

static void set_flags(struct im_vcpu *v, u64 flags)
{
    struct vcpu *c = &v->hw->cpu;
    bool trap = stepping(v) && c->rip == v->step_rip && !im_options()->nostep;
    c->rflags = flags | 2 | (trap ? FL_TF : 0);
}

void im_get_regs(struct im_vcpu *v, struct kvm_regs *out)
{
    im_sync(v);
    const u64 *r = v->hw->cpu.gpr;
    *out = (struct kvm_regs){.rax = r[RAX],
                             .rbx = r[RBX],
                             .rcx = r[RCX],
                             .rdx = r[RDX],
                             .rsi = r[RSI],
                             .rdi = r[RDI],
                             .rsp = r[RSP],
                             .rbp = r[RBP],
                             .r8 = r[R8],
                             .r9 = r[R9],
                             .r10 = r[R10],
                             .r11 = r[R11],
                             .r12 = r[R12],
                             .r13 = r[R13],
                             .r14 = r[R14],
                             .r15 = r[R15],
                             .rip = v->hw->cpu.rip,
                             .rflags = get_flags(v)};
}

void im_set_regs(struct im_vcpu *v, const struct kvm_regs *in)
{
    im_sync(v);
    struct vcpu *c = &v->hw->cpu;
    const u64 from[16] = {in->rax, in->rcx, in->rdx, in->rbx, in->rsp, in->rbp, in->rsi, in->rdi,
                          in->r8,  in->r9,  in->r10, in->r11, in->r12, in->r13, in->r14, in->r15};
    memcpy(c->gpr, from, sizeof(from));
    c->rip = in->rip;
    c->rep_resume = 0;
    set_flags(v, in->rflags);
    v->exception.pending = false;
    core_changed(&v->hw->base);
}

static struct kvm_segment get_segment(const struct vcpu *c, unsigned s)
{
    u16 a = c->seg_attr[s];
    return (struct kvm_segment){.base = c->seg_base[s],
                                .limit = c->seg_limit[s],
                                .selector = c->seg_sel[s],
                                .type = a & ATTR_TYPE,
                                .s = !!(a & ATTR_S),
                                .dpl = ATTR_DPL(a),
                                .present = !!(a & ATTR_P),
                                .avl = !!(a & ATTR_AVL),
                                .l = !!(a & ATTR_L),
                                .db = !!(a & ATTR_DB),
                                .g = !!(a & ATTR_G),
                                .unusable = !(a & ATTR_P)};
}

static void set_segment(struct vcpu *c, unsigned s, const struct kvm_segment *in)
{
    c->seg_base[s] = in->base;
    c->seg_limit[s] = in->limit;
    c->seg_sel[s] = in->selector;
    c->seg_attr[s] =
        in->unusable ? 0
                     : (u16)(in->type | (in->s ? ATTR_S : 0) | in->dpl << 5 |
                             (in->present ? ATTR_P : 0) | (in->avl ? ATTR_AVL : 0) |
                             (in->l ? ATTR_L : 0) | (in->db ? ATTR_DB : 0) | (in->g ? ATTR_G : 0));
}

static const struct {
    unsigned segment;
    size_t at;
} segments[] = {
    {SEG_CS, offsetof(struct kvm_sregs, cs)},    {SEG_DS, offsetof(struct kvm_sregs, ds)},
    {SEG_ES, offsetof(struct kvm_sregs, es)},    {SEG_FS, offsetof(struct kvm_sregs, fs)},
    {SEG_GS, offsetof(struct kvm_sregs, gs)},    {SEG_SS, offsetof(struct kvm_sregs, ss)},
    {SEG_LDTR, offsetof(struct kvm_sregs, ldt)}, {SEG_TR, offsetof(struct kvm_sregs, tr)},
};

void im_get_sregs(struct im_vcpu *v, struct kvm_sregs *out)
{
    im_sync(v);
    const struct vcpu *c = &v->hw->cpu;
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < ARRAY_SIZE(segments); i++) {
        struct kvm_segment s = get_segment(c, segments[i].segment);
        if (segments[i].segment == SEG_SS)
            s.dpl = v->hw->cpl; /* a null one has the ring there, too */
        memcpy((u8 *)out + segments[i].at, &s, sizeof(s));
    }
    out->gdt.base = c->gdt_base;
    out->gdt.limit = c->gdt_limit;
    out->idt.base = c->idt_base;
    out->idt.limit = c->idt_limit;
    out->cr0 = c->cr0;
    out->cr2 = c->cr2;
    out->cr3 = c->cr3;
    out->cr4 = c->cr4;
    out->cr8 = v->cr8;
    out->efer = c->efer;
    out->apic_base = v->apic_base;
    if (v->irq)
        out->interrupt_bitmap[v->irq_vector / 64] = 1ull << v->irq_vector % 64;
}

/* What a processor would refuse at the entry KVM refuses here. */
static bool valid(const struct kvm_sregs *s)
{
    bool paging = s->cr0 & CR0_PG, lma = s->efer & EFER_LMA, lme = s->efer & EFER_LME;
    if ((paging && !(s->cr0 & CR0_PE)) || s->cr0 >> 32 || s->cr4 >> 32 ||
        (s->efer & ~(u64)(EFER_SCE | EFER_LME | EFER_LMA | EFER_NX)))
        return false;
    if (paging && lme)
        return lma && (s->cr4 & CR4_PAE) && !(s->cr3 >> CPU_PHYS_BITS);
    return !lma && !s->cs.l;
}

int im_set_sregs(struct im_vcpu *v, const struct kvm_sregs *in)
{
    struct kvm_segment s;
    if (!valid(in)) {
        errno = EINVAL;
        return -1;
    }
    im_sync(v);
    struct vcpu *c = &v->hw->cpu;
    for (size_t i = 0; i < ARRAY_SIZE(segments); i++) {
        memcpy(&s, (const u8 *)in + segments[i].at, sizeof(s));
        set_segment(c, segments[i].segment, &s);
    }
    if (c->cr0 != in->cr0 || c->cr3 != in->cr3 || c->cr4 != in->cr4 || c->efer != in->efer)
        v->keeps_tlb = false; /* until core_changed() */
    c->gdt_base = in->gdt.base;
    c->gdt_limit = in->gdt.limit;
    c->idt_base = in->idt.base;
    c->idt_limit = in->idt.limit;
    c->cr0 = in->cr0;
    c->cr2 = in->cr2;
    c->cr3 = in->cr3;
    c->cr4 = in->cr4;
    c->efer = in->efer;
    v->cr8 = in->cr8;
    v->apic_base = in->apic_base;
    for (unsigned i = 0; i < 256; i++)
        if (in->interrupt_bitmap[i / 64] >> i % 64 & 1) {
            v->irq = true;
            v->irq_vector = (u8)i;
        }
    core_changed(&v->hw->base);
    v->keeps_tlb = im_options()->tlb;
    /* A null SS has no DPL in the processor's state; KVM takes the ring from there. */
    if (v->hw->cpl != in->ss.dpl) {
        v->hw->cpl = in->ss.dpl;
        mmu_mode_changed(v->hw);
    }
    return 0;
}

void im_get_events(struct im_vcpu *v, struct kvm_vcpu_events *out)
{
    im_sync(v);
    const struct vcpu *c = &v->hw->cpu;
    const struct im_event *e = &v->exception;
    memset(out, 0, sizeof(*out));
    out->exception.injected = e->injected || e->pending;
    out->exception.nr = e->vector;
    out->exception.has_error_code = e->has_error;
    out->exception.error_code = e->error;
    out->interrupt.injected = v->irq;
    out->interrupt.nr = v->irq_vector;
    out->interrupt.shadow = c->shadow == 2   ? KVM_X86_SHADOW_INT_MOV_SS
                            : c->shadow == 1 ? KVM_X86_SHADOW_INT_STI
                                             : 0;
    out->nmi.pending = v->nmi;
    out->nmi.masked = c->nmi_blocked;
    out->flags = KVM_VCPUEVENT_VALID_NMI_PENDING | KVM_VCPUEVENT_VALID_SHADOW;
}

int im_set_events(struct im_vcpu *v, const struct kvm_vcpu_events *in)
{
    const u32 known = KVM_VCPUEVENT_VALID_NMI_PENDING | KVM_VCPUEVENT_VALID_SHADOW |
                      KVM_VCPUEVENT_VALID_SIPI_VECTOR | KVM_VCPUEVENT_VALID_SMM;
    if ((in->flags & ~known) || (in->exception.injected && in->exception.nr > 31)) {
        errno = EINVAL;
        return -1;
    }
    im_sync(v);
    struct vcpu *c = &v->hw->cpu;
    v->exception = (struct im_event){.injected = in->exception.injected,
                                     .vector = in->exception.nr,
                                     .has_error = in->exception.has_error_code,
                                     .error = in->exception.error_code};
    v->irq = in->interrupt.injected;
    v->irq_vector = in->interrupt.nr;
    if (in->flags & KVM_VCPUEVENT_VALID_SHADOW)
        c->shadow = in->interrupt.shadow & KVM_X86_SHADOW_INT_MOV_SS ? 2
                    : in->interrupt.shadow & KVM_X86_SHADOW_INT_STI  ? 1
                                                                     : 0;
    if (in->flags & KVM_VCPUEVENT_VALID_NMI_PENDING)
        v->nmi = in->nmi.pending;
    c->nmi_blocked = !!in->nmi.masked;
    core_changed(&v->hw->base);
    return 0;
}

/* Breakpoints of the program, as debug points of the hardware. */
static int set_points(struct im_vcpu *v)
{
    static const u8 lengths[4] = {1, 2, 8, 4};
    struct debug_point points[4];
    unsigned n = 0;
    u64 dr7 = v->debug_control & KVM_GUESTDBG_USE_HW_BP ? v->debugreg[7] : 0;
    for (unsigned i = 0; i < 4; i++) {
        if (!(dr7 >> 2 * i & 3))
            continue;
        unsigned kind = dr7 >> (16 + 4 * i) & 3;
        points[n++] = (struct debug_point){.kind = kind == 0   ? DEBUG_EXEC
                                                   : kind == 1 ? DEBUG_WRITE
                                                               : DEBUG_ACCESS,
                                           .address = v->debugreg[i],
                                           .length = lengths[dr7 >> (18 + 4 * i) & 3]};
    }
    return core_ops.debug_set(&v->hw->base, points, n);
}

int im_set_debug(struct im_vcpu *v, const struct kvm_guest_debug *in)
{
    const u32 known = KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_SINGLESTEP | KVM_GUESTDBG_USE_HW_BP;
    if (in->control & ~known)
        return im_refuse(EINVAL, "KVM_SET_GUEST_DEBUG with control %x", in->control);
    im_sync(v);
    u64 flags = get_flags(v);
    v->debug_control = in->control & KVM_GUESTDBG_ENABLE ? in->control : 0;
    memcpy(v->debugreg, in->arch.debugreg, sizeof(v->debugreg));
    if (stepping(v))
        v->step_rip = v->hw->cpu.rip;
    set_flags(v, flags & ~(u64)(v->hw->cpu.rep_resume ? FL_RF : 0));
    core_changed(&v->hw->base);
    if (set_points(v)) {
        errno = ENOMEM;
        return -1;
    }
    return 0;
}

/* ---- x87, SSE, AVX ---- */

static void take_image(struct im_vcpu *v, const u8 *image)
{
    struct core *d = v->hw;
    memcpy(&d->fop, image + 6, sizeof(d->fop));
    memcpy(&d->fip, image + 8, sizeof(d->fip));
    memcpy(&d->fdp, image + 16, sizeof(d->fdp));
    if (!(image[512] & 1)) {
        d->fop = 0;
        d->fip = d->fdp = 0;
    }
    park_take_image(d, image);
    core_changed(&d->base);
}

void im_get_xsave(struct im_vcpu *v, struct kvm_xsave *out)
{
    im_sync(v);
    memset(out, 0, sizeof(*out));
    memcpy(out->region, v->hw->cpu.xsave, XSAVE_SIZE);
}

int im_set_xsave(struct im_vcpu *v, const struct kvm_xsave *in)
{
    const u8 *image = (const u8 *)in->region;
    u64 bv, form;
    memcpy(&bv, image + 512, sizeof(bv));
    memcpy(&form, image + 520, sizeof(form));
    if ((bv & ~v->hw->xmask) || form || (in->region[6] & 0xffff0000u)) {
        errno = EINVAL;
        return -1;
    }
    im_sync(v);
    take_image(v, image);
    return 0;
}

void im_get_fpu(struct im_vcpu *v, struct kvm_fpu *out)
{
    im_sync(v);
    const u8 *x = v->hw->cpu.xsave;
    memset(out, 0, sizeof(*out));
    memcpy(&out->fcw, x, 2);
    memcpy(&out->fsw, x + 2, 2);
    out->ftwx = x[4];
    memcpy(&out->last_opcode, x + 6, 2);
    memcpy(&out->last_ip, x + 8, 8);
    memcpy(&out->last_dp, x + 16, 8);
    memcpy(&out->mxcsr, x + 24, 4);
    memcpy(out->fpr, x + 32, sizeof(out->fpr));
    memcpy(out->xmm, x + 160, sizeof(out->xmm));
}

void im_set_fpu(struct im_vcpu *v, const struct kvm_fpu *in)
{
    u8 image[XSAVE_SIZE];
    im_sync(v);
    memcpy(image, v->hw->cpu.xsave, sizeof(image));
    memcpy(image, &in->fcw, 2);
    memcpy(image + 2, &in->fsw, 2);
    image[4] = in->ftwx;
    memcpy(image + 6, &in->last_opcode, 2);
    memcpy(image + 8, &in->last_ip, 8);
    memcpy(image + 16, &in->last_dp, 8);
    memcpy(image + 24, &in->mxcsr, 4);
    memcpy(image + 32, in->fpr, sizeof(in->fpr));
    memcpy(image + 160, in->xmm, sizeof(in->xmm));
    image[512] |= 3;
    take_image(v, image);
}
