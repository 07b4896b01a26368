/*
 * Delivery of exceptions and interrupts, through the IDT of long mode here, of the other modes in
 * gate.c and real.c; and the instructions that enter and leave handlers: INT n, IRET, SYSCALL,
 * SYSRET, SYSENTER, SYSEXIT. SDM vol. 3, 6.8 to 6.15; vol. 2 for the instructions.
 */
#include "cpu/x86/except.h"

#include <Zydis/Mnemonic.h>

#include "base/phase.h"
#include "cpu/x86/debug.h"
#include "cpu/x86/exec.h"
#include "cpu/x86/flags.h"
#include "cpu/x86/gate.h"
#include "cpu/x86/lbr.h"
#include "cpu/x86/memory.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/park.h"
#include "cpu/x86/pmu.h"
#include "cpu/x86/real.h"
#include "cpu/x86/seg.h"
#include "cpu/x86/task.h"
#include "cpu/x86/tlb.h"

/* In long mode. */
static int deliver_long(struct core *d, unsigned vector, bool has_error, u32 error, bool soft)
{
    struct vcpu *c = &d->cpu;
    struct gate gate;
    u32 ext = soft ? 0 : 1, bad = vector * 8 + 2 + ext;
    TRY(read_idt_gate(d, vector, &gate, bad));
    if (gate.type != GATE_INTERRUPT && gate.type != GATE_TRAP)
        return raise_error(d, EXC_GP, bad);
    if (soft && gate.dpl < d->cpl)
        return raise_error(d, EXC_GP, bad);
    if (!gate.present)
        return raise_error(d, EXC_NP, bad);
    u64 rip = gate.offset;
    u16 sel = gate.sel;
    if (!(sel & ~3u))
        return raise_error(d, EXC_GP, ext);
    struct desc cs;
    TRY(read_desc(d, sel, &cs, EXC_GP, (sel & ~3u) | ext));
    if (!(cs.attr & ATTR_S) || !(cs.attr & 8) || ATTR_DPL(cs.attr) > d->cpl ||
        !(cs.attr & ATTR_L) || (cs.attr & ATTR_DB))
        return raise_error(d, EXC_GP, (sel & ~3u) | ext);
    if (!(cs.attr & ATTR_P))
        return raise_error(d, EXC_NP, (sel & ~3u) | ext);
    unsigned cpl = cs.attr & 4 ? d->cpl : ATTR_DPL(cs.attr);
    u64 rsp = c->gpr[RSP]; /* handlers are 64-bit code */
    if (gate.ist)
        TRY(tss_stack(d, 0x1c + 8u * gate.ist, &rsp));
    else if (cpl < d->cpl)
        TRY(tss_stack(d, 4 + 8 * cpl, &rsp));
    rsp &= ~15ull;
    u64 frame[6];
    unsigned n = 0;
    u64 flags = get_rflags(d) & ~(u64)FL_RF;
    if (d->push_rf)
        flags |= FL_RF;
    if (has_error)
        frame[n++] = error;
    frame[n++] = c->rip;
    frame[n++] = c->seg_sel[SEG_CS];
    frame[n++] = flags;
    frame[n++] = c->gpr[RSP];
    frame[n++] = c->seg_sel[SEG_SS];
    u64 top = rsp - 8 * n;
    if (!is_canonical(top) || !is_canonical(rsp - 1))
        return raise_error(d, EXC_SS, ext);
    if (!is_canonical(rip))
        return raise_error(d, EXC_GP, ext);
    /* Pushed from the top down, so that a fault names the address the CPU would have met first. */
    for (unsigned i = n; i-- > 0;)
        TRY(cpl == 3 ? user_write(d, top + 8 * i, 8, &frame[i])
                     : sys_write(d, top + 8 * i, 8, &frame[i]));
    if (cpl < d->cpl)
        set_flat(d, SEG_SS, (u16)cpl, 0);
    load_seg_cache(d, SEG_CS, (u16)((sel & ~3u) | cpl), &cs);
    c->gpr[RSP] = top;
    c->rip = rip;
    c->rflags &= ~(u64)(FL_TF | FL_NT | FL_RF | FL_VM);
    if (gate.type == GATE_INTERRUPT)
        c->rflags &= ~(u64)FL_IF;
    set_cpl(d, cpl, rip);
    mmu_mode_changed(d);
    return DONE;
}

