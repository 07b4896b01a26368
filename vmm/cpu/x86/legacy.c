/*
 * Instructions that 64-bit code does not have. SDM vol. 2. Flags that it leaves undefined stay as
 * they were.
 */
#include "cpu/x86/exec.h"

#include <Zydis/Mnemonic.h>

#include "cpu/x86/memory.h"
#include "cpu/x86/mode.h"

/* The push of (E)SP is of what it was before. A POPA that faults has loaded what it came to. */
HELPER(pusha)
{
    u64 sp = get_sp(d);
    for (int r = RAX; r <= RDI; r++)
        TRY(stack_push(d, &sp, d->cpu.gpr[r], in->opsize));
    set_sp(d, sp);
    return DONE;
}

HELPER(popa)
{
    u64 sp = get_sp(d), v;
    for (int r = RDI; r >= RAX; r--) {
        TRY(stack_pop(d, &sp, in->opsize, &v));
        if (r != RSP)
            d->cpu.gpr[r] = reg_written(d->cpu.gpr[r], v, in->opsize);
    }
    set_sp(d, sp);
    return DONE;
}

HELPER(bound)
{
    unsigned n = in->opsize;
    u64 ea = insn_offset(d, in), low = 0, high = 0;
    unsigned up = 64 - 8 * n;
    i64 at = (i64)(d->cpu.gpr[in->reg0] << up);
    TRY(mem_read(d, in->seg, ea, n, &low));
    if (at < (i64)(low << up))
        return raise_fault(d, EXC_BR);
    TRY(mem_read(d, in->seg, ea + n, n, &high));
    return at > (i64)(high << up) ? raise_fault(d, EXC_BR) : DONE;
}

HELPER(arpl)
{
    u16 sel, rpl = (u16)d->cpu.gpr[in->reg1] & 3;
    if (in->mem)
        TRY(mem_read(d, in->seg, insn_offset(d, in), 2, &sel));
    else
        sel = (u16)d->cpu.gpr[in->reg0];
    bool raised = (sel & 3) < rpl;
    u16 to = (u16)((sel & ~3u) | rpl);
    if (raised && in->mem)
        TRY(mem_write(d, in->seg, insn_offset(d, in), 2, &to));
    else if (raised)
        d->cpu.gpr[in->reg0] = reg_written(d->cpu.gpr[in->reg0], to, 2);
    d->flags = (d->flags & ~(u64)FL_ZF) | (raised ? FL_ZF : 0);
    return DONE;
}

static void set_flags(struct core *d, u32 which, u32 to)
{
    d->flags = (d->flags & ~(u64)which) | to;
}

/* SF, ZF and PF of a byte. */
static u32 result_flags(u8 v)
{
    return (v & 0x80 ? FL_SF : 0) | (v ? 0 : FL_ZF) | (__builtin_parity(v) ? 0 : FL_PF);
}

/* DAA, DAS */
static void adjust_packed(struct core *d, bool add)
{
    u8 al = (u8)d->cpu.gpr[RAX];
    bool low = (al & 15) > 9 || (d->flags & FL_AF), high = al > 0x99 || (d->flags & FL_CF);
    bool borrow = !add && low && al < 6;
    u8 by = (u8)((low ? 6 : 0) + (high ? 0x60 : 0));
    al = (u8)(add ? al + by : al - by);
    d->cpu.gpr[RAX] = reg_written(d->cpu.gpr[RAX], al, 1);
    set_flags(d, FL_SF | FL_ZF | FL_PF | FL_AF | FL_CF,
              result_flags(al) | (low ? FL_AF : 0) | (high || borrow ? FL_CF : 0));
}

/* AAA, AAS */
static void adjust_unpacked(struct core *d, bool add)
{
    u16 ax = (u16)d->cpu.gpr[RAX];
    bool adjust = (ax & 15) > 9 || (d->flags & FL_AF);
    if (adjust)
        ax = (u16)(add ? ax + 0x106 : ax - 0x106);
    d->cpu.gpr[RAX] = reg_written(d->cpu.gpr[RAX], ax & 0xff0f, 2);
    set_flags(d, FL_AF | FL_CF, adjust ? FL_AF | FL_CF : 0);
}

HELPER(decimal)
{
    u16 ax = (u16)d->cpu.gpr[RAX];
    u8 base = (u8)in->imm, al = (u8)ax;
    switch (in->mnemonic) {
    case ZYDIS_MNEMONIC_DAA:
    case ZYDIS_MNEMONIC_DAS: adjust_packed(d, in->mnemonic == ZYDIS_MNEMONIC_DAA); return DONE;
    case ZYDIS_MNEMONIC_AAA:
    case ZYDIS_MNEMONIC_AAS: adjust_unpacked(d, in->mnemonic == ZYDIS_MNEMONIC_AAA); return DONE;
    case ZYDIS_MNEMONIC_SALC:
        d->cpu.gpr[RAX] = reg_written(d->cpu.gpr[RAX], d->flags & FL_CF ? 0xff : 0, 1);
        return DONE;
    case ZYDIS_MNEMONIC_AAM:
        if (!base)
            return raise_fault(d, EXC_DE);
        ax = (u16)((al / base) << 8 | al % base);
        break;
    default: ax = (u8)(al + (ax >> 8) * base); break; /* AAD */
    }
    d->cpu.gpr[RAX] = reg_written(d->cpu.gpr[RAX], ax, 2);
    set_flags(d, FL_SF | FL_ZF | FL_PF, result_flags((u8)ax));
    return DONE;
}
