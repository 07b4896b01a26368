/*
 * The code cache and the tables that find blocks: by address and mode (hash), by page (for
 * invalidation), by target (the jump cache that indirect and cross-page branches use). Direct
 * links join only blocks of one page, so dropping a page's blocks together needs no unlinking, and
 * links to some of them are found in the page's others. A block of one instruction that lies in two
 * pages is in the lists of both and has no links to it. The cache is mapped twice, writable and
 * executable, never both at one address. It is anonymous shared memory, in which perf looks for
 * names of code (cmd/perf.h); of a memfd it takes the name.
 */
#define _GNU_SOURCE
#include "cache.h"

#include "regions.h"
#include "spaces.h"

#include "cpu/x86/park.h"
#include "cpu/x86/tlb.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* 0 - an address that is not canonical. Guests branch there all the same: who finds it finds the
 * miss. */
#define NO_TARGET (1ull << 62)

/* A look at the addresses of a page, side by side in the tables, costs as much as one at so many
 * entries of a list, which are all over them. */
#define PAGE_COST 1000

#define REGION (512 * PAGE_SIZE) /* what a table of 4 KiB pages maps in long mode */

/* So many times all entries go before what they noted of pages does: they are often few. */
#define PAGES_KEPT 16

/* So many stores beside translated bytes, and the page goes. */
#define MISSES_MAX 64

/* ---- the jump cache ---- */

/* A table of it: index `t` of jc, or t - IDX_COUNT of jc2. */
static u32 slot_in(unsigned t, u64 lin)
{
    return t < IDX_COUNT ? jc_slot(lin) : jc_second(lin);
}

static void jc_clear(struct dbt *d, unsigned t, u32 slot)
{
    d->jc_known[t][slot].block = 0;
    if (t < IDX_COUNT)
        d->jc[t][slot] = (u64)(uintptr_t)(d->code->rx + d->code->second[t]);
    else
        d->jc2[t - IDX_COUNT][slot] =
            (struct jc_second){NO_TARGET, (u64)(uintptr_t)(d->code->rx + d->code->ind_miss)};
}

static u32 bit_of(u32 n, u64 key)
{
    return (u32)((key * 0x9e3779b97f4a7c15ull) >> 48) & (n - 1);
}

/* Noted is a page, and the 2 MiB that it is in: most of what a table maps has no code at all. */
static u32 page_bit(u32 n, u64 lin)
{
    return bit_of(n, lin / PAGE_SIZE);
}

static u32 region_bit(u32 n, u64 lin)
{
    return bit_of(n, ~(lin / REGION));
}

static void note(u64 *bits, u32 at)
{
    bits[at / 64] |= 1ull << (at & 63);
}

static bool is_noted(const u64 *bits, u32 at)
{
    return bits[at / 64] >> (at & 63) & 1;
}

static void note_page(u64 *bits, u32 n, u64 lin)
{
    note(bits, page_bit(n, lin));
    note(bits, region_bit(n, lin));
}

void note_pages(u64 *bits, u32 n, const struct block *b)
{
    note_page(bits, n, b->lin);
    if (b->phys2)
        note_page(bits, n, b->lin + b->size - 1);
}

u64 pages_noted(const u64 *bits, u32 n, u64 lin, u64 pages)
{
    u64 noted = 0;
    for (u64 k = 0; k < pages;) {
        u64 at = lin + k * PAGE_SIZE, left = MIN(pages - k, (REGION - at % REGION) / PAGE_SIZE);
        k += left;
        if (is_noted(bits, region_bit(n, at)))
            for (u64 i = 0; i < left; i++)
                noted += is_noted(bits, page_bit(n, at + i * PAGE_SIZE));
    }
    return noted;
}

static void jc_put(struct dbt *d, unsigned t, u32 bi)
{
    struct block *b = &d->code->blocks[bi];
    u32 slot = slot_in(t, b->lin), old = d->jc_known[t][slot].block;
    struct filled *f = b->lin >> 63 ? &d->jc_kernel : &d->jc_user;
    if (!old || (d->code->blocks[old].lin ^ b->lin) >> 63) {
        if (f->n < MAX_FILLED)
            f->slot[f->n] = t << 16 | slot;
        f->n++;
    }
    d->jc_odd += t % IDX_COUNT == IDX_USER && b->lin >> 63;
    note_pages(d->jc_pages[b->lin >> 63], JC_PAGES, b);
    d->jc_known[t][slot] = (struct jc_known){bi, (u32)(b->lin / PAGE_SIZE)};
    if (t < IDX_COUNT)
        d->jc[t][slot] = (u64)(uintptr_t)(d->code->rx + b->ient);
    else
        d->jc2[t - IDX_COUNT][slot] =
            (struct jc_second){0 - b->lin, (u64)(uintptr_t)(d->code->rx + b->code)};
}

