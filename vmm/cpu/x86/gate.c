/*
 * Gates of protected mode outside long mode: interrupt, trap and call gates of 16 and 32 bits, the
 * stacks that the TSS has for inner rings, and the way into and out of virtual-8086 mode. SDM
 * vol. 3, 5.8, 6.12, 21.3; vol. 2, CALL and INT n. Task gates are task.c's.
 */
#include "cpu/x86/gate.h"

#include "cpu/x86/debug.h"
#include "cpu/x86/memory.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/real.h"
#include "cpu/x86/task.h"
#include "cpu/x86/tlb.h"

enum {
    GATE_CALL_16 = 4,
    GATE_TASK = 5,
    GATE_INTERRUPT_16 = 6,
    GATE_TRAP_16 = 7,
};

/* A stack that is not SS's yet, or is it still. */
struct stack {
    u64 base;
    u32 limit;
    u16 attr;
    u32 sp;
    u32 error;  /* of #SS */
    bool inner; /* of the CPU's own: with its rights */
};

static struct stack stack_of(const struct desc *desc, u32 sp, u32 error)
{
    return (struct stack){desc->base, desc->limit, desc->attr, sp, error, true};
}

static struct stack stack_current(const struct core *d, u32 error)
{
    const struct vcpu *c = &d->cpu;
    return (struct stack){
        c->seg_base[SEG_SS], c->seg_limit[SEG_SS], c->seg_attr[SEG_SS], (u32)get_sp(d), error,
        d->cpl != 3};
}

static int push(struct core *d, struct stack *s, unsigned size, u64 value)
{
    u32 sp = s->attr & ATTR_DB ? s->sp - size : (u16)(s->sp - size);
    if (!limit_allows(s->attr, s->limit, sp, size, ACC_W))
        return raise_error(d, EXC_SS, s->error);
    u64 at = (u32)(s->base + sp);
    TRY(s->inner ? sys_write(d, at, size, &value) : user_write(d, at, size, &value));
    s->sp = sp;
    return DONE;
}

/* The stack that the TSS has for a ring (SDM vol. 3, 7.2.1, 7.6). */
static int inner_stack(struct core *d, unsigned ring, u32 ext, u16 *sel, struct desc *ss, u32 *sp)
{
    const struct vcpu *c = &d->cpu;
    bool wide = c->seg_attr[SEG_TR] & 8;
    unsigned size = wide ? 4 : 2, at = wide ? 4 + 8 * ring : 2 + 4 * ring;
    u32 bad = (c->seg_sel[SEG_TR] & ~3u) | ext;
    *sp = 0;
    if (at + size + 1 > c->seg_limit[SEG_TR])
        return raise_error(d, EXC_TS, bad);
    TRY(sys_read(d, c->seg_base[SEG_TR] + at, size, sp));
    TRY(sys_read(d, c->seg_base[SEG_TR] + at + size, 2, sel));
    u32 e = (*sel & ~3u) | ext;
    if (!(*sel & ~3u))
        return raise_error(d, EXC_TS, ext);
    TRY(read_desc(d, *sel, ss, EXC_TS, e));
    return check_data_segment(d, SEG_SS, *sel, ss, ring, EXC_TS, e);
}

static void set_stack(struct core *d, const struct stack *s)
{
    set_sp_of(d, s->sp, s->attr & ATTR_DB ? 4 : 2);
}

/* CS:RIP and, if `ss`, the stack are those of a gate; the ring is CS's. */
static void enter(struct core *d, u16 cs_sel, const struct desc *cs, unsigned cpl,
                  const struct desc *ss, u16 ss_sel, const struct stack *s, u64 rip)
{
    if (ss)
        load_seg_cache(d, SEG_SS, ss_sel, ss);
    set_stack(d, s);
    load_seg_cache(d, SEG_CS, (u16)((cs_sel & ~3u) | cpl), cs);
    set_cpl(d, cpl, rip);
    mmu_mode_changed(d);
}

static void null_data_segments(struct core *d)
{
    static const u8 segs[] = {SEG_ES, SEG_DS, SEG_FS, SEG_GS};
    for (unsigned i = 0; i < ARRAY_SIZE(segs); i++)
        set_flat(d, segs[i], 0, 0);
}

