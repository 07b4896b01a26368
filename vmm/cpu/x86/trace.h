/* trace.c: instructions that are traced, and what they access (cpu/engine.h). */
#ifndef REPRISE_X86_TRACE_H
#define REPRISE_X86_TRACE_H

#include "cpu/x86/core.h"

bool trace_in_ranges(const struct core *d, u64 rip);
void trace_access(struct core *d, u64 va, u64 len, const u8 *value, bool write);

/* Is the instruction at rip one that is traced? */
static inline bool trace_at(const struct core *d, u64 rip)
{
    return UNLIKELY(d->trace.before != NULL) && (!d->trace.n || trace_in_ranges(d, rip));
}

/* Does an instruction access these bytes? */
static inline void note_access(struct core *d, u64 va, u64 len, const void *value, bool write)
{
    if (UNLIKELY(d->logging))
        trace_access(d, va, len, value, write);
}

#endif
