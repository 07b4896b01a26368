/*
 * Memory operands of a block that differ from each other by a constant are looked up together,
 * words of the stack among them: a guard finds the host address of all that a group of them will
 * touch, which must be in one page. It stands in front of the block where the address is known
 * there, else in front of the group's first instruction, or of the last one before it at which no
 * flags have to be kept. What it found is in a register, or where none is free in a slot from GS
 * on. A guard that fails goes to a plain translation of what begins at its place; nothing was done
 * by then. That is made once a block's guards have failed FAILED_AT times: mostly it is a page that
 * the TLB does not have yet, and the instructions run one at a time. A block that ends in a branch
 * to its own start is laid out several times, so that guards in front and the budget are for
 * several rounds.
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

/* A register's value: `root` and a constant. Roots are the registers at the block's entry, 16 + i
 * what instruction i wrote into one of them, and where the block begins. */
#define BEGIN (16 + BLOCK_MAX)
struct value {
    i16 root; /* NOREG: not known */
    i64 delta;
};

static struct value sum(struct value v, i64 by)
{
    return (struct value){v.root, (i64)((u64)v.delta + (u64)by)};
}

/* Bytes of an address, and of what is pushed: addresses of 4 wrap around, and all that is looked up
 * together has to be in one page, where none does. */
static int word_of(const struct insn *in)
{
    return in->code == CODE_64 ? 8 : 4;
}

static i64 wrapped(const struct insn *in, i64 v)
{
    return in->code == CODE_64 ? v : (i32)v;
}

/* The word that an instruction of usual size pushes (read or written: *write) relative to a
 * register; NOREG: it does neither. */
static int stack_operand(const struct insn *in, i64 *disp, bool *write)
{
    if (!tr_usual_size(in))
        return NOREG;
    *write = in->treat == T_PUSH || in->treat == T_CALL;
    *disp = *write ? -word_of(in) : 0;
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
        sp = sum(v[stack], write ? disp : word_of(in));
    bool plain =
        in->treat == T_GEN && !in->mem && in->opsize == word_of(in) && in->op0_kind == OP_GPR;
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
    else if (in->treat == T_LEA && in->opsize == word_of(in) && in->addrsize == word_of(in) &&
             in->base >= 0 && in->index < 0 && !in->rip_rel)
        got = sum(v[in->base], in->disp);
    got.delta = wrapped(in, got.delta);
    int fresh = 16 + (int)i; /* for one of them */
    for (unsigned r = 0; r < 16; r++)
        if (in->wr >> r & 1) {
            v[r] = (struct value){(i16)fresh, 0};
            fresh = NOREG;
        }
    if (got.root >= 0)
        v[to] = got;
    /* POP RSP has what was popped; and branches are the last ones. */
    if (stack >= 0 &&
        (in->treat == T_PUSH || in->treat == T_LEAVE || (in->treat == T_POP && to != RSP)))
        v[RSP] = sp;
}

/* An operand: [base + index * scale + disp], of `size` bytes. */
struct operand {
    struct value base, index;
    int base_reg, index_reg; /* NOREG: none */
    u8 scale;
    bool write;
    i64 disp, size;
};

static bool near(i64 disp)
{
    return disp >= -(1 << 30) && disp <= 1 << 30;
}

/* What guards can look for an operand of instruction i by; false: nothing. */
static bool operand(const struct tr *t, unsigned i, enum operand_of of, const struct value v[16],
                    struct operand *o)
{
    const struct insn *in = &t->in[i];
    static const struct value none = {.root = NOREG};
    *o = (struct operand){none, none, NOREG, NOREG, .size = word_of(in)};
    o->base_reg = of == OF_INSN ? stack_operand(in, &o->disp, &o->write) : NOREG;
    if (o->base_reg >= 0) {
        o->base = v[o->base_reg];
        return o->base.root >= 0;
    }
    bool target = in->treat == T_PUSH || in->treat == T_CALL || in->treat == T_JMP;
    if (!in->mem || !in->mem_size || in->addrsize != word_of(in) || in->high8 ||
        seg_has_base(in->seg) || (of == OF_INSN ? in->treat != T_GEN : !target))
        return false;
    o->size = in->mem_size;
    o->write = of == OF_INSN && (in->mem & MEM_W);
    o->disp = in->disp;
    if (in->rip_rel || (in->code != CODE_64 && in->base < 0 && in->index < 0)) {
        u64 at = in->rip_rel ? tr_next(t, i) + (u64)in->disp : (u32)in->disp;
        o->disp = (i64)(at - t->lin);
        o->base.root = BEGIN;
        return near(o->disp);
    }
    o->base_reg = in->base;
    o->index_reg = in->index;
    o->scale = in->scale;
    if (in->base < 0 || in->index == RSP || !near(o->disp))
        return false;
    o->base = v[in->base];
    if (in->index >= 0)
        o->index = v[in->index];
    return o->base.root >= 0 && (in->index < 0 || o->index.root >= 0);
}

