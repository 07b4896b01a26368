/*
 * Room in the code cache. It is 16 to 31 equal regions, filled one after the other, each with its
 * share of the block table, of insn_off and of links. When the last one is full, one is emptied for
 * each that is needed: the least used of a few drawn at random. A ring would do, but for what
 * programs do most: again and again the same, of which a ring has always dropped what comes next as
 * soon as all of it is a little more than the cache. What is used is seen because the jump cache
 * forgets those few when they are drawn. A region whose blocks are dead but for a few goes before
 * a fresh one is begun: a program that writes to its own code would fill all of them.
 *
 * Nothing of this shows outside: the draw is a fixed sequence, and recordings are the same whatever
 * is in the cache. Blocks are dropped between runs of translated code only.
 */
#include "regions.h"

#include "cache.h"

#include <errno.h>
#include <sys/mman.h>

/* Fewer: more is dropped at once. More: a block fits less well into what is left of a small one. */
#define REGIONS_MIN 16
#define DRAWN       4
/* One of so many blocks may be alive in a region that is emptied although there are fresh ones. */
#define DEAD_BUT 8
/* Blocks, 4 MB of code. */
#define LET_GO 16384
/* Eighths of a region: what was measured of boots and programs. */
#define COLD_SHARE 4

int regions_init(struct dbt *d, u64 bytes, struct err *err)
{
    struct code *k = d->code;
    if (!bytes)
        bytes = CODE_CACHE_DEFAULT;
    if (bytes < CODE_CACHE_MIN || bytes > CODE_CACHE_MAX)
        return err_set(err, -EINVAL, "a code cache of %llu bytes", (unsigned long long)bytes);
    while (bytes >> (k->region_shift + 1) >= REGIONS_MIN)
        k->region_shift++;
    k->nregions = (unsigned)(bytes >> k->region_shift);
    k->size = (u32)k->nregions << k->region_shift;
    k->max_blocks = k->size >> BLOCK_BYTES_SHIFT;
    while (1u << (k->hash_bits + 1) < k->max_blocks)
        k->hash_bits++;
    k->random = 1;
    return 0;
}

/* Begins to fill an empty region. */
static void enter(struct dbt *d, unsigned r)
{
    struct code *k = d->code;
    k->now = r;
    k->used = r ? (u32)r << k->region_shift : k->fixed;
    k->cold_end = (u32)(r + 1) << k->region_shift;
    k->code_end = k->cold_used = k->cold_end - COLD_SHARE * (1u << (k->region_shift - 3));
    k->nblocks = region_first(k, r);
    k->block_end = (u32)(r + 1) << (k->region_shift - BLOCK_BYTES_SHIFT);
    if (d->test_blocks)
        k->block_end = MIN(k->block_end, k->nblocks + d->test_blocks);
    k->ninsn_off = (u32)r << (k->region_shift - INSN_BYTES_SHIFT);
    k->insn_end = (u32)(r + 1) << (k->region_shift - INSN_BYTES_SHIFT);
    k->nlinks = (u32)r << (k->region_shift - LINK_BYTES_SHIFT);
    k->links_end = (u32)(r + 1) << (k->region_shift - LINK_BYTES_SHIFT);
    k->nrelocs = MAX(1u, (u32)r << (k->region_shift - RELOC_BYTES_SHIFT));
    k->relocs_end = (u32)(r + 1) << (k->region_shift - RELOC_BYTES_SHIFT);
    k->region[r].gen = ++k->gen;
    k->region[r].uses = k->region[r].dead = 0;
}

void regions_reset(struct dbt *d)
{
    struct code *k = d->code;
    for (unsigned r = 0; r < k->nregions; r++) {
        k->region[r].end = region_first(k, r);
        k->region[r].gen = ++k->gen;
    }
    k->watched = 0;
    k->nfilled = 1;
    enter(d, 0);
}

/* The next region to be emptied will be one of a few, whose use is seen from here on. */
static void draw(struct dbt *d)
{
    struct code *k = d->code;
    for (k->watched = 0; __builtin_popcount(k->watched) < DRAWN;) {
        k->random = k->random * 1664525u + 1013904223u;
        unsigned r = (unsigned)((u64)k->random * k->nregions >> 32);
        if (r == k->now)
            continue;
        k->watched |= 1u << r;
        k->region[r].uses = 0;
        for (u32 i = region_first(k, r); i < region_end(k, r); i++)
            jc_drop_block_everywhere(d, i);
    }
}