void jc_set(struct dbt *d, unsigned idx, struct block *b)
{
    u32 bi = (u32)(b - d->code->blocks), old = d->jc_known[idx][jc_slot(b->lin)].block;
    if (old == bi)
        return;
    if (old)
        jc_put(d, IDX_COUNT + idx, old);
    jc_put(d, idx, bi);
}

void jc_learn(struct dbt *d, unsigned idx, struct block *b)
{
    jc_set(d, idx, b);
    if (idx == IDX_USER && !(b->lin >> 63))
        spaces_note(d, (u32)(b - d->code->blocks));
}

void jc_first(struct dbt *d, u64 lin)
{
    unsigned idx = d->c.idx;
    u32 bi = d->jc_known[IDX_COUNT + idx][jc_second(lin)].block;
    d->second_left = SECOND_MOST;
    if (!bi || d->code->blocks[bi].lin != lin)
        return;
    d->c.st.jc_swaps++;
    jc_set(d, idx, &d->code->blocks[bi]);
}

u32 jc_find(const struct dbt *d, u64 lin)
{
    for (unsigned t = d->c.idx; t < 2 * IDX_COUNT; t += IDX_COUNT) {
        u32 bi = d->jc_known[t][slot_in(t, lin)].block;
        if (bi && d->code->blocks[bi].lin == lin)
            return bi;
    }
    return 0;
}

static void jc_clear_list(struct dbt *d, struct filled *f)
{
    unsigned half = f == &d->jc_kernel;
    if (f->n && !(++d->jc_clears[half] % PAGES_KEPT))
        memset(d->jc_pages[half], 0, sizeof(d->jc_pages[0]));
    if (f->n <= MAX_FILLED) {
        for (u32 i = 0; i < f->n; i++)
            jc_clear(d, f->slot[i] >> 16, f->slot[i] & 0xffff);
    } else {
        for (unsigned t = 0; t < 2 * IDX_COUNT; t++)
            for (u32 s = 0; s < JC_SIZE; s++)
                if (d->jc_known[t][s].block)
                    jc_clear(d, t, s);
    }
    f->n = 0;
}

/* Drops an entry that is of the pages, or of the one before them and goes on in them. */
static bool drop_if(struct dbt *d, unsigned t, u32 slot, u32 first, u64 pages)
{
    const struct jc_known *k = &d->jc_known[t][slot];
    u32 page = k->page - first;
    bool drop = page < pages || (page == UINT32_MAX && d->code->blocks[k->block].phys2);
    if (k->block && drop)
        jc_clear(d, t, slot);
    return !k->block;
}

/* Those of a page, by all its addresses. */
static void jc_drop_page(struct dbt *d, u64 lin)
{
    for (u64 at = lin - 14; at != lin + PAGE_SIZE; at++) /* from the first that may reach in */
        for (unsigned t = 0; t < 2 * IDX_COUNT; t++)
            drop_if(d, t, slot_in(t, at), (u32)(lin / PAGE_SIZE), 1);
}

/* Those of a range, by the list of all. */
static void jc_drop_listed(struct dbt *d, struct filled *f, u64 first, u64 pages)
{
    u32 out = 0;
    for (u32 i = 0; i < f->n; i++)
        if (!drop_if(d, f->slot[i] >> 16, f->slot[i] & 0xffff, (u32)(first / PAGE_SIZE), pages))
            f->slot[out++] = f->slot[i];
    f->n = out;
}

void jc_drop(struct core *c, u64 lin, u64 len)
{
    struct dbt *d = dbt_of(c);
    if (!len) {
        jc_clear_list(d, &d->jc_user);
        jc_clear_list(d, &d->jc_kernel);
        spaces_forget(c, PT_ROOT_ANY, 0, 0);
        d->jc_odd = 0;
        return;
    }
    struct filled *f = lin >> 63 ? &d->jc_kernel : &d->jc_user;
    u64 first = lin & ~(u64)(PAGE_SIZE - 1),
        pages = (lin - first + len + PAGE_SIZE - 1) / PAGE_SIZE;
    if (pages <= PAGES_LOOK) {
        const u64 *bits = d->jc_pages[lin >> 63];
        u64 noted = pages_noted(bits, JC_PAGES, first, pages);
        if (noted * PAGE_COST <= f->n) {
            for (u64 k = 0; noted && k < pages; k++)
                if (pages_noted(bits, JC_PAGES, first + k * PAGE_SIZE, 1))
                    jc_drop_page(d, first + k * PAGE_SIZE);
            return;
        }
    }
    if (f->n > MAX_FILLED || len >= 1ull << 47)
        jc_clear_list(d, f);
    else
        jc_drop_listed(d, f, first, pages);
}

