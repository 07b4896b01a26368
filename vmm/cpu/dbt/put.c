/*
 * Host code for one guest instruction (its bytes: put_bytes.c): the soft-TLB check, the stack and
 * branch forms, the block's edges. Host code for rare paths is recorded as `cold` and written
 * after the block by translate.c.
 */
#include "tr.h"

#include <Zydis/Mnemonic.h>

#include "cpu/x86/icache.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/tlb.h"

/* ---- block edges ---- */

void put_prologue(struct emit *e, u16 loaded, u16 spilled)
{
    for (int r = 0; r < 16; r++)
        if (spilled >> r & 1)
            e_store(e, r, SLOT(r));
    for (int r = 0; r < 16; r++)
        if (loaded >> r & 1)
            e_load(e, r, SLOT(r));
}

void put_epilogue(struct emit *e, u16 loaded_written, u16 spilled)
{
    for (int r = 0; r < 16; r++)
        if (loaded_written >> r & 1)
            e_store(e, r, SLOT(r));
    for (int r = 0; r < 16; r++)
        if (spilled >> r & 1)
            e_load(e, r, SLOT(r));
}

void put_block_epilogue(struct tr *t)
{
    put_epilogue(&t->e, t->loaded & t->wr, t->spilled);
}

void put_exit(struct tr *t, u32 id)
{
    tr_put_id(t, OFF(exit_id), id);
    e_jmp_to(&t->e, t->d->code->rw + t->d->code->exit_common);
}

/* Through the jump cache of index idx. */
void put_far_edge(struct tr *t, u64 target, unsigned idx)
{
    e_movi_noted(&t->e, R10, target, RELOC_FAR);
    e1(&t->e, 0x65); /* jmp gs:[jc slot] */
    e1(&t->e, 0xff);
    e_modrm(&t->e, 4, NOREG, NOREG, 1,
            (i32)(OFF(jc) + 8 * ((size_t)idx * JC_SIZE + jc_slot(target))));
}

bool tr_linkable(const struct tr *t, u64 target)
{
    return (target ^ t->lin) < PAGE_SIZE &&
           !icache_crosses(&t->d->c, t->at->page, target & (PAGE_SIZE - 1));
}

struct link *tr_link(struct tr *t, const u8 *at, u64 target, unsigned slot)
{
    struct code *k = t->d->code;
    CHECK(k->nlinks < k->links_end && k->nlinks == t->b->links + t->b->nlinks && slot < LINKS_MAX,
          "a link %u of the block at %llx", slot, (unsigned long long)t->lin);
    struct link *l = &k->links[k->nlinks++];
    *l = (struct link){
        .patch = (u32)(at - k->rw), .target = target & (PAGE_SIZE - 1), .slot = (u8)slot};
    t->b->nlinks++;
    return l;
}

/* ... which leaves the block while it is not linked. `inner`: struct link. */
static void put_link(struct tr *t, u8 *at, u32 inner, u64 target, unsigned slot)
{
    tr_link(t, at, target, slot)->inner = inner;
    tr_cold(t, (struct cold){.at = at, .kind = COLD_LINK, .id = EXIT_ID(t->bi, slot, X_LINK)});
}

/* Goes to a linear address: a patchable jump inside the page, else through the jump cache. */
void put_edge(struct tr *t, u64 target, unsigned slot)
{
    struct emit *e = &t->e;
    if (!tr_linkable(t, target)) {
        put_block_epilogue(t);
        put_far_edge(t, target, t->d->c.idx);
        return;
    }
    put_epilogue(e, t->loaded & t->wr, 0);
    u32 inner = 0;
    if (t->loaded | t->spilled) {
        /* To a block with the same registers elsewhere: past its prologue, without the rest. */
        u8 *at = e_jmp(e);
        e_fix(e, at, e->p);
        inner = (u32)(at - t->d->code->rw);
    }
    put_epilogue(e, 0, t->spilled);
    put_link(t, e_jmp(e), inner, target, slot);
}

/* Target in s1. */
void put_indirect(struct tr *t, unsigned i)
{
    tr_put_id(t, OFF(ind_id), EXIT_ID(t->bi, i, X_IND));
    put_jump(t, t->d->c.idx);
}

