/* tlb.c: the soft TLB, and the tracking of page tables that makes it invisible. */
#ifndef REPRISE_X86_TLB_H
#define REPRISE_X86_TLB_H

#include "cpu/x86/walk.h"

static inline u32 tlb_slot(u64 va)
{
    return (va >> 12) & (TLB_SIZE - 1);
}

static inline u64 tlb_invalid(u32 slot)
{
    return (u64)(slot ^ 1) << 12 | 1ull << 63;
}

/* The physical address of an entry's page. */
static inline gpa_t tlb_gpa(const struct core *d, const struct tlb_entry *t)
{
    return ram_page_gpa(d->ram, (u64)(t->host - d->ram->host) / PAGE_SIZE);
}

void tlb_init(struct core *d);
int mmu_walk(struct core *d, u64 va, enum access acc, unsigned idx, gpa_t *gpa);
/* Walks and fills. The host address of va's byte, or NULL: a fault (d->fault set, vector != 0), or
 * a page that has no fast path for this access, or what WALK_BESIDE leaves alone (vector == 0). */
u8 *mmu_fill(struct core *d, u64 va, enum access acc, unsigned idx, enum walk_kind kind);
void mmu_flush_all(struct core *d);
void mmu_flush_everywhere(struct core *d); /* of each vCPU */
/* The number of the page that CR3 names, or PT_ROOT_ANY: it is no RAM. */
u32 mmu_root(const struct core *d, u64 cr3);
void mmu_set_cr3(struct core *d, u64 old, u64 cr3);
/* Takes the write fast path to a page away, under all its addresses; of all pages. */
void mmu_protect_page(struct core *d, u64 index);
void mmu_revoke_all_writes(struct core *d);
/* A write of len bytes at gpa (one page, RAM) is about to replace `old` (now there) by `new`. */
void mmu_write_tracked(struct core *d, struct page *pg, gpa_t gpa, unsigned len, const u8 *old,
                       const u8 *new_);
void mmu_mode_changed(struct core *d); /* recompute mode, idx, careful_only after any change */
/* Something that d->crossing depends on, and the mode does not, has changed: SFMASK, EFER.SCE,
 * counters, points. */
void mmu_crossing_changed(struct core *d);

#endif
