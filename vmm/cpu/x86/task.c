/*
 * Hardware task switches, between TSSs of 32 and 16 bits, outside long mode. SDM vol. 3, chapter 7:
 * 7.3 for the steps, tables 7-1 and 7-2 for checks, flags and links.
 */
#include "cpu/x86/task.h"

#include "cpu/x86/debug.h"
#include "cpu/x86/memory.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/real.h"
#include "cpu/x86/tlb.h"
#include "cpu/x86/walk.h"

#define TSS_BUSY 2u /* of a TSS descriptor's type */

/* Where a TSS has what (SDM vol. 3, figures 7-2 and 7-10). */
struct layout {
    u8 size, least;                               /* of a register; bytes of the whole less one */
    u8 cr3, ip, flags, gpr, seg, nseg, ldt, trap; /* cr3, trap 0: there is none */
    u8 seg_step;
};
static const struct layout layout_32 = {4, 103, 0x1c, 0x20, 0x24, 0x28, 0x48, 6, 0x60, 0x64, 4};
static const struct layout layout_16 = {2, 43, 0, 0x0e, 0x10, 0x12, 0x22, 4, 0x2a, 0, 2};

static const struct layout *layout_of(u16 attr)
{
    return attr & 8 ? &layout_32 : &layout_16;
}

/* What is loaded from a TSS. */
struct image {
    u32 cr3, ip, flags, gpr[8];
    u16 seg[6], ldt, trap;
};

static int read_image(struct core *d, u64 base, const struct layout *l, struct image *out)
{
    *out = (struct image){0};
    if (l->cr3)
        TRY(sys_read(d, base + l->cr3, 4, &out->cr3));
    TRY(sys_read(d, base + l->ip, l->size, &out->ip));
    TRY(sys_read(d, base + l->flags, l->size, &out->flags));
    for (unsigned i = 0; i < 8; i++)
        TRY(sys_read(d, base + l->gpr + i * l->size, l->size, &out->gpr[i]));
    for (unsigned i = 0; i < l->nseg; i++)
        TRY(sys_read(d, base + l->seg + i * l->seg_step, 2, &out->seg[i]));
    TRY(sys_read(d, base + l->ldt, 2, &out->ldt));
    if (l->trap)
        TRY(sys_read(d, base + l->trap, 2, &out->trap));
    return DONE;
}

/* Would a write of the part that is saved fault? It is looked at before anything changes. */
static int check_image(struct core *d, u64 base, const struct layout *l)
{
    u8 byte;
    unsigned first = l->ip, last = l->seg + (unsigned)l->nseg * l->seg_step - 1;
    TRY(sys_read(d, base + first, 1, &byte));
    TRY(sys_write(d, base + first, 1, &byte));
    TRY(sys_read(d, base + last, 1, &byte));
    return sys_write(d, base + last, 1, &byte);
}

static int save_image(struct core *d, u64 base, const struct layout *l, u64 next, u64 flags)
{
    const struct vcpu *c = &d->cpu;
    TRY(sys_write(d, base + l->ip, l->size, &next));
    TRY(sys_write(d, base + l->flags, l->size, &flags));
    for (unsigned i = 0; i < 8; i++)
        TRY(sys_write(d, base + l->gpr + i * l->size, l->size, &c->gpr[i]));
    for (unsigned i = 0; i < l->nseg; i++)
        TRY(sys_write(d, base + l->seg + i * l->seg_step, 2, &c->seg_sel[i]));
    return DONE;
}

static int set_busy(struct core *d, u16 sel, bool busy)
{
    struct desc desc;
    TRY(read_desc(d, sel, &desc, EXC_TS, sel & ~3u));
    u8 type = (u8)(desc.raw[0] >> 40);
    type = (u8)(busy ? type | TSS_BUSY : type & ~TSS_BUSY);
    return sys_write(d, desc.addr + 5, 1, &type);
}

static int raise_task(struct core *d, u16 sel)
{
    return raise_error(d, EXC_TS, sel & ~3u);
}

