/*
 * Segments: descriptors, segment loads, system segments, LAR/LSL/VERR/VERW. SDM vol. 3, chapters 3
 * and 5; vol. 2 for the instructions.
 */
#include "cpu/x86/seg.h"

#include <Zydis/Mnemonic.h>

#include "cpu/x86/debug.h"
#include "cpu/x86/exec.h"
#include "cpu/x86/memory.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/park.h"
#include "cpu/x86/real.h"
#include "cpu/x86/tlb.h"

/* Reads a descriptor (16 bytes for system types in long mode). Outside the table: `vector` with
 * `error`. */
int read_desc(struct core *d, u16 sel, struct desc *out, unsigned vector, u32 error)
{
    const struct vcpu *c = &d->cpu;
    u64 base = c->gdt_base;
    u32 limit = c->gdt_limit;
    if (sel & 4) {
        if (!(c->seg_sel[SEG_LDTR] & ~3u) || !(c->seg_attr[SEG_LDTR] & ATTR_P))
            return raise_error(d, vector, error);
        base = c->seg_base[SEG_LDTR];
        limit = c->seg_limit[SEG_LDTR];
    }
    u32 off = sel & ~7u;
    if (off + 7 > limit)
        return raise_error(d, vector, error);
    out->addr = base + off;
    TRY(sys_read(d, out->addr, 8, &out->raw[0]));
    u64 r = out->raw[0];
    out->attr = (u16)(r >> 40 & 0xf0ff);
    out->base = (r >> 16 & 0xffffff) | (r >> 32 & 0xff000000);
    out->limit = (u32)((r & 0xffff) | (r >> 32 & 0xf0000));
    if (out->attr & ATTR_G)
        out->limit = out->limit << 12 | 0xfff;
    out->raw[1] = 0;
    if (!(out->attr & ATTR_S) && long_mode(d)) {
        if (off + 15 > limit)
            return raise_error(d, vector, error);
        TRY(sys_read(d, out->addr + 8, 8, &out->raw[1]));
        out->base |= out->raw[1] << 32;
    }
    return DONE;
}

void parse_gate(const u64 raw[2], struct gate *out)
{
    *out = (struct gate){.offset = (raw[0] & 0xffff) | (raw[0] >> 32 & 0xffff0000) | raw[1] << 32,
                         .sel = raw[0] >> 16 & 0xffff,
                         .type = raw[0] >> 40 & 31,
                         .dpl = raw[0] >> 45 & 3,
                         .ist = raw[0] >> 32 & 7,
                         .count = raw[0] >> 32 & 31,
                         .present = raw[0] >> 47 & 1};
    if (!(out->type & 8))
        out->offset &= 0xffff;
}

int read_idt_gate(struct core *d, unsigned vector, struct gate *out, u32 error)
{
    u64 raw[2] = {0, 0};
    unsigned size = long_mode(d) ? 16 : 8;
    if (vector * size + size - 1 > d->cpu.idt_limit)
        return raise_error(d, EXC_GP, error);
    TRY(sys_read(d, d->cpu.idt_base + vector * size, size, raw));
    parse_gate(raw, out);
    return DONE;
}

/* The accessed bit is set in memory at every load. */
static int touch(struct core *d, struct desc *desc)
{
    if ((desc->attr & ATTR_S) && !(desc->attr & 1)) {
        u8 type = (u8)(desc->raw[0] >> 40) | 1;
        TRY(sys_write(d, desc->addr + 5, 1, &type));
        desc->attr |= 1;
    }
    return DONE;
}

void load_seg_cache(struct core *d, unsigned seg, u16 sel, const struct desc *desc)
{
    struct desc copy = *desc;
    touch(d, &copy);
    d->cpu.seg_sel[seg] = sel;
    d->cpu.seg_attr[seg] = copy.attr;
    d->cpu.seg_limit[seg] = copy.limit;
    /* CS, DS, ES, SS bases do not count in 64-bit mode but are kept as loaded. */
    d->cpu.seg_base[seg] = copy.base;
}

/* Outside 64-bit mode the mode of code is made of them, too. */
static void segments_changed(struct core *d)
{
    if (!is_64bit(d))
        mmu_mode_changed(d);
}