/* A register that has a value then, but for a constant. */
static int holder(const struct value v[16], int root, int liked, bool index)
{
    if (v[liked].root == root)
        return liked;
    for (int r = 0; r < 16; r++)
        if (v[r].root == root && !(index && r == RSP))
            return r;
    return NOREG;
}

/* Places a group's guard in front of instruction `at`, where the registers have these values;
 * false: what it needs is not there. */
static bool place(struct group *g, int at, const struct value v[16], const struct operand *o)
{
    if (at < 0)
        return false;
    g->at = (i16)at;
    g->base_reg = g->index_reg = NOREG;
    g->bias = 0;
    if (g->base != BEGIN) {
        g->base_reg = (i8)holder(v, g->base, o->base_reg, false);
        if (g->base_reg < 0)
            return false;
        g->bias = v[g->base_reg].delta;
    }
    if (g->index >= 0) {
        g->index_reg = (i8)holder(v, g->index, o->index_reg, true);
        if (g->index_reg < 0)
            return false;
        g->bias = (i64)((u64)g->bias + (u64)v[g->index_reg].delta * g->scale);
    }
    return near((i64)((u64)g->lo - (u64)g->bias));
}

/* ... in front of the block, if registers at the entry are enough. */
static bool place_in_front(struct group *g)
{
    if ((g->base >= 16 && g->base != BEGIN) || g->index >= 16 || g->index == RSP)
        return false; /* RSP can be no index, also where it is for what it was at the entry */
    g->at = AT_ENTRY;
    g->base_reg = (i8)(g->base == BEGIN ? NOREG : g->base);
    g->index_reg = (i8)g->index;
    g->bias = 0;
    return true;
}

/* Where flags are kept. */
static bool costs_flags(const struct tr *t, const struct group *g)
{
    return t->live[MAX(g->at, 0)];
}

/* Where no flags had to be kept last, and what the registers have there. */
struct point {
    int at; /* NOREG: there is none */
    struct value v[16];
};

/* The group that an operand of instruction i joins, or a new one. */
static void join(struct tr *t, unsigned i, enum operand_of of, const struct value v[16],
                 const struct point *point)
{
    struct operand o;
    t->member[i][of].group = NOREG;
    if (!operand(t, i, of, v, &o))
        return;
    i64 lo = (i64)((u64)o.disp + (u64)o.base.delta +
                   (o.index_reg < 0 ? 0 : (u64)o.index.delta * o.scale));
    lo = wrapped(&t->in[i], lo);
    i64 hi = lo + o.size;
    if (!near(lo) || !near(hi))
        return;
    for (unsigned k = 0; k <= t->ngroups && k < GROUPS_MAX; k++) {
        struct group *g = &t->group[k];
        if (k == t->ngroups) {
            *g = (struct group){o.base.root,   o.index.root,  o.scale,
                                .lo = (i32)lo, .hi = (i32)hi, .reg = NOREG};
            bool cheap = !t->live[0] || t->body;
            if (!(cheap && place_in_front(g)) && !place(g, point->at, point->v, &o) &&
                !place_in_front(g) && (i < t->check || !place(g, (int)i, v, &o)))
                return;
            t->ngroups++;
        } else if (g->base != o.base.root || g->index != o.index.root ||
                   (o.index_reg >= 0 && g->scale != o.scale) ||
                   MAX(hi, g->hi) - MIN(lo, g->lo) > SPAN_MAX) {
            continue;
        }
        g->lo = (i32)MIN(lo, g->lo);
        g->hi = (i32)MAX(hi, g->hi);
        g->write |= o.write;
        g->members++;
        g->gain += t->live[i] ? 2 : 1;
        g->last = (i16)i;
        t->member[i][of] = (struct member){(i8)k, (i32)lo};
        return;
    }
}

