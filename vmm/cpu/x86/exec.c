/*
 * One instruction at a time: exact in faults, positions, bounce buffers, alignment checks and
 * everything the translator leaves out. The arithmetic itself still runs natively (a snippet), so
 * there is no second implementation of what an instruction computes.
 */
#include "cpu/x86/exec.h"

#include <errno.h>

#include "cpu/features.h"

#include "cpu/x86/canon.h"
#include "cpu/x86/cond.h"

#include <Zydis/Mnemonic.h>

#include "cpu/x86/fpu.h"
#include "cpu/x86/lacking.h"
#include "cpu/x86/memory.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/park.h"
#include "cpu/x86/seg.h"

u64 insn_offset(struct core *d, const struct insn *in)
{
    u64 ea = (u64)in->disp;
    if (in->rip_rel)
        ea += d->cpu.rip + in->len;
    if (in->base >= 0)
        ea += d->cpu.gpr[in->base];
    if (in->index >= 0)
        ea += d->cpu.gpr[in->index] * in->scale;
    return low_bytes(ea, in->addrsize);
}

u64 insn_linear(struct core *d, const struct insn *in)
{
    return linear(d, in->seg, insn_offset(d, in));
}

/* #UD and #NM for the state it needs (SDM vol. 3, 2.5 and 13.1). */
static int check_state(struct core *d, const struct insn *in)
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
    case N_AVX512:
        if (!(c->cr4 & CR4_OSXSAVE) || (c->xcr0 & 6) != 6 || !(c->xcr0 & XCR0_AVX512))
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
static int exec_x87_store(struct core *d, struct insn *in, int fault)
{
    u8 saved[160];
    u8 *x = d->cpu.xsave;
    struct fault f = d->fault;
    core_park(d);
    for (unsigned i = 0; i < sizeof(saved); i++)
        saved[i] = x[i];
    d->ptr = d->bounce_raw;
    TRY(core_native(d, in));
    core_park(d);
    if (fpu_unmasked(d) & 0x1f)
        return DONE;
    for (unsigned i = 0; i < sizeof(saved); i++)
        x[i] = saved[i];
    d->fault = f;
    return fault;
}

void exec_x87_pointers(struct core *d, struct insn *in)
{
    if (in->needs != N_X87 || in->fpu_nowait)
        return;
    d->fip = d->cpu.rip;
    d->fop = in->fop;
    if (in->mem)
        d->fdp = insn_linear(d, in);
    /* They live in the image when parked there. */
    if (d->vectors == VECTORS_PARKED) {
        *(u16 *)(void *)(d->cpu.xsave + 6) = d->fop & 0x7ff;
        *(u64 *)(void *)(d->cpu.xsave + 8) = d->fip;
        *(u64 *)(void *)(d->cpu.xsave + 16) = d->fdp;
    }
}

/* Executes it; what the manuals leave undefined gets its value (canon.def). */
static int native(struct core *d, struct insn *in)
{
    u64 rcx = d->cpu.gpr[RCX], dest = in->reg0 >= 0 ? d->cpu.gpr[in->reg0] : 0;
    if (LIKELY(!in->canon))
        return core_native(d, in);
    if (in->mnemonic == ZYDIS_MNEMONIC_BSWAP) { /* of 16 bits */
        d->cpu.gpr[in->reg0] = dest & ~0xffffull;
        return DONE;
    }
    if (canon_shifts_too_far(in, rcx)) {
        d->flags &= ~(u64)FL_ARITH;
        return DONE;
    }
    u32 undefined = canon_undefined(in, rcx);
    TRY(core_native(d, in));
    if (UNLIKELY(d->other_maker))
        d->flags |= undefined;
    if (LIKELY(d->other_maker != OTHER_RAW))
        d->flags &= ~(u64)undefined;
    if (in->canon == CANON_SCAN && (d->flags & FL_ZF))
        d->cpu.gpr[in->reg0] = dest;
    return DONE;
}

static int exec_gen(struct core *d, struct insn *in)
{
    if (!in->mem) {
        TRY(native(d, in));
    } else if (in->mask) {
        return in->help(d, in);
    } else {
        struct operand op = {.off = insn_offset(d, in),
                             .len = in->mem_size,
                             .seg = in->seg,
                             .acc = in->mem & MEM_W ? ACC_W : ACC_R,
                             .read = (in->mem & MEM_R) || in->merges};
        if (in->fpu_wait && fpu_pending(d))
            return raise_fault(d, EXC_MF);
        if (in->align && (linear(d, op.seg, op.off) & (in->align - 1u)))
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
            TRY(native(d, in));
            d->fault = f;
            return FAULT;
        } else {
            TRY(r);
            TRY(native(d, in));
            /* An x87 store that met an unmasked exception did not store. */
            if (!(in->needs == N_X87 && !in->fpu_nowait && (op.bounced || d->logging) &&
                  fpu_unmasked(d) & 0x1f))
                TRY(operand_close(d, &op));
        }
    }
    exec_x87_pointers(d, in);
    return DONE;
}