static void jc_drop_block(struct dbt *d, u32 number)
{
    u64 lin = d->code->blocks[number].lin;
    for (unsigned t = 0; t < 2 * IDX_COUNT; t++)
        if (d->jc_known[t][slot_in(t, lin)].block == number)
            jc_clear(d, t, slot_in(t, lin));
}

void jc_drop_block_everywhere(struct dbt *d, u32 number)
{
    EACH_CPU (c, &d->c)
        jc_drop_block(dbt_of(c), number);
}

/* ---- room ---- */

static u32 hash(const struct code *k, u64 lin, u64 phys, u32 mode)
{
    u64 h = (phys ^ (lin << 20) ^ mode) * 0x9e3779b97f4a7c15ull;
    return (u32)(h >> (64 - k->hash_bits));
}

static u32 hash_size(const struct code *k)
{
    return 1u << k->hash_bits;
}

static size_t insn_off_bytes(const struct code *k)
{
    return sizeof(struct insn_off) * (k->size >> INSN_BYTES_SHIFT);
}

static size_t links_bytes(const struct code *k)
{
    return sizeof(struct link) * (k->size >> LINK_BYTES_SHIFT);
}

static size_t relocs_bytes(const struct code *k)
{
    return sizeof(struct reloc) * (k->size >> RELOC_BYTES_SHIFT);
}