/* What a handler finds on its stack, from the top down. */
static int push_frame(struct core *d, struct stack *s, unsigned size, bool outer, bool has_error,
                      u32 error)
{
    const struct vcpu *c = &d->cpu;
    static const u8 saved[] = {SEG_GS, SEG_FS, SEG_DS, SEG_ES};
    u64 flags = get_rflags(d) & ~(u64)FL_RF;
    if (d->push_rf)
        flags |= FL_RF;
    for (unsigned i = 0; virtual_8086(d) && i < ARRAY_SIZE(saved); i++)
        TRY(push(d, s, size, c->seg_sel[saved[i]]));
    if (outer) {
        TRY(push(d, s, size, c->seg_sel[SEG_SS]));
        TRY(push(d, s, size, c->gpr[RSP]));
    }
    TRY(push(d, s, size, flags));
    TRY(push(d, s, size, c->seg_sel[SEG_CS]));
    TRY(push(d, s, size, c->rip));
    return has_error ? push(d, s, size, error) : DONE;
}

int gate_deliver(struct core *d, unsigned vector, bool has_error, u32 error, bool soft)
{
    struct vcpu *c = &d->cpu;
    u32 ext = soft ? 0 : 1, bad = vector * 8 + 2 + ext;
    struct gate gate;
    TRY(read_idt_gate(d, vector, &gate, bad));
    bool wide = gate.type & 8, interrupt = (gate.type & ~8u) == GATE_INTERRUPT_16;
    if (gate.type != GATE_TASK && !interrupt && (gate.type & ~8u) != GATE_TRAP_16)
        return raise_error(d, EXC_GP, bad);
    if (soft && gate.dpl < d->cpl)
        return raise_error(d, EXC_GP, bad);
    if (!gate.present)
        return raise_error(d, EXC_NP, bad);
    u16 sel = gate.sel;
    if (gate.type == GATE_TASK)
        return task_by_gate(d, sel, TASK_EVENT, c->rip, ext, has_error ? &error : NULL);
    u64 rip = gate.offset;
    u32 e = (sel & ~3u) | ext;
    struct desc cs, ss;
    if (!(sel & ~3u))
        return raise_error(d, EXC_GP, ext);
    TRY(read_desc(d, sel, &cs, EXC_GP, e));
    if ((cs.attr & (ATTR_S | 8)) != (ATTR_S | 8) || ATTR_DPL(cs.attr) > d->cpl)
        return raise_error(d, EXC_GP, e);
    if (!(cs.attr & ATTR_P))
        return raise_error(d, EXC_NP, e);
    unsigned cpl = cs.attr & 4 ? d->cpl : ATTR_DPL(cs.attr);
    bool inner = cpl < d->cpl, from_v86 = virtual_8086(d);
    if (from_v86 && cpl)
        return raise_error(d, EXC_GP, e);
    u16 ss_sel = 0;
    struct stack s = stack_current(d, ext);
    if (inner) {
        u32 sp;
        TRY(inner_stack(d, cpl, ext, &ss_sel, &ss, &sp));
        s = stack_of(&ss, sp, (ss_sel & ~3u) | ext);
    }
    TRY(push_frame(d, &s, wide ? 4 : 2, inner, has_error, error));
    if (rip > cs.limit)
        return raise_error(d, EXC_GP, ext);
    c->rflags &= ~(u64)(FL_TF | FL_NT | FL_RF | FL_VM | (interrupt ? FL_IF : 0));
    if (from_v86)
        null_data_segments(d);
    c->rip = rip;
    enter(d, sel, &cs, cpl, inner ? &ss : NULL, ss_sel, &s, rip);
    return DONE;
}

/* A call gate to an inner ring: parameters go from one stack to the other. */
static int copy_parameters(struct core *d, struct stack *to, unsigned n, unsigned size)
{
    u64 v, sp;
    for (unsigned i = n; i-- > 0;) {
        sp = sp_moved(d, get_sp(d), (i64)(i * size));
        TRY(stack_pop(d, &sp, size, &v));
        TRY(push(d, to, size, v));
    }
    return DONE;
}

