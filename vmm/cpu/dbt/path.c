/*
 * Hot code: blocks that go on over branches. A block in which slices keep ending is translated once
 * more, along the way that its code mostly goes, as far as that stays in the page; a way that comes
 * back to its start is a loop (guard.c lays it out several times). The budget is taken for all of
 * it at once; who leaves it by another branch gets back what was not run.
 *
 * Where slices end depends on nothing but positions, and what is translated how shows nowhere.
 */
#include "tr.h"

#include "cache.h"

#include "cpu/x86/mode.h"

static bool is_jcc(const struct tr *t, unsigned i)
{
    return t->in[i].treat == T_JCC;
}

void path_loop(struct tr *t)
{
    unsigned i = t->n - 1;
    if (t->count != t->n || !is_jcc(t, i) || !tr_usual_size(&t->in[i]) || branches_end(&t->d->c) ||
        tr_target(t, i) != t->lin)
        return;
    t->way[i] = WAY_TAKEN;
    t->side[i] = 0;
    t->closed = true;
}

/* How often slices ended in the block at an address of the page; -1: it never ran, or the way does
 * not go there. */
static int heat_at(const struct tr *t, u64 lin)
{
    if ((lin ^ t->lin) >= PAGE_SIZE || !tr_linkable(t, lin))
        return -1;
    u64 phys = (t->at->phys & ~(u64)(PAGE_SIZE - 1)) | (lin & (PAGE_SIZE - 1));
    const struct block *b = cache_find(t->d, lin, phys, 0, t->d->c.mode);
    return b ? b->heat : -1;
}

static enum way choose(const struct tr *t, u64 next, u64 target)
{
    int on = heat_at(t, next), taken = heat_at(t, target);
    if (on < 0 && taken < 0)
        return WAY_END;
    if (taken >= 0 && target == t->lin)
        return WAY_TAKEN;
    if (on >= 0 && next == t->lin)
        return WAY_ON;
    if (on == taken)
        return target < next ? WAY_TAKEN : WAY_ON;
    return taken > on ? WAY_TAKEN : WAY_ON;
}

int path_on(struct tr *t)
{
    unsigned i = t->n - 1;
    const struct insn *in = &t->in[i];
    if (!t->at->hot || branches_end(&t->d->c) || !tr_usual_size(in) || in->op0_kind != OP_IMM)
        return -1;
    u64 next = tr_next(t, i), target = tr_target(t, i);
    enum way way = WAY_END;
    if (in->treat == T_JMP && tr_linkable(t, target)) {
        way = WAY_TAKEN;
    } else if (in->treat == T_JCC && t->nsides < LINKS_MAX - LINK_SIDE) {
        way = choose(t, next, target);
        if (way != WAY_END)
            t->side[i] = (u8)(LINK_SIDE + t->nsides++);
    }
    if (way == WAY_END)
        return -1;
    t->way[i] = (u8)way;
    t->nways++;
    return (int)((way == WAY_TAKEN ? target : next) & (PAGE_SIZE - 1));
}

void path_end(struct tr *t)
{
    unsigned i = t->n - 1;
    if (t->way[i] != WAY_END) {
        t->nways--;
        t->way[i] = WAY_END;
    }
    t->closed = false;
}

bool path_gains(const struct tr *t)
{
    bool as_before = t->closed && t->nways == 1 && is_jcc(t, t->n - 1) && t->way[t->n - 1];
    return t->nways && !as_before;
}

/* The way that is not the path's. */
static void put_side(struct tr *t, unsigned i)
{
    t->leave[t->side[i]] = t->e.p;
    put_edge(t, t->way[i] == WAY_TAKEN ? tr_next(t, i) : tr_target(t, i), t->side[i]);
}

void put_way(struct tr *t, unsigned i)
{
    struct emit *e = &t->e;
    int leaves = t->in[i].cond ^ (t->way[i] == WAY_TAKEN);
    if (t->body && i + 1 == t->n) {
        put_passed(t, i + 1);
        e_fix(e, e_jcc(e, leaves ^ 1), t->again);
        put_side(t, i);
        return;
    }
    u8 *out = e_jcc(e, leaves);
    tr_cold(t, (struct cold){.at = out, .kind = COLD_LEAVE, .id = i});
}

void put_give_back(struct tr *t, unsigned n)
{
    struct emit *e = &t->e;
    if (t->count > n) {
        size_t part = tr_part(t);
        e_load(e, t->s1, part);
        e_lea(e, t->s1, t->s1, NOREG, 1, (i32)(t->count - n));
        e_store(e, t->s1, part);
    }
}

void put_leave_cold(struct tr *t, const struct cold *c)
{
    struct emit *e = &t->e;
    unsigned i = c->id;
    put_give_back(t, i + 1);
    put_passed(t, i + 1);
    if (t->leave[t->side[i]])
        e_jmp_to(e, t->leave[t->side[i]]);
    else
        put_side(t, i);
}
