/*
 * Memory operands of a block that differ from each other by a constant are looked up together,
 * words of the stack among them: a guard finds the host address of all that a group of them will
 * touch, which must be in one page. It stands in front of the block where the address is known
 * there, else in front of the group's first instruction. A guard that fails goes to a plain
 * translation of what begins at its place; nothing was done by then. That is made once a block's
 * guards have failed FAILED_AT times: mostly it is a page that the TLB does not have yet, and the
 * instructions run one at a time. A block that ends in a branch to its own start is laid out
 * several times, so that guards in front and the budget are for several rounds.
 *
 * What a guard found stays true inside: the TLB loses something only through slow_mem(), which then
 * has the instruction executed by hand.
 */
#include "tr.h"

#include <Zydis/Mnemonic.h>

#include "cpu/x86/mode.h"
#include "cpu/x86/tlb.h"

#define COPIES_MAX 8
#define SPAN_MAX   1024 /* bytes: the longer, the more often a page ends in it */

/* A register's value: `root` and a constant. Roots are the registers at the block's entry, and 16 +
 * i what instruction i wrote into one of them. */
struct value {
    i8 root; /* NOREG: not known */
    i64 delta;
};

static struct value sum(struct value v, i64 by)
{
    return (struct value){v.root, (i64)((u64)v.delta + (u64)by)};
}

/* The word that an instruction of usual size pushes (read or written: *write) relative to a
 * register; NOREG: it does neither. */
static int stack_operand(const struct insn *in, i64 *disp, bool *write)
{
    if (in->code != CODE_64 || !tr_usual_size(in))
        return NOREG;
    *write = in->treat == T_PUSH || in->treat == T_CALL;
    *disp = *write ? -8 : 0;
    switch (in->treat) {
    case T_PUSH:
    case T_POP:
    case T_CALL:
    case T_RET: return RSP;
    case T_LEAVE: return RBP;
    default: return NOREG;
    }
}

/* What the registers have after instruction i. */
static void follow(struct value v[16], const struct insn *in, unsigned i)
{
    struct value got = {.root = NOREG}, sp = got;
    int to = in->reg0;
    i64 disp;
    bool write;
    int stack = stack_operand(in, &disp, &write);
    if (stack >= 0)
        sp = sum(v[stack], write ? disp : 8);
    bool plain = in->treat == T_GEN && !in->mem && in->opsize == 8 && in->op0_kind == OP_GPR;
    if (plain && in->op1_kind == OP_IMM && in->mnemonic == ZYDIS_MNEMONIC_ADD)
        got = sum(v[to], (i64)in->imm2);
    else if (plain && in->op1_kind == OP_IMM && in->mnemonic == ZYDIS_MNEMONIC_SUB)
        got = sum(v[to], -(i64)in->imm2);
    else if (plain && in->mnemonic == ZYDIS_MNEMONIC_INC)
        got = sum(v[to], 1);
    else if (plain && in->mnemonic == ZYDIS_MNEMONIC_DEC)
        got = sum(v[to], -1);
    else if (plain && in->op1_kind == OP_GPR && in->mnemonic == ZYDIS_MNEMONIC_MOV)
        got = v[in->reg1];
    else if (in->treat == T_LEA && in->opsize == 8 && in->addrsize == 8 && in->base >= 0 &&
             in->index < 0 && !in->rip_rel)
        got = sum(v[in->base], in->disp);
    int fresh = 16 + (int)i; /* for one of them */
    for (unsigned r = 0; r < 16; r++)
        if (in->wr >> r & 1) {
            v[r] = (struct value){(i8)fresh, 0};
            fresh = NOREG;
        }
    if (got.root >= 0)
        v[to] = got;
    /* POP RSP has what was popped; and branches are the last ones. */
    if (stack >= 0 &&
        (in->treat == T_PUSH || in->treat == T_LEAVE || (in->treat == T_POP && to != RSP)))
        v[RSP] = sp;
}

