/*
 * SYSCALL and SYSRET (SDM vol. 2) between 64-bit code of ring 3 and the kernel, in translated code:
 * a guest that asks its kernel for little does nothing else. Both go on in blocks of another mode,
 * with another TLB. What is not as usual is left to exec(): d->crossing.ready says so, which is
 * made anew whenever a mode, a register or a point changes on which it depends (x86/tlb.c).
 */
#include "tr.h"

#include "cpu/x86/mode.h"
#include "cpu/x86/seg.h"

static bool may_cross(const struct dbt *d, const struct insn *in)
{
    const u16 both = 1u << RCX | 1u << R11;
    return in->code == CODE_64 && (in->use & both) == both &&
           !(d->c.mode & (MODE_SIGNALS | MODE_SYNC)) && !counts_branches(&d->c);
}

bool enters_kernel(const struct dbt *d, const struct insn *in)
{
    return may_cross(d, in) && (in->wr >> RCX & in->wr >> R11 & 1) &&
           (d->c.mode & MODE_IDX) == IDX_USER;
}

bool leaves_kernel(const struct dbt *d, const struct insn *in)
{
    return may_cross(d, in) && in->opsize == 8 && (d->c.mode & MODE_CPL0);
}

/* op dword r, imm32, the opcode 81 /digit or of F7 /0 TEST */
static void put_imm(struct emit *e, u8 op, int digit, int r, u32 imm)
{
    e_rex(e, 0, NOREG, NOREG, r);
    e1(e, op);
    e1(e, (u8)(0xc0 | digit << 3 | (r & 7)));
    e4(e, imm);
}

/* shl (4) or shr (5) of a dword r */
static void put_shift(struct emit *e, int digit, int r, u8 by)
{
    e_rex(e, 0, NOREG, NOREG, r);
    e1(e, 0xc1);
    e1(e, (u8)(0xc0 | digit << 3 | (r & 7)));
    e1(e, by);
}

/* mov qword gs:[off], imm32, sign-extended */
static void put_store_wide(struct emit *e, size_t off, u32 imm)
{
    e_gs(e, 1, 0xc7, 0, NOREG, 1, off);
    e4(e, imm);
}

/* Leaves for exec() unless all is as usual. Flags go to AX. */
static void put_ready(struct tr *t, unsigned i)
{
    put_saved(t, true);
    e_cmp_slot_0(&t->e, OFF(c.crossing.ready));
    put_exit_if(t, i, 4, X_INSN); /* je */
}

/* CS gets the selector in r, SS the one `ss` behind it; both are flat, of a ring. */
static void put_segments(struct tr *t, int r, int ss, unsigned ring)
{
    struct emit *e = &t->e;
    _Static_assert(SEG_SS == SEG_CS + 1, "they lie side by side");
    for (unsigned k = 0; k < 2; k++) {
        if (k)
            e_lea(e, r, r, NOREG, 1, ss);
        e1(e, 0x66);
        e_gs(e, 0, 0x89, r, NOREG, 1, OFF(c.cpu.seg_sel) + 2 * (SEG_CS + k));
        put_store_wide(e, OFF(c.cpu.seg_base) + 8 * (SEG_CS + k), 0);
    }
    e_store_imm32(e, OFF(c.cpu.seg_attr) + 2 * SEG_CS,
                  flat_code(ring, true) | (u32)flat_data(ring) << 16);
    put_store_wide(e, OFF(c.cpu.seg_limit) + 4 * SEG_CS, 0xffffffff);
    e_gs(e, 0, 0xc6, 0, NOREG, 1, OFF(c.cpl)); /* mov byte */
    e1(e, (u8)ring);
}

/* The mode becomes that of the other side, whose index is idx; `back` is the one of this side.
 * Clobbers s1. */
static void put_mode(struct tr *t, unsigned idx, u32 back)
{
    struct emit *e = &t->e;
    e_gs(e, 0, 0x8b, t->s1, NOREG, 1, OFF(c.crossing.mode));
    e_gs(e, 0, 0x89, t->s1, NOREG, 1, OFF(c.mode));
    e_store_imm32(e, OFF(c.idx), idx);
    e_store_imm32(e, OFF(c.crossing.mode), back);
}