static int load_task_ldt(struct core *d, u16 sel)
{
    struct vcpu *c = &d->cpu;
    struct desc desc;
    c->seg_sel[SEG_LDTR] = sel;
    c->seg_attr[SEG_LDTR] = 0;
    if (!(sel & ~3u))
        return DONE;
    if (sel & 4)
        return raise_task(d, sel);
    TRY(read_desc(d, sel, &desc, EXC_TS, sel & ~3u));
    if ((desc.attr & (ATTR_S | ATTR_TYPE | ATTR_P)) != (ATTR_P | 2))
        return raise_task(d, sel);
    load_seg_cache(d, SEG_LDTR, sel, &desc);
    return DONE;
}

static int load_task_code(struct core *d, u16 sel)
{
    struct desc desc;
    unsigned rpl = sel & 3;
    if (!(sel & ~3u))
        return raise_task(d, sel);
    TRY(read_desc(d, sel, &desc, EXC_TS, sel & ~3u));
    if ((desc.attr & (ATTR_S | 8)) != (ATTR_S | 8) ||
        (desc.attr & 4 ? ATTR_DPL(desc.attr) > rpl : ATTR_DPL(desc.attr) != rpl))
        return raise_task(d, sel);
    if (!(desc.attr & ATTR_P))
        return raise_error(d, EXC_NP, sel & ~3u);
    load_seg_cache(d, SEG_CS, sel, &desc);
    return DONE;
}

static int load_task_data(struct core *d, unsigned seg, u16 sel)
{
    struct desc desc;
    u32 e = sel & ~3u;
    if (!e)
        return seg == SEG_SS ? raise_task(d, sel) : DONE;
    TRY(read_desc(d, sel, &desc, EXC_TS, e));
    TRY(check_data_segment(d, seg, sel, &desc, d->cpl, EXC_TS, e));
    load_seg_cache(d, seg, sel, &desc);
    return DONE;
}

/* All that may still fault, in the new task: its selectors are loaded, its descriptors not. */
static int load_segments(struct core *d, const struct image *m)
{
    static const u8 data[] = {SEG_ES, SEG_DS, SEG_FS, SEG_GS};
    TRY(load_task_ldt(d, m->ldt));
    if (virtual_8086(d)) {
        for (unsigned s = 0; s < ARRAY_SIZE(m->seg); s++)
            real_load_seg(d, s, m->seg[s]);
        return DONE;
    }
    TRY(load_task_code(d, m->seg[SEG_CS]));
    TRY(load_task_data(d, SEG_SS, m->seg[SEG_SS]));
    for (unsigned i = 0; i < ARRAY_SIZE(data); i++)
        TRY(load_task_data(d, data[i], m->seg[data[i]]));
    return DONE;
}

static int enter_task(struct core *d, const struct image *m, const struct layout *l,
                      const u32 *error)
{
    int r = load_segments(d, m);
    mmu_mode_changed(d);
    TRY(r);
    if (error) {
        u64 sp = get_sp(d);
        TRY(stack_push(d, &sp, *error, l->size));
        set_sp(d, sp);
    }
    if (m->ip > d->cpu.seg_limit[SEG_CS])
        return raise_error(d, EXC_GP, 0);
    if (m->trap & 1) {
        d->cpu.dr[6] |= 1u << 15; /* BT */
        d->fault = (struct fault){.vector = EXC_DB, .code_bp = true};
        return FAULT;
    }
    return DONE;
}

