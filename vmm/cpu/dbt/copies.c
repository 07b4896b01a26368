/*
 * Code of ring 3 at several addresses. Programs and libraries lie elsewhere in each process, by
 * chance, and translated code has addresses in it; but the page is the same one. The second time
 * that a block's code is met, at another address, it is translated with notes of all that depends
 * on where it is; from then on it is copied and these places are changed, a tenth of the work.
 * REPRISE_TEST_COPIES=1 has each copy compared with the translation.
 */
#include "copies.h"

#include "code_log.h"
#include "regions.h"

#include "cpu/x86/mode.h"
#include "cpu/x86/tlb.h"

/* In front of a block's struct reloc. */
struct copied {
    u32 cold; /* offset in the cache */
    u16 hot_bytes, cold_bytes;
    u32 n;
};
#define HEAD (sizeof(struct copied) / sizeof(struct reloc))
_Static_assert(sizeof(struct copied) == HEAD * sizeof(struct reloc), "whole ones");

#define RELOCS_LOST UINT32_MAX /* it cannot be copied */

bool copies_want(const struct dbt *d, const struct code_at *at)
{
    /* Where all addresses are of 8 bytes, and none wraps around. */
    bool wide = at->lin >> 32 && at->lin < (1ull << 47) - 2 * PAGE_SIZE;
    return wide && d->c.idx == IDX_USER && is_64bit(&d->c) && !at->hot && !at->plain &&
           !at->phys2 && !d->c.debug.nexec && !d->c.trace.before;
}

static u32 *place(struct code *k, u64 phys, u32 mode)
{
    u64 h = (phys ^ (u64)mode << 40) * 0x9e3779b97f4a7c15ull;
    return &k->alike[h >> (64 - k->hash_bits)];
}

static struct block *alike(struct dbt *d, const struct code_at *at)
{
    struct code *k = d->code;
    u32 number = *place(k, at->phys, d->c.mode);
    struct block *b = &k->blocks[number];
    bool there = number && number < region_end(k, region_of_block(k, number)) && !b->dead &&
                 b->phys == at->phys && b->mode == d->c.mode;
    return there ? b : NULL;
}

void copies_keep(struct dbt *d, const struct block *b)
{
    *place(d->code, b->phys, b->mode) = (u32)(b - d->code->blocks);
}

struct notes *copies_begin(const struct dbt *d, struct notes *notes)
{
    const struct code *k = d->code;
    notes->hot = k->rw + k->used;
    notes->cold = k->rw + k->cold_used;
    notes->colds = k->rw + k->code_end;
    notes->blocks = k->rw + k->fixed;
    notes->lost = false;
    notes->n = 0;
    return notes;
}

static bool has_room(const struct code *k, u32 n)
{
    return k->nrelocs + HEAD + n <= k->relocs_end;
}

/* Writes down what copies need; `relocs` are not in it yet. */
static void put_down(struct code *k, struct block *b, struct copied head,
                     const struct reloc *relocs)
{
    b->relocs = k->nrelocs;
    *(struct copied *)(void *)&k->relocs[b->relocs] = head;
    for (u32 i = 0; i < head.n; i++)
        k->relocs[b->relocs + HEAD + i] = relocs[i];
    k->nrelocs += (u32)HEAD + head.n;
}

void copies_note(struct dbt *d, struct block *b, const struct notes *notes, size_t hot, size_t cold)
{
    struct code *k = d->code;
    struct copied head = {k->cold_used, (u16)hot, (u16)cold, notes->n};
    if (notes->lost || head.hot_bytes != hot || head.cold_bytes != cold)
        b->relocs = RELOCS_LOST;
    else if (has_room(k, notes->n))
        put_down(k, b, head, notes->reloc);
}

/* From the one to the other: what is added to offsets in the cache, to addresses, to numbers. */
struct move {
    u32 hot, cold;
    u64 lin;
    u32 number;
};

static void add32(u8 *at, u32 v)
{
    u32 old;
    memcpy(&old, at, 4);
    old += v;
    memcpy(at, &old, 4);
}

/* Returns what it was. */
static u64 add64(u8 *at, u64 v)
{
    u64 old, new;
    memcpy(&old, at, 8);
    new = old + v;
    memcpy(at, &new, 8);
    return old;
}

static u32 tlb_moved(u64 lin, u64 by)
{
    return (u32)sizeof(struct tlb_entry) * (tlb_slot(lin + by) - tlb_slot(lin));
}