static int exec_push(struct core *d, struct insn *in)
{
    unsigned size = in->stack;
    u64 v = 0, sp = get_sp(d);
    if (in->mem)
        TRY(mem_read(d, in->seg, insn_offset(d, in), size, &v));
    else if (in->op0_kind == OP_IMM)
        v = (u64)in->imm;
    else if (in->op0_kind == OP_SREG)
        v = d->cpu.seg_sel[in->sreg];
    else
        v = d->cpu.gpr[in->reg0];
    if (in->op0_kind == OP_SREG && size == 4) { /* two bytes are written */
        sp = sp_moved(d, sp, -4);
        TRY(mem_write(d, SEG_SS, sp, 2, &v));
    } else {
        TRY(stack_push(d, &sp, v, size));
    }
    set_sp(d, sp);
    return DONE;
}

static void set_gpr(struct core *d, int r, u64 v, unsigned size)
{
    d->cpu.gpr[r] = reg_written(d->cpu.gpr[r], v, size);
}

static int exec_pop(struct core *d, struct insn *in)
{
    unsigned size = in->stack;
    u64 v = 0, sp = get_sp(d), above = sp_moved(d, sp, size);
    /* POP FS and POP GS read two bytes whatever they add to RSP. */
    TRY(mem_read(d, SEG_SS, sp, in->op0_kind == OP_SREG ? 2 : size, &v));
    if (in->op0_kind == OP_MEM) {
        /* An address based on RSP uses its value after the pop. */
        set_sp(d, above);
        int r = mem_write(d, in->seg, insn_offset(d, in), size, &v);
        if (r)
            set_sp(d, sp);
        return r;
    }
    if (in->op0_kind == OP_SREG) {
        unsigned width = stack_width(d);
        TRY(load_seg_insn(d, in->sreg, (u16)v));
        set_sp_of(d, above, width);
        return DONE;
    }
    set_sp(d, above);
    set_gpr(d, in->reg0, v, size);
    return DONE;
}

/* Of a branch by a distance. */
static u64 relative(const struct core *d, const struct insn *in)
{
    u64 target = d->next + (u64)in->imm;
    return is_64bit(d) ? target : low_bytes(target, in->opsize == 2 ? 2 : 4);
}

static int exec_call(struct core *d, struct insn *in, bool call)
{
    u64 target = 0;
    if (in->op0_kind == OP_IMM)
        target = relative(d, in);
    else if (in->mem)
        TRY(mem_read(d, in->seg, insn_offset(d, in), in->stack, &target));
    else
        target = low_bytes(d->cpu.gpr[in->reg0], in->stack);
    if (!call)
        return branch_to(d, target);
    /* The push comes first: its faults win over a non-canonical target's, and it stays behind. */
    u64 sp = get_sp(d);
    TRY(stack_push(d, &sp, d->next, in->stack));
    TRY(branch_to(d, target));
    set_sp(d, sp);
    return DONE;
}

static int exec_ret(struct core *d, struct insn *in)
{
    u64 target, sp = get_sp(d);
    TRY(stack_pop(d, &sp, in->stack, &target));
    TRY(branch_to(d, target));
    set_sp(d, sp_moved(d, sp, in->op0_kind == OP_IMM ? (u16)in->imm : 0));
    return DONE;
}

static int exec_loop(struct core *d, struct insn *in)
{
    u64 rcx = d->cpu.gpr[RCX] - loop_counts(in);
    if (loop_jumps(d, in, rcx))
        TRY(branch_to(d, relative(d, in)));
    if (loop_counts(in))
        set_gpr(d, RCX, low_bytes(rcx, in->addrsize), in->addrsize);
    return DONE;
}

static int exec_leave(struct core *d, struct insn *in)
{
    u64 v, sp = low_bytes(d->cpu.gpr[RBP], stack_width(d));
    TRY(stack_pop(d, &sp, in->stack, &v));
    set_sp(d, sp);
    set_gpr(d, RBP, v, in->stack);
    return DONE;
}

static int unsupported(struct core *d, const struct insn *in)
{
    core_park(d);
    char hex[3 * 15 + 1] = "", text[128];
    static const char digit[] = "0123456789abcdef";
    unsigned n = in->len ? in->len : 15;
    for (unsigned i = 0; i < n; i++) {
        hex[3 * i] = digit[in->bytes[i] >> 4];
        hex[3 * i + 1] = digit[in->bytes[i] & 15];
        hex[3 * i + 2] = i + 1 < n ? ' ' : 0;
    }
    insn_text((enum code_size)in->code, in->bytes, 15, d->cpu.rip, text, sizeof(text));
    return REPORT(d, "instruction form not in the engine's table: %s (%s) at RIP %llx, CPL %u",
                  text, hex, (unsigned long long)d->cpu.rip, d->cpl);
}

