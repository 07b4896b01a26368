/*
 * The code cache and the tables that find blocks: by address and mode (hash), by page (for
 * invalidation), by target (the jump cache that indirect and cross-page branches use). Direct
 * links join only blocks of one page, so dropping a page's blocks together needs no unlinking. A
 * block of one instruction that lies in two pages is in the lists of both and has no links to it.
 * The cache is mapped twice, writable and executable, never both at one address.
 */
#define _GNU_SOURCE
#include "dbt.h"

#include "cpu/x86/tlb.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define HASH_SIZE (1u << 19)

/* So many stores beside translated bytes, and the page goes. */
#define MISSES_MAX 64

static u32 hash(u64 lin, u64 phys, u32 mode)
{
    u64 h = (phys ^ (lin << 20) ^ mode) * 0x9e3779b97f4a7c15ull;
    return (u32)(h >> 45);
}

static void *map(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

int cache_init(struct dbt *d, struct err *err)
{
    struct code *k = map(sizeof(*k));
    if (!k)
        return err_set(err, -ENOMEM, "out of memory");
    d->code = k;
    k->memfd = memfd_create("reprise-code", MFD_CLOEXEC);
    if (k->memfd < 0 || ftruncate(k->memfd, CODE_SIZE) < 0)
        return err_errno(err, "cannot create the code cache");
    void *rw = mmap(NULL, CODE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, k->memfd, 0);
    void *rx = mmap(NULL, CODE_SIZE, PROT_READ | PROT_EXEC, MAP_SHARED, k->memfd, 0);
    if (rw == MAP_FAILED || rx == MAP_FAILED)
        return err_errno(err, "cannot map the code cache executable (is execution from shared "
                              "memory forbidden on this host?)");
    k->rw = rw;
    k->rx = rx;
    k->npages = d->c.npages;
    k->blocks = map(sizeof(struct block) * MAX_BLOCKS);
    k->block_hash = map(sizeof(u32) * HASH_SIZE);
    k->pages = map(sizeof(struct code_page) * k->npages);
    k->insn_off = map(sizeof(struct insn_off) * MAX_INSN_OFF);
    if (!k->blocks || !k->block_hash || !k->pages || !k->insn_off)
        return err_set(err, -ENOMEM, "out of memory for the translator's tables");
    k->nblocks = 1;
    k->gen = 1;
    translate_common(d);
    for (unsigned x = 0; x < IDX_COUNT; x++)
        for (u32 s = 0; s < JC_SIZE; s++)
            d->jc[x][s] = (u64)(uintptr_t)(k->rx + k->ind_miss);
    return 0;
}

void cache_fini(struct dbt *d)
{
    struct code *k = d->code;
    if (!k)
        return;
    if (k->rw)
        munmap(k->rw, CODE_SIZE);
    if (k->rx)
        munmap(k->rx, CODE_SIZE);
    if (k->memfd >= 0)
        close(k->memfd);
    if (k->blocks)
        munmap(k->blocks, sizeof(struct block) * MAX_BLOCKS);
    if (k->block_hash)
        munmap(k->block_hash, sizeof(u32) * HASH_SIZE);
    if (k->pages)
        munmap(k->pages, sizeof(struct code_page) * k->npages);
    if (k->insn_off)
        munmap(k->insn_off, sizeof(struct insn_off) * MAX_INSN_OFF);
    munmap(k, sizeof(*k));
}

/* ---- the jump cache ---- */

void jc_set(struct dbt *d, unsigned idx, struct block *b)
{
    u32 slot = jc_slot(b->lin);
    u32 bi = (u32)(b - d->code->blocks);
    if (d->jc_block[idx][slot] == bi)
        return;
    struct filled *f = b->lin >> 63 ? &d->jc_kernel : &d->jc_user;
    u32 old = d->jc_block[idx][slot];
    if (!old || (d->code->blocks[old].lin ^ b->lin) >> 63) {
        if (f->n < MAX_FILLED)
            f->slot[f->n] = idx << 16 | slot;
        f->n++;
    }
    d->jc_block[idx][slot] = bi;
    d->jc[idx][slot] = (u64)(uintptr_t)(d->code->rx + b->ient);
}

static void jc_clear(struct dbt *d, unsigned idx, u32 slot)
{
    d->jc_block[idx][slot] = 0;
    d->jc[idx][slot] = (u64)(uintptr_t)(d->code->rx + d->code->ind_miss);
}

static void jc_clear_list(struct dbt *d, struct filled *f)
{
    if (f->n <= MAX_FILLED) {
        for (u32 i = 0; i < f->n; i++)
            jc_clear(d, f->slot[i] >> 16, f->slot[i] & 0xffff);
    } else {
        for (unsigned x = 0; x < IDX_COUNT; x++)
            for (u32 s = 0; s < JC_SIZE; s++)
                if (d->jc_block[x][s])
                    jc_clear(d, x, s);
    }
    f->n = 0;
}

void jc_drop(struct core *c, u64 lin, u64 len)
{
    struct dbt *d = dbt_of(c);
    if (!len) {
        jc_clear_list(d, &d->jc_user);
        jc_clear_list(d, &d->jc_kernel);
        return;
    }
    struct filled *f = lin >> 63 ? &d->jc_kernel : &d->jc_user;
    if (f->n > MAX_FILLED || len >= 1ull << 47) {
        jc_clear_list(d, f);
        return;
    }
    u32 out = 0;
    for (u32 i = 0; i < f->n; i++) {
        u32 x = f->slot[i] >> 16, s = f->slot[i] & 0xffff, bi = d->jc_block[x][s];
        if (!bi)
            continue;
        const struct block *b = &d->code->blocks[bi];
        if (b->lin - lin < len || (b->phys2 && b->lin + b->size - 1 - lin < len))
            jc_clear(d, x, s);
        else
            f->slot[out++] = f->slot[i];
    }
    f->n = out;
}

/* ---- blocks ---- */

struct block *cache_find(struct dbt *d, u64 lin, u64 phys, u64 phys2, u32 mode)
{
    for (u32 i = d->code->block_hash[hash(lin, phys, mode)]; i; i = d->code->blocks[i].hash_next) {
        struct block *b = &d->code->blocks[i];
        if (b->lin == lin && b->phys == phys && b->phys2 == phys2 && b->mode == mode)
            return b;
    }
    return NULL;
}

/* Puts a block at the head of a page's list; returns what was there. */
static u32 page_add(struct dbt *d, u64 phys, u32 entry)
{
    u64 index = ram_page_index(d->c.ram, phys);
    struct page *pg = &d->c.pages[index];
    u32 next = d->code->pages[index].blocks;
    d->code->pages[index].blocks = entry;
    if (!(pg->flags & PG_CODE)) {
        mmu_protect_page(&d->c, pg, index);
        pg->flags |= PG_CODE;
    }
    return next;
}

void cache_link(struct dbt *d, struct block *b)
{
    u32 bi = (u32)(b - d->code->blocks), h = hash(b->lin, b->phys, b->mode);
    if (!b->plain) {
        b->hash_next = d->code->block_hash[h];
        d->code->block_hash[h] = bi;
    }
    b->page_next = page_add(d, b->phys, bi);
    if (b->phys2)
        b->page2_next = page_add(d, b->phys2, bi | SECOND_PAGE);
}

static void forget_page(struct dbt *d, u64 index)
{
    d->code->pages[index] = (struct code_page){0};
    d->c.pages[index].flags &= (u8)~PG_CODE;
}

void cache_invalidate_page(struct dbt *d, u64 index)
{
    struct code *k = d->code;
    for (u32 e = k->pages[index].blocks, next; e; e = next) {
        u32 i = e & ~SECOND_PAGE;
        struct block *b = &k->blocks[i];
        next = e & SECOND_PAGE ? b->page2_next : b->page_next;
        if (b->dead)
            continue; /* with the other page of two */
        u32 *p = &k->block_hash[hash(b->lin, b->phys, b->mode)];
        while (*p && *p != i)
            p = &k->blocks[*p].hash_next;
        if (*p)
            *p = b->hash_next;
        u32 slot = jc_slot(b->lin);
        for (unsigned x = 0; x < IDX_COUNT; x++)
            if (d->jc_block[x][slot] == i)
                jc_clear(d, x, slot);
        b->dead = 1;
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
        unsigned first = at >> 6, last = (at + (unsigned)len - 1) >> 6;
        u64 span = (last == 63 ? ~0ull : (1ull << (last + 1)) - 1) & ~((1ull << first) - 1);
        if (!(pg->map & span) && ++pg->misses <= MISSES_MAX)
            return;
        c->st.smc++;
    }
    cache_invalidate_page(d, index);
}

void cache_flush(struct core *c)
{
    struct dbt *d = dbt_of(c);
    struct code *k = d->code;
    jc_drop(c, 0, 0);
    for (u32 i = 1; i < k->nblocks; i++) {
        forget_page(d, ram_page_index(c->ram, k->blocks[i].phys));
        if (k->blocks[i].phys2)
            forget_page(d, ram_page_index(c->ram, k->blocks[i].phys2));
    }
    for (u32 i = 0; i < HASH_SIZE; i++)
        k->block_hash[i] = 0;
    k->nblocks = 1;
    k->ninsn_off = 0;
    k->used = k->fixed;
    k->gen++;
    c->stale = true;
    c->st.code_flushes++;
}
