/*
 * One instruction at a time: exact in faults, positions, bounce buffers, alignment checks and
 * everything the translator leaves out. The arithmetic itself still runs natively (a snippet), so
 * there is no second implementation of what an instruction computes.
 */
#include "dbt.h"

#include <Zydis/Mnemonic.h>

static u64 mask_of(unsigned size)
{
    return size >= 8 ? ~0ull : (1ull << 8 * size) - 1;
}

/* Linear address of the memory operand. */
u64 insn_ea(struct dbt *d, const struct insn *in)
{
    u64 ea = (u64)in->disp;
    if (in->rip_rel)
        ea += d->cpu.rip + in->len;
    if (in->base >= 0)
        ea += d->cpu.gpr[in->base];
    if (in->index >= 0)
        ea += d->cpu.gpr[in->index] * in->scale;
    if (in->addrsize == 4)
        ea = (u32)ea;
    if (in->seg == SEG_FS || in->seg == SEG_GS)
        ea += d->cpu.seg_base[in->seg];
    return ea;
}

/* #UD and #NM for the state it needs (SDM vol. 3, 2.5 and 13.1). */
static int check_state(struct dbt *d, const struct insn *in)
{
    const struct vcpu *c = &d->cpu;
    switch (in->needs) {
    case N_X87:
        if (in->opcode == 0x9b && in->map == 0)
            return (c->cr0 & CR0_TS) && (c->cr0 & CR0_MP) ? raise_fault(d, EXC_NM) : DONE;
        return c->cr0 & (CR0_EM | CR0_TS) ? raise_fault(d, EXC_NM) : DONE;
    case N_MMX:
        if (c->cr0 & CR0_EM)
            return raise_fault(d, EXC_UD);
        return c->cr0 & CR0_TS ? raise_fault(d, EXC_NM) : DONE;
    case N_SSE:
        if ((c->cr0 & CR0_EM) || !(c->cr4 & CR4_OSFXSR))
            return raise_fault(d, EXC_UD);
        return c->cr0 & CR0_TS ? raise_fault(d, EXC_NM) : DONE;
    case N_AVX:
        if (!(c->cr4 & CR4_OSXSAVE) || (c->xcr0 & 6) != 6)
            return raise_fault(d, EXC_UD);
        return c->cr0 & CR0_TS ? raise_fault(d, EXC_NM) : DONE;
    default: return DONE;
    }
}

/*
 * An x87 store whose memory operand faults. If the value itself raises an unmasked exception,
 * nothing is stored and the address does not matter: #MF at the next x87 instruction. So try it
 * on a buffer first.
 */
static int exec_x87_store(struct dbt *d, struct insn *in, int fault)
{
    u8 saved[160];
    u8 *x = d->cpu.xsave;
    struct fault f = d->fault;
    dbt_park(d);
    for (unsigned i = 0; i < sizeof(saved); i++)
        saved[i] = x[i];
    d->ptr = d->bounce_raw;
    TRY(exec_native(d, in));
    dbt_park(d);
    if (fpu_unmasked(d) & 0x1f)
        return DONE;
    for (unsigned i = 0; i < sizeof(saved); i++)
        x[i] = saved[i];
    d->fault = f;
    return fault;
}

void exec_x87_pointers(struct dbt *d, struct insn *in)
{
    if (in->needs != N_X87 || in->fpu_nowait)
        return;
    d->fip = d->cpu.rip;
    d->fop = in->fop;
    if (in->mem)
        d->fdp = insn_ea(d, in);
    /* They live in the image when parked. */
    if (d->parked) {
        *(u16 *)(void *)(d->cpu.xsave + 6) = d->fop & 0x7ff;
        *(u64 *)(void *)(d->cpu.xsave + 8) = d->fip;
        *(u64 *)(void *)(d->cpu.xsave + 16) = d->fdp;
    }
}