/* The features of this instruction that are not this host's. */
static int missing_here(struct core *d, const struct insn *in)
{
    char lacks[256], text[128];
    u32 words[CPU_WORDS] = {0};
    core_park(d);
    if (in->feature < CPU_WORDS * 32)
        words[in->feature / 32] |= d->missing[in->feature / 32] & 1u << in->feature % 32;
    if (in->needs == N_AVX)
        words[FEAT_AVX / 32] |= d->missing[FEAT_AVX / 32] & 1u << FEAT_AVX % 32;
    if (in->needs == N_AVX512)
        words[FEAT_AVX512F / 32] |=
            d->missing[FEAT_AVX512F / 32] & (1u << FEAT_AVX512F % 32 | 1u << FEAT_AVX512VL % 32);
    cpu_host_lacks_all(words, lacks, sizeof(lacks));
    insn_text((enum code_size)in->code, in->bytes, 15, d->cpu.rip, text, sizeof(text));
    return host_lacks_it(d, lacks, text);
}

int host_lacks_it(struct core *d, const char *lacks, const char *text)
{
    pos_t all = 0;
    core_park(d);
    EACH_CPU (s, d)
        all += unit_position(s);
    err_set(&d->err, -ENOTSUP,
            "this host's CPU lacks %s, which the guest uses at position %llu: %s at RIP %llx, ring "
            "%u. Up to there all was as recorded; a host that has it goes on",
            lacks, (unsigned long long)all, text, (unsigned long long)d->cpu.rip, d->cpl);
    return STOP_FAILED;
}

int exec_begin(struct core *d, struct insn *in)
{
    d->next = rip_moved(d, d->cpu.rip, in->len);
    if (in->treat == T_UD) {
        if (d->cpl == 3 && d->env->lacking) {
            core_park(d);
            note_lacking(d, in);
        }
        return raise_fault(d, EXC_UD);
    }
    if (in->treat == T_GP_LONG)
        return raise_error(d, EXC_GP, 0);
    return in->needs != N_BASE ? check_state(d, in) : DONE;
}

/* What is called may use vector registers. */
static void tell(struct core *d, void (*what)(void *cpu))
{
    core_set_aside(d);
    what(d->env->cpu);
}

int exec(struct core *d, struct insn *in)
{
    TRY(exec_begin(d, in));
    if (UNLIKELY(in->host_lacks))
        return missing_here(d, in);
    if (insn_syncs(d, in))
        tell(d, d->env->sync);
    switch (in->treat) {
    case T_GEN: return exec_gen(d, in);
    case T_NOP:
        if (insn_waits(d, in))
            tell(d, d->env->pause);
        return DONE;
    case T_LEA: {
        u64 ea = (u64)in->disp + (in->rip_rel ? d->next : 0);
        if (in->base >= 0)
            ea += d->cpu.gpr[in->base];
        if (in->index >= 0)
            ea += d->cpu.gpr[in->index] * in->scale;
        set_gpr(d, in->reg0, low_bytes(ea, in->addrsize), in->opsize);
        return DONE;
    }
    case T_PROBE: {
        u8 byte;
        d->logging = false; /* it reads nothing */
        return mem_read(d, in->seg, insn_offset(d, in), 1, &byte);
    }
    case T_PUSH: return exec_push(d, in);
    case T_POP: return exec_pop(d, in);
    case T_CALL: return exec_call(d, in, true);
    case T_JMP: return exec_call(d, in, false);
    case T_RET: return exec_ret(d, in);
    case T_JCC: return jcc_jumps(d, in) ? branch_to(d, relative(d, in)) : DONE;
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
    u64 ea = insn_offset(d, in);
    ea = low_bytes(ea + (u64)((index >> 3) & ~(i64)(size - 1)), in->addrsize);
    bool write = in->mnemonic != ZYDIS_MNEMONIC_BT;
    struct operand op = {
        .off = ea, .len = size, .seg = in->seg, .acc = write ? ACC_W : ACC_R, .read = true};
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
    unsigned size = in->stack, level = in->imm2 & 31, alloc = (u16)in->imm;
    u64 sp = get_sp(d), bp = low_bytes(d->cpu.gpr[RBP], stack_width(d)), v;
    TRY(stack_push(d, &sp, d->cpu.gpr[RBP], size));
    /* All of ESP, also where the stack goes by SP (SDM vol. 2, ENTER: FrameTemp). */
    u64 frame = stack_width(d) < size ? (d->cpu.gpr[RSP] & ~0xffffull) | sp : sp;
    for (unsigned i = 1; i < level; i++) {
        bp = sp_moved(d, bp, -(i64)size);
        v = 0;
        TRY(mem_read(d, SEG_SS, bp, size, &v));
        TRY(stack_push(d, &sp, v, size));
    }
    if (level)
        TRY(stack_push(d, &sp, frame, size));
    sp = sp_moved(d, sp, -(i64)alloc);
    TRY(mem_check(d, SEG_SS, sp, size, ACC_W));
    set_gpr(d, RBP, frame, size);
    set_sp(d, sp);
    return DONE;
}

HELPER(xlat)
{
    u64 ea = low_bytes(d->cpu.gpr[RBX] + (u8)d->cpu.gpr[RAX], in->addrsize);
    u8 v;
    TRY(mem_read(d, in->seg, ea, 1, &v));
    set_gpr(d, RAX, v, 1);
    return DONE;
}