static int call_gate(struct core *d, u16 sel, const struct gate *gate, bool call)
{
    struct vcpu *c = &d->cpu;
    unsigned size = gate->type & 8 ? 4 : 2;
    u32 e = sel & ~3u;
    if (gate->dpl < d->cpl || gate->dpl < (sel & 3u))
        return raise_error(d, EXC_GP, e);
    if (!gate->present)
        return raise_error(d, EXC_NP, e);
    u64 rip = gate->offset;
    u16 cs_sel = gate->sel, ss_sel = 0;
    struct desc cs, ss;
    e = cs_sel & ~3u;
    if (!e)
        return raise_error(d, EXC_GP, 0);
    TRY(read_desc(d, cs_sel, &cs, EXC_GP, e));
    bool conforming = cs.attr & 4;
    unsigned to = ATTR_DPL(cs.attr);
    if ((cs.attr & (ATTR_S | 8)) != (ATTR_S | 8) || to > d->cpl ||
        (!call && !conforming && to != d->cpl))
        return raise_error(d, EXC_GP, e);
    if (!(cs.attr & ATTR_P))
        return raise_error(d, EXC_NP, e);
    unsigned cpl = conforming ? d->cpl : to;
    bool inner = cpl < d->cpl;
    struct stack s = stack_current(d, 0);
    if (inner) {
        u32 sp;
        TRY(inner_stack(d, cpl, 0, &ss_sel, &ss, &sp));
        s = stack_of(&ss, sp, ss_sel & ~3u);
        TRY(push(d, &s, size, c->seg_sel[SEG_SS]));
        TRY(push(d, &s, size, c->gpr[RSP]));
        TRY(copy_parameters(d, &s, gate->count, size));
    }
    if (call) {
        TRY(push(d, &s, size, c->seg_sel[SEG_CS]));
        TRY(push(d, &s, size, d->next));
    }
    if (rip > cs.limit)
        return raise_error(d, EXC_GP, 0);
    d->next = rip;
    enter(d, cs_sel, &cs, cpl, inner ? &ss : NULL, ss_sel, &s, rip);
    return DONE;
}

int gate_branch(struct core *d, u16 sel, const struct desc *desc, bool call)
{
    struct gate gate;
    parse_gate(desc->raw, &gate); /* type, DPL and P are where a TSS has them */
    u32 e = sel & ~3u;
    enum task_way way = call ? TASK_CALL : TASK_JUMP;
    if ((gate.type & ~8u) == GATE_CALL_16)
        return call_gate(d, sel, &gate, call);
    bool by_gate = gate.type == GATE_TASK, tss = (gate.type & ~8u) == 1;
    if ((!by_gate && !tss) || gate.dpl < d->cpl || gate.dpl < (sel & 3u))
        return raise_error(d, EXC_GP, e);
    if (!gate.present)
        return raise_error(d, EXC_NP, e);
    TRY(by_gate ? task_by_gate(d, gate.sel, way, d->next, 0, NULL)
                : task_switch(d, sel, desc, way, d->next, 0, NULL));
    d->next = d->cpu.rip;
    return DONE;
}

int gate_return_v86(struct core *d, u64 sp, u64 rip, u16 cs, u64 flags)
{
    static const u8 order[] = {SEG_SS, SEG_ES, SEG_DS, SEG_FS, SEG_GS};
    struct vcpu *c = &d->cpu;
    u64 v[6];
    for (unsigned i = 0; i < ARRAY_SIZE(v); i++)
        TRY(stack_pop(d, &sp, 4, &v[i]));
    if ((u32)rip > 0xffff)
        return raise_error(d, EXC_GP, 0);
    set_rflags(d, flags & (FL_ARITH | FL_TF | FL_IF | FL_DF | FL_IOPL | FL_NT | FL_RF | FL_VM |
                           FL_AC | FL_VIF | FL_VIP | FL_ID));
    set_cpl(d, 3, rip);
    real_load_seg(d, SEG_CS, cs);
    for (unsigned i = 0; i < ARRAY_SIZE(order); i++)
        real_load_seg(d, order[i], (u16)v[i + 1]);
    c->gpr[RSP] = (u32)v[0];
    d->next = rip;
    d->keep_rf = true;
    mmu_mode_changed(d);
    return DONE;
}
