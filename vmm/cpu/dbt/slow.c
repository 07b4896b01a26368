/* What translated code calls: loads and stores that missed the soft TLB; approximations of numbers
 * that have no place in the tables. */
#include "slow.h"

#include "cpu/x86/debug.h"
#include "cpu/x86/fpu.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/tlb.h"

/* A page with watched bytes, right after mmu_fill: an access beside them needs no look. NULL:
 * exec() must do it. */
static u8 *beside_watched(struct core *d, u64 va, unsigned size, enum access acc)
{
    gpa_t gpa[2] = {d->filled_gpa, 0};
    if (d->debug.hit)
        return NULL;
    u8 *host = ram_ptr(d->ram, gpa[0], size);
    if (!host)
        return NULL;
    u64 index = ram_page_index(d->ram, gpa[0]);
    struct page *pg = &d->shared->pages[index];
    if (acc == ACC_W) {
        if ((pg->flags & (PG_CODE | PG_PT)) || ram_is_rom(gpa[0]))
            return NULL;
        note_written(d, pg, index);
    }
    /* A read-modify-write opens its operand for writing only. */
    debug_access(d, va, size, gpa, true);
    debug_access(d, va, size, gpa, false);
    if (d->debug.hit) {
        d->debug.hit = false;
        return NULL;
    }
    return host;
}

/*
 * A load or store in translated code missed the TLB. d->slow_ea is the address,
 * d->tmp2 says size and kind. Returns the host address, which the register that tmp2 names gets
 * too, or what SLOW_ADD says; 0: exec() must do it.
 */
u64 slow_mem(struct dbt *d)
{
    u64 va = d->slow_ea;
    d->c.st.slow_mem++;
    unsigned size = d->tmp2 & 0xff;
    enum access acc = d->tmp2 & SLOW_WRITE ? ACC_W : ACC_R;
    if (!is_canonical(va) || (!is_64bit(&d->c) && va >> 32) ||
        (va & (PAGE_SIZE - 1)) + size > PAGE_SIZE)
        return 0;
    /* What comes before the page walk must leave no accessed bits. */
    if (((d->tmp2 & SLOW_ALIGN) && (va & (size - 1))) ||
        ((d->tmp2 & SLOW_WAIT) && fpu_pending(&d->c)))
        return 0;
    u64 host = (u64)mmu_fill(&d->c, va, acc, d->c.idx, WALK_BESIDE);
    if (UNLIKELY(!host && d->c.debug.nwatch && !d->c.fault.vector))
        host = (u64)beside_watched(&d->c, va, size, acc);
    /* Accessed bits were set in a page that also holds code, maybe this block; or a page became a
     * table that the block stores to by a guard. */
    if (d->c.stale || d->c.revoked)
        return 0;
    d->sregs[d->tmp2 >> SLOW_REG_SHIFT & 15] = d->tmp2 & SLOW_ADD ? host - va : host;
    return host;
}

/* Always 1: it goes on. */
u64 slow_approx(struct dbt *d)
{
    for (unsigned i = 0; i < (d->tmp2 & 15); i++)
        d->approx.out[i] = approx_of(&d->c.approx, d->tmp2 & SLOW_ROOT, d->approx.in[i]);
    return 1;
}