/*
 * Delivers `vector`; the pushed RIP is cpu.rip. DONE, FAULT (nothing changed unless a task was
 * switched to, d->fault set) or a stop. Counting and the choice of RF are the caller's: d->push_rf.
 */
static int deliver(struct core *d, unsigned vector, bool has_error, u32 error, bool soft)
{
    TRY(long_mode(d)   ? deliver_long(d, vector, has_error, error, soft)
        : real_mode(d) ? real_deliver(d, vector)
                       : gate_deliver(d, vector, has_error, error, soft));
    d->cpu.halted = 0;
    d->cpu.rep_resume = 0;
    d->shadow_pos = NEVER;
    return DONE;
}

static bool contributory(unsigned v)
{
    return v == EXC_DE || (v >= EXC_TS && v <= EXC_GP);
}

/* Delivers until something sticks: a fault during delivery is served itself, becomes a double
 * fault, or shuts the CPU down (SDM vol. 3, table 6-5). */
static int deliver_loop(struct core *d, unsigned vector, bool has_error, u32 error, bool exception)
{
    for (;;) {
        int r = deliver(d, vector, has_error, error, false);
        if (r != FAULT)
            return r;
        struct fault f = d->fault;
        d->push_rf = true;
        if (exception && vector == EXC_DF)
            return STOP_SHUTDOWN;
        if (f.vector == EXC_PF)
            d->cpu.cr2 = f.cr2;
        bool both = exception && contributory(vector) && contributory(f.vector);
        bool page = exception && vector == EXC_PF && (contributory(f.vector) || f.vector == EXC_PF);
        if (both || page) {
            vector = EXC_DF;
            has_error = true;
            error = 0;
        } else {
            vector = f.vector;
            has_error = f.has_error;
            error = f.error;
        }
        exception = true;
    }
}

int deliver_fault(struct core *d)
{
    struct fault f = d->fault;
    flags_make_visible(d);
    if (f.vector == EXC_PF)
        d->cpu.cr2 = f.cr2;
    d->push_rf = !(f.trap || f.code_bp) || d->cpu.rep_resume;
    d->st.exceptions++;
    bool hit = d->debug.hit;
    u64 from = d->cpu.rip;
    if (f.trap)
        pmu_sync(d); /* its position has been counted */
    int r = deliver_loop(d, f.vector, f.has_error, f.error, true);
    if (r == DONE) {
        if (!f.trap) /* a trap shares the position of its instruction */
            d->budget--;
        else if (d->debug.hit && !hit)
            d->debug.at.position--;
        pmu_delivered(d, !f.trap, false);
        if (f.trap)
            pmu_sync(d);
        if (f.vector == EXC_DB) {
            pmu_debug_exception(d);
            d->cpu.dr[7] &= ~0x2000ull; /* GD */
            mmu_mode_changed(d);
        } else if (UNLIKELY(d->pmu.lbr)) {
            lbr_delivery(d, from);
        }
    }
    return r;
}

static int external(struct core *d, unsigned vector)
{
    enum phase before = phase_enter(PHASE_STEP);
    flags_make_visible(d);
    d->push_rf = d->cpu.rep_resume || (d->revision >= 2 && (d->cpu.rflags & FL_RF));
    u64 from = d->cpu.rip;
    int r = deliver_loop(d, vector, false, 0, false);
    if (r == DONE) {
        d->budget--;
        if (UNLIKELY(d->pmu.lbr))
            lbr_delivery(d, from);
        pmu_delivered(d, true, vector != EXC_NMI);
        pmu_sync(d); /* no run that knew of this position */
        if (UNLIKELY(d->pmu.on))
            pmu_ring(d);
        count_events(d, 1);
    }
    phase_leave(before);
    return r == DONE ? 0 : r == STOP_SHUTDOWN ? (int)ENGINE_SHUTDOWN : (int)ENGINE_UNSUPPORTED;
}

