/*
 * Helpers short enough to be inlined: flags of RFLAGS, SWAPGS, bases of FS and GS, PUSHF, the BT
 * family with a register index; SYSCALL and SYSRET (put_crossing.c), RCPPS and its like
 * (put_approx.c), REP MOVS and STOS (put_string.c). Each does what its help_ function does, and
 * leaves to it whatever is rare. To add one: its put_ function, and its line in INLINED.
 */
#include "tr.h"

#include <Zydis/Mnemonic.h>

#include "cpu/x86/mode.h"

static void put_flag_change(struct tr *t, unsigned i, u32 flag, bool set)
{
    unsigned byte = flag >= 0x10000 ? 2 : 1;
    u8 bit = (u8)(flag >> 8 * byte);
    if (t->live[i])
        put_save_flags(t);
    tr_rflags(t, 0x80, set ? 1 : 4, byte, set ? bit : (u8)~bit);
    if (t->live[i])
        put_restore_flags(t);
}

/* IF becomes 1; where it was 0 the budget marks the shadow (run.c), and a wanted window leaves. */
static void put_sti(struct tr *t, unsigned i)
{
    struct emit *e = &t->e;
    if (t->live[i])
        put_save_flags(t);
    tr_rflags(t, 0xf6, 0, 1, FL_IF >> 8);
    u8 *was = e_jcc(e, 5); /* jnz: nothing changes */
    tr_rflags(t, 0x80, 1, 1, FL_IF >> 8);
    e_load(e, t->s1, OFF(part));
    for (size_t k = 1; k < BUDGET_PARTS; k++)
        e_gs(e, 1, 0x03, t->s1, NOREG, 1, OFF(part) + 8 * k);
    e_store(e, t->s1, OFF(sti_budget));
    e_fix(e, was, e->p);
    e_cmp_slot_0(e, OFF(c.want));
    u8 *none = e_jcc(e, 4);
    if (t->live[i])
        put_restore_flags(t);
    put_block_epilogue(t);
    tr_put_lin(t, R10, tr_next(t, i));
    e_jmp_to(e, t->d->code->rw + t->d->code->ind_miss);
    e_fix(e, none, e->p);
    if (t->live[i])
        put_restore_flags(t);
    put_edge(t, tr_next(t, i), 0);
}

/* STAC and CLAC go on in another TLB index. */
static void put_ac(struct tr *t, unsigned i, bool set)
{
    struct dbt *d = t->d;
    put_flag_change(t, i, FL_AC, set);
    unsigned idx = set ? IDX_SUPU : kernel_idx(d->c.mode);
    e_store_imm32(&t->e, OFF(c.idx), idx);
    e_store_imm32(&t->e, OFF(c.mode), (d->c.mode & ~MODE_IDX) | idx);
    put_block_epilogue(t);
    put_far_edge(t, tr_next(t, i), idx);
}

static void put_swapgs(struct tr *t, unsigned i)
{
    (void)i;
    size_t gs = OFF(c.cpu.seg_base) + 8 * SEG_GS, k = OFF(c.cpu.kernel_gs_base);
    e_load(&t->e, t->s1, gs);
    e_load(&t->e, t->s2, k);
    e_store(&t->e, t->s1, k);
    e_store(&t->e, t->s2, gs);
}

void put_flags_image(struct emit *e, int to)
{
    e_rr(e, 0, 0x89, RAX, to); /* to = AH & d5 | AL << 11 | system flags */
    e_rex(e, 0, NOREG, NOREG, to);
    e1(e, 0xc1); /* shr to, 8 */
    e1(e, (u8)(0xe8 | (to & 7)));
    e1(e, 8);
    e_rex(e, 0, NOREG, NOREG, to);
    e1(e, 0x81); /* and to, d5 */
    e1(e, (u8)(0xe0 | (to & 7)));
    e4(e, 0xd5);
    e1(e, 0x0f); /* movzx eax, al */
    e1(e, 0xb6);
    e1(e, 0xc0);
    e1(e, 0xc1); /* shl eax, 11 */
    e1(e, 0xe0);
    e1(e, 11);
    e_rr(e, 0, 0x09, RAX, to); /* or to, eax */
    e_load(e, RAX, OFF(c.cpu.rflags));
    e1(e, 0x25); /* and eax, imm */
    e4(e, ~(u32)(FL_ARITH | FL_RF | FL_VM));
    e_rr(e, 0, 0x09, RAX, to);
}