/* Changes what one reloc says, at `at`; returns how many it is. `lin`: the new block's address. */
static u32 apply(const struct reloc *r, u8 *at, u64 lin, const struct move *m)
{
    switch (r->kind) {
    case RELOC_ID: add32(at, EXIT_ID(m->number, 0, 0)); break;
    case RELOC_LIN: add64(at, m->lin); break;
    case RELOC_MINUS: add64(at, 0 - m->lin); break;
    case RELOC_FAR: {
        u64 old = add64(at, m->lin);
        add32(at + 12, 8 * (jc_slot(old + m->lin) - jc_slot(old)));
        break;
    }
    case RELOC_TLB: {
        i32 off;
        memcpy(&off, r + 1, 4);
        add32(at, tlb_moved(lin - m->lin + (u64)(i64)off, m->lin));
        return 2;
    }
    case RELOC_OUT: add32(at, 0 - (r->cold ? m->cold : m->hot)); break;
    case RELOC_OTHER: add32(at, r->cold ? m->hot - m->cold : m->cold - m->hot); break;
    default: CHECK(0, "reloc %u", r->kind);
    }
    return 1;
}

static u32 moved(u32 offset, const struct copied *h, const struct move *m)
{
    return offset + (offset - h->cold < h->cold_bytes ? m->cold : m->hot);
}

/* The copy's links go nowhere yet. */
static void unlink(struct code *k, struct block *b, const struct copied *h, const struct move *m)
{
    const struct link *from = &k->links[b->links];
    b->linked = 0;
    b->links = k->nlinks;
    for (unsigned i = 0; i < b->nlinks; i++) {
        struct link *l = &k->links[k->nlinks++];
        *l = from[i];
        l->patch = moved(l->patch, h, m);
        l->exit = moved(l->exit, h, m);
        u32 rel = l->exit - (l->patch + 4);
        memcpy(k->rw + l->patch, &rel, 4);
        if (l->inner) {
            l->inner = moved(l->inner, h, m);
            memset(k->rw + l->inner, 0, 4);
        }
    }
}

/* NULL: there was no room, and what was to be copied has gone. */
static struct block *copy(struct dbt *d, const struct block *from, u64 lin)
{
    struct code *k = d->code;
    struct copied h = *(struct copied *)(void *)&k->relocs[from->relocs];
    u32 gen = block_gen(k, from);
    regions_reserve(d, MAX(MAX(from->n, h.hot_bytes / INSN_CODE), h.cold_bytes / INSN_COLD));
    if (gen != block_gen(k, from))
        return NULL;
    u32 number = k->nblocks;
    struct move m = {k->used - from->ient, k->cold_used - h.cold, lin - from->lin,
                     number - (u32)(from - k->blocks)};
    memcpy(k->rw + k->used, k->rw + from->ient, h.hot_bytes);
    memcpy(k->rw + k->cold_used, k->rw + h.cold, h.cold_bytes);
    const struct reloc *relocs = &k->relocs[from->relocs + HEAD];
    for (u32 i = 0; i < h.n;)
        i += apply(&relocs[i], k->rw + (relocs[i].cold ? k->cold_used : k->used) + relocs[i].at,
                   lin, &m);
    struct block *b = &k->blocks[number];
    *b = *from;
    b->lin = lin;
    b->ient += m.hot;
    b->code += m.hot;
    b->inner += m.hot;
    b->insns = k->ninsn_off;
    b->hash_next = b->page_next = b->page2_next = 0;
    b->plain = b->hot = false;
    b->failed = b->heat = 0;
    b->relocs = 0;
    unlink(k, b, &h, &m);
    for (unsigned i = 0; i < b->n; i++)
        k->insn_off[k->ninsn_off++] = k->insn_off[from->insns + i];
    if (region_of_block(k, number) != region_of_block(k, (u32)(from - k->blocks)) &&
        has_room(k, h.n)) { /* when that region goes, this one is there */
        h.cold += m.cold;
        put_down(k, b, h, relocs);
        copies_keep(d, b);
    }
    if (UNLIKELY(k->log.made)) {
        code_log_block(d, b, b->ient, h.hot_bytes);
        if (h.cold_bytes)
            code_log_block(d, b, k->cold_used, h.cold_bytes);
    }
    k->used = (u32)(k->used + h.hot_bytes + 15) & ~15u;
    k->cold_used += h.cold_bytes;
    k->nblocks++;
    d->c.st.copies++;
    d->c.st.code_bytes += h.hot_bytes + h.cold_bytes;
    return b;
}

struct block *copies_make(struct dbt *d, const struct code_at *at, bool *noted)
{
    const struct block *from = alike(d, at);
    *noted = from && !from->relocs;
    if (!from || !from->relocs || from->relocs == RELOCS_LOST)
        return NULL;
    struct block *b = copy(d, from, at->lin);
    *noted = !b;
    return b;
}
