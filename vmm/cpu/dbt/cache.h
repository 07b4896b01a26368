/* cache.c: blocks, the code cache, the jump cache. */
#ifndef REPRISE_DBT_CACHE_H
#define REPRISE_DBT_CACHE_H

#include "dbt.h"

/* `bytes`: regions_init(); `copied`: fork() copies the translations as well (paranoid.h). */
int cache_init(struct dbt *d, u64 bytes, bool copied, struct err *err);
/* Once translate_common() has put what stays: empty. */
void cache_begin(struct dbt *d);
void cache_fini(struct dbt *d);
/* Makes a branch of block b jump to another of its page. */
void link_to(struct dbt *d, struct block *b, const struct link *l, const struct block *to);
void cache_flush(struct core *c);
/* Drops the jump caches' entries of a block. */
void jc_drop_block_everywhere(struct dbt *d, u32 number);
struct block *cache_find(struct dbt *d, u64 lin, u64 phys, u64 phys2, u32 mode);
void cache_link(struct dbt *d, struct block *b);
/* Another translation of the same code takes a block's place; the block is only for its guards. */
void cache_replace(struct dbt *d, struct block *b, struct block *by);
/* Drops the blocks of a page that are in a region, and the links to them. */
void cache_drop_from_page(struct dbt *d, u64 index, unsigned region);
/* Drops all blocks of a page. */
void cache_invalidate_page(struct dbt *d, u64 index);
void cache_page_changed(struct core *c, gpa_t gpa, u64 len);
/* The jump cache has a block at its address. */
void jc_set(struct dbt *d, unsigned idx, struct block *b);
/* ... which was found there: so has the address space (spaces.c). */
void jc_learn(struct dbt *d, unsigned idx, struct block *b);
/* What is in jc2 for a linear address gets its place in jc, and what is there goes to jc2. */
void jc_first(struct dbt *d, u64 lin);
/* The block at a linear address, if the jump cache has it; 0: it has not. */
u32 jc_find(const struct dbt *d, u64 lin);
void jc_drop(struct core *c, u64 lin, u64 len);
/* Bits for pages by a hash, `n` of them: those of a block are noted, */
void note_pages(u64 *bits, u32 n, const struct block *b);
/* and of so many from an address on, how many seem to be. Of more it is not worth looking. */
#define PAGES_LOOK 512
u64 pages_noted(const u64 *bits, u32 n, u64 lin, u64 pages);

#endif