int check_data_segment(struct core *d, unsigned seg, u16 sel, const struct desc *desc, unsigned cpl,
                       unsigned vector, u32 error)
{
    u16 attr = desc->attr;
    unsigned rpl = sel & 3, dpl = ATTR_DPL(attr);
    bool code = attr & 8, conforming = code && (attr & 4), fits;
    if (seg == SEG_SS)
        fits = !code && (attr & 2) && rpl == cpl && dpl == cpl;
    else
        fits = !(code && !(attr & 2)) && (conforming || (rpl <= dpl && cpl <= dpl));
    if (!(attr & ATTR_S) || !fits)
        return raise_error(d, vector, error);
    if (!(attr & ATTR_P))
        return raise_error(d, seg == SEG_SS ? EXC_SS : EXC_NP, error);
    return DONE;
}

static int load_seg(struct core *d, unsigned seg, u16 sel)
{
    if (seg == SEG_CS)
        return raise_fault(d, EXC_UD);
    if (by_paragraphs(d)) {
        real_load_seg(d, seg, sel);
        return DONE;
    }
    if (!(sel & ~3u)) {
        if (seg == SEG_SS && (!is_64bit(d) || d->cpl == 3 || (sel & 3) != d->cpl))
            return raise_error(d, EXC_GP, 0);
        set_flat(d, seg, sel, 0);
        segments_changed(d);
        return DONE;
    }
    struct desc desc;
    u32 e = sel & ~3u;
    TRY(read_desc(d, sel, &desc, EXC_GP, e));
    TRY(check_data_segment(d, seg, sel, &desc, d->cpl, EXC_GP, e));
    TRY(touch(d, &desc));
    load_seg_cache(d, seg, sel, &desc);
    segments_changed(d);
    return DONE;
}

int load_seg_insn(struct core *d, unsigned seg, u16 sel)
{
    TRY(load_seg(d, seg, sel));
    if (seg == SEG_SS) {
        d->shadow_pos = position(d) + 1;
        d->mov_ss = true;
    }
    return DONE;
}

HELPER(load_far)
{
    unsigned seg = in->mnemonic == ZYDIS_MNEMONIC_LFS   ? SEG_FS
                   : in->mnemonic == ZYDIS_MNEMONIC_LGS ? SEG_GS
                   : in->mnemonic == ZYDIS_MNEMONIC_LDS ? SEG_DS
                   : in->mnemonic == ZYDIS_MNEMONIC_LES ? SEG_ES
                                                        : SEG_SS;
    u64 ea = insn_offset(d, in), v = 0;
    u16 sel;
    TRY(mem_read(d, in->seg, ea, in->opsize, &v));
    TRY(mem_read(d, in->seg, ea + in->opsize, 2, &sel));
    TRY(load_seg(d, seg, sel));
    d->cpu.gpr[in->reg0] = reg_written(d->cpu.gpr[in->reg0], v, in->opsize);
    return DONE;
}

void set_flat(struct core *d, unsigned seg, u16 sel, u16 attr)
{
    d->cpu.seg_sel[seg] = sel;
    d->cpu.seg_attr[seg] = attr;
    d->cpu.seg_base[seg] = 0;
    d->cpu.seg_limit[seg] = attr ? 0xffffffff : 0;
}

int tss_stack(struct core *d, unsigned offset, u64 *rsp)
{
    if (offset + 7 > d->cpu.seg_limit[SEG_TR])
        return raise_error(d, EXC_TS, d->cpu.seg_sel[SEG_TR] & ~3u);
    return sys_read(d, d->cpu.seg_base[SEG_TR] + offset, 8, rsp);
}

static int selector_operand(struct core *d, const struct insn *in, u16 *sel)
{
    if (in->mem)
        return mem_read(d, in->seg, insn_offset(d, in), 2, sel);
    *sel = (u16)d->cpu.gpr[in->op0_kind == OP_GPR && !(in->mnemonic == ZYDIS_MNEMONIC_LAR ||
                                                       in->mnemonic == ZYDIS_MNEMONIC_LSL)
                               ? in->reg0
                               : in->reg1];
    return DONE;
}

/* The descriptor in the GDT that LLDT or LTR loads: a system one of that type, present. The task
 * state of 16 bits is not long mode's. */