void put_jump(struct tr *t, unsigned idx)
{
    struct emit *e = &t->e;
    if (t->s1 != R10 || (t->loaded >> R10 & 1)) {
        e_store(e, t->s1, OFF(target));
        put_block_epilogue(t);
        e_load(e, R10, OFF(target));
    } else {
        put_block_epilogue(t);
    }
    tr_jc_slot(e, 1);
    e1(e, 0x65); /* jmp gs:[r11*8 + jc] */
    e1(e, 0x42);
    e1(e, 0xff);
    e_modrm(e, 4, NOREG, R11, 8, (i32)(OFF(jc) + 8 * (size_t)idx * JC_SIZE));
}

/* ---- memory ---- */

/* Linear address of the operand into reg; tmp is clobbered with a segment base. */
void put_ea(struct tr *t, const struct insn *in, unsigned i, int reg, int tmp, bool *is_const,
            u64 *value)
{
    struct emit *e = &t->e;
    bool seg = seg_has_base(in->seg);
    *is_const = false;
    if (in->rip_rel || (in->base < 0 && in->index < 0)) {
        u64 v = (u64)in->disp + (in->rip_rel ? tr_next(t, i) : 0);
        if (in->addrsize == 4)
            v = (u32)v;
        if (in->rip_rel)
            tr_put_lin(t, reg, v);
        else
            e_movi(e, reg, v);
        *is_const = !seg;
        *value = v;
    } else {
        if (in->addrsize == 4)
            e1(e, 0x67);
        e_lea(e, reg, in->base, in->index, in->scale, (i32)in->disp);
    }
    if (seg) {
        e_load(e, tmp, OFF(c.cpu.seg_base) + 8 * (size_t)in->seg);
        e_mem(e, in->code == CODE_64, 0x8d, reg, reg, tmp, 1, 0); /* lea */
    }
}

void put_save_flags(struct tr *t)
{
    e_store(&t->e, RAX, OFF(save_rax));
    e_flags_to_ax(&t->e);
}

void put_restore_flags(struct tr *t)
{
    e_flags_from_ax(&t->e);
    e_load(&t->e, RAX, OFF(save_rax));
}

void put_saved(struct tr *t, bool saved)
{
    if (t->saved == saved)
        return;
    t->saved = saved;
    if (saved)
        put_save_flags(t);
    else
        put_restore_flags(t);
}

size_t put_tlb_index(struct tr *t, int reg)
{
    tr_tlb_index(&t->e, t->d, reg, t->s2);
    return OFF(c.tlb) + sizeof(struct tlb_entry) * TLB_SIZE * t->d->c.idx;
}

size_t put_tlb_slot(const struct tr *t, u64 lin)
{
    return OFF(c.tlb) + sizeof(struct tlb_entry) * (TLB_SIZE * t->d->c.idx + tlb_slot(lin));
}

/* What slow_mem is told, but for the register. */
static u32 slow_info(const struct insn *in, unsigned size, bool write)
{
    return size | (write ? SLOW_WRITE : 0) | (in->align ? SLOW_ALIGN : 0) |
           (in->fpu_wait ? SLOW_WAIT : 0);
}

/* The linear address in s1 is looked up. Clobbers s2 and dead flags. */
void put_check_as(struct tr *t, unsigned i, unsigned size, bool write, bool is_const, u64 value,
                  enum flags_state flags, enum found found)
{
    struct emit *e = &t->e;
    int s1 = t->s1, s2 = t->s2;
    size_t tlb;
    if (flags == FLAGS_LIVE)
        put_save_flags(t);
    int index = s2;
    if (is_const) {
        tlb = put_tlb_slot(t, value);
        index = NOREG;
    } else {
        tlb = put_tlb_index(t, s1);
    }
    bool moves = is_const && t->in[i].rip_rel;
    e_gs(e, 1, 0x33, s1, index, 1, tlb + (write ? 8 : 0));
    if (moves)
        tr_note_tlb(t, value);
    e_cmp_imm32(e, s1, PAGE_SIZE - size);
    u8 *at = e_jcc(e, 7); /* ja */
    if (found == FOUND_HOST)
        e_gs(e, 1, 0x03, s1, index, 1, tlb + offsetof(struct tlb_entry, host));
    else
        e_gs(e, 1, 0x8b, s2, index, 1,
             tlb + (found == FOUND_PAGE ? offsetof(struct tlb_entry, host)
                                        : offsetof(struct tlb_entry, add)));
    if (moves)
        tr_note_tlb(t, value);
    tr_cold(t, (struct cold){.at = at,
                             .resume = e->p,
                             .info = slow_info(&t->in[i], size, write),
                             .id = EXIT_ID(t->bi, i, flags ? X_INSN_LF : X_INSN),
                             .tlb = tlb + (write ? 8 : 0),
                             .s1 = s1,
                             .s2 = s2,
                             .index = index,
                             .value = moves ? value : 0,
                             .add = found != FOUND_HOST});
    if (flags == FLAGS_LIVE)
        put_restore_flags(t);
}

