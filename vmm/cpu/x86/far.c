/*
 * Far branches: JMP, CALL and RET to another segment, and long mode's call gates; those of
 * protected mode are gate.c's. SDM vol. 3, 5.8; vol. 2 for the instructions.
 */
#include <Zydis/Mnemonic.h>

#include "cpu/x86/debug.h"
#include "cpu/x86/exec.h"
#include "cpu/x86/gate.h"
#include "cpu/x86/memory.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/real.h"
#include "cpu/x86/seg.h"
#include "cpu/x86/tlb.h"

static int check_target(struct core *d, const struct desc *cs, u16 sel, bool direct)
{
    unsigned dpl = ATTR_DPL(cs->attr);
    u32 e = sel & ~3u;
    if (!(cs->attr & ATTR_S) || !(cs->attr & 8) ||
        (is_wide_code(d, cs->attr) && (cs->attr & ATTR_DB)))
        return raise_error(d, EXC_GP, e);
    bool conforming = cs->attr & 4;
    if (direct && (conforming ? dpl > d->cpl : (sel & 3u) > d->cpl || dpl != d->cpl))
        return raise_error(d, EXC_GP, e);
    if (!direct && (dpl > d->cpl || !(cs->attr & ATTR_L)))
        return raise_error(d, EXC_GP, e);
    if (!(cs->attr & ATTR_P))
        return raise_error(d, EXC_NP, e);
    return DONE;
}

/*
 * CALL's return address. It goes to the stack as the new code has it: 64-bit code takes RSP and no
 * base, other code ESP or SP from SS's base, and where a call is from one to the other that
 * decides. The manuals leave it open; CPUs do it so. If it faults, nothing has changed.
 */
static int push_return(struct core *d, const struct desc *cs, unsigned size)
{
    u32 mode = d->mode;
    if (long_mode(d) && d->revision >= 2) {
        u32 code = is_wide_code(d, cs->attr) ? CODE_64 : CODE_32;
        d->mode = (mode & ~(u32)MODE_CODE) | code << MODE_CODE_SHIFT;
    }
    u64 sp = get_sp(d);
    int r = stack_push(d, &sp, d->cpu.seg_sel[SEG_CS], size);
    if (r == DONE)
        r = stack_push(d, &sp, d->next, size);
    if (r == DONE)
        set_sp(d, sp);
    d->mode = mode;
    return r;
}

/* CALL and JMP through a 64-bit call gate (SDM vol. 3, 5.8.3.1). */
static int through_gate(struct core *d, u16 sel, const struct desc *desc, bool call)
{
    struct vcpu *c = &d->cpu;
    u32 e = sel & ~3u;
    struct gate gate;
    parse_gate(desc->raw, &gate);
    if (gate.type != GATE_CALL)
        return raise_error(d, EXC_GP, e);
    if (gate.dpl < d->cpl || gate.dpl < (sel & 3u) || (desc->raw[1] >> 40 & 31))
        return raise_error(d, EXC_GP, e);
    if (!gate.present)
        return raise_error(d, EXC_NP, e);
    u64 rip = gate.offset;
    u16 cs_sel = gate.sel;
    if (!(cs_sel & ~3u))
        return raise_error(d, EXC_GP, 0);
    struct desc cs;
    TRY(read_desc(d, cs_sel, &cs, EXC_GP, cs_sel & ~3u));
    TRY(check_target(d, &cs, cs_sel, false));
    bool conforming = cs.attr & 4;
    if (!is_canonical(rip))
        return raise_error(d, EXC_GP, 0);
    unsigned cpl = d->cpl;
    if (!call) {
        if (!conforming && ATTR_DPL(cs.attr) != cpl)
            return raise_error(d, EXC_GP, cs_sel & ~3u);
    } else if (!conforming && ATTR_DPL(cs.attr) < cpl) {
        cpl = ATTR_DPL(cs.attr);
        u64 sp;
        TRY(tss_stack(d, 4 + 8 * cpl, &sp));
        TRY(stack_push_inner(d, &sp, c->seg_sel[SEG_SS], 8));
        TRY(stack_push_inner(d, &sp, get_sp(d), 8));
        TRY(stack_push_inner(d, &sp, c->seg_sel[SEG_CS], 8));
        TRY(stack_push_inner(d, &sp, d->next, 8));
        c->gpr[RSP] = sp;
        set_flat(d, SEG_SS, (u16)cpl, 0);
    } else {
        TRY(push_return(d, &cs, 8));
    }
    load_seg_cache(d, SEG_CS, (u16)((cs_sel & ~3u) | cpl), &cs);
    set_cpl(d, cpl, rip);
    d->next = rip;
    mmu_mode_changed(d);
    return DONE;
}

HELPER(far_branch)
{
    unsigned n = in->opsize;
    if (in->mnemonic == ZYDIS_MNEMONIC_RET) {
        u64 sp = get_sp(d), f[4] = {0, 0, 0, 0};
        u64 skip = in->op0_kind == OP_IMM ? (u16)in->imm : 0;
        if (by_paragraphs(d))
            return real_return(d, n, (unsigned)skip);
        TRY(stack_pop(d, &sp, n, &f[0]));
        TRY(stack_pop(d, &sp, n, &f[1]));
        sp = sp_moved(d, sp, (i64)skip);
        if ((f[1] & 3) > d->cpl) {
            TRY(stack_pop(d, &sp, n, &f[2]));
            TRY(stack_pop(d, &sp, n, &f[3]));
            TRY(return_far(d, (u16)f[1], f[0], (u16)f[3], f[2] + skip, true));
        } else {
            unsigned width = stack_width(d);
            TRY(return_far(d, (u16)f[1], f[0], 0, 0, false));
            set_sp_of(d, sp, width);
        }
        mmu_mode_changed(d);
        return DONE;
    }
    bool call = in->mnemonic == ZYDIS_MNEMONIC_CALL;
    u64 rip = (u64)in->imm;
    u16 sel = (u16)in->imm2;
    if (in->op0_kind != OP_FAR) {
        u64 ea = insn_offset(d, in);
        rip = 0;
        TRY(mem_read(d, in->seg, ea, n, &rip));
        TRY(mem_read(d, in->seg, ea + n, 2, &sel));
    }
    if (by_paragraphs(d))
        return call ? real_call(d, sel, rip, n) : real_jump(d, sel, rip);
    if (!(sel & ~3u))
        return raise_error(d, EXC_GP, 0);
    struct desc cs;
    TRY(read_desc(d, sel, &cs, EXC_GP, sel & ~3u));
    if (!(cs.attr & ATTR_S))
        return long_mode(d) ? through_gate(d, sel, &cs, call) : gate_branch(d, sel, &cs, call);
    TRY(check_target(d, &cs, sel, true));
    if (!code_in(d, cs.attr, cs.limit, rip))
        return raise_error(d, EXC_GP, 0);
    if (call)
        TRY(push_return(d, &cs, n));
    load_seg_cache(d, SEG_CS, (u16)((sel & ~3u) | d->cpl), &cs);
    d->next = rip;
    mmu_mode_changed(d);
    return DONE;
}