static void put_pushf(struct tr *t, unsigned i)
{
    struct emit *e = &t->e;
    int s1 = t->s1, s2 = t->s2;
    put_save_flags(t);
    e_store(e, RAX, OFF(tmp));
    e_lea(e, s1, RSP, NOREG, 1, -8);
    put_check_as(t, i, 8, true, false, 0, FLAGS_SAVED, FOUND_HOST);
    put_flags_image(e, s2);
    e_mem(e, 1, 0x89, s2, s1, NOREG, 1, 0);
    e_lea(e, RSP, RSP, NOREG, 1, -8);
    e_load(e, RAX, OFF(tmp));
    put_restore_flags(t);
}

/* BT family with a register index on memory: the operand moves by the index (exec.c, help_bits),
 * then the register form does it. */
static void put_bits(struct tr *t, unsigned i)
{
    const struct insn *in = &t->in[i];
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
    put_check_as(t, i, (unsigned)size, write, false, 0, FLAGS_SAVED, FOUND_HOST);
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

/* MOV from a segment register: 16 bits leave the rest, more are zeroes (SDM vol. 2, MOV). */
static void put_mov_system(struct tr *t, unsigned i)
{
    const struct insn *in = &t->in[i];
    struct emit *e = &t->e;
    if (in->opsize == 2) {
        e1(e, 0x65); /* mov r16, gs:[selector] */
        e1(e, 0x66);
        e_rex(e, 0, in->reg0, NOREG, NOREG);
        e1(e, 0x8b);
    } else {
        e1(e, 0x65); /* movzx r32, word gs:[selector] */
        e_rex(e, 0, in->reg0, NOREG, NOREG);
        e1(e, 0x0f);
        e1(e, 0xb7);
    }
    e_modrm(e, in->reg0, NOREG, NOREG, 1, (i32)(OFF(c.cpu.seg_sel) + 2u * in->sreg));
}

/* The TSC goes with the position, which is what is left of the budget: what was taken of it for the
 * instructions from i on has not been run. No flags are touched. */
static void put_rdtsc(struct tr *t, unsigned i)
{
    struct emit *e = &t->e;
    int s1 = t->s1, s2 = t->s2;
    int ahead = i >= t->check ? (int)(t->count - i) : -(int)i;
    e_load(e, s1, OFF(part));
    for (size_t k = 1; k < BUDGET_PARTS; k++) {
        e_load(e, s2, OFF(part) + 8 * k);
        e_lea(e, s1, s1, s2, 1, 0);
    }
    e_rex(e, 1, NOREG, NOREG, s1); /* not s1: what is left, negative, less 1 */
    e1(e, 0xf7);
    e1(e, (u8)(0xd0 | (s1 & 7)));
    e_load(e, s2, OFF(tsc_ends));
    e_lea(e, s1, s1, s2, 1, 1 - ahead);
    e_load(e, s2, OFF(c.cpu.tsc_adjust));
    e_lea(e, s1, s1, s2, 1, 0);
    e_store(e, s1, OFF(tmp));
    e_rr(e, 0, 0x89, s1, RAX);
    e_gs(e, 0, 0x8b, RDX, NOREG, 1, OFF(tmp) + 4);
    if (t->in[i].opcode == 0x01) /* RDTSCP: 0F 01 F9 */
        e_gs(e, 0, 0x8b, RCX, NOREG, 1, OFF(c.cpu.tsc_aux));
}

static void put_rdpid(struct tr *t, unsigned i)
{
    e_gs(&t->e, 0, 0x8b, t->in[i].reg0, NOREG, 1, OFF(c.cpu.tsc_aux));
}

/* RDFSBASE, WRFSBASE and those of GS. What faults exec() does. */
static void put_fsgsbase(struct tr *t, unsigned i)
{
    const struct insn *in = &t->in[i];
    struct emit *e = &t->e;
    bool fs = in->mnemonic == ZYDIS_MNEMONIC_RDFSBASE || in->mnemonic == ZYDIS_MNEMONIC_WRFSBASE;
    bool write = in->mnemonic == ZYDIS_MNEMONIC_WRFSBASE || in->mnemonic == ZYDIS_MNEMONIC_WRGSBASE;
    bool wide = in->rex & 8;
    size_t base = OFF(c.cpu.seg_base) + 8 * (size_t)(fs ? SEG_FS : SEG_GS);
    put_saved(t, t->live[i] != 0);
    e1(e, 0x65); /* test dword gs:[cr4], FSGSBASE */
    e1(e, 0xf7);
    e_modrm(e, 0, NOREG, NOREG, 1, (i32)OFF(c.cpu.cr4));
    e4(e, CR4_FSGSBASE);
    put_exit_if(t, i, 4, X_INSN); /* je */
    if (write && wide) {
        e_mov(e, t->s1, in->reg0); /* its upper 17 bits are equal: 0 or -1 */
        e_rex(e, 1, NOREG, NOREG, t->s1);
        e1(e, 0xc1); /* sar s1, 47 */
        e1(e, (u8)(0xf8 | (t->s1 & 7)));
        e1(e, 47);
        e_lea(e, t->s1, t->s1, NOREG, 1, 1);
        e_cmp_imm32(e, t->s1, 1);
        put_exit_if(t, i, 7, X_INSN); /* ja */
    }
    put_saved(t, false);
    if (!write) {
        e_gs(e, wide, 0x8b, in->reg0, NOREG, 1, base);
        return;
    }
    if (!wide)
        e_rr(e, 0, 0x89, in->reg0, t->s1);
    e_store(e, wide ? in->reg0 : t->s1, base);
}

static void put_cli(struct tr *t, unsigned i)
{
    put_flag_change(t, i, FL_IF, false);
}

static void put_cld(struct tr *t, unsigned i)
{
    put_flag_change(t, i, FL_DF, false);
}

static void put_std(struct tr *t, unsigned i)
{
    put_flag_change(t, i, FL_DF, true);
}

static void put_clac(struct tr *t, unsigned i)
{
    put_ac(t, i, false);
}

static void put_stac(struct tr *t, unsigned i)
{
    put_ac(t, i, true);
}

static bool at_cpl0(const struct dbt *d, const struct insn *in)
{
    (void)in;
    return d->c.mode & MODE_CPL0;
}

static bool is_wide(const struct dbt *d, const struct insn *in)
{
    (void)d;
    return in->opsize == 8;
}

static bool has_flat_operand(const struct dbt *d, const struct insn *in)
{
    (void)d;
    return in->addrsize == 8 && !seg_has_base(in->seg);
}

static bool reads_selector(const struct dbt *d, const struct insn *in)
{
    (void)d;
    return in->op1_kind == OP_SREG && !in->mem;
}

static bool shows_position(const struct dbt *d, const struct insn *in)
{
    (void)in;
    return !counts_branches(&d->c) && !(d->c.mode & MODE_TSD);
}

/* `when` NULL: always. */
#define INLINED(X)                                                                                 \
    X(cli, at_cpl0, false)                                                                         \
    X(sti, at_cpl0, true)                                                                          \
    X(clac, at_cpl0, true)                                                                         \
    X(stac, at_cpl0, true)                                                                         \
    X(swapgs, at_cpl0, false)                                                                      \
    X(cld, NULL, false)                                                                            \
    X(std, NULL, false)                                                                            \
    X(mov_system, reads_selector, false)                                                           \
    X(rdtsc, shows_position, false)                                                                \
    X(rdpid, NULL, false)                                                                          \
    X(pushf, is_wide, false)                                                                       \
    X(bits, has_flat_operand, false)                                                               \
    X(fsgsbase, NULL, false)                                                                       \
    X(syscall, enters_kernel, true)                                                                \
    X(sysret, leaves_kernel, true)                                                                 \
    X(string, has_string, false)                                                                   \
    X(approx, has_approx, false)

#define X(name, when, ends) extern helper_fn help_##name;
INLINED(X)
#undef X

const struct inlined *tr_inlined(const struct dbt *d, const struct insn *in)
{
    static const struct inlined rows[] = {
#define X(name, when, ends) {help_##name, when, put_##name, ends},
        INLINED(X)
#undef X
    };
    for (unsigned i = 0; in->treat == T_HELP && i < ARRAY_SIZE(rows); i++)
        if (in->help == rows[i].help)
            return !rows[i].when || rows[i].when(d, in) ? &rows[i] : NULL;
    return NULL;
}