static void put_check(struct tr *t, unsigned i, unsigned size, bool write, bool is_const, u64 value,
                      enum found found)
{
    put_check_as(t, i, size, write, is_const, value, t->live[i] ? FLAGS_LIVE : FLAGS_DEAD, found);
}

/* Where an operand is for the host. */
struct place {
    int base, index;
    i32 disp;
};

/*
 * A stack access at [base + disp]: s1 = what makes a host address of it, so that the access is at
 * [base + s1 + disp]. Stacks stay in a page for long: one comparison, no look into the TLB; and
 * where flags are live it is made by instructions that leave them alone (PEXT, JRCXZ), because the
 * way by LAHF and back makes every access wait for RAX. Clobbers s2.
 */
static void put_stack(struct tr *t, unsigned i, int base, i32 disp, unsigned size, bool write)
{
    struct emit *e = &t->e;
    int s1 = t->s1, kept = NOREG;
    size_t at = tr_stack_page(t);
    size_t tag =
        at + (write ? offsetof(struct stack_page, wtag) : offsetof(struct stack_page, rtag));
    bool live = t->live[i];
    u8 *miss;
    if (live) {
        if (s1 != RCX && t->s2 != RCX) {
            kept = t->s2;
            e_mov(e, kept, RCX);
        }
        e_load(e, RCX, tag);
        e_lea(e, RCX, base, RCX, 1, disp);
        e_pext(e, RCX, OFF(outside) + 8 * (size_t)__builtin_ctz(size));
        e1(e, 0xe3); /* jrcxz over the miss */
        e1(e, 5);
        miss = e_jmp(e);
        if (kept >= 0)
            e_mov(e, RCX, kept);
    } else {
        e_load(e, s1, tag);
        e_lea(e, s1, base, s1, 1, disp);
        e_cmp_imm32(e, s1, PAGE_SIZE - size);
        miss = e_jcc(e, 7); /* ja */
    }
    e_load(e, s1, at + offsetof(struct stack_page, add));
    tr_cold(t, (struct cold){.at = miss,
                             .resume = e->p,
                             .info = slow_info(&t->in[i], size, write),
                             .id = i,
                             .kind = COLD_STACK,
                             .base = (i8)base,
                             .kept = (i8)kept,
                             .live = live,
                             .disp = disp});
}

/* The stub for it. Where AC = 1 pages may be the user's: the same block of code with AC = 0 must
 * not reach them. 0: there is none. */
static u32 stack_stub(const struct tr *t, const struct cold *c)
{
    const struct dbt *d = t->d;
    unsigned size = c->info & 0xff, log = (unsigned)__builtin_ctz(size);
    unsigned tlb = d->c.idx == IDX_SUPU && (d->c.mode & MODE_SMAP) ? IDX_COUNT : d->c.idx;
    if (t->s1 != R10 || t->s2 != R11 || (size & (size - 1)) || log >= STACK_SIZES)
        return 0;
    return d->code->stack[tlb][log][!!(c->info & SLOW_WRITE)][c->live];
}

