/*
 * The vCPU into KVM and back, by the documented ioctls. Only what changed is sent. KVM's IDT is
 * always empty: no exception is ever delivered by it, so one that we did not see coming ends in a
 * triple fault with the registers as they were, and the core delivers it.
 */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "cpu/kvm/kvm.h"

#define APIC_BASE 0xfee00900ull /* enabled, the boot processor's */
/* What these forbid was looked at before (step.c), and KVM caches no translation for longer than we
 * want: so a host may lack them. */
#define CR4_CHECKED (CR4_SMEP | CR4_SMAP | CR4_UMIP | CR4_PCIDE | CR4_FSGSBASE | CR4_TSD | CR4_PCE)
#define CR3_PWT     8ull /* of no meaning to the walk */

void kvm_regs_of(struct core *d, struct kvm_regs *out)
{
    const u64 *r = d->cpu.gpr;
    /* TF, IF, RF, NT, IOPL and the shadows are ours; AC counts for accesses. */
    u64 flags = (get_rflags(d) & (FL_ARITH | FL_DF | FL_AC | FL_IOPL | FL_ID)) | 2;
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
                             .rip = d->cpu.rip,
                             .rflags = flags};
}

static struct kvm_segment segment(const struct vcpu *c, unsigned s)
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

void kvm_sregs_of(const struct vcpu *c, unsigned cpl, struct kvm_sregs *out)
{
    memset(out, 0, sizeof(*out));
    out->cs = segment(c, SEG_CS);
    out->ds = segment(c, SEG_DS);
    out->es = segment(c, SEG_ES);
    out->fs = segment(c, SEG_FS);
    out->gs = segment(c, SEG_GS);
    out->ss = segment(c, SEG_SS);
    out->ss.dpl = (u8)cpl; /* a null SS has none; KVM takes the ring from here */
    out->ldt = segment(c, SEG_LDTR);
    out->tr = segment(c, SEG_TR);
    if (out->tr.unusable || out->tr.s || (out->tr.type & 0xd) != 9) {
        /* Before LTR. A processor has no unusable one. */
        out->tr = (struct kvm_segment){.limit = 0x67, .type = 0xb, .present = 1};
    }
    out->tr.type |= 2;
    out->gdt.base = c->gdt_base;
    out->gdt.limit = c->gdt_limit;
    out->cr0 = c->cr0;
    out->cr2 = c->cr2;
    out->cr3 = c->cr3 & ~(u64)(PAGE_SIZE - 1);
    out->cr4 = c->cr4 & ~(u64)CR4_CHECKED;
    out->efer = c->efer;
    out->apic_base = APIC_BASE;
}

int kvm_send_sregs(struct kvm *k, const struct kvm_sregs *sregs, struct err *err)
{
    if (!ioctl(k->h.vcpu, KVM_SET_SREGS, sregs))
        return 0;
    return err_errno(err,
                     "KVM does not take the guest's control registers (CR0 %llx, CR4 %llx, EFER "
                     "%llx, CS %04x): this host's CPU lacks a feature that the guest uses",
                     (unsigned long long)sregs->cr0, (unsigned long long)sregs->cr4,
                     (unsigned long long)sregs->efer, sregs->cs.selector);
}

/* Grows whenever the core drops what was derived from a table, which any vCPU may have written. */
static u64 all_flushes(struct core *d)
{
    u64 n = d->st.tlb_flushes;
    EACH_CPU (s, d)
        n += s->st.pt_writes;
    return n;
}

/* A guest without a TLB (docs/determinism.md): what KVM has cached goes as soon as the core drops
 * what was derived from a table. A load of another CR3 does it. */
static int send_system(struct kvm *k, struct err *err)
{
    struct core *d = k->core;
    struct kvm_sregs sregs;
    kvm_sregs_of(&d->cpu, d->cpl, &sregs);
    u64 flushes = all_flushes(d);
    bool stale = flushes != k->flushes;
    if (k->sent_sregs && !stale && !memcmp(&sregs, &k->sregs, sizeof(sregs)))
        return 0;
    k->sent_sregs = false;
    if (stale) {
        struct kvm_sregs other = sregs;
        other.cr3 ^= CR3_PWT;
        int r = kvm_send_sregs(k, &other, err);
        if (r)
            return r;
    }
    int r = kvm_send_sregs(k, &sregs, err);
    if (r)
        return r;
    k->sregs = sregs;
    k->sent_sregs = true;
    k->flushes = flushes;
    return 0;
}

int kvm_send_fpu(struct kvm *k, struct err *err)
{
    struct core *d = k->core;
    if (!k->sent_xcr0 || k->xcr0 != d->cpu.xcr0) {
        struct kvm_xcrs xcrs = {.nr_xcrs = 1, .xcrs = {{.xcr = 0, .value = d->cpu.xcr0}}};
        if (ioctl(k->h.vcpu, KVM_SET_XCRS, &xcrs))
            return err_errno(err, "KVM does not take XCR0 = %llx", (unsigned long long)d->cpu.xcr0);
        k->xcr0 = d->cpu.xcr0;
        k->sent_xcr0 = true;
    }
    if (k->sent_fpu && !memcmp(k->fpu, d->cpu.xsave, XSAVE_SIZE))
        return 0;
    memset(k->image, 0, sizeof(*k->image));
    memcpy(k->image->region, d->cpu.xsave, XSAVE_SIZE);
    /* Everything explicit: what is not in use has its initial value there. */
    u64 all = d->xmask;
    memcpy((u8 *)k->image->region + 512, &all, sizeof(all));
    if (ioctl(k->h.vcpu, KVM_SET_XSAVE, k->image))
        return err_errno(err, "KVM does not take the x87, SSE and AVX registers");
    memcpy(k->fpu, d->cpu.xsave, XSAVE_SIZE);
    k->sent_fpu = true;
    return 0;
}

int kvm_send(struct kvm *k, bool fpu, struct err *err)
{
    struct kvm_regs regs;
    kvm_regs_of(k->core, &regs);
    int r = send_system(k, err);
    if (!r && fpu)
        r = kvm_send_fpu(k, err);
    if (r)
        return r;
    if (!k->sent_regs || memcmp(&regs, &k->regs, sizeof(regs))) {
        if (ioctl(k->h.vcpu, KVM_SET_REGS, &regs))
            return err_errno(err, "KVM does not take the general registers");
        k->regs = regs;
        k->sent_regs = true;
        k->armed = false; /* it loses the trap flag */
    }
    if (k->armed)
        return 0;
    struct kvm_guest_debug debug = {.control = KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_SINGLESTEP};
    if (ioctl(k->h.vcpu, KVM_SET_GUEST_DEBUG, &debug))
        return err_errno(err, "/dev/kvm: KVM_SET_GUEST_DEBUG");
    k->armed = true;
    return 0;
}

int kvm_get_fpu(struct kvm *k, struct err *err)
{
    if (ioctl(k->h.vcpu, KVM_GET_XSAVE, k->image))
        return err_errno(err, "/dev/kvm: KVM_GET_XSAVE");
    return 0;
}

int kvm_clear_events(struct kvm *k, struct err *err)
{
    struct kvm_vcpu_events none = {0};
    if (ioctl(k->h.vcpu, KVM_SET_VCPU_EVENTS, &none))
        return err_errno(err, "/dev/kvm: KVM_SET_VCPU_EVENTS");
    return 0;
}

void kvm_forget(struct kvm *k)
{
    k->sent_regs = k->sent_sregs = k->sent_fpu = k->sent_xcr0 = k->armed = false;
}