static int exec_gen(struct dbt *d, struct insn *in)
{
    if (!in->mem) {
        TRY(exec_native(d, in));
    } else {
        struct operand op = {.va = insn_ea(d, in),
                             .len = in->mem_size,
                             .seg = in->seg,
                             .acc = in->mem & MEM_W ? ACC_W : ACC_R,
                             .read = in->mem & MEM_R};
        if (in->fpu_wait && fpu_pending(d))
            return raise_fault(d, EXC_MF);
        if (in->align && (op.va & (in->align - 1u)))
            return raise_error(d, EXC_GP, 0);
        bool ac = d->ac_check;
        if (in->mnemonic == ZYDIS_MNEMONIC_VCVTPH2PS || in->mnemonic == ZYDIS_MNEMONIC_VCVTPS2PH)
            d->ac_check = false; /* these two load and store half a vector */
        int r = operand_open(d, &op);
        d->ac_check = ac;
        if (r == FAULT && in->needs == N_X87 && !in->fpu_nowait && op.acc == ACC_W) {
            TRY(exec_x87_store(d, in, r));
        } else if (r == FAULT && in->mnemonic == ZYDIS_MNEMONIC_VCVTPS2PH) {
            /* It converts before it stores: #XM wins, and its flags are set in MXCSR. */
            struct fault f = d->fault;
            d->ptr = d->bounce_raw;
            TRY(exec_native(d, in));
            d->fault = f;
            return FAULT;
        } else {
            TRY(r);
            TRY(exec_native(d, in));
            /* An x87 store that met an unmasked exception did not store. */
            if (!(in->needs == N_X87 && !in->fpu_nowait && op.bounced && fpu_unmasked(d) & 0x1f))
                TRY(operand_close(d, &op));
        }
    }
    exec_x87_pointers(d, in);
    return DONE;
}

static int push(struct dbt *d, u64 v, unsigned size)
{
    u64 sp = d->cpu.gpr[RSP] - size;
    TRY(mem_write(d, sp, size, &v, SEG_SS));
    d->cpu.gpr[RSP] = sp;
    return DONE;
}

static int exec_push(struct dbt *d, struct insn *in)
{
    unsigned size = in->opsize == 2 ? 2 : 8;
    u64 v = 0;
    if (in->mem)
        TRY(mem_read(d, insn_ea(d, in), size, &v, in->seg));
    else if (in->op0_kind == OP_IMM)
        v = (u64)in->imm;
    else if (in->op0_kind == OP_SREG)
        v = d->cpu.seg_sel[in->sreg];
    else
        v = d->cpu.gpr[in->reg0];
    return push(d, v, size);
}

static void set_gpr(struct dbt *d, int r, u64 v, unsigned size)
{
    if (size >= 4)
        d->cpu.gpr[r] = size == 4 ? (u32)v : v;
    else
        d->cpu.gpr[r] = (d->cpu.gpr[r] & ~mask_of(size)) | (v & mask_of(size));
}

static int exec_pop(struct dbt *d, struct insn *in)
{
    unsigned size = in->opsize == 2 ? 2 : 8;
    u64 v = 0, sp = d->cpu.gpr[RSP];
    /* POP FS and POP GS read two bytes whatever they add to RSP. */
    TRY(mem_read(d, sp, in->op0_kind == OP_SREG ? 2 : size, &v, SEG_SS));
    if (in->op0_kind == OP_MEM) {
        /* An address based on RSP uses its value after the pop. */
        d->cpu.gpr[RSP] = sp + size;
        int r = mem_write(d, insn_ea(d, in), size, &v, in->seg);
        if (r)
            d->cpu.gpr[RSP] = sp;
        return r;
    }
    if (in->op0_kind == OP_SREG) {
        TRY(load_seg(d, in->sreg, (u16)v));
        d->cpu.gpr[RSP] = sp + size;
        return DONE;
    }
    d->cpu.gpr[RSP] = sp + size;
    set_gpr(d, in->reg0, v, size);
    return DONE;
}

static int jump(struct dbt *d, u64 target)
{
    if (!is_canonical(target))
        return raise_error(d, EXC_GP, 0);
    d->next = target;
    return DONE;
}

static int exec_call(struct dbt *d, struct insn *in, bool call)
{
    u64 target;
    if (in->op0_kind == OP_IMM)
        target = d->next + (u64)in->imm;
    else if (in->mem)
        TRY(mem_read(d, insn_ea(d, in), 8, &target, in->seg));
    else
        target = d->cpu.gpr[in->reg0];
    if (!call)
        return jump(d, target);
    /* The push comes first: its faults win over a non-canonical target's, and it stays behind. */
    u64 sp = d->cpu.gpr[RSP], ret = d->next;
    TRY(push(d, ret, 8));
    int r = jump(d, target);
    if (r)
        d->cpu.gpr[RSP] = sp;
    return r;
}