/* Another page: by the TLB, and it is the stack's from now on. */
void put_stack_cold(struct tr *t, const struct cold *c)
{
    struct emit *e = &t->e;
    struct dbt *d = t->d;
    u32 stub = stack_stub(t, c);
    if (stub) {
        if (c->kept >= 0)
            e_mov(e, RCX, c->kept);
        e_lea(e, R10, c->base, NOREG, 1, c->disp);
        e_lea_rip(e, R11, c->resume);
        e_store_imm32(e, OFF(tmp2), c->info | R10 << SLOW_REG_SHIFT);
        tr_put_id(t, OFF(exit_id), EXIT_ID(t->bi, c->id, c->live ? X_INSN_LF : X_INSN));
        e_jmp_to(e, d->code->rw + stub);
        return;
    }
    int s1 = t->s1, s2 = t->s2;
    size_t at = tr_stack_page(t), tlb = OFF(c.tlb) + sizeof(struct tlb_entry) * TLB_SIZE * d->c.idx;
    u8 *end = NULL;
    if (c->kept >= 0)
        e_mov(e, RCX, c->kept);
    e_lea(e, s1, c->base, NOREG, 1, c->disp);
    if (c->live)
        put_save_flags(t);
    put_check_as(t, c->id, c->info & 0xff, c->info & SLOW_WRITE, false, 0,
                 c->live ? FLAGS_SAVED : FLAGS_DEAD, FOUND_HOST);
    struct cold *slow = &t->cold[t->ncold - 1];
    /* Where AC = 1 pages may be the user's: the same block of code with AC = 0 must not reach them.
     */
    if (d->c.idx != IDX_SUPU || !(d->c.mode & MODE_SMAP)) {
        e_rr(e, 1, 0x29, c->base, s1); /* sub s1, base; sub s1, disp */
        e_rex(e, 1, NOREG, NOREG, s1);
        e1(e, 0x81);
        e1(e, (u8)(0xe8 | (s1 & 7)));
        e4(e, (u32)c->disp);
        tr_keep_stack_page(e, s1, s2, at, tlb);
        end = e_jmp(e);
    }
    slow->resume = e->p;
    e_rr(e, 1, 0x29, c->base, s1);
    e_rex(e, 1, NOREG, NOREG, s1);
    e1(e, 0x81);
    e1(e, (u8)(0xe8 | (s1 & 7)));
    e4(e, (u32)c->disp);
    if (end)
        e_fix(e, end, e->p);
    if (c->live)
        put_restore_flags(t);
    e_jmp_to(e, c->resume);
}

/* Where flags are live: by PEXT, and of what is aligned to its size. */
static bool has_stack_check(const struct tr *t, unsigned i, unsigned size)
{
    return !t->live[i] || (t->d->pext && size <= 8 && !(size & (size - 1)));
}

/* May the operand be looked for in the stack's page? */
static bool is_stack(const struct tr *t, unsigned i, int base)
{
    const struct insn *in = &t->in[i];
    return base == RSP && in->index < 0 && in->addrsize == tr_word(t) && !seg_has_base(in->seg) &&
           !in->high8 && in->disp >= -(1 << 30) && in->disp <= 1 << 30 &&
           has_stack_check(t, i, in->mem_size);
}

/* Is it with what a guard found? */
static bool is_guarded(const struct tr *t, unsigned i, enum operand_of of)
{
    return t->guarded && t->member[i][of].group >= 0;
}

/* ... in a register: s1 stays as it is. */
static bool is_in_register(const struct tr *t, unsigned i)
{
    return is_guarded(t, i, OF_INSN) && t->group[t->member[i][OF_INSN].group].found == IN_REGISTER;
}

static struct place guarded_place(struct tr *t, unsigned i, enum operand_of of)
{
    int k = t->member[i][of].group;
    const struct group *g = &t->group[k];
    int base = g->reg;
    if (g->found == IN_SLOT) {
        base = t->s1;
        if (t->s1_has != k)
            e_load(&t->e, base, OFF(found) + 8 * (size_t)k);
        t->s1_has = t->alone ? k : NOREG;
    }
    return (struct place){base, NOREG, t->member[i][of].off - g->lo};
}

static bool is_alone(const struct tr *t, unsigned i)
{
    const struct insn *in = &t->in[i];
    if (i >= t->count || i == t->check || in->needs == N_X87 || guards_at(t, i))
        return false;
    switch (in->treat) {
    case T_NOP: return !insn_waits(&t->d->c, in);
    case T_LEA: return true;
    case T_GEN: return !in->mem || is_guarded(t, i, OF_INSN);
    case T_PUSH: return !in->mem && is_guarded(t, i, OF_INSN);
    case T_POP: return in->reg0 != RSP && is_guarded(t, i, OF_INSN);
    default: return false;
    }
}