/* The group that the operand of instruction i joins, or a new one. */
static void join(struct tr *t, unsigned i, const struct value v[16])
{
    const struct insn *in = &t->in[i];
    static const struct value none = {.root = NOREG};
    i64 disp, size = 8;
    bool write;
    int base = stack_operand(in, &disp, &write), index = NOREG;
    if (base < 0) {
        if (in->treat != T_GEN || !in->mem || !in->mem_size || in->addrsize != 8 || in->rip_rel ||
            in->high8 || seg_has_base(in->seg) || in->base < 0)
            return;
        base = in->base;
        index = in->index;
        disp = in->disp;
        size = in->mem_size;
        write = in->mem & MEM_W;
    }
    struct value b = v[base], x = index >= 0 ? v[index] : none;
    if (b.root < 0 || (index >= 0 && x.root < 0) || index == RSP)
        return;
    u64 bias = (u64)b.delta + (u64)x.delta * in->scale;
    i64 lo = (i64)((u64)disp + bias), hi = lo + size;
    if (lo < -(1 << 30) || hi > 1 << 30 || disp < -(1 << 30) || disp > 1 << 30)
        return;
    /* RSP can be no index, also where guards look for what it was at the entry. */
    bool entry = b.root < 16 && x.root < 16 && x.root != RSP && guard_wanted(t);
    for (unsigned k = 0; k <= t->ngroups && k < GROUPS_MAX; k++) {
        struct group *g = &t->group[k];
        if (k == t->ngroups) {
            /* A guard in the middle changes flags. */
            if (!entry && t->live[i])
                return;
            *g = (struct group){b.root,
                                x.root,
                                in->scale,
                                .reg = NOREG,
                                .lo = (i32)lo,
                                .hi = (i32)hi,
                                .at = entry ? AT_ENTRY : (i16)i,
                                .base_reg = (i8)(entry ? b.root : base),
                                .index_reg = (i8)(entry ? x.root : index),
                                .bias = entry ? 0 : (i64)bias};
            t->ngroups++;
        } else if (g->base != b.root || g->index != x.root ||
                   (x.root >= 0 && g->scale != in->scale) ||
                   MAX(hi, g->hi) - MIN(lo, g->lo) > SPAN_MAX) {
            continue;
        }
        g->lo = (i32)MIN(lo, g->lo);
        g->hi = (i32)MAX(hi, g->hi);
        g->write |= write;
        g->members++;
        g->last = (i16)i;
        t->member[i] = (struct member){(i8)k, (i32)lo};
        return;
    }
}

/* Is the first scratch register free, because a group has all that would need it? */
static bool spare_scratch(const struct tr *t)
{
    for (unsigned i = 0; i < t->count; i++) {
        const struct insn *in = &t->in[i];
        bool explicit = in->treat != T_GEN && (in->mem || in->treat == T_CALL);
        if ((tr_wants_scratch(t->d, in) && (t->member[i].group != 0 || explicit)) ||
            in->needs == N_X87)
            return false;
    }
    return t->ngroups == 1;
}

/* From its guard on, as long as it is needed; in a loop, what a guard in front found is. */
static bool overlap(const struct tr *t, const struct group *a, const struct group *b)
{
    int a_last = t->body && a->at == AT_ENTRY ? BLOCK_MAX : a->last;
    int b_last = t->body && b->at == AT_ENTRY ? BLOCK_MAX : b->last;
    return a->at <= b_last && b->at <= a_last;
}

static bool is_free(const struct tr *t, int reg, const struct group *g)
{
    for (unsigned k = 0; k < t->ngroups; k++)
        if (t->group[k].reg == reg && overlap(t, &t->group[k], g))
            return false;
    return true;
}

/* A link for the guard: one for all rounds of a loop. */
static bool give_slot(struct tr *t, struct group *g)
{
    if (g->at == AT_ENTRY)
        return true;
    for (unsigned k = 0; k < t->ngroups; k++) {
        const struct group *o = &t->group[k];
        if (o != g && o->reg >= 0 && o->at != AT_ENTRY &&
            tr_lin(t, (unsigned)o->at) == tr_lin(t, (unsigned)g->at)) {
            g->slot = o->slot;
            return true;
        }
    }
    if (t->nsides >= LINKS_MAX - LINK_SIDE)
        return false;
    g->slot = (u8)(LINK_SIDE + t->nsides++);
    return true;
}

/* Registers that hold what guards found, for the groups with the most members, two at least. */
static void give_registers(struct tr *t)
{
    static const int order[] = {R11, R10, R9, R8, RDI, RSI, RDX, R15, R14, RBX, R12, R13, RBP};
    u32 taken = t->use | 1u << t->s1 | 1u << t->s2;
    if (spare_scratch(t) && t->group[0].members >= 2 && give_slot(t, &t->group[0])) {
        t->group[0].reg = (i8)t->s1;
        t->guarded = true;
        return;
    }
    bool seen[GROUPS_MAX] = {false};
    for (;;) {
        struct group *best = NULL;
        for (unsigned k = 0; k < t->ngroups; k++)
            if (!seen[k] && t->group[k].members >= 2 &&
                (!best || t->group[k].members > best->members))
                best = &t->group[k];
        if (!best)
            return;
        seen[best - t->group] = true;
        for (unsigned n = 0; n < ARRAY_SIZE(order); n++) {
            int r = order[n];
            if ((taken >> r & 1) || !is_free(t, r, best))
                continue;
            if (!give_slot(t, best))
                break;
            best->reg = (i8)r;
            t->guarded = true;
            if (!(STOLEN >> r & 1))
                t->spilled |= (u16)(1u << r);
            break;
        }
    }
}

