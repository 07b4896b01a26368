/* walk.c: linear to physical, as page tables say it (SDM vol. 3, 4.5). */
#ifndef REPRISE_X86_WALK_H
#define REPRISE_X86_WALK_H

#include "cpu/x86/core.h"

#define PTE_P    (1ull << 0)
#define PTE_A    (1ull << 5)
#define PTE_ADDR 0x000ffffffffff000ull

#define PAGING_LEVELS 4 /* most that there are */

/* How tables are made in a paging mode (SDM vol. 3, 4.1.1). */
struct paging {
    u8 levels;     /* the root is the table of this level; entries of level 1 map pages; 0: none */
    u8 index_bits; /* of an address, for each level */
    u8 entry;      /* bytes of an entry */
    u8 bare;       /* entries of this level have no permissions and no accessed bit; 0: none */
    u64 reserved[PAGING_LEVELS + 1];   /* bits of an entry, by level */
    bool large[PAGING_LEVELS + 1];     /* entries of the level may map memory themselves, */
    u64 large_bits[PAGING_LEVELS + 1]; /* and then these are reserved as well */
};
extern const struct paging paging_4level;
const struct paging *paging_legacy(const struct core *d);

/* The mode that is in force. */
static inline const struct paging *paging_of(const struct core *d)
{
    return LIKELY(d->cpu.efer & EFER_LMA) ? &paging_4level : paging_legacy(d);
}

/* Where an entry of that level begins to translate. */
static inline unsigned paging_shift(const struct paging *p, unsigned level)
{
    return 12 + p->index_bits * (level - 1);
}
/* The root table; that of PAE paging is somewhere in a page (SDM vol. 3, 4.4.1). */
static inline gpa_t paging_root(const struct core *d, u64 cr3)
{
    return cr3 & d->phys_mask & (paging_of(d)->bare ? 0xffffffe0 : PTE_ADDR);
}

struct walk {
    u64 table[PAGING_LEVELS + 1]; /* by level, the root's to leaf */
    u8 *entry[PAGING_LEVELS + 1];
    unsigned leaf;
    gpa_t gpa;
    bool writable; /* for this idx, the dirty bit set */
};

enum walk_kind {
    WALK_LOOK,     /* no side effects */
    WALK_BESIDE,   /* accessed and dirty bits are set, but none in a page with translated code */
    WALK_ANYWHERE, /* they are set */
};
/* DONE or FAULT; d->fault says which one, unless it only looks; of WALK_BESIDE that sets bits among
 * code it stays as it was. */
int walk(struct core *d, u64 va, enum access acc, unsigned idx, enum walk_kind kind,
         struct walk *w);
bool mmu_peek(struct core *d, u64 va, gpa_t *gpa);
/* Is the page at gpa one of the tables through which va is mapped? No side effects. */
bool mmu_on_path(struct core *d, u64 va, gpa_t gpa);
/* Are the four entries that CR3 of PAE paging names possible? They are looked at when it is loaded;
 * walks read them where they are, as all tables. */
bool mmu_pdptes_ok(const struct core *d, u64 cr3);

static inline struct page *page_at(struct core *d, gpa_t gpa)
{
    return &d->shared->pages[ram_page_index(d->ram, gpa)];
}

/* A page is about to be written, or was. */
static inline void note_written(struct core *d, struct page *pg, u64 index)
{
    if (UNLIKELY(pg->flags & PG_CLEAN)) {
        pg->flags &= (u8)~PG_CLEAN;
        d->shared->written[d->shared->nwritten++] = (u32)index;
    }
}

#endif
