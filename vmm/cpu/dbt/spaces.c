/*
 * Address spaces that the guest goes to and from by MOV CR3: a server's processes, a pipe's two
 * ends, a debugger and what it debugs. Of each is known, by top-level table and mode, which block
 * is at an address of its code of CPL 3. The jump cache loses that when the guest leaves one. A
 * stay is often short: on the guest's return only that is put back which was missed in a stay
 * before, and more when it is missed. A write to a table below that one drops what was derived from
 * it here, too (../x86/tlb.c), as the tables stay tracked; of blocks, their region's number tells
 * whether they are the ones that were meant.
 */
#include "spaces.h"

#include "cache.h"

#include "cpu/x86/mode.h"
#include "cpu/x86/tlb.h"

#include <string.h>

/* After so many stays what was missed is found out again. */
#define STAYS 16

static void empty(struct dbt *d, struct space *s)
{
    u32 *root = &d->space_root[s - d->space];
    if (!*root)
        return;
    *root = 0;
    s->recents = s->stays = 0;
    memset(s->pages, 0, sizeof(s->pages));
    for (u32 k = 0; k < s->nfilled; k++)
        s->entry[s->filled[k]].block = 0;
    s->nfilled = 0;
}

static bool is_of(const struct space *s, u32 root, u32 mode)
{
    return s->root == root && s->mode == mode;
}

/* That which the guest is in; it gets the place of the one that was left longest ago. NULL: none,
 * as no tables are tracked below CR3. */
static struct space *here(struct dbt *d)
{
    u32 root = mmu_root(&d->c, d->c.cpu.cr3), mode = d->c.looked_up[0];
    if (root == PT_ROOT_ANY || !long_mode(&d->c))
        return NULL;
    struct space *s = &d->space[d->space_here];
    if (is_of(s, root, mode))
        return s;
    unsigned oldest = 0, i = 0;
    for (; i < SPACES && !is_of(&d->space[i], root, mode); i++)
        if (d->spaces_used - d->space[i].used > d->spaces_used - d->space[oldest].used)
            oldest = i;
    d->space_here = i < SPACES ? i : oldest;
    s = &d->space[d->space_here];
    if (i == SPACES) {
        empty(d, s);
        s->root = root;
        s->mode = mode;
    }
    s->used = ++d->spaces_used;
    return s;
}

/* The first of an address's two places. */
static u32 place(u64 lin)
{
    return jc_slot(lin) * 2 & (SPACE_MAX - 1);
}

/* The block of an entry, or NULL: there is none, it is no more, or another one has its place. */
static struct block *block_of(struct dbt *d, const struct space *s, u32 i)
{
    struct code *k = d->code;
    u32 number = s->entry[i].block;
    struct block *b = &k->blocks[number];
    bool same = number && number < region_end(k, region_of_block(k, number)) &&
                block_gen(k, b) == s->entry[i].gen;
    return same && !b->dead && !b->plain ? b : NULL;
}

static void fill(struct space *s, u32 i, struct space_entry e)
{
    if (!s->entry[i].block)
        s->filled[s->nfilled++] = (u16)i;
    s->entry[i] = e;
}

static void put_back(struct dbt *d, struct block *b)
{
    d->code->region[region_of_block(d->code, (u32)(b - d->code->blocks))].uses++;
    jc_set(d, IDX_USER, b);
}

static void come_back(struct dbt *d, struct space *s)
{
    d->space_left = false;
    if (!(++s->stays % STAYS))
        s->recents = 0;
    for (u32 k = 0; k < s->recents; k++) {
        struct block *b = block_of(d, s, s->recent[k]);
        if (b)
            put_back(d, b);
    }
}

u32 spaces_find(struct dbt *d, u64 lin)
{
    struct space *s = here(d);
    if (!s || !d->space_root[d->space_here])
        return 0;
    if (d->space_left) {
        come_back(d, s);
        u32 number = jc_find(d, lin);
        if (number)
            return number;
    }
    for (u32 i = place(lin), end = i + 2; i < end; i++) {
        struct block *b = block_of(d, s, i);
        if (!b || b->lin != lin)
            continue;
        if (s->recents < SPACE_RECENT)
            s->recent[s->recents++] = (u16)i;
        put_back(d, b);
        return s->entry[i].block;
    }
    return 0;
}

void spaces_note(struct dbt *d, u32 number)
{
    const struct block *b = &d->code->blocks[number];
    struct space *s = here(d);
    u32 i = place(b->lin);
    if (!s || block_of(d, s, i) == b || block_of(d, s, i + 1) == b)
        return;
    if (s->entry[i].block)
        fill(s, i + 1, s->entry[i]);
    fill(s, i, (struct space_entry){number, block_gen(d->code, b)});
    d->space_root[d->space_here] = s->root + 1;
    note_pages(s->pages, SPACE_PAGES, b);
}

void spaces_leave(struct core *c, bool below)
{
    struct dbt *d = dbt_of(c);
    d->space_left = true;
    jc_drop(c, 0, !below && d->jc_odd ? 0 : 1ull << 47);
}

/* What is of a range, and what is no more. */
static void drop(struct dbt *d, struct space *s, u64 lin, u64 len)
{
    u16 left = 0;
    for (u32 k = 0; k < s->nfilled; k++) {
        u16 i = s->filled[k];
        const struct block *b = block_of(d, s, i);
        u64 page = b ? b->lin & ~(u64)(PAGE_SIZE - 1) : 0;
        if (!b || page - lin < len || (b->phys2 && page + PAGE_SIZE - lin < len))
            s->entry[i].block = 0;
        else
            s->filled[left++] = i;
    }
    s->nfilled = left;
}

void spaces_forget(struct core *c, u32 root, u64 lin, u64 len)
{
    struct dbt *d = dbt_of(c);
    if (len && lin >> 63)
        return;
    for (unsigned k = 0; k < SPACES; k++) {
        struct space *s = &d->space[k];
        if (!d->space_root[k] || (root != PT_ROOT_ANY && d->space_root[k] != root + 1))
            continue;
        if (!len) {
            empty(d, s);
            continue;
        }
        if (len <= PAGES_LOOK * PAGE_SIZE &&
            !pages_noted(s->pages, SPACE_PAGES, lin, (len + PAGE_SIZE - 1) / PAGE_SIZE))
            continue;
        drop(d, s, lin, len);
    }
}