int core_interrupt(struct engine *e, u8 vector)
{
    struct core *d = core_of(e);
    d->st.interrupts++;
    d->cpu.halted = 0;
    return external(d, vector);
}

int core_nmi(struct engine *e)
{
    struct core *d = core_of(e);
    d->cpu.halted = 0;
    int r = external(d, EXC_NMI);
    d->cpu.nmi_blocked = 1;
    return r;
}

bool core_can_interrupt(const struct engine *e)
{
    const struct core *d = core_of_const(e);
    return (d->cpu.rflags & FL_IF) && d->shadow_pos != position(d);
}

bool core_can_nmi(const struct engine *e)
{
    const struct core *d = core_of_const(e);
    return !d->cpu.nmi_blocked && d->shadow_pos != position(d);
}

bool core_takes_wanted(const struct core *d)
{
    return (d->want_int && core_can_interrupt(&d->base)) || (d->want_nmi && core_can_nmi(&d->base));
}

HELPER(int)
{
    struct vcpu *c = &d->cpu;
    u64 rip = c->rip;
    unsigned vector = in->mnemonic == ZYDIS_MNEMONIC_INT3   ? EXC_BP
                      : in->mnemonic == ZYDIS_MNEMONIC_INT1 ? EXC_DB
                      : in->mnemonic == ZYDIS_MNEMONIC_INTO ? EXC_OF
                                                            : (u8)in->imm;
    if (in->mnemonic == ZYDIS_MNEMONIC_INTO && !(d->flags & FL_OF))
        return DONE;
    if (in->mnemonic == ZYDIS_MNEMONIC_INT)
        TRY(check_v86_iopl(d));
    c->rip = d->next;
    d->push_rf = false;
    d->tf_now = true; /* delivery clears TF: no single-step trap after it */
    int r = deliver(d, vector, false, 0, in->mnemonic != ZYDIS_MNEMONIC_INT1);
    if (r) {
        d->tf_now = false;
        c->rip = rip;
        return r;
    }
    d->next = c->rip;
    return DONE;
}

/* Data segments too privileged for the new CPL are nulled (SDM vol. 2, IRET). */
static void drop_segments(struct core *d, unsigned cpl)
{
    static const u8 segs[] = {SEG_ES, SEG_DS, SEG_FS, SEG_GS};
    for (unsigned i = 0; i < ARRAY_SIZE(segs); i++) {
        unsigned s = segs[i];
        u16 a = d->cpu.seg_attr[s];
        bool conforming = (a & ATTR_S) && (a & 0xc) == 0xc;
        /* A null selector loses its RPL: its hidden DPL is 0. */
        if (!conforming && ATTR_DPL(a) < cpl)
            d->cpu.seg_sel[s] = 0, d->cpu.seg_attr[s] = 0;
    }
}

/* Loads CS:RIP and, when `stack`, SS:RSP for a return to the privilege in cs' RPL; shared by IRET
 * and far RET. All checks come before any change. */