static int read_system(struct core *d, u16 sel, unsigned type, struct desc *desc)
{
    u32 e = sel & ~3u;
    if (sel & 4)
        return raise_error(d, EXC_GP, e);
    TRY(read_desc(d, sel, desc, EXC_GP, e));
    unsigned is = desc->attr & (ATTR_S | ATTR_TYPE);
    if (is != type && !(type == 9 && is == 1 && !long_mode(d)))
        return raise_error(d, EXC_GP, e);
    return desc->attr & ATTR_P ? DONE : raise_error(d, EXC_NP, e);
}

HELPER(lldt)
{
    if (d->cpl)
        return raise_error(d, EXC_GP, 0);
    u16 sel;
    TRY(selector_operand(d, in, &sel));
    struct vcpu *c = &d->cpu;
    if (!(sel & ~3u)) {
        c->seg_sel[SEG_LDTR] = sel;
        c->seg_attr[SEG_LDTR] = 0;
        return DONE;
    }
    struct desc desc;
    TRY(read_system(d, sel, 2, &desc));
    load_seg_cache(d, SEG_LDTR, sel, &desc);
    return DONE;
}

HELPER(ltr)
{
    if (d->cpl)
        return raise_error(d, EXC_GP, 0);
    u16 sel;
    TRY(selector_operand(d, in, &sel));
    if (!(sel & ~3u))
        return raise_error(d, EXC_GP, 0);
    struct desc desc;
    TRY(read_system(d, sel, 9, &desc));
    u8 busy = (u8)(desc.raw[0] >> 40) | 2;
    TRY(sys_write(d, desc.addr + 5, 1, &busy));
    desc.attr |= 2;
    load_seg_cache(d, SEG_TR, sel, &desc);
    return DONE;
}

/* LAR and LSL: ZF says whether the descriptor is visible; nothing faults but the operand. */
HELPER(lar)
{
    u16 sel;
    TRY(selector_operand(d, in, &sel));
    bool lar = in->mnemonic == ZYDIS_MNEMONIC_LAR;
    struct desc desc;
    bool ok = (sel & ~3u) != 0;
    if (ok) {
        int r = read_desc(d, sel, &desc, EXC_GP, 0);
        if (r == FAULT && d->fault.vector == EXC_PF)
            return r;
        ok = r == DONE;
    }
    if (ok) {
        unsigned type = desc.attr & ATTR_TYPE, dpl = ATTR_DPL(desc.attr);
        bool s = desc.attr & ATTR_S;
        if (!s && long_mode(d))
            ok = type == 2 || type == 9 || type == 0xb || (lar && type == 0xc);
        else if (!s)
            ok = (type & 7) == 1 || (type & 7) == 3 || type == 2 ||
                 (lar && (type == 4 || type == 5 || type == 0xc));
        bool conforming = s && (type & 0xc) == 0xc;
        if (!conforming && (dpl < d->cpl || dpl < (sel & 3u)))
            ok = false;
    }
    d->flags = (d->flags & ~(u64)FL_ZF) | (ok ? FL_ZF : 0);
    if (!ok)
        return DONE;
    u64 v = lar ? desc.raw[0] >> 32 & 0x00ffff00 : desc.limit;
    d->cpu.gpr[in->reg0] = reg_written(d->cpu.gpr[in->reg0], v, in->opsize);
    return DONE;
}

HELPER(verr)
{
    u16 sel;
    TRY(selector_operand(d, in, &sel));
    struct desc desc;
    bool ok = (sel & ~3u) != 0;
    if (ok) {
        int r = read_desc(d, sel, &desc, EXC_GP, 0);
        if (r == FAULT && d->fault.vector == EXC_PF)
            return r;
        ok = r == DONE && (desc.attr & ATTR_S);
    }
    if (ok) {
        bool code = desc.attr & 8, conforming = code && (desc.attr & 4);
        unsigned dpl = ATTR_DPL(desc.attr);
        if (!conforming && (dpl < d->cpl || dpl < (sel & 3u)))
            ok = false;
        if (in->mnemonic == ZYDIS_MNEMONIC_VERW)
            ok = ok && !code && (desc.attr & 2);
        else
            ok = ok && (!code || (desc.attr & 2));
    }
    d->flags = (d->flags & ~(u64)FL_ZF) | (ok ? FL_ZF : 0);
    return DONE;
}