int task_switch(struct core *d, u16 sel, const struct desc *desc, enum task_way way, u64 next,
                u32 ext, const u32 *error)
{
    struct vcpu *c = &d->cpu;
    const struct layout *from = layout_of(c->seg_attr[SEG_TR]), *to = layout_of(desc->attr);
    u64 old_base = c->seg_base[SEG_TR], flags = get_rflags(d) & ~(u64)FL_RF;
    u32 e = (sel & ~3u) | ext, old_cr3 = (u32)c->cr3;
    u16 old = c->seg_sel[SEG_TR];
    struct image m;
    bool nests = way == TASK_CALL || way == TASK_EVENT;
    bool busy = desc->attr & TSS_BUSY;
    if (busy != (way == TASK_RETURN))
        return raise_error(d, way == TASK_RETURN ? EXC_TS : EXC_GP, e);
    if (desc->limit < to->least || c->seg_limit[SEG_TR] < from->least)
        return raise_error(d, EXC_TS, desc->limit < to->least ? e : (old & ~3u) | ext);
    TRY(read_image(d, desc->base, to, &m));
    TRY(check_image(d, old_base, from));
    if (nests) {
        u16 link;
        TRY(sys_read(d, desc->base, 2, &link));
        TRY(sys_write(d, desc->base, 2, &link));
    }

    if (way == TASK_RETURN)
        flags &= ~(u64)FL_NT;
    if (d->push_rf && way == TASK_EVENT)
        flags |= FL_RF;
    if (!nests)
        TRY(set_busy(d, old, false));
    TRY(save_image(d, old_base, from, next, flags));
    if (nests)
        TRY(sys_write(d, desc->base, 2, &old));
    if (way != TASK_RETURN)
        TRY(set_busy(d, sel, true));

    struct desc tr = *desc;
    tr.attr |= TSS_BUSY;
    load_seg_cache(d, SEG_TR, sel, &tr);
    c->cr0 |= CR0_TS;
    if (to->cr3 && (c->cr0 & CR0_PG)) {
        c->cr3 = m.cr3;
        if (m.cr3 != old_cr3)
            mmu_set_cr3(d, old_cr3, m.cr3);
    }
    c->rip = m.ip;
    set_rflags(d, (m.flags & (FL_ARITH | FL_TF | FL_IF | FL_DF | FL_IOPL | FL_NT | FL_RF | FL_AC |
                              FL_ID | FL_VIF | FL_VIP | (to->size == 4 ? FL_VM : 0))) |
                      (nests ? FL_NT : 0));
    for (unsigned i = 0; i < 8; i++)
        c->gpr[i] = to->size == 4 ? m.gpr[i] : m.gpr[i] | 0xffff0000;
    for (unsigned s = 0; s < ARRAY_SIZE(m.seg); s++)
        set_flat(d, s, m.seg[s], 0);
    c->dr[7] &= ~0x155ull; /* local breakpoints */
    c->halted = 0;
    c->rep_resume = 0;
    d->shadow_pos = NEVER;
    if (way != TASK_EVENT) {
        d->keep_rf = true;
        d->tf_now = true; /* single-step looks at the new task's TF */
    }
    set_cpl(d, virtual_8086(d) ? 3 : m.seg[SEG_CS] & 3, c->rip);
    return enter_task(d, &m, to, error);
}

int task_by_gate(struct core *d, u16 sel, enum task_way way, u64 next, u32 ext, const u32 *error)
{
    struct desc desc;
    u32 e = (sel & ~3u) | ext;
    if (!(sel & ~3u) || (sel & 4))
        return raise_error(d, EXC_GP, e);
    TRY(read_desc(d, sel, &desc, EXC_GP, e));
    if ((desc.attr & (ATTR_S | 5)) != 1)
        return raise_error(d, EXC_GP, e);
    if (!(desc.attr & ATTR_P))
        return raise_error(d, EXC_NP, e);
    return task_switch(d, sel, &desc, way, next, ext, error);
}

int task_return(struct core *d)
{
    struct desc desc;
    u16 sel;
    TRY(sys_read(d, d->cpu.seg_base[SEG_TR], 2, &sel));
    u32 e = sel & ~3u;
    if (!e || (sel & 4))
        return raise_error(d, EXC_TS, e);
    TRY(read_desc(d, sel, &desc, EXC_TS, e));
    if ((desc.attr & (ATTR_S | 5)) != 1)
        return raise_error(d, EXC_TS, e);
    if (!(desc.attr & ATTR_P))
        return raise_error(d, EXC_NP, e);
    TRY(task_switch(d, sel, &desc, TASK_RETURN, d->next, 0, NULL));
    d->next = d->cpu.rip;
    return DONE;
}