/* Has RSP to be what it is for the guest, for an instruction that is alone? Where it may fault. */
static bool needs_sp(const struct insn *in)
{
    if (in->treat == T_PUSH || in->treat == T_POP)
        return in->op0_kind == OP_GPR && in->reg0 == RSP;
    return ((in->use | in->wr) >> RSP & 1) || in->needs != N_BASE || in->align ||
           in->mnemonic == ZYDIS_MNEMONIC_DIV || in->mnemonic == ZYDIS_MNEMONIC_IDIV;
}

void put_sp_moved(struct tr *t, i32 by)
{
    t->sp_moved += by;
    if (t->alone || !t->sp_moved)
        return;
    e_mem(&t->e, tr_word(t) == 8, 0x8d, RSP, RSP, NOREG, 1, t->sp_moved); /* lea */
    t->sp_moved = 0;
}

void put_begin(struct tr *t, unsigned i)
{
    bool alone = is_alone(t, i);
    t->alone = false;
    if (!alone || needs_sp(&t->in[i]))
        put_sp_moved(t, 0);
    if (!alone)
        t->s1_has = NOREG;
    t->alone = alone;
}

void put_clobber(struct tr *t, unsigned i)
{
    struct emit *e = &t->e;
    const u64 odd = 0x5a5a8badf00d0001 * (i + 1);
    for (int r = 0; r < 16; r++) {
        bool scratch = r == t->s1 ? t->s1_has < 0 : r == t->s2 || (STOLEN & ~t->use) >> r & 1;
        if (scratch && !guards_hold(t, r))
            e_movi(e, r, odd + (u64)r);
    }
    if (!t->live[i] && i < t->count)
        e_cmp_imm32(e, RAX, (u32)odd);
}

static struct place put_operand(struct tr *t, const struct insn *in, unsigned i, unsigned size,
                                bool write)
{
    bool is_const;
    u64 value = 0;
    if (is_guarded(t, i, OF_TARGET))
        return guarded_place(t, i, OF_TARGET);
    put_ea(t, in, i, t->s1, t->s2, &is_const, &value);
    if (is_const || in->high8) { /* with AH..DH there is no room for two registers */
        put_check(t, i, size, write, is_const, value, FOUND_HOST);
        return (struct place){t->s1, NOREG, 0};
    }
    if (in->base >= 0 && in->index < 0 && in->addrsize == 8 && !in->rip_rel &&
        !seg_has_base(in->seg)) {
        put_check(t, i, size, write, false, 0, FOUND_LINEAR);
        return (struct place){in->base, t->s2, (i32)in->disp};
    }
    put_check(t, i, size, write, false, 0, FOUND_PAGE);
    return (struct place){t->s1, t->s2, 0};
}

static void put_x87_pointers(struct tr *t, const struct insn *in, unsigned i)
{
    if (in->needs != N_X87 || in->fpu_nowait)
        return;
    u64 pc = tr_lin(t, i);
    e_note_lost(&t->e);
    e_store_imm32(&t->e, OFF(c.fip), (u32)pc);
    e_store_imm32(&t->e, OFF(c.fip) + 4, (u32)(pc >> 32));
    e1(&t->e, 0x66);
    e_gs(&t->e, 0, 0xc7, 0, NOREG, 1, OFF(c.fop));
    e2(&t->e, in->fop);
    if (in->mem) {
        bool c;
        u64 v;
        put_ea(t, in, i, t->s1, t->s2, &c, &v);
        e_store(&t->e, t->s1, OFF(c.fdp));
    }
}

int tr_low_register(u16 use)
{
    static const int order[] = {RBX, RSI, RDI, RDX, RCX, RBP};
    for (unsigned k = 0; k < ARRAY_SIZE(order); k++)
        if (!(use >> order[k] & 1))
            return order[k];
    return -1;
}

void put_plain(struct tr *t, const struct insn *in, unsigned i)
{
    struct emit *e = &t->e;
    if (!in->mem) {
        put_copy(e, in);
        put_x87_pointers(t, in, i);
        return;
    }
    if (is_guarded(t, i, OF_INSN)) {
        struct place at = guarded_place(t, i, OF_INSN);
        put_patched_at(e, in, at.base, at.index, at.disp);
        put_x87_pointers(t, in, i);
        return;
    }
    if (is_stack(t, i, in->base)) {
        put_stack(t, i, RSP, (i32)in->disp, in->mem_size, in->mem & MEM_W);
        put_patched_at(e, in, RSP, t->s1, (i32)in->disp);
        put_x87_pointers(t, in, i);
        return;
    }
    struct place at = put_operand(t, in, i, in->mem_size, in->mem & MEM_W);
    if (in->high8 && t->s1 >= 8) {
        /* AH..DH exclude REX, so the address must be in a low register for a moment. */
        int low = tr_low_register(in->use);
        e_store(e, low, OFF(tmp));
        e_mov(e, low, t->s1);
        put_patched(e, in, low);
        e_load(e, low, OFF(tmp));
    } else {
        put_patched_at(e, in, at.base, at.index, at.disp);
    }
    put_x87_pointers(t, in, i);
}

