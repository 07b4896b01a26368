/*
 * REP MOVS and REP STOS inside pages of which the TLB has entries: the host's own instruction does
 * all of it, whose order, overlaps and all, is the guest's. What crosses a page, goes backwards,
 * misses the TLB or has no iterations is x86/string.c's, and so is one that comes to a stop: each
 * iteration is a position.
 */
#include "tr.h"

#include "cpu/x86/mode.h"

static bool is_movs(const struct insn *in)
{
    return (in->opcode & 0xfe) == 0xa4;
}

static unsigned element(const struct insn *in)
{
    return in->opcode & 1 ? in->opsize : 1;
}

bool has_string(const struct dbt *d, const struct insn *in)
{
    return (is_movs(in) || (in->opcode & 0xfe) == 0xaa) && in->rep && in->code == CODE_64 &&
           in->addrsize == 8 && !seg_has_base(in->seg) && !counts_branches(&d->c);
}

/* Leaves by the one exit of the instruction, which is behind its checks: `out` is the jumps there.
 */
struct leave {
    u8 *at[5];
    unsigned n;
};

static void put_leave_if(struct tr *t, struct leave *out, int cond)
{
    CHECK(out->n < ARRAY_SIZE(out->at), "%u checks", out->n);
    out->at[out->n++] = e_jcc(&t->e, cond);
}

/* s1 = where the host has the end of RCX elements at the address in reg, if they are in one page of
 * which there is an entry. What differs from another tag differs by a page at least and, as both
 * are of one place, in no bit of that place but the lowest, so that nothing wraps around. */
static void put_end(struct tr *t, struct leave *out, int reg, unsigned size, bool write)
{
    struct emit *e = &t->e;
    size_t tlb = put_tlb_index(t, reg);
    e_mov(e, t->s1, reg);
    e_gs(e, 1, 0x33, t->s1, t->s2, 1,
         tlb + (write ? offsetof(struct tlb_entry, wtag) : offsetof(struct tlb_entry, rtag)));
    e_lea(e, t->s1, t->s1, RCX, (int)size, 0);
    e_cmp_imm32(e, t->s1, PAGE_SIZE);
    put_leave_if(t, out, 7); /* ja: in another page, or a miss */
    e_gs(e, 1, 0x03, t->s1, t->s2, 1, tlb + offsetof(struct tlb_entry, host));
}

/* The guest's own bytes, of registers that have the host's addresses. */
static void put_repeated(struct emit *e, const struct insn *in)
{
    e1(e, 0xf3);
    put_copy(e, in);
}

void put_string(struct tr *t, unsigned i)
{
    const struct insn *in = &t->in[i];
    struct emit *e = &t->e;
    int s1 = t->s1, s2 = t->s2, size = (int)element(in);
    struct leave out = {.n = 0};
    put_saved(t, t->live[i] != 0);
    tr_rflags(t, 0xf6, 0, 1, FL_DF >> 8);
    put_leave_if(t, &out, 5); /* jne */
    /* s2 = how many positions more than an instruction's. Of none that is -1. */
    e_lea(e, s2, RCX, NOREG, 1, -1);
    e_cmp_imm32(e, s2, PAGE_SIZE - 1);
    put_leave_if(t, &out, 7);                   /* ja */
    e_gs(e, 1, 0x39, s2, NOREG, 1, tr_part(t)); /* cmp gs:[part], s2 */
    put_leave_if(t, &out, 0xc);                 /* jl */
    if (is_movs(in)) {
        put_end(t, &out, RSI, (unsigned)size, false);
        e_store(e, s1, OFF(tmp));
    }
    put_end(t, &out, RDI, (unsigned)size, true);
    u8 *good = e_jmp(e);
    for (unsigned k = 0; k < out.n; k++)
        e_fix(e, out.at[k], e->p);
    tr_cold(t, (struct cold){.at = e_jmp(e),
                             .kind = t->saved ? COLD_EXIT_SAVED : COLD_EXIT,
                             .id = EXIT_ID(t->bi, i, X_INSN)});
    e_fix(e, good, e->p);
    e_lea(e, s2, RCX, NOREG, 1, -1);
    e_gs(e, 1, 0x29, s2, NOREG, 1, tr_part(t));           /* sub */
    e_gs(e, 1, 0x01, s2, NOREG, 1, OFF(c.pmu.not_insns)); /* add */
    e_mov(e, s2, RCX);
    e_neg(e, s2);
    e_lea(e, s1, s1, s2, size, 0);
    put_saved(t, false);
    /* From here on no flags are touched. */
    if (is_movs(in)) {
        e_store(e, s1, OFF(tmp2));
        e_load(e, s1, OFF(tmp));
        e_lea(e, s1, s1, s2, size, 0);
        e_lea(e, s2, RDI, RCX, size, 0);
        e_store(e, s2, OFF(tmp));
        e_lea(e, s2, RSI, RCX, size, 0);
        e_mov(e, RSI, s1);
        e_load(e, RDI, OFF(tmp2));
        put_repeated(e, in);
        e_mov(e, RSI, s2);
        e_load(e, RDI, OFF(tmp));
    } else {
        e_lea(e, s2, RDI, RCX, size, 0);
        e_mov(e, RDI, s1);
        put_repeated(e, in);
        e_mov(e, RDI, s2);
    }
    e1(e, 0x65); /* mov byte gs:[rep_resume], 0: it may have been stopped in between, before */
    e1(e, 0xc6);
    e_modrm(e, 0, NOREG, NOREG, 1, (i32)OFF(c.cpu.rep_resume));
    e1(e, 0);
}