static unsigned least_used(const struct code *k)
{
    unsigned least = k->nregions;
    for (unsigned r = 0; r < k->nregions; r++)
        if ((k->watched >> r & 1) &&
            (least == k->nregions || k->region[r].uses < k->region[least].uses))
            least = r;
    return least;
}

/* Once for each page, however many of the region's blocks are in it: thousands, where a program
 * writes to its own code, and dead ones of two pages stay in the list of the other. */
static void empty_page(struct dbt *d, u64 phys, unsigned r)
{
    u64 index = ram_page_index(d->c.ram, phys);
    struct code_page *pg = &d->code->pages[index];
    if (pg->done)
        return;
    cache_drop_from_page(d, index, r);
    pg->done = true;
}

static void page_done(struct dbt *d, u64 phys)
{
    d->code->pages[ram_page_index(d->c.ram, phys)].done = false;
}

static void empty(struct dbt *d, unsigned r)
{
    struct code *k = d->code;
    if (UNLIKELY(k->log.made))
        k->log.dropped(k->log.opaque, k->rx + ((size_t)r << k->region_shift),
                       1ull << k->region_shift);
    for (u32 i = region_first(k, r); i < region_end(k, r); i++) {
        const struct block *b = &k->blocks[i];
        /* A dead one may still be in the list of its other page. */
        if (!b->dead || b->phys2)
            empty_page(d, b->phys, r);
        if (b->phys2)
            empty_page(d, b->phys2, r);
    }
    for (u32 i = region_first(k, r); i < region_end(k, r); i++) {
        page_done(d, k->blocks[i].phys);
        if (k->blocks[i].phys2)
            page_done(d, k->blocks[i].phys2);
    }
    k->region[r].end = region_first(k, r);
    d->c.st.code_evictions++;
}

/* A filled region whose blocks are dead but for a few; nregions: there is none. */
static unsigned mostly_dead(const struct code *k)
{
    for (unsigned r = 0; r < k->nfilled; r++) {
        u32 n = region_end(k, r) - region_first(k, r);
        if (r != k->now && n - k->region[r].dead <= n / DEAD_BUT)
            return r;
    }
    return k->nregions;
}

/* The writable mapping's pages go: of what was made long ago few are needed again, for links, and
 * each counts as resident memory once more. */
static void let_go(struct code *k)
{
    k->let_go = k->nblocks;
    if (k->rw != k->rx)
        (void)madvise(k->rw, (size_t)k->nfilled << k->region_shift,
                      MADV_DONTNEED); /* or they stay */
}

void regions_reserve(struct dbt *d, unsigned insns)
{
    struct code *k = d->code;
    if (UNLIKELY(k->nblocks - k->let_go >= LET_GO))
        let_go(k);
    if (LIKELY(k->used + (insns + 1) * INSN_CODE <= k->code_end &&
               k->cold_used + (insns + 1) * INSN_COLD <= k->cold_end && k->nblocks < k->block_end &&
               k->ninsn_off + insns <= k->insn_end && k->nlinks + LINKS_MAX <= k->links_end))
        return;
    unsigned next = mostly_dead(k);
    k->region[k->now].end = k->nblocks;
    if (next < k->nregions) {
        empty(d, next);
    } else if (k->nfilled < k->nregions) {
        next = k->nfilled++;
    } else {
        next = least_used(k);
        empty(d, next);
    }
    enter(d, next);
    if (k->nfilled == k->nregions)
        draw(d);
}

struct block *regions_block_at(struct code *k, u32 offset)
{
    unsigned r = region_of_code(k, offset);
    u32 lo = region_first(k, r), hi = region_end(k, r) - 1;
    while (lo < hi) {
        u32 mid = (lo + hi + 1) / 2;
        if (k->blocks[mid].ient <= offset)
            lo = mid;
        else
            hi = mid - 1;
    }
    CHECK(lo < region_end(k, r) && offset >= k->blocks[lo].code, "a fault at +%x, in no block",
          offset);
    return &k->blocks[lo];
}