static int exec_ret(struct dbt *d, struct insn *in)
{
    u64 target;
    TRY(mem_read(d, d->cpu.gpr[RSP], 8, &target, SEG_SS));
    TRY(jump(d, target));
    d->cpu.gpr[RSP] += 8 + (in->op0_kind == OP_IMM ? (u16)in->imm : 0);
    return DONE;
}

static bool condition(const struct dbt *d, unsigned cc)
{
    u64 f = d->flags;
    bool cf = f & FL_CF, zf = f & FL_ZF, sf = f & FL_SF, of = f & FL_OF, pf = f & FL_PF, v;
    switch (cc >> 1) {
    case 0: v = of; break;
    case 1: v = cf; break;
    case 2: v = zf; break;
    case 3: v = cf || zf; break;
    case 4: v = sf; break;
    case 5: v = pf; break;
    case 6: v = sf != of; break;
    default: v = zf || sf != of; break;
    }
    return v != (bool)(cc & 1);
}

static int exec_loop(struct dbt *d, struct insn *in)
{
    u64 rcx = d->cpu.gpr[RCX];
    bool taken;
    if (in->mnemonic == ZYDIS_MNEMONIC_JRCXZ || in->mnemonic == ZYDIS_MNEMONIC_JECXZ) {
        taken = (rcx & mask_of(in->addrsize)) == 0;
    } else {
        rcx = (rcx - 1) & mask_of(in->addrsize);
        taken = rcx != 0;
        if (in->mnemonic == ZYDIS_MNEMONIC_LOOPE)
            taken = taken && (d->flags & FL_ZF);
        if (in->mnemonic == ZYDIS_MNEMONIC_LOOPNE)
            taken = taken && !(d->flags & FL_ZF);
    }
    if (taken)
        TRY(jump(d, d->next + (u64)in->imm));
    if (in->mnemonic != ZYDIS_MNEMONIC_JRCXZ && in->mnemonic != ZYDIS_MNEMONIC_JECXZ)
        d->cpu.gpr[RCX] = rcx;
    return DONE;
}

static int exec_leave(struct dbt *d, struct insn *in)
{
    unsigned size = in->opsize == 2 ? 2 : 8;
    u64 v = 0, bp = d->cpu.gpr[RBP];
    TRY(mem_read(d, bp, size, &v, SEG_SS));
    d->cpu.gpr[RSP] = bp + size;
    set_gpr(d, RBP, v, size);
    return DONE;
}

static int unsupported(struct dbt *d, const struct insn *in)
{
    dbt_park(d);
    char hex[3 * 15 + 1] = "", text[128];
    static const char digit[] = "0123456789abcdef";
    unsigned n = in->len ? in->len : 15;
    for (unsigned i = 0; i < n; i++) {
        hex[3 * i] = digit[in->bytes[i] >> 4];
        hex[3 * i + 1] = digit[in->bytes[i] & 15];
        hex[3 * i + 2] = i + 1 < n ? ' ' : 0;
    }
    insn_text(in->bytes, 15, d->cpu.rip, text, sizeof(text));
    return REPORT(
        d, "instruction form not in the engine's table: %s (%s) at RIP %llx, CPL %u, position %llu",
        text, hex, (unsigned long long)d->cpu.rip, d->cpl, (unsigned long long)unit_position(d));
}

int exec_begin(struct dbt *d, struct insn *in)
{
    d->next = d->cpu.rip + in->len;
    if (in->treat == T_UD)
        return raise_fault(d, EXC_UD);
    if (in->treat == T_GP_LONG)
        return raise_error(d, EXC_GP, 0);
    return in->needs != N_BASE ? check_state(d, in) : DONE;
}

