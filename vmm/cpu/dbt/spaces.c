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

/* So many times the pages of the jump cache's entries stay noted when those go. */
#define PAGES_KEPT 16

static u64 *page_bit(struct space *s, u64 lin, u64 *bit)
{
    u64 at = (lin / PAGE_SIZE * 0x9e3779b97f4a7c15ull) >> 32 & (SPACE_PAGES - 1);
    *bit = 1ull << (at & 63);
    return &s->pages[at / 64];
}

static void page_note(struct space *s, u64 lin)
{
    u64 bit, *word = page_bit(s, lin, &bit);
    *word |= bit;
}

/* May there be an entry of these addresses, or one that goes on in them? */
static bool range_noted(struct space *s, u64 lin, u64 len)
{
    if (len > SPACE_PAGES * PAGE_SIZE)
        return true;
    for (u64 at = lin & ~(u64)(PAGE_SIZE - 1); at - lin < len || at < lin; at += PAGE_SIZE) {
        u64 bit, *word = page_bit(s, at, &bit);
        if (*word & bit)
            return true;
    }
    return false;
}

static void empty(struct space *s)
{
    if (!s->n)
        return;
    s->n = s->recents = s->stays = 0;
    memset(s->pages, 0, sizeof(s->pages));
    memset(s->entry, 0, sizeof(s->entry));
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
        empty(s);
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

static void come_back(struct dbt *d, struct space *s)
{
    d->space_left = false;
    if (!(++s->stays % STAYS))
        s->recents = 0;
    for (u32 k = 0; k < s->recents; k++) {
        struct block *b = block_of(d, s, s->recent[k]);
        if (!b)
            continue;
        d->code->region[region_of_block(d->code, s->entry[s->recent[k]].block)].uses++;
        jc_set(d, IDX_USER, b);
    }
}

bool spaces_find(struct dbt *d, u64 lin)
{
    struct space *s = here(d);
    if (!s || !s->n)
        return false;
    if (d->space_left) {
        come_back(d, s);
        if (jc_find(d, lin))
            return true;
    }
    for (u32 i = place(lin), end = i + 2; i < end; i++) {
        struct block *b = block_of(d, s, i);
        if (!b || b->lin != lin)
            continue;
        d->code->region[region_of_block(d->code, s->entry[i].block)].uses++;
        if (s->recents < SPACE_RECENT)
            s->recent[s->recents++] = (u16)i;
        jc_set(d, IDX_USER, b);
        return true;
    }
    return false;
}

void spaces_note(struct dbt *d, u32 number)
{
    const struct block *b = &d->code->blocks[number];
    struct space *s = here(d);
    u32 i = place(b->lin);
    if (!s || s->entry[i].block == number || s->entry[i + 1].block == number)
        return;
    s->entry[i + 1] = s->entry[i];
    s->entry[i].block = number;
    s->entry[i].gen = block_gen(d->code, b);
    s->n++;
    page_note(s, b->lin);
    if (b->phys2)
        page_note(s, b->lin + b->size - 1);
}

void spaces_leave(struct core *c, u32 root, u32 mode, bool below)
{
    (void)root, (void)mode; /* entries were noted when they were made */
    struct dbt *d = dbt_of(c);
    d->space_left = true;
    struct filled *f = &d->jc_user;
    if (f->n > MAX_FILLED || (!below && d->jc_odd)) {
        jc_drop(c, 0, below ? 1ull << 47 : 0);
        return;
    }
    u32 out = 0;
    for (u32 i = 0; i < f->n; i++)
        if (below || (f->slot[i] >> 16) % IDX_COUNT == IDX_USER)
            jc_clear(d, f->slot[i] >> 16, f->slot[i] & 0xffff);
        else
            f->slot[out++] = f->slot[i];
    f->n = out;
    if (!out && !(++d->spaces_left % PAGES_KEPT))
        memset(d->jc_pages[0], 0, sizeof(d->jc_pages[0]));
}

void spaces_forget(struct core *c, u32 root, u64 lin, u64 len)
{
    struct dbt *d = dbt_of(c);
    if (len && lin >> 63)
        return;
    for (unsigned k = 0; k < SPACES; k++) {
        struct space *s = &d->space[k];
        if (!s->n || (root != PT_ROOT_ANY && s->root != root))
            continue;
        if (!len) {
            empty(s);
            continue;
        }
        if (!range_noted(s, lin, len))
            continue;
        for (u32 i = 0; i < SPACE_MAX; i++) {
            const struct block *b = block_of(d, s, i);
            if (!b)
                continue;
            u64 page = b->lin & ~(u64)(PAGE_SIZE - 1);
            if (page - lin < len || (b->phys2 && page + PAGE_SIZE - lin < len))
                s->entry[i].block = 0;
        }
    }
}