/* Is the first scratch register free, because a group has all that would need it? */
static bool spare_scratch(const struct tr *t)
{
    for (unsigned i = 0; i < t->count; i++) {
        const struct insn *in = &t->in[i];
        bool explicit = in->treat != T_GEN && (in->mem || in->treat == T_CALL);
        if ((tr_wants_scratch(t->d, in) && (t->member[i][OF_INSN].group != 0 || explicit)) ||
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
        if (t->group[k].found == IN_REGISTER && t->group[k].reg == reg &&
            overlap(t, &t->group[k], g))
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
        if (o != g && o->found && o->at != AT_ENTRY &&
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

/* A register that holds what the guard found, if one is free. */
static void give_register(struct tr *t, struct group *g)
{
    static const int order[] = {R11, R10, R9, R8, RDI, RSI, RDX, R15, R14, RBX, R12, R13, RBP};
    u32 taken = t->use | 1u << t->s1 | 1u << t->s2;
    for (unsigned n = 0; n < ARRAY_SIZE(order); n++) {
        int r = order[n];
        if ((taken >> r & 1) || !is_free(t, r, g))
            continue;
        g->reg = (i8)r;
        g->found = IN_REGISTER;
        if (!(STOLEN >> r & 1))
            t->spilled |= (u16)(1u << r);
        return;
    }
}

/* Guards, for the groups that gain the most by them. */
static void give_guards(struct tr *t)
{
    struct group *all = &t->group[0];
    if (spare_scratch(t) && all->members >= 2 && give_slot(t, all)) {
        all->reg = (i8)t->s1;
        all->found = IN_REGISTER;
        t->guarded = true;
        return;
    }
    bool seen[GROUPS_MAX] = {false};
    for (;;) {
        struct group *best = NULL;
        for (unsigned k = 0; k < t->ngroups; k++)
            if (!seen[k] && t->group[k].gain >= (costs_flags(t, &t->group[k]) ? 4 : 2) &&
                (!best || t->group[k].gain > best->gain))
                best = &t->group[k];
        if (!best)
            return;
        seen[best - t->group] = true;
        if (!give_slot(t, best))
            continue;
        give_register(t, best);
        if (!best->found)
            best->found = IN_SLOT;
        t->guarded = true;
    }
}

bool guard_wanted(const struct tr *t)
{
    return !t->at->plain && !t->at->phys2;
}

static void unroll(struct tr *t)
{
    unsigned copies = MIN(COPIES_MAX, BLOCK_MAX / t->n);
    t->body = t->n;
    for (unsigned i = t->n; i < t->n * copies; i++) {
        t->in[i] = t->in[i - t->body];
        t->off[i] = t->off[i - t->body];
        t->live[i] = t->live[i - t->body];
        t->after[i] = t->after[i - t->body];
        t->way[i] = t->way[i - t->body];
        t->side[i] = t->side[i - t->body];
    }
    t->n = t->count = t->n * copies;
}

void guard_block(struct tr *t)
{
    struct value v[16];
    struct point point = {.at = NOREG};
    if (t->closed)
        unroll(t);
    for (unsigned r = 0; r < 16; r++)
        v[r] = (struct value){(i16)r, 0};
    for (unsigned i = 0; i < t->count; i++) {
        if (!t->live[i]) {
            point.at = (int)i;
            memcpy(point.v, v, sizeof(v));
        }
        join(t, i, OF_INSN, v, &point);
        join(t, i, OF_TARGET, v, &point);
        follow(v, &t->in[i], i);
    }
    give_guards(t);
    for (unsigned i = 0; i < t->count; i++)
        for (unsigned k = 0; k < ARRAY_SIZE(t->member[i]); k++) {
            struct member *m = &t->member[i][k];
            if (m->group >= 0 && !t->group[m->group].found)
                m->group = NOREG;
        }
}

/* Sets what a group's guard in front of instruction i finds, or goes to a cold part. Flags that
 * have to be kept are saved then. */
static void put_guard(struct tr *t, unsigned k, unsigned i, struct cold cold)
{
    struct emit *e = &t->e;
    const struct group *g = &t->group[k];
    int h = g->found == IN_REGISTER ? g->reg : t->s1, s2 = t->s2;
    i32 lo = (i32)(g->lo - g->bias);
    u32 last = PAGE_SIZE - (u32)(g->hi - g->lo);
    bool stack = g->base_reg == RSP && g->index < 0;
    size_t page = tr_stack_page(t), tlb;
    if (g->base_reg == RAX || g->index_reg == RAX)
        put_saved(t, false);
    if (stack) {
        /* The stack's page is mostly the one that it was in last. */
        e_load(e, h,
               page + (g->write ? offsetof(struct stack_page, wtag)
                                : offsetof(struct stack_page, rtag)));
        e_lea(e, h, RSP, h, 1, lo);
    } else if (g->base == BEGIN) {
        tr_put_lin(t, h, t->lin + (u64)(i64)lo);
    } else {
        if (tr_word(t) == 4)
            e1(e, 0x67);
        e_lea(e, h, g->base_reg, g->index_reg, g->scale, lo);
    }
    if (t->live[i])
        put_saved(t, true);
    if (!stack) {
        int index = s2;
        if (g->base == BEGIN) {
            tlb = put_tlb_slot(t, t->lin + (u64)(i64)lo);
            index = NOREG;
        } else {
            tlb = put_tlb_index(t, h);
        }
        e_gs(e, 1, 0x33, h, index, 1, tlb + (g->write ? offsetof(struct tlb_entry, wtag) : 0));
        if (g->base == BEGIN)
            tr_note_tlb(t, t->lin + (u64)(i64)lo);
        e_cmp_imm32(e, h, last);
        cold.at = e_jcc(e, 7); /* ja */
        e_gs(e, 1, 0x03, h, index, 1, tlb + offsetof(struct tlb_entry, host));
        if (g->base == BEGIN)
            tr_note_tlb(t, t->lin + (u64)(i64)lo);
    } else {
        e_cmp_imm32(e, h, last);
        cold.at = e_jcc(e, 7); /* ja */
        e_load(e, h, page + offsetof(struct stack_page, add));
        e_lea(e, h, RSP, h, 1, lo);
    }
    if (g->found == IN_SLOT)
        e_store(e, h, OFF(found) + 8 * (size_t)k);
    cold.live = t->saved;
    tr_cold(t, cold);
}

/* In front of the first instruction; the loop comes back here. */
void put_guards(struct tr *t)
{
    t->again = t->e.p;
    for (unsigned k = 0; k < t->ngroups; k++)
        if (t->group[k].found && t->group[k].at == AT_ENTRY)
            put_guard(t, k, 0, (struct cold){.kind = COLD_PLAIN});
}

bool guards_hold(const struct tr *t, int reg)
{
    for (unsigned k = 0; k < t->ngroups; k++)
        if (t->group[k].found == IN_REGISTER && t->group[k].reg == reg)
            return true;
    return false;
}

bool guards_at(const struct tr *t, unsigned i)
{
    for (unsigned k = 0; t->guarded && k < t->ngroups; k++)
        if (t->group[k].found && t->group[k].at == (i16)i)
            return true;
    return false;
}

void put_middle_guards(struct tr *t, unsigned i)
{
    for (unsigned k = 0; k < t->ngroups; k++)
        if (t->group[k].found && t->group[k].at == (i16)i)
            put_guard(t, k, i, (struct cold){.kind = COLD_MIDDLE, .id = k});
}

/* To the plain translation of what begins at an instruction. */
static void put_to_plain(struct tr *t, u64 lin, unsigned slot)
{
    struct emit *e = &t->e;
    put_block_epilogue(t);
    u8 *at = e_jmp(e);
    e_fix(e, at, e->p);
    struct link *l = tr_link(t, at, lin, slot);
    l->plain = true;
    l->exit = (u32)(e->p - t->d->code->rw);
    put_exit(t, EXIT_ID(t->bi, slot, X_PLAIN));
}

void put_guard_cold(struct tr *t, const struct cold *c)
{
    struct emit *e = &t->e;
    u8 **at = c->live ? &t->plain_saved : &t->plain;
    if (!*at) {
        *at = e->p;
        if (c->live)
            put_restore_flags(t);
        if (t->plain && t->plain != *at) {
            e_jmp_to(e, t->plain);
        } else {
            t->plain = e->p;
            put_to_plain(t, t->lin, LINK_PLAIN);
        }
    }
    e_fix(e, c->at, *at);
}

void put_middle_cold(struct tr *t, const struct cold *c)
{
    const struct group *g = &t->group[c->id];
    unsigned i = (unsigned)g->at;
    if (c->live)
        put_restore_flags(t);
    put_give_back(t, i);
    put_passed(t, i);
    if (t->leave[g->slot]) {
        e_jmp_to(&t->e, t->leave[g->slot]);
        return;
    }
    t->leave[g->slot] = t->e.p;
    put_to_plain(t, tr_lin(t, i), g->slot);
}