void put_lea(struct tr *t, const struct insn *in, unsigned i)
{
    struct emit *e = &t->e;
    /* What is an address alone in other code is relative to RIP in 64-bit code. */
    bool constant = in->rip_rel || (in->code != CODE_64 && in->base < 0 && in->index < 0);
    if (!constant) {
        if (in->addrsize == 4)
            e1(e, 0x67);
        put_copy(e, in);
        return;
    }
    u64 v = (u64)in->disp + (in->rip_rel ? tr_next(t, i) : 0);
    if (in->addrsize == 4)
        v = (u32)v;
    if (in->opsize == 2) {
        e1(e, 0x66);
        e_rex(e, 0, NOREG, NOREG, in->reg0);
        e1(e, (u8)(0xb8 | (in->reg0 & 7)));
        e2(e, (u16)v);
    } else if (in->opsize == 8 && in->rip_rel) {
        tr_put_lin(t, in->reg0, v);
        return;
    } else {
        e_movi(e, in->reg0, in->opsize == 4 ? (u32)v : v);
    }
    if (in->rip_rel)
        e_note_lost(e);
}

/* The word at [base + disp]: checked. Clobbers s1 and s2. */
static struct place put_word(struct tr *t, unsigned i, int base, i32 disp, bool write)
{
    if (is_guarded(t, i, OF_INSN))
        return guarded_place(t, i, OF_INSN);
    if (has_stack_check(t, i, tr_word(t))) {
        put_stack(t, i, base, disp, tr_word(t), write);
        return (struct place){base, t->s1, disp};
    }
    e_lea(&t->e, t->s1, base, NOREG, 1, disp);
    put_check(t, i, tr_word(t), write, false, 0, FOUND_HOST);
    return (struct place){t->s1, NOREG, 0};
}

static void put_word_op(struct tr *t, u8 op, int reg, const struct place *w)
{
    e_mem(&t->e, tr_word(t) == 8, op, reg, w->base, w->index, 1, w->disp);
}

static void put_word_imm(struct tr *t, u64 v, const struct place *w)
{
    put_word_op(t, 0xc7, 0, w);
    e4(&t->e, (u32)v);
}

/* Where a call comes back to. */
static void put_word_lin(struct tr *t, u64 v, const struct place *w)
{
    if (tr_word(t) == 4 || (u64)(i64)(i32)v == v) {
        put_word_imm(t, v, w);
        e_note_lost(&t->e);
    } else {
        tr_put_lin(t, t->s2, v);
        put_word_op(t, 0x89, t->s2, w);
    }
}

void put_push(struct tr *t, const struct insn *in, unsigned i)
{
    struct emit *e = &t->e;
    if (in->mem) {
        struct place at = put_operand(t, in, i, tr_word(t), false);
        put_word_op(t, 0x8b, t->s1, &at);
        if (!is_in_register(t, i))
            e_store(e, t->s1, OFF(tmp));
    }
    struct place w = put_word(t, i, RSP, -(i32)tr_word(t), true);
    if (in->mem && is_in_register(t, i)) {
        put_word_op(t, 0x89, t->s1, &w);
    } else if (in->mem) {
        e_load(e, t->s2, OFF(tmp));
        put_word_op(t, 0x89, t->s2, &w);
    } else if (in->op0_kind == OP_IMM) {
        put_word_imm(t, (u64)in->imm, &w);
    } else {
        put_word_op(t, 0x89, in->reg0, &w);
    }
    put_sp_moved(t, -(i32)tr_word(t));
}

void put_pop(struct tr *t, const struct insn *in, unsigned i)
{
    struct place w = put_word(t, i, RSP, 0, false);
    put_word_op(t, 0x8b, in->reg0, &w);
    if (in->reg0 != RSP)
        put_sp_moved(t, (i32)tr_word(t));
}