int return_far(struct core *d, u16 cs_sel, u64 rip, u16 ss_sel, u64 rsp, bool stack)
{
    struct desc cs, ss;
    if (!(cs_sel & ~3u))
        return raise_error(d, EXC_GP, 0);
    TRY(read_desc(d, cs_sel, &cs, EXC_GP, cs_sel & ~3u));
    unsigned rpl = cs_sel & 3;
    bool conforming = cs.attr & 4;
    if (!(cs.attr & ATTR_S) || !(cs.attr & 8) || rpl < d->cpl ||
        (conforming ? ATTR_DPL(cs.attr) > rpl : ATTR_DPL(cs.attr) != rpl) ||
        (is_wide_code(d, cs.attr) && (cs.attr & ATTR_DB)))
        return raise_error(d, EXC_GP, cs_sel & ~3u);
    if (!(cs.attr & ATTR_P))
        return raise_error(d, EXC_NP, cs_sel & ~3u);
    bool null_ss = !(ss_sel & ~3u), wide = is_wide_code(d, cs.attr);
    if (stack) {
        if (null_ss) {
            if (rpl == 3 || !wide || (ss_sel & 3) != rpl)
                return raise_error(d, EXC_GP, 0);
        } else {
            TRY(read_desc(d, ss_sel, &ss, EXC_GP, ss_sel & ~3u));
            TRY(check_data_segment(d, SEG_SS, ss_sel, &ss, rpl, EXC_GP, ss_sel & ~3u));
        }
    }
    if (!wide)
        rip = (u32)rip;
    if (!code_in(d, cs.attr, cs.limit, rip))
        return raise_error(d, EXC_GP, 0);
    load_seg_cache(d, SEG_CS, cs_sel, &cs);
    if (stack) {
        if (null_ss)
            set_flat(d, SEG_SS, ss_sel, 0);
        else
            load_seg_cache(d, SEG_SS, ss_sel, &ss);
        /* To a 16-bit stack the upper bits stay the handler's. */
        set_sp_of(d, rsp, wide ? 8 : d->cpu.seg_attr[SEG_SS] & ATTR_DB ? 4 : 2);
    }
    if (rpl > d->cpl)
        drop_segments(d, rpl);
    set_cpl(d, rpl, rip);
    d->next = rip;
    return DONE;
}

HELPER(iret)
{
    struct vcpu *c = &d->cpu;
    c->nmi_blocked = 0; /* even if it faults */
    if (by_paragraphs(d))
        return real_iret(d, in->opsize);
    if (c->rflags & FL_NT)
        return long_mode(d) ? raise_error(d, EXC_GP, 0) : task_return(d);
    unsigned n = in->opsize, old_cpl = d->cpl, width = stack_width(d);
    u64 f[5] = {0}, sp = get_sp(d);
    bool stack = true;
    for (unsigned i = 0; i < 5 && stack; i++) {
        TRY(stack_pop(d, &sp, n, &f[i]));
        stack = i < 2 || is_64bit(d) || (f[1] & 3) > old_cpl;
        if (i == 2 && (f[2] & FL_VM) && n == 4 && !old_cpl && !long_mode(d))
            return gate_return_v86(d, sp, f[0], (u16)f[1], f[2]);
    }
    TRY(return_far(d, (u16)f[1], f[0], (u16)f[4], f[3], stack));
    if (!stack)
        set_sp_of(d, sp, width);
    u64 change = FL_ARITH | FL_TF | FL_DF | FL_NT;
    if (n > 2)
        change |= FL_RF | FL_AC | FL_ID;
    if (old_cpl <= (c->rflags & FL_IOPL) >> 12)
        change |= FL_IF;
    if (old_cpl == 0) {
        change |= FL_IOPL;
        if (n > 2)
            change |= FL_VIF | FL_VIP;
    }
    set_rflags(d, (get_rflags(d) & ~change) | (f[2] & change));
    d->keep_rf = true;
    mmu_mode_changed(d);
    return DONE;
}

HELPER(syscall)
{
    struct vcpu *c = &d->cpu;
    /* From compatibility mode it goes to CSTAR, on AMD's CPUs (APM vol. 3). */
    bool compatible = core_has(d, FEAT_AMD) && long_mode(d) && !is_64bit(d);
    if (!(c->efer & EFER_SCE) || !(is_64bit(d) || compatible))
        return raise_fault(d, EXC_UD);
    c->gpr[RCX] = d->next;
    c->gpr[R11] = get_rflags(d) & ~(u64)FL_RF;
    set_rflags(d, get_rflags(d) & ~c->sfmask & ~(u64)FL_RF);
    u16 sel = c->star >> 32 & 0xfffc;
    set_flat(d, SEG_CS, sel, flat_code(0, true));
    set_flat(d, SEG_SS, (u16)(sel + 8), flat_data(0));
    d->next = compatible ? c->cstar : c->lstar;
    set_cpl(d, 0, d->next);
    d->tf_now = true;
    mmu_mode_changed(d);
    return DONE;
}

