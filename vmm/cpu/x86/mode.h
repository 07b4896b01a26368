/*
 * What the mode that code runs in decides: how a segment and an offset become a linear address, how
 * wide stacks, returns and gates are, where code may go (SDM vol. 1, 3.3; vol. 3, chapters 3 and
 * 6). Every file asks here. The modes: long mode, which is 64-bit mode and compatibility mode with
 * code of 32 and 16 bits; protected mode, the same two sizes; virtual-8086 and real-address mode.
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

/* The TLB of the kernel's accesses in that mode, where AC is 0. */
static inline unsigned kernel_idx(u32 mode)
{
    return mode & MODE_SMAP ? IDX_SUP : IDX_SUPU;
}

static inline bool is_64bit(const struct core *d)
{
    return LIKELY(code_size(d) == CODE_64);
}

static inline bool long_mode(const struct core *d)
{
    return d->cpu.efer & EFER_LMA;
}

static inline bool virtual_8086(const struct core *d)
{
    return d->cpu.rflags & FL_VM;
}

static inline bool real_mode(const struct core *d)
{
    return !(d->cpu.cr0 & CR0_PE);
}

/* Is a segment's base its selector times 16? */
static inline bool by_paragraphs(const struct core *d)
{
    return real_mode(d) || virtual_8086(d);
}

/* Does the segment's base count in 64-bit mode? */
static inline bool seg_has_base(unsigned seg)
{
    return seg == SEG_FS || seg == SEG_GS;
}

static inline u64 linear(const struct core *d, unsigned seg, u64 off)
{
    if (is_64bit(d))
        return seg_has_base(seg) ? off + d->cpu.seg_base[seg] : off;
    return (u32)(off + d->cpu.seg_base[seg]);
}

/* Of code: where RIP is in linear memory, and back. */
static inline u64 code_linear(const struct core *d, u64 rip)
{
    return is_64bit(d) ? rip : (u32)(rip + d->cpu.seg_base[SEG_CS]);
}
static inline u64 code_offset(const struct core *d, u64 lin)
{
    return is_64bit(d) ? lin : (u32)(lin - d->cpu.seg_base[SEG_CS]);
}

/* RIP moved by as much. */
static inline u64 rip_moved(const struct core *d, u64 rip, u64 by)
{
    return is_64bit(d) ? rip + by : (u32)(rip + by);
}

/* Is that 64-bit code? */
static inline bool is_wide_code(const struct core *d, u16 attr)
{
    return (attr & ATTR_L) && long_mode(d);
}

/* May code of the segment be at `rip`? */
static inline bool code_in(const struct core *d, u16 attr, u32 limit, u64 rip)
{
    return is_wide_code(d, attr) ? is_canonical(rip) : rip <= limit;
}
static inline bool code_reachable(const struct core *d, u64 rip)
{
    return is_64bit(d) ? is_canonical(rip) : rip <= d->cpu.seg_limit[SEG_CS];
}

static inline int branch_to(struct core *d, u64 target)
{
    if (!code_reachable(d, target))
        return raise_error(d, EXC_GP, 0);
    d->next = target;
    return DONE;
}

/* What the stack pointer has: bytes. */
static inline unsigned stack_width(const struct core *d)
{
    return is_64bit(d) ? 8 : d->cpu.seg_attr[SEG_SS] & ATTR_DB ? 4 : 2;
}

/* In virtual-8086 mode some instructions are the monitor's unless IOPL is 3 (SDM vol. 3, 21.2.7).
 */
static inline int check_v86_iopl(struct core *d)
{
    return UNLIKELY(virtual_8086(d)) && (d->cpu.rflags & FL_IOPL) != FL_IOPL
               ? raise_error(d, EXC_GP, 0)
               : DONE;
}

/* The low bytes of a value. */
static inline u64 low_bytes(u64 v, unsigned bytes)
{
    return bytes >= 8 ? v : v & ((1ull << 8 * bytes) - 1);
}