bool guard_wanted(const struct tr *t)
{
    return !t->at->plain && !t->at->phys2 && t->live[0] == 0;
}

static void unroll(struct tr *t)
{
    unsigned copies = MIN(COPIES_MAX, BLOCK_MAX / t->n);
    t->body = t->n;
    for (unsigned i = t->n; i < t->n * copies; i++) {
        t->in[i] = t->in[i - t->body];
        t->off[i] = t->off[i - t->body];
        t->live[i] = t->live[i - t->body];
        t->way[i] = t->way[i - t->body];
        t->side[i] = t->side[i - t->body];
    }
    t->n = t->count = t->n * copies;
}

void guard_block(struct tr *t)
{
    struct value v[16];
    if (t->closed)
        unroll(t);
    for (unsigned r = 0; r < 16; r++)
        v[r] = (struct value){(i8)r, 0};
    for (unsigned i = 0; i < t->count; i++) {
        t->member[i].group = NOREG;
        join(t, i, v);
        follow(v, &t->in[i], i);
    }
    give_registers(t);
    for (unsigned i = 0; i < t->count; i++)
        if (t->member[i].group >= 0 && t->group[t->member[i].group].reg < 0)
            t->member[i].group = NOREG;
}

/* Sets g->reg, or goes to a cold part. */
static void put_guard(struct tr *t, const struct group *g, struct cold cold)
{
    struct emit *e = &t->e;
    int h = g->reg, s2 = t->s2;
    i32 lo = (i32)(g->lo - g->bias);
    u32 last = PAGE_SIZE - (u32)(g->hi - g->lo);
    if (g->base_reg == RSP && g->index < 0) {
        /* The stack's page is mostly the one that it was in last. */
        size_t page = tr_stack_page(t);
        e_load(e, h,
               page + (g->write ? offsetof(struct stack_page, wtag)
                                : offsetof(struct stack_page, rtag)));
        e_lea(e, h, RSP, h, 1, lo);
        e_cmp_imm32(e, h, last);
        cold.at = e_jcc(e, 7); /* ja */
        e_load(e, h, page + offsetof(struct stack_page, add));
        e_lea(e, h, RSP, h, 1, lo);
    } else {
        e_lea(e, h, g->base_reg, g->index_reg, g->scale, lo);
        size_t tlb = put_tlb_index(t, h);
        e_gs(e, 1, 0x33, h, s2, 1, tlb + (g->write ? offsetof(struct tlb_entry, wtag) : 0));
        e_cmp_imm32(e, h, last);
        cold.at = e_jcc(e, 7); /* ja */
        e_gs(e, 1, 0x03, h, s2, 1, tlb + offsetof(struct tlb_entry, host));
    }
    tr_cold(t, cold);
}

/* In front of the first instruction; the loop comes back here. */
void put_guards(struct tr *t)
{
    t->again = t->e.p;
    for (unsigned k = 0; k < t->ngroups; k++)
        if (t->group[k].reg >= 0 && t->group[k].at == AT_ENTRY)
            put_guard(t, &t->group[k], (struct cold){.kind = COLD_PLAIN});
}

void put_middle_guards(struct tr *t, unsigned i)
{
    for (unsigned k = 0; k < t->ngroups; k++)
        if (t->group[k].reg >= 0 && t->group[k].at == (i16)i)
            put_guard(t, &t->group[k], (struct cold){.kind = COLD_MIDDLE, .id = k});
}

/* To the plain translation of what begins at an instruction. */
static void put_to_plain(struct tr *t, u64 lin, unsigned slot)
{
    struct emit *e = &t->e;
    struct block *b = t->b;
    put_block_epilogue(t);
    u8 *at = e_jmp(e);
    e_fix(at, e->p);
    b->plains |= (u8)(1u << slot);
    b->link_target[slot] = lin & (PAGE_SIZE - 1);
    b->link_patch[slot] = (u32)(at - t->d->code->rw);
    b->link_exit[slot] = (u32)(e->p - t->d->code->rw);
    put_exit(t, EXIT_ID(t->bi, slot, X_PLAIN));
}

void put_guard_cold(struct tr *t, const struct cold *c)
{
    if (!t->plain) {
        t->plain = t->e.p;
        put_to_plain(t, t->lin, LINK_PLAIN);
    }
    e_fix(c->at, t->plain);
}

void put_middle_cold(struct tr *t, const struct cold *c)
{
    const struct group *g = &t->group[c->id];
    unsigned i = (unsigned)g->at;
    put_give_back(t, i);
    if (t->leave[g->slot]) {
        e_jmp_to(&t->e, t->leave[g->slot]);
        return;
    }
    t->leave[g->slot] = t->e.p;
    put_to_plain(t, tr_lin(t, i), g->slot);
}