/* CS and SS of SYSRET and SYSEXIT: flat, of ring 3. */
static void set_user_segments(struct core *d, unsigned cs, unsigned ss, bool wide)
{
    set_flat(d, SEG_CS, (u16)(cs | 3), flat_code(3, wide));
    set_flat(d, SEG_SS, (u16)(ss | 3), flat_data(3));
}

HELPER(sysret)
{
    struct vcpu *c = &d->cpu;
    /* In compatibility mode on AMD's CPUs only, and there it leaves RFLAGS alone but for IF (APM
     * vol. 3). */
    bool compatible = core_has(d, FEAT_AMD) && long_mode(d) && !is_64bit(d);
    if (!(c->efer & EFER_SCE) || !(is_64bit(d) || compatible))
        return raise_fault(d, EXC_UD);
    if (d->cpl != 0)
        return raise_error(d, EXC_GP, 0);
    bool wide = in->opsize == 8 && !compatible;
    if (wide && !is_canonical(c->gpr[RCX]))
        return raise_error(d, EXC_GP, 0);
    u16 sel = (u16)(c->star >> 48);
    set_user_segments(d, sel + (wide ? 16u : 0), sel + 8u, wide);
    d->next = wide ? c->gpr[RCX] : (u32)c->gpr[RCX];
    set_cpl(d, 3, d->next);
    set_rflags(d, compatible ? get_rflags(d) | FL_IF : (c->gpr[R11] & SYSRET_FLAGS) | 2);
    mmu_mode_changed(d);
    return DONE;
}

HELPER(sysenter)
{
    struct vcpu *c = &d->cpu;
    bool wide = long_mode(d);
    if (wide && core_has(d, FEAT_AMD)) /* AMD's CPUs have it outside long mode only */
        return raise_fault(d, EXC_UD);
    if (!(c->sysenter_cs & 0xfffc) || real_mode(d))
        return raise_error(d, EXC_GP, 0);
    c->rflags &= ~(u64)(FL_IF | FL_VM | FL_RF);
    u16 sel = c->sysenter_cs & 0xfffc;
    set_flat(d, SEG_CS, sel, flat_code(0, wide));
    set_flat(d, SEG_SS, (u16)(sel + 8), flat_data(0));
    c->gpr[RSP] = wide ? c->sysenter_esp : (u32)c->sysenter_esp;
    d->next = wide ? c->sysenter_eip : (u32)c->sysenter_eip;
    set_cpl(d, 0, d->next);
    mmu_mode_changed(d);
    return DONE;
}

HELPER(sysexit)
{
    struct vcpu *c = &d->cpu;
    if (!(c->sysenter_cs & 0xfffc) || d->cpl != 0 || real_mode(d))
        return raise_error(d, EXC_GP, 0);
    if (long_mode(d) && core_has(d, FEAT_AMD))
        return raise_fault(d, EXC_UD);
    u16 sel = c->sysenter_cs & 0xfffc;
    bool wide = in->opsize == 8;
    if (wide && (!is_canonical(c->gpr[RCX]) || !is_canonical(c->gpr[RDX])))
        return raise_error(d, EXC_GP, 0);
    set_user_segments(d, sel + (wide ? 32u : 16u), sel + (wide ? 40u : 24u), wide);
    c->gpr[RSP] = wide ? c->gpr[RCX] : (u32)c->gpr[RCX];
    d->next = wide ? c->gpr[RDX] : (u32)c->gpr[RDX];
    set_cpl(d, 3, d->next);
    mmu_mode_changed(d);
    return DONE;
}