/* movzx r, word gs:[off] */
static void put_word(struct emit *e, int r, size_t off)
{
    e1(e, 0x65);
    e_rex(e, 0, r, NOREG, NOREG);
    e2(e, 0xb70f);
    e_modrm(e, r, NOREG, NOREG, 1, (i32)off);
}

void put_syscall(struct tr *t, unsigned i)
{
    struct emit *e = &t->e;
    const struct dbt *d = t->d;
    put_ready(t, i);
    put_flags_image(e, R11);
    e_gs(e, 0, 0x8b, t->s1, NOREG, 1, OFF(c.cpu.sfmask));
    e_rex(e, 0, NOREG, NOREG, t->s1); /* not */
    e1(e, 0xf7);
    e1(e, (u8)(0xd0 | (t->s1 & 7)));
    put_imm(e, 0x81, 1, t->s1, 2);                        /* or */
    e_gs(e, 0, 0x21, t->s1, NOREG, 1, OFF(c.cpu.rflags)); /* and gs:[rflags], s1 */
    put_word(e, t->s1, OFF(c.cpu.star) + 4);
    put_imm(e, 0x81, 4, t->s1, 0xfffc);
    put_segments(t, t->s1, 8, 0);
    put_mode(t, kernel_idx(d->c.mode), d->c.mode);
    tr_put_lin(t, RCX, tr_next(t, i));
    e_load(e, RAX, OFF(save_rax));
    e_cmp_slot_0(e, OFF(c.crossing.ready)); /* 1 - 0: SFMASK clears all flags */
    t->saved = false;
    e_load(e, t->s1, OFF(c.cpu.lstar));
    put_jump(t, kernel_idx(d->c.mode));
}

void put_sysret(struct tr *t, unsigned i)
{
    struct emit *e = &t->e;
    const struct dbt *d = t->d;
    put_ready(t, i);
    put_imm(e, 0xf7, 0, R11, FL_TF | FL_AC); /* test */
    put_exit_if(t, i, 5, X_INSN);            /* jne */
    e_mov(e, t->s1, RCX);
    e_rex(e, 1, NOREG, NOREG, t->s1); /* shr s1, 47: to the user's half */
    e1(e, 0xc1);
    e1(e, (u8)(0xe8 | (t->s1 & 7)));
    e1(e, 47);
    put_exit_if(t, i, 5, X_INSN);
    e_rr(e, 0, 0x89, R11, t->s1);
    put_imm(e, 0x81, 4, t->s1, SYSRET_FLAGS);
    put_imm(e, 0x81, 1, t->s1, 2);
    e_store(e, t->s1, OFF(c.cpu.rflags));
    put_word(e, t->s1, OFF(c.cpu.star) + 6);
    e_lea(e, t->s1, t->s1, NOREG, 1, 16);
    put_imm(e, 0x81, 1, t->s1, 3);
    put_segments(t, t->s1, -8, 3);
    put_mode(t, IDX_USER, (d->c.mode & ~MODE_IDX) | kernel_idx(d->c.mode));
    e_rr(e, 0, 0x89, R11, RAX); /* AX = the arithmetic flags */
    put_shift(e, 5, RAX, 11);
    put_imm(e, 0x81, 4, RAX, 1);
    e_rr(e, 0, 0x89, R11, t->s1);
    put_imm(e, 0x81, 4, t->s1, 0xd5);
    put_shift(e, 4, t->s1, 8);
    e_rr(e, 0, 0x09, t->s1, RAX);
    e_cmp_slot_0(e, OFF(c.want)); /* IF may be 1 from here on */
    u8 *none = e_jcc(e, 4);
    put_restore_flags(t);
    e_store(e, RCX, OFF(target));
    put_block_epilogue(t);
    e_load(e, R10, OFF(target));
    e_jmp_to(e, d->code->rw + d->code->ind_miss);
    e_fix(e, none, e->p);
    put_restore_flags(t);
    t->saved = false;
    e_mov(e, t->s1, RCX);
    put_jump(t, IDX_USER);
}
