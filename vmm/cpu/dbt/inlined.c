/*
 * Helpers short enough to be inlined: flags of RFLAGS, SWAPGS, PUSHF, the BT family with a register
 * index. Each does what its help_ function does, and leaves to it whatever is rare.
 */
#include "tr.h"

helper_fn help_cli, help_sti, help_cld, help_std, help_clac, help_stac, help_swapgs, help_pushf,
    help_bits;

enum inlined tr_inline_of(const struct dbt *d, const struct insn *in)
{
    if (in->treat != T_HELP)
        return IN_NONE;
    if (in->help == help_cld)
        return IN_CLD;
    if (in->help == help_std)
        return IN_STD;
    if (in->help == help_bits)
        return in->addrsize == 8 && in->seg != SEG_FS && in->seg != SEG_GS ? IN_BITS : IN_NONE;
    if (in->help == help_pushf)
        return in->opsize == 8 ? IN_PUSHF : IN_NONE;
    if (!(d->mode & MODE_CPL0))
        return IN_NONE;
    if (in->help == help_cli)
        return IN_CLI;
    if (in->help == help_sti)
        return IN_STI;
    if (in->help == help_clac)
        return IN_CLAC;
    if (in->help == help_stac)
        return IN_STAC;
    return in->help == help_swapgs ? IN_SWAPGS : IN_NONE;
}

/* op byte gs:[rflags + byte], imm: /1 or, /4 and, /0 test with opcode f6 */
static void put_rflags(struct tr *t, u8 op, int digit, unsigned byte, u8 imm)
{
    e1(&t->e, 0x65);
    e1(&t->e, op);
    e_modrm(&t->e, digit, NOREG, NOREG, 1, (i32)(OFF(cpu.rflags) + byte));
    e1(&t->e, imm);
}

static void put_flag_change(struct tr *t, unsigned i, u32 flag, bool set)
{
    unsigned byte = flag >= 0x10000 ? 2 : 1;
    u8 bit = (u8)(flag >> 8 * byte);
    if (t->live[i])
        put_save_flags(t);
    put_rflags(t, 0x80, set ? 1 : 4, byte, set ? bit : (u8)~bit);
    if (t->live[i])
        put_restore_flags(t);
}

/* IF becomes 1; where it was 0 the budget marks the shadow (run.c), and a wanted window leaves. */
static void put_sti(struct tr *t, unsigned i)
{
    struct emit *e = &t->e;
    if (t->live[i])
        put_save_flags(t);
    put_rflags(t, 0xf6, 0, 1, FL_IF >> 8);
    u8 *was = e_jcc(e, 5); /* jnz: nothing changes */
    put_rflags(t, 0x80, 1, 1, FL_IF >> 8);
    e_load(e, t->s1, OFF(budget));
    e_store(e, t->s1, OFF(sti_budget));
    e_fix(was, e->p);
    e1(e, 0x65); /* cmp dword gs:[want], 0 */
    e1(e, 0x83);
    e_modrm(e, 7, NOREG, NOREG, 1, (i32)OFF(want));
    e1(e, 0);
    u8 *none = e_jcc(e, 4);
    if (t->live[i])
        put_restore_flags(t);
    put_block_epilogue(t);
    e_movi(e, R10, t->lin + t->off[i] + t->in[i].len);
    e_jmp_to(e, t->d->rw + t->d->ind_miss);
    e_fix(none, e->p);
    if (t->live[i])
        put_restore_flags(t);
    put_edge(t, t->lin + t->off[i] + t->in[i].len, 0);
}

/* STAC and CLAC go on in another TLB index. */
static void put_ac(struct tr *t, unsigned i, bool set)
{
    struct dbt *d = t->d;
    put_flag_change(t, i, FL_AC, set);
    unsigned idx = set || !(d->mode & MODE_SMAP) ? IDX_SUPU : IDX_SUP;
    e_store_imm32(&t->e, OFF(idx), idx);
    e_store_imm32(&t->e, OFF(mode), (d->mode & ~MODE_IDX) | idx);
    put_block_epilogue(t);
    put_far_edge(t, t->lin + t->off[i] + t->in[i].len, idx);
}

static void put_swapgs(struct tr *t)
{
    size_t gs = OFF(cpu.seg_base) + 8 * SEG_GS, k = OFF(cpu.kernel_gs_base);
    e_load(&t->e, t->s1, gs);
    e_load(&t->e, t->s2, k);
    e_store(&t->e, t->s1, k);
    e_store(&t->e, t->s2, gs);
}