void put_leave(struct tr *t, unsigned i)
{
    struct emit *e = &t->e;
    struct place w = put_word(t, i, RBP, 0, false);
    e_mem(e, tr_word(t) == 8, 0x8d, t->s2, RBP, NOREG, 1, (i32)tr_word(t)); /* lea */
    put_word_op(t, 0x8b, RBP, &w);
    e_mov(e, RSP, t->s2);
}

/* Target of an indirect CALL or JMP into s1. */
void put_target(struct tr *t, const struct insn *in, unsigned i)
{
    if (in->mem) {
        struct place at = put_operand(t, in, i, tr_word(t), false);
        put_word_op(t, 0x8b, t->s1, &at);
    } else {
        e_rr(&t->e, tr_word(t) == 8, 0x89, in->reg0, t->s1); /* mov */
    }
}

void put_call(struct tr *t, const struct insn *in, unsigned i)
{
    struct emit *e = &t->e;
    u64 next = tr_next(t, i);
    bool direct = in->op0_kind == OP_IMM;
    if (!direct) {
        put_target(t, in, i);
        if (!is_in_register(t, i))
            e_store(e, t->s1, OFF(tmp));
    }
    struct place w = put_word(t, i, RSP, -(i32)tr_word(t), true);
    put_word_lin(t, next, &w); /* before a non-canonical target faults: run.c takes RSP back */
    put_sp_moved(t, -(i32)tr_word(t));
    put_passed(t, i + 1);
    if (direct) {
        put_edge(t, tr_target(t, i), 0);
    } else {
        if (!is_in_register(t, i))
            e_load(e, t->s1, OFF(tmp));
        put_indirect(t, i);
    }
}

void put_ret(struct tr *t, const struct insn *in, unsigned i)
{
    struct place w = put_word(t, i, RSP, 0, false);
    put_word_op(t, 0x8b, t->s1, &w);
    put_sp_moved(t, (i32)tr_word(t) + (in->op0_kind == OP_IMM ? (i32)(u16)in->imm : 0));
    put_passed(t, i + 1);
    put_indirect(t, i);
}

/* Clobbers s2; flags stay. */
static void put_count(struct tr *t, unsigned signal, i32 times)
{
    struct emit *e = &t->e;
    size_t at = OFF(signals) + 8 * (BUDGET_PARTS * (size_t)signal + t->b->part);
    e_load(e, t->s2, at);
    e_lea(e, t->s2, t->s2, NOREG, 1, times);
    e_store(e, t->s2, at);
}

static void put_signals(struct tr *t, u32 signals)
{
    for (u32 s = signals & block_signals(t->d->c.mode); s; s &= s - 1)
        put_count(t, (unsigned)__builtin_ctz(s), 1);
}

void put_passed(struct tr *t, unsigned n)
{
    for (u32 s = block_signals(t->d->c.mode); s; s &= s - 1) {
        unsigned signal = (unsigned)__builtin_ctz(s);
        u32 times = 0;
        for (unsigned k = 0; k < n; k++)
            times += pmu_signals(&t->in[k]) >> signal & 1;
        if (times)
            put_count(t, signal, (i32)times);
    }
}

void put_jcc(struct tr *t, const struct insn *in, unsigned i)
{
    u64 next = tr_next(t, i);
    if (counts_branches(&t->d->c)) { /* the flags stay as they are */
        e_load(&t->e, t->s1, OFF(c.branches));
        e_lea(&t->e, t->s1, t->s1, NOREG, 1, 1);
        e_store(&t->e, t->s1, OFF(c.branches));
    }
    put_passed(t, i + 1);
    u64 target = tr_target(t, i);
    u32 on_jump = pmu_way_signals(true, in->imm < 0);
    u8 *taken = e_jcc(&t->e, in->cond);
    put_signals(t, pmu_way_signals(false, in->imm < 0));
    if (!(t->loaded | t->spilled) && tr_linkable(t, target) &&
        !(on_jump & block_signals(t->d->c.mode))) {
        put_link(t, taken, 0, target, 1);
        put_edge(t, next, 0);
        return;
    }
    put_edge(t, next, 0);
    e_fix(&t->e, taken, t->e.p);
    put_signals(t, on_jump);
    put_edge(t, target, 1);
}
