/* debug.c: debug points (cpu/engine.h). */
#ifndef REPRISE_X86_DEBUG_H
#define REPRISE_X86_DEBUG_H

#include "cpu/x86/core.h"

void debug_bloom_add(struct debug *g, u64 rip);
bool debug_exec_at(const struct core *d, u64 rip, u32 *point);
/* Is any byte of the page, at its linear and its physical address, watched for this access? */
bool debug_watches_page(const struct core *d, u64 page, gpa_t gpa, bool write);
/* An access of `len` bytes: gpa[0] up to the end of the page, then gpa[1]. Notes a hit. */
void debug_access(struct core *d, u64 va, unsigned len, const gpa_t gpa[2], bool write);
void debug_dma(struct core *d, gpa_t gpa, u64 len);
/* The privilege level was `before`, execution goes on at `rip`. Notes a hit. */
void debug_ring(struct core *d, unsigned before, u64 rip);
/* A program makes a mark. Notes a hit. */
void debug_mark(struct core *d);

static inline void set_cpl(struct core *d, unsigned cpl, u64 rip)
{
    unsigned before = d->cpl;
    d->cpl = (u8)cpl;
    if (UNLIKELY(d->debug.to_user | d->debug.from_user))
        debug_ring(d, before, rip);
}

#endif