static void put_pushf(struct tr *t, unsigned i)
{
    struct emit *e = &t->e;
    int s1 = t->s1, s2 = t->s2;
    put_save_flags(t);
    e_store(e, RAX, OFF(tmp));
    e_lea(e, s1, RSP, NOREG, 1, -8);
    put_check_as(t, i, 8, true, false, 0, FLAGS_SAVED);
    e_rr(e, 0, 0x89, RAX, s2); /* s2 = AH & d5 | AL << 11 | system flags */
    e_rex(e, 0, NOREG, NOREG, s2);
    e1(e, 0xc1); /* shr s2d, 8 */
    e1(e, (u8)(0xe8 | (s2 & 7)));
    e1(e, 8);
    e_rex(e, 0, NOREG, NOREG, s2);
    e1(e, 0x81); /* and s2d, d5 */
    e1(e, (u8)(0xe0 | (s2 & 7)));
    e4(e, 0xd5);
    e1(e, 0x0f); /* movzx eax, al */
    e1(e, 0xb6);
    e1(e, 0xc0);
    e1(e, 0xc1); /* shl eax, 11 */
    e1(e, 0xe0);
    e1(e, 11);
    e_rr(e, 0, 0x09, RAX, s2); /* or s2d, eax */
    e_load(e, RAX, OFF(cpu.rflags));
    e1(e, 0x25); /* and eax, imm */
    e4(e, ~(u32)(FL_ARITH | FL_RF | FL_VM));
    e_rr(e, 0, 0x09, RAX, s2);
    e_mem(e, 1, 0x89, s2, s1, NOREG, 1, 0);
    e_lea(e, RSP, RSP, NOREG, 1, -8);
    e_load(e, RAX, OFF(tmp));
    put_restore_flags(t);
}

/* BT family with a register index on memory: the operand moves by the index (exec.c, help_bits),
 * then the register form does it. */
static void put_bits(struct tr *t, const struct insn *in, unsigned i)
{
    struct emit *e = &t->e;
    int s1 = t->s1, s2 = t->s2, size = in->opsize;
    bool write = in->mem & MEM_W;
    bool c;
    u64 v;
    put_ea(t, in, i, s1, s2, &c, &v);
    /* s2 = sign-extended index, in bytes and rounded to the operand */
    if (size == 8) {
        e_mov(e, s2, in->reg1);
    } else if (size == 4) {
        e_rr(e, 1, 0x63, s2, in->reg1);
    } else {
        e_rex(e, 1, s2, NOREG, in->reg1);
        e1(e, 0x0f);
        e1(e, 0xbf);
        e1(e, (u8)(0xc0 | (s2 & 7) << 3 | (in->reg1 & 7)));
    }
    put_save_flags(t);
    e_rex(e, 1, NOREG, NOREG, s2); /* sar s2, 3 */
    e1(e, 0xc1);
    e1(e, (u8)(0xf8 | (s2 & 7)));
    e1(e, 3);
    e_rex(e, 1, NOREG, NOREG, s2); /* and s2, -size */
    e1(e, 0x83);
    e1(e, (u8)(0xe0 | (s2 & 7)));
    e1(e, (u8)-size);
    e_rr(e, 1, 0x01, s2, s1); /* add s1, s2 */
    put_check_as(t, i, (unsigned)size, write, false, 0, FLAGS_SAVED);
    put_restore_flags(t);
    /* mov s2, [s1]; bt* s2, reg; mov [s1], s2 */
    if (size == 2)
        e1(e, 0x66);
    e_mem(e, size == 8, 0x8b, s2, s1, NOREG, 1, 0);
    if (size == 2)
        e1(e, 0x66);
    e_rex(e, size == 8, in->reg1, NOREG, s2);
    e1(e, 0x0f);
    e1(e, in->opcode);
    e1(e, (u8)(0xc0 | (in->reg1 & 7) << 3 | (s2 & 7)));
    if (write) {
        if (size == 2)
            e1(e, 0x66);
        e_mem(e, size == 8, 0x89, s2, s1, NOREG, 1, 0);
    }
}

void put_inlined(struct tr *t, unsigned i)
{
    const struct insn *in = &t->in[i];
    switch (tr_inline_of(t->d, in)) {
    case IN_CLI: put_flag_change(t, i, FL_IF, false); break;
    case IN_STI: put_sti(t, i); break;
    case IN_CLD: put_flag_change(t, i, FL_DF, false); break;
    case IN_STD: put_flag_change(t, i, FL_DF, true); break;
    case IN_CLAC: put_ac(t, i, false); break;
    case IN_STAC: put_ac(t, i, true); break;
    case IN_SWAPGS: put_swapgs(t); break;
    case IN_PUSHF: put_pushf(t, i); break;
    case IN_BITS: put_bits(t, in, i); break;
    case IN_NONE: break;
    }
}