static void *map(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Pages that were copied at a fork cannot be seen through two mappings. */
static int map_copied(struct code *k, struct err *err)
{
    void *p = mmap(NULL, k->size, PROT_READ | PROT_WRITE | PROT_EXEC,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return err_errno(err, "cannot map a code cache that is writable and executable (is that "
                              "forbidden on this host?), which paranoid needs");
    k->rw = k->rx = p;
    return 0;
}

static int map_twice(struct code *k, struct err *err)
{
    void *rw = mmap(NULL, k->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (rw == MAP_FAILED)
        return err_errno(err, "cannot create the code cache");
    k->rw = rw;
    /* Of size 0 to k->size: the same pages, once more. */
    void *rx = mremap(rw, 0, k->size, MREMAP_MAYMOVE);
    k->rx = rx == MAP_FAILED ? NULL : rx;
    if (!k->rx || mprotect(rx, k->size, PROT_READ | PROT_EXEC))
        return err_errno(err, "cannot map the code cache executable (is execution from shared "
                              "memory forbidden on this host?)");
    return 0;
}

int cache_init(struct dbt *d, u64 bytes, bool copied, struct err *err)
{
    if (d->c.sibling != &d->c) {
        d->code = dbt_of(d->c.sibling)->code;
        d->code->users++;
        return 0;
    }
    struct code *k = map(sizeof(*k));
    if (!k)
        return err_set(err, -ENOMEM, "out of memory");
    d->code = k;
    k->users = 1;
    int ret = regions_init(d, bytes, err);
    if (!ret)
        ret = copied ? map_copied(k, err) : map_twice(k, err);
    if (ret)
        return ret;
    k->npages = d->c.shared->npages;
    k->blocks = map(sizeof(struct block) * k->max_blocks);
    k->block_hash = map(sizeof(u32) * hash_size(k));
    k->pages = map(sizeof(struct code_page) * k->npages);
    k->insn_off = map(insn_off_bytes(k));
    k->links = map(links_bytes(k));
    k->relocs = map(relocs_bytes(k));
    k->alike = map(sizeof(u32) * hash_size(k));
    if (!k->blocks || !k->block_hash || !k->pages || !k->insn_off || !k->links || !k->relocs ||
        !k->alike)
        return err_set(err, -ENOMEM, "out of memory for the translator's tables");
    return 0;
}

void cache_begin(struct dbt *d)
{
    if (d->code->users == 1)
        regions_reset(d);
    for (unsigned t = 0; t < 2 * IDX_COUNT; t++)
        for (u32 slot = 0; slot < JC_SIZE; slot++)
            jc_clear(d, t, slot);
}

void cache_fini(struct dbt *d)
{
    struct code *k = d->code;
    if (!k || --k->users)
        return;
    if (k->rw)
        munmap(k->rw, k->size);
    if (k->rx && k->rx != k->rw)
        munmap(k->rx, k->size);
    if (k->blocks)
        munmap(k->blocks, sizeof(struct block) * k->max_blocks);
    if (k->block_hash)
        munmap(k->block_hash, sizeof(u32) * hash_size(k));
    if (k->pages)
        munmap(k->pages, sizeof(struct code_page) * k->npages);
    if (k->insn_off)
        munmap(k->insn_off, insn_off_bytes(k));
    if (k->links)
        munmap(k->links, links_bytes(k));
    if (k->relocs)
        munmap(k->relocs, relocs_bytes(k));
    if (k->alike)
        munmap(k->alike, sizeof(u32) * hash_size(k));
    munmap(k, sizeof(*k));
}

/* ---- blocks ---- */

struct block *cache_find(struct dbt *d, u64 lin, u64 phys, u64 phys2, u32 mode)
{
    struct code *k = d->code;
    for (u32 i = k->block_hash[hash(k, lin, phys, mode)]; i; i = k->blocks[i].hash_next) {
        struct block *b = &k->blocks[i];
        if (b->lin == lin && b->phys == phys && b->phys2 == phys2 && b->mode == mode) {
            k->region[region_of_block(k, i)].uses++;
            return b;
        }
    }
    return NULL;
}

/* Puts a block at the head of a page's list; returns what was there. */
static u32 page_add(struct dbt *d, u64 phys, u32 entry)
{
    u64 index = ram_page_index(d->c.ram, phys);
    struct page *pg = &d->c.shared->pages[index];
    u32 next = d->code->pages[index].blocks;
    d->code->pages[index].blocks = entry;
    if (!(pg->flags & PG_CODE)) {
        mmu_protect_page(&d->c, index);
        pg->flags |= PG_CODE;
    }
    return next;
}

void cache_link(struct dbt *d, struct block *b)
{
    u32 bi = (u32)(b - d->code->blocks), h = hash(d->code, b->lin, b->phys, b->mode);
    if (!b->plain) { /* the block of a failed guard has the same address */
        b->hash_next = d->code->block_hash[h];
        d->code->block_hash[h] = bi;
    }
    b->page_next = page_add(d, b->phys, bi);
    if (b->phys2)
        b->page2_next = page_add(d, b->phys2, bi | SECOND_PAGE);
}

void link_to(struct dbt *d, struct block *b, const struct link *l, const struct block *to)
{
    CHECK(l && l->patch > b->code && l->patch < d->code->size && to->code < d->code->size,
          "a link of the block at %llx to %llx", (unsigned long long)b->lin,
          (unsigned long long)to->lin);
    u32 from = l->patch, dest = to->code;
    if (l->inner && b->loaded == to->loaded && b->spilled == to->spilled) {
        from = l->inner;
        dest = to->inner;
    }
    *(i32 *)(void *)(d->code->rw + from) = (i32)dest - (i32)(from + 4);
    b->linked |= 1u << region_of_code(d->code, dest);
}

static void hash_drop(struct code *k, const struct block *b)
{
    u32 i = (u32)(b - k->blocks), *p = &k->block_hash[hash(k, b->lin, b->phys, b->mode)];
    while (*p && *p != i)
        p = &k->blocks[*p].hash_next;
    if (*p)
        *p = b->hash_next;
}

void cache_replace(struct dbt *d, struct block *b, struct block *by)
{
    u32 number = (u32)(b - d->code->blocks);
    bool known = jc_find(d, b->lin) == number;
    hash_drop(d->code, b);
    jc_drop_block_everywhere(d, number);
    b->plain = true;
    cache_link(d, by);
    if (known)
        jc_learn(d, d->c.idx, by);
    /* A page that many processes have at addresses of their own has thousands; who links to this
     * one is mostly young. Others still come to the old one. */
    u32 left = 256;
    for (u32 e = d->code->pages[ram_page_index(d->c.ram, b->phys)].blocks; e && left; left--) {
        struct block *o = &d->code->blocks[e & ~SECOND_PAGE];
        e = e & SECOND_PAGE ? o->page2_next : o->page_next;
        if (o->mode != b->mode || (o->lin ^ b->lin) >= PAGE_SIZE || o->phys2)
            continue;
        for (unsigned i = 0; i < o->nlinks; i++) {
            const struct link *l = &d->code->links[o->links + i];
            if (!l->plain && l->target == (b->lin & (PAGE_SIZE - 1)))
                link_to(d, o, l, by);
        }
    }
    const struct link *plain = block_link(d->code, by, LINK_PLAIN);
    if (plain)
        link_to(d, by, plain, b);
}

static void forget_page(struct dbt *d, u64 index)
{
    d->code->pages[index] = (struct code_page){0};
    d->c.shared->pages[index].flags &= (u8)~PG_CODE;
}

/* Out of the hash and the jump cache; the pages' lists are the caller's. */
static void drop_block(struct dbt *d, u32 i)
{
    hash_drop(d->code, &d->code->blocks[i]);
    jc_drop_block_everywhere(d, i);
    d->code->blocks[i].dead = 1;
    d->code->region[region_of_block(d->code, i)].dead++;
}

/* A link into the region is as it was before it was made: it goes to `to`. */
static void unlink_from(struct code *k, u32 patch, u32 to, unsigned region)
{
    i32 *rel = (i32 *)(void *)(k->rw + patch);
    if (region_of_code(k, patch + 4 + (u32)*rel) == region)
        *rel = (i32)(to - (patch + 4));
}

static void unlink_block(struct code *k, struct block *b, unsigned region)
{
    b->linked &= ~(1u << region);
    for (unsigned i = 0; i < b->nlinks; i++) {
        const struct link *l = &k->links[b->links + i];
        if (l->inner)
            unlink_from(k, l->inner, l->inner + 4, region);
        unlink_from(k, l->patch, l->exit, region);
    }
}

void cache_drop_from_page(struct dbt *d, u64 index, unsigned region)
{
    struct code *k = d->code;
    struct code_page *pg = &k->pages[index];
    u32 *at = &pg->blocks;
    u64 map = 0;
    for (u32 e; (e = *at);) {
        struct block *b = &k->blocks[e & ~SECOND_PAGE];
        u32 *next = e & SECOND_PAGE ? &b->page2_next : &b->page_next;
        if (region_of_block(k, e & ~SECOND_PAGE) == region) {
            *at = *next;
            if (!b->dead)
                drop_block(d, e & ~SECOND_PAGE);
            continue;
        }
        at = next;
        map |= e & SECOND_PAGE ? 1 : page_chunks(b->low, b->looked - 1u);
        if (b->linked >> region & 1)
            unlink_block(k, b, region);
    }
    pg->map = map;
    if (!pg->blocks)
        forget_page(d, index);
}

void cache_invalidate_page(struct dbt *d, u64 index)
{
    struct code *k = d->code;
    for (u32 e = k->pages[index].blocks, next; e; e = next) {
        u32 i = e & ~SECOND_PAGE;
        struct block *b = &k->blocks[i];
        next = e & SECOND_PAGE ? b->page2_next : b->page_next;
        if (!b->dead) /* with the other page of two */
            drop_block(d, i);
    }
    forget_page(d, index);
    d->c.stale = true;
}

void cache_page_changed(struct core *c, gpa_t gpa, u64 len)
{
    struct dbt *d = dbt_of(c);
    u64 index = ram_page_index(c->ram, gpa);
    struct code_page *pg = &d->code->pages[index];
    if (len < PAGE_SIZE) {
        unsigned at = (unsigned)(gpa & (PAGE_SIZE - 1));
        if (!(pg->map & page_chunks(at, at + (unsigned)len - 1)) && ++pg->misses <= MISSES_MAX)
            return;
        c->st.smc++;
    }
    cache_invalidate_page(d, index);
}

void cache_flush(struct core *c)
{
    struct dbt *d = dbt_of(c);
    struct code *k = d->code;
    EACH_CPU (s, c)
        jc_drop(s, 0, 0);
    if (UNLIKELY(k->log.made)) {
        core_park(c);
        k->log.dropped(k->log.opaque, k->rx, k->size);
    }
    for (unsigned r = 0; r < k->nregions; r++)
        for (u32 i = region_first(k, r); i < region_end(k, r); i++) {
            forget_page(d, ram_page_index(c->ram, k->blocks[i].phys));
            if (k->blocks[i].phys2)
                forget_page(d, ram_page_index(c->ram, k->blocks[i].phys2));
        }
    for (u32 i = 0; i < hash_size(k); i++)
        k->block_hash[i] = 0;
    regions_reset(d);
    c->stale = true;
    c->st.code_flushes++;
}