int exec(struct dbt *d, struct insn *in)
{
    TRY(exec_begin(d, in));
    switch (in->treat) {
    case T_GEN: return exec_gen(d, in);
    case T_NOP: return DONE;
    case T_LEA: {
        u64 ea = (u64)in->disp + (in->rip_rel ? d->next : 0);
        if (in->base >= 0)
            ea += d->cpu.gpr[in->base];
        if (in->index >= 0)
            ea += d->cpu.gpr[in->index] * in->scale;
        if (in->addrsize == 4)
            ea = (u32)ea;
        set_gpr(d, in->reg0, ea, in->opsize);
        return DONE;
    }
    case T_PROBE: {
        u8 byte;
        return mem_read(d, insn_ea(d, in), 1, &byte, in->seg);
    }
    case T_PUSH: return exec_push(d, in);
    case T_POP: return exec_pop(d, in);
    case T_CALL: return exec_call(d, in, true);
    case T_JMP: return exec_call(d, in, false);
    case T_RET: return exec_ret(d, in);
    case T_JCC: return condition(d, in->cond) ? jump(d, d->next + (u64)in->imm) : DONE;
    case T_LOOP: return exec_loop(d, in);
    case T_LEAVE: return exec_leave(d, in);
    case T_HELP: return in->help(d, in);
    default: return unsupported(d, in);
    }
}

/*
 * BT, BTS, BTR, BTC with a register index on memory: the index reaches any bit, so the operand is
 * at EA + index/8 rounded to the operand size, bit index modulo it. Run natively on a register.
 */
HELPER(bits)
{
    unsigned size = in->opsize, bits = 8 * size;
    i64 index = (i64)d->cpu.gpr[in->reg1];
    if (size == 2)
        index = (i16)index;
    else if (size == 4)
        index = (i32)index;
    u64 ea = insn_ea(d, in);
    bool seg = in->seg == SEG_FS || in->seg == SEG_GS;
    u64 base = seg ? d->cpu.seg_base[in->seg] : 0;
    ea = ea - base + (u64)((index >> 3) & ~(i64)(size - 1));
    if (in->addrsize == 4)
        ea = (u32)ea;
    ea += base;
    bool write = in->mnemonic != ZYDIS_MNEMONIC_BT;
    struct operand op = {
        .va = ea, .len = size, .seg = in->seg, .acc = write ? ACC_W : ACC_R, .read = true};
    TRY(operand_open(d, &op));
    u64 v = 0, bit = (u64)index & (bits - 1), m = 1ull << bit;
    if (size == 2)
        v = *(u16 *)(void *)d->ptr;
    else if (size == 4)
        v = *(u32 *)(void *)d->ptr;
    else
        v = *(u64 *)(void *)d->ptr;
    /* ZF is kept; OF, SF, AF, PF are undefined and kept too, as Intel's CPUs do. */
    d->flags = (d->flags & ~(u64)FL_CF) | (v & m ? FL_CF : 0);
    if (!write)
        return DONE;
    if (in->mnemonic == ZYDIS_MNEMONIC_BTS)
        v |= m;
    else if (in->mnemonic == ZYDIS_MNEMONIC_BTR)
        v &= ~m;
    else
        v ^= m;
    if (size == 2)
        *(u16 *)(void *)d->ptr = (u16)v;
    else if (size == 4)
        *(u32 *)(void *)d->ptr = (u32)v;
    else
        *(u64 *)(void *)d->ptr = v;
    return operand_close(d, &op);
}

HELPER(enter)
{
    unsigned size = in->opsize == 2 ? 2 : 8, level = in->imm2 & 31, alloc = (u16)in->imm;
    u64 sp = d->cpu.gpr[RSP], bp = d->cpu.gpr[RBP], v = bp;
    sp -= size;
    TRY(mem_write(d, sp, size, &v, SEG_SS));
    u64 frame = sp;
    for (unsigned i = 1; i < level; i++) {
        bp -= size;
        v = 0;
        TRY(mem_read(d, bp, size, &v, SEG_SS));
        sp -= size;
        TRY(mem_write(d, sp, size, &v, SEG_SS));
    }
    if (level) {
        sp -= size;
        TRY(mem_write(d, sp, size, &frame, SEG_SS));
    }
    sp -= alloc;
    TRY(mem_check(d, sp, size, ACC_W, SEG_SS));
    set_gpr(d, RBP, frame, size);
    d->cpu.gpr[RSP] = sp;
    return DONE;
}

HELPER(xlat)
{
    u64 ea = d->cpu.gpr[RBX] + (u8)d->cpu.gpr[RAX];
    if (in->addrsize == 4)
        ea = (u32)ea;
    if (in->seg == SEG_FS || in->seg == SEG_GS)
        ea += d->cpu.seg_base[in->seg];
    u8 v;
    TRY(mem_read(d, ea, 1, &v, SEG_DS));
    set_gpr(d, RAX, v, 1);
    return DONE;
}