/* What a register is after its low bytes were written: four clear the rest. */
static inline u64 reg_written(u64 old, u64 v, unsigned bytes)
{
    return bytes >= 4 ? low_bytes(v, bytes)
                      : (old & ~low_bytes(~0ull, bytes)) | low_bytes(v, bytes);
}

/* A stack pointer moved by as much, in the stack's width; and the one there is. */
static inline u64 sp_moved(const struct core *d, u64 sp, i64 by)
{
    return low_bytes(sp + (u64)by, stack_width(d));
}
static inline u64 get_sp(const struct core *d)
{
    return low_bytes(d->cpu.gpr[RSP], stack_width(d));
}
/* By the width of a stack that is SS's no more, or not yet. */
static inline void set_sp_of(struct core *d, u64 sp, unsigned width)
{
    d->cpu.gpr[RSP] = reg_written(d->cpu.gpr[RSP], sp, width);
}
static inline void set_sp(struct core *d, u64 sp)
{
    set_sp_of(d, sp, stack_width(d));
}

/* PAUSE, where there is another vCPU to wait for. */
static inline bool insn_waits(const struct core *d, const struct insn *in)
{
    return d->env->pause && in->treat == T_NOP && in->rep == 0xf3 && in->opcode == 0x90 && !in->map;
}

/* What is told before it is executed, while somebody listens. */
static inline bool insn_syncs(const struct core *d, const struct insn *in)
{
    return (d->mode & MODE_SYNC) && in->syncs;
}

static inline bool linear_ok(u64 va, unsigned len)
{
    return is_canonical(va) && is_canonical(va + len - 1);
}

/*
 * Outside 64-bit mode: may [off, off + len) of a segment be accessed so (SDM vol. 3, 5.3 to 5.5)?
 * In a segment of 4 GiB what goes beyond its end goes on at 0; the manual leaves that open.
 */
static inline bool limit_allows(u16 attr, u32 limit, u64 off, unsigned len, enum access acc)
{
    u64 last = (u32)off + (u64)len - 1;
    bool code = attr & 8;
    if (!(attr & ATTR_P) || (code ? acc == ACC_W || !(attr & 2) : acc == ACC_W && !(attr & 2)))
        return false;
    if (!code && (attr & 4)) /* expand-down */
        return (u32)off > limit && last <= (attr & ATTR_DB ? 0xffffffffu : 0xffffu);
    return last <= limit || limit == 0xffffffff;
}
/* Types do not count in real-address mode. */
static inline bool segment_allows(const struct core *d, unsigned seg, u64 off, unsigned len,
                                  enum access acc)
{
    return limit_allows(real_mode(d) ? ATTR_P | ATTR_S | 3 : d->cpu.seg_attr[seg],
                        d->cpu.seg_limit[seg], off, len, acc);
}

/* Outside 64-bit mode: bits of d->mode one of which says that a segment's limit and type have no
 * say. */
static inline u32 mode_open(unsigned seg)
{
    switch (seg) {
    case SEG_FS: return MODE_FS;
    case SEG_GS: return MODE_GS;
    case SEG_CS: return 0; /* it may not be readable */
    default: return MODE_FLAT;
    }
}

/* May [off, off + len) of a segment be read? */
static inline bool in_segment(const struct core *d, unsigned seg, u64 off, unsigned len)
{
    return is_64bit(d) ? linear_ok(linear(d, seg, off), len)
                       : segment_allows(d, seg, off, len, ACC_R);
}

/* #SS or #GP: an access that the segment does not allow. */
static inline int raise_segment(struct core *d, unsigned seg)
{
    return raise_error(d, seg == SEG_SS ? EXC_SS : EXC_GP, 0);
}

/* The same check as part of an access; in 64-bit mode addresses are looked at when they are used.
 */
static inline int check_segment(struct core *d, unsigned seg, u64 off, unsigned len,
                                enum access acc)
{
    return is_64bit(d) || segment_allows(d, seg, off, len, acc) ? DONE : raise_segment(d, seg);
}

#endif
