/*
 * Address spaces that the guest has left. Its next MOV CR3 is often back to one that it was in
 * before: a server's processes, a pipe's two ends, a debugger and what it debugs. What the jump
 * cache had of each is kept, by top-level table and mode, and put back when it is missed. A write
 * to a table below that one drops what was derived from it here, too (../x86/tlb.c), as the tables
 * stay tracked; of blocks, their region's number tells whether they are the ones that were meant.
 */
#include "spaces.h"

#include "cache.h"

#include "cpu/x86/tlb.h"

#include <string.h>

static struct space *find(struct dbt *d, u32 root, u32 mode)
{
    for (unsigned i = 0; i < SPACES; i++)
        if (d->space[i].n && d->space[i].root == root && d->space[i].mode == mode)
            return &d->space[i];
    return NULL;
}

/* That one, with what it has already, or the one that was left longest ago. */
static struct space *take(struct dbt *d, u32 root, u32 mode)
{
    struct space *s = find(d, root, mode);
    if (!s) {
        s = &d->space[0];
        for (unsigned i = 1; i < SPACES && s->n; i++)
            if (!d->space[i].n || d->spaces_used - d->space[i].used > d->spaces_used - s->used)
                s = &d->space[i];
        s->root = root;
        s->mode = mode;
        s->n = 0;
    }
    s->used = ++d->spaces_used;
    return s;
}

static void keep(struct dbt *d, struct space *s, unsigned t, u32 block)
{
    if (s->n == SPACE_MAX)
        return;
    s->entry[s->n].block = block | (t < IDX_COUNT ? 0 : SPACE_SECOND);
    s->entry[s->n++].gen = block_gen(d->code, &d->code->blocks[block]);
}

/* The block of an entry, or NULL: it is no more, or another one has its place. */
static struct block *block_of(struct dbt *d, const struct space *s, u32 i)
{
    struct code *k = d->code;
    u32 number = s->entry[i].block & ~SPACE_SECOND;
    struct block *b = &k->blocks[number];
    bool same =
        number < region_end(k, region_of_block(k, number)) && block_gen(k, b) == s->entry[i].gen;
    return same && !b->dead && !b->plain ? b : NULL;
}

void spaces_come_back(struct dbt *d)
{
    d->left = false;
    struct space *s = find(d, mmu_root(&d->c, d->c.cpu.cr3), d->c.looked_up[0]);
    if (!s)
        return;
    for (u32 i = 0; i < s->n; i++) {
        struct block *b = block_of(d, s, i);
        if (!b)
            continue;
        u32 number = s->entry[i].block & ~SPACE_SECOND;
        bool second =
            s->entry[i].block & SPACE_SECOND || d->jc_known[IDX_USER][jc_slot(b->lin)].block;
        jc_put(d, IDX_USER + (second ? IDX_COUNT : 0), number);
        d->code->region[region_of_block(d->code, number)].uses++;
    }
    s->n = 0;
}

/* Moves what the jump cache has of CPL 3 by user addresses into a space, or drops it: all that it
 * has by those if `below`. */
static void move_out(struct dbt *d, u32 root, u32 mode, bool below)
{
    struct filled *f = &d->jc_user;
    struct space *s = NULL;
    u32 out = 0;
    for (u32 i = 0; i < f->n; i++) {
        unsigned t = f->slot[i] >> 16;
        u32 slot = f->slot[i] & 0xffff, block = d->jc_known[t][slot].block;
        if (!block || d->code->blocks[block].lin >> 63)
            continue;
        if (t % IDX_COUNT != IDX_USER && !below) {
            f->slot[out++] = f->slot[i];
            continue;
        }
        if (t % IDX_COUNT == IDX_USER && root != PT_ROOT_ANY) {
            s = s ? s : take(d, root, mode);
            keep(d, s, t, block);
        }
        jc_clear(d, t, slot);
    }
    f->n = out;
    if (!out)
        memset(d->jc_pages[0], 0, sizeof(d->jc_pages[0]));
}

void spaces_leave(struct core *c, u32 root, u32 mode, bool below)
{
    struct dbt *d = dbt_of(c);
    if (d->jc_user.n <= MAX_FILLED && (below || !d->jc_odd))
        move_out(d, root, mode, below);
    else
        jc_drop(c, 0, below ? 1ull << 47 : 0);
    const struct space *to = find(d, mmu_root(c, c->cpu.cr3), mode);
    d->left = true;
    if (below && to && to->n <= SPACE_SMALL)
        spaces_come_back(d);
}

void spaces_forget(struct core *c, u32 root, u64 lin, u64 len)
{
    struct dbt *d = dbt_of(c);
    for (unsigned k = 0; k < SPACES; k++) {
        struct space *s = &d->space[k];
        if (!s->n || (root != PT_ROOT_ANY && s->root != root))
            continue;
        u32 n = 0;
        for (u32 i = 0; len && i < s->n; i++) {
            const struct block *b = block_of(d, s, i);
            if (!b)
                continue;
            u64 page = b->lin & ~(u64)(PAGE_SIZE - 1);
            if (page - lin < len || (b->phys2 && page + PAGE_SIZE - lin < len))
                continue;
            s->entry[n++] = s->entry[i];
        }
        s->n = n;
    }
}
