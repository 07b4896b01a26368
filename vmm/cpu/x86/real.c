/*
 * Real-address and virtual-8086 mode: a segment's base is its selector times 16, and real mode has
 * a table of far pointers for interrupts. SDM vol. 3, chapter 21. Loads leave a segment's limit as
 * it is in real mode ("unreal mode"); in virtual-8086 mode it is 64 KiB.
 */
#include "cpu/x86/real.h"

#include "cpu/x86/memory.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/tlb.h"

void real_load_seg(struct core *d, unsigned seg, u16 sel)
{
    struct vcpu *c = &d->cpu;
    c->seg_sel[seg] = sel;
    c->seg_base[seg] = (u64)sel << 4;
    if (virtual_8086(d)) {
        c->seg_limit[seg] = 0xffff;
        c->seg_attr[seg] = ATTR_P | ATTR_S | 3 << 5 | 3;
    } else if (!(c->seg_attr[seg] & ATTR_P)) { /* null in the mode before */
        c->seg_limit[seg] = 0xffff;
        c->seg_attr[seg] = ATTR_P | ATTR_S | 3;
    }
    mmu_mode_changed(d);
}

int real_jump(struct core *d, u16 sel, u64 rip)
{
    /* The segment there is decides, as its limit stays; virtual-8086 mode has one for all. */
    if (rip > (virtual_8086(d) ? 0xffff : d->cpu.seg_limit[SEG_CS]))
        return raise_error(d, EXC_GP, 0);
    real_load_seg(d, SEG_CS, sel);
    d->next = rip;
    return DONE;
}

int real_call(struct core *d, u16 sel, u64 rip, unsigned size)
{
    u64 sp = get_sp(d), next = d->next;
    u16 cs = d->cpu.seg_sel[SEG_CS];
    TRY(stack_push(d, &sp, cs, size));
    TRY(stack_push(d, &sp, next, size));
    TRY(real_jump(d, sel, rip));
    set_sp(d, sp);
    return DONE;
}

int real_return(struct core *d, unsigned size, unsigned skip)
{
    u64 sp = get_sp(d), rip, sel;
    TRY(stack_pop(d, &sp, size, &rip));
    TRY(stack_pop(d, &sp, size, &sel));
    TRY(real_jump(d, (u16)sel, rip));
    set_sp(d, sp_moved(d, sp, skip));
    return DONE;
}

int real_iret(struct core *d, unsigned size)
{
    u64 sp = get_sp(d), rip, sel, flags;
    u64 change = FL_ARITH | FL_TF | FL_IF | FL_DF | FL_NT;
    if (virtual_8086(d) && (d->cpu.rflags & FL_IOPL) != FL_IOPL)
        return raise_error(d, EXC_GP, 0);
    TRY(stack_pop(d, &sp, size, &rip));
    TRY(stack_pop(d, &sp, size, &sel));
    TRY(stack_pop(d, &sp, size, &flags));
    TRY(real_jump(d, (u16)sel, rip));
    set_sp(d, sp);
    if (size == 4)
        change |= FL_RF | FL_AC | FL_ID;
    if (!virtual_8086(d))
        change |= FL_IOPL;
    set_rflags(d, (get_rflags(d) & ~change) | (flags & change));
    d->keep_rf = true;
    mmu_mode_changed(d);
    return DONE;
}

int real_deliver(struct core *d, unsigned vector)
{
    struct vcpu *c = &d->cpu;
    u32 entry;
    if (4 * vector + 3 > c->idt_limit)
        return raise_error(d, EXC_GP, 0);
    TRY(sys_read(d, c->idt_base + 4 * vector, 4, &entry));
    u64 sp = get_sp(d), rip = entry & 0xffff;
    u64 flags = get_rflags(d);
    TRY(stack_push(d, &sp, flags, 2));
    TRY(stack_push(d, &sp, c->seg_sel[SEG_CS], 2));
    TRY(stack_push(d, &sp, c->rip, 2));
    if (rip > c->seg_limit[SEG_CS])
        return raise_error(d, EXC_GP, 0);
    real_load_seg(d, SEG_CS, (u16)(entry >> 16));
    set_sp(d, sp);
    c->rip = rip;
    c->rflags &= ~(u64)(FL_TF | FL_IF | FL_AC | FL_RF);
    return DONE;
}
