/*
 * What the mode that code runs in decides: how a segment and an offset become a linear address, how
 * wide stacks, returns and gates are, where code may go (SDM vol. 1, 3.3; vol. 3, chapters 3 and
 * 6). Every file asks here. The only mode is 64-bit mode.
 */
#ifndef REPRISE_X86_MODE_H
#define REPRISE_X86_MODE_H

#include "cpu/x86/core.h"
#include "cpu/x86/insn.h"

/* What CS says the bytes at RIP are. */
static inline enum code_size code_size(const struct core *d)
{
    return (enum code_size)((d->mode & MODE_CODE) >> MODE_CODE_SHIFT);
}

/* Does the segment's base count? */
static inline bool seg_has_base(unsigned seg)
{
    return seg == SEG_FS || seg == SEG_GS;
}

static inline u64 linear(const struct core *d, unsigned seg, u64 off)
{
    return seg_has_base(seg) ? off + d->cpu.seg_base[seg] : off;
}

/* Of code: where RIP is in linear memory, and back. */
static inline u64 code_linear(const struct core *d, u64 rip)
{
    (void)d;
    return rip;
}
static inline u64 code_offset(const struct core *d, u64 lin)
{
    (void)d;
    return lin;
}

/* May code be at `rip`? */
static inline bool code_reachable(const struct core *d, u64 rip)
{
    (void)d;
    return is_canonical(rip);
}

static inline int branch_to(struct core *d, u64 target)
{
    if (!code_reachable(d, target))
        return raise_error(d, EXC_GP, 0);
    d->next = target;
    return DONE;
}

/* A stack pointer moved by as much, in the stack's width; and the one there is. */
static inline u64 sp_moved(const struct core *d, u64 sp, i64 by)
{
    (void)d;
    return sp + (u64)by;
}
static inline u64 get_sp(const struct core *d)
{
    return d->cpu.gpr[RSP];
}
static inline void set_sp(struct core *d, u64 sp)
{
    d->cpu.gpr[RSP] = sp;
}

static inline bool linear_ok(u64 va, unsigned len)
{
    return is_canonical(va) && is_canonical(va + len - 1);
}

/* May [off, off + len) of a segment be accessed? */
static inline bool in_segment(const struct core *d, unsigned seg, u64 off, unsigned len)
{
    return linear_ok(linear(d, seg, off), len);
}

/* #SS or #GP: an access that is not in_segment(). */
static inline int raise_segment(struct core *d, unsigned seg)
{
    return raise_error(d, seg == SEG_SS ? EXC_SS : EXC_GP, 0);
}

#endif
