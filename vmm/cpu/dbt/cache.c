/*
 * The code cache and the tables that find blocks: by address and mode (hash), by page (for
 * invalidation), by target (the jump cache that indirect and cross-page branches use). Direct
 * links join only blocks of one page, so dropping a page's blocks together needs no unlinking.
 * The cache is mapped twice, writable and executable, never both at one address.
 */
#define _GNU_SOURCE
#include "dbt.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define HASH_SIZE (1u << 19)

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
    d->memfd = memfd_create("reprise-code", MFD_CLOEXEC);
    if (d->memfd < 0 || ftruncate(d->memfd, CODE_SIZE) < 0)
        return err_errno(err, "cannot create the code cache");
    void *rw = mmap(NULL, CODE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, d->memfd, 0);
    void *rx = mmap(NULL, CODE_SIZE, PROT_READ | PROT_EXEC, MAP_SHARED, d->memfd, 0);
    if (rw == MAP_FAILED || rx == MAP_FAILED)
        return err_errno(err, "cannot map the code cache executable (is execution from shared "
                              "memory forbidden on this host?)");
    d->rw = rw;
    d->rx = rx;
    d->npages = d->ram->size / PAGE_SIZE;
    d->blocks = map(sizeof(struct block) * MAX_BLOCKS);
    d->block_hash = map(sizeof(u32) * HASH_SIZE);
    d->pages = map(sizeof(struct page) * d->npages);
    d->insn_off = map(sizeof(struct insn_off) * MAX_INSN_OFF);
    d->icache = map(icache_bytes());
    if (!d->blocks || !d->block_hash || !d->pages || !d->insn_off || !d->icache)
        return err_set(err, -ENOMEM, "out of memory for the translator's tables");
    d->nblocks = 1;
    d->ninsn_off = 0;
    d->code_gen = 1;
    translate_common(d);
    for (unsigned x = 0; x < IDX_COUNT; x++) {
        for (u32 s = 0; s < TLB_SIZE; s++)
            d->tlb[x][s].rtag = d->tlb[x][s].wtag = tlb_invalid(s);
        for (u32 s = 0; s < JC_SIZE; s++)
            d->jc[x][s] = (u64)(uintptr_t)(d->rx + d->ind_miss);
    }
    return 0;
}

void cache_fini(struct dbt *d)
{
    if (d->rw)
        munmap(d->rw, CODE_SIZE);
    if (d->rx)
        munmap(d->rx, CODE_SIZE);
    if (d->memfd >= 0)
        close(d->memfd);
    if (d->blocks)
        munmap(d->blocks, sizeof(struct block) * MAX_BLOCKS);
    if (d->block_hash)
        munmap(d->block_hash, sizeof(u32) * HASH_SIZE);
    if (d->pages)
        munmap(d->pages, sizeof(struct page) * d->npages);
    if (d->insn_off)
        munmap(d->insn_off, sizeof(struct insn_off) * MAX_INSN_OFF);
    if (d->icache)
        munmap(d->icache, icache_bytes());
}

/* ---- the jump cache ---- */

void jc_set(struct dbt *d, unsigned idx, struct block *b)
{
    u32 slot = jc_slot(b->lin);
    u32 bi = (u32)(b - d->blocks);
    if (d->jc_block[idx][slot] == bi)
        return;
    struct filled *f = b->lin >> 63 ? &d->jc_kernel : &d->jc_user;
    u32 old = d->jc_block[idx][slot];
    if (!old || (d->blocks[old].lin ^ b->lin) >> 63) {
        if (f->n < MAX_FILLED)
            f->slot[f->n] = idx << 16 | slot;
        f->n++;
    }
    d->jc_block[idx][slot] = bi;
    d->jc[idx][slot] = (u64)(uintptr_t)(d->rx + b->ient);
}

static void jc_clear(struct dbt *d, unsigned idx, u32 slot)
{
    d->jc_block[idx][slot] = 0;
    d->jc[idx][slot] = (u64)(uintptr_t)(d->rx + d->ind_miss);
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

void mmu_forget_jc(struct dbt *d)
{
    jc_clear_list(d, &d->jc_user);
    jc_clear_list(d, &d->jc_kernel);
}

void jc_drop_range(struct dbt *d, u64 lin, u64 len)
{
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
        if (d->blocks[bi].lin - lin < len)
            jc_clear(d, x, s);
        else
            f->slot[out++] = f->slot[i];
    }
    f->n = out;
}

/* ---- blocks ---- */

struct block *cache_find(struct dbt *d, u64 lin, u64 phys, u32 mode)
{
    for (u32 i = d->block_hash[hash(lin, phys, mode)]; i; i = d->blocks[i].hash_next) {
        struct block *b = &d->blocks[i];
        if (b->lin == lin && b->phys == phys && b->mode == mode)
            return b;
    }
    return NULL;
}

void cache_link(struct dbt *d, struct block *b)
{
    u32 bi = (u32)(b - d->blocks), h = hash(b->lin, b->phys, b->mode);
    b->hash_next = d->block_hash[h];
    d->block_hash[h] = bi;
    u64 index = ram_page_index(d->ram, b->phys);
    struct page *pg = &d->pages[index];
    b->page_next = pg->blocks;
    pg->blocks = bi;
    if (!(pg->flags & PG_CODE)) {
        mmu_protect_page(d, pg, index);
        pg->flags |= PG_CODE;
    }
}

void cache_invalidate_page(struct dbt *d, struct page *pg)
{
    for (u32 i = pg->blocks; i; i = d->blocks[i].page_next) {
        struct block *b = &d->blocks[i];
        u32 *p = &d->block_hash[hash(b->lin, b->phys, b->mode)];
        while (*p && *p != i)
            p = &d->blocks[*p].hash_next;
        if (*p)
            *p = b->hash_next;
        u32 slot = jc_slot(b->lin);
        for (unsigned x = 0; x < IDX_COUNT; x++)
            if (d->jc_block[x][slot] == i)
                jc_clear(d, x, slot);
        b->dead = 1;
    }
    pg->blocks = 0;
    pg->code_map = 0;
    pg->smc = 0;
    pg->flags &= (u8)~PG_CODE;
    d->stale = true;
}

void cache_flush(struct dbt *d)
{
    mmu_forget_jc(d);
    for (u32 i = 1; i < d->nblocks; i++) {
        struct block *b = &d->blocks[i];
        struct page *pg = &d->pages[ram_page_index(d->ram, b->phys)];
        pg->blocks = 0;
        pg->code_map = 0;
        pg->smc = 0;
        pg->flags &= (u8)~PG_CODE;
    }
    for (u32 i = 0; i < HASH_SIZE; i++)
        d->block_hash[i] = 0;
    d->nblocks = 1;
    d->ninsn_off = 0;
    d->code_used = d->code_fixed;
    d->code_gen++;
    d->stale = true;
    d->st.code_flushes++;
}
