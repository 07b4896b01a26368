/*
 * Which instructions are traced, and what they access (cpu/engine.h). Nothing here changes what the
 * guest computes: a traced instruction runs by hand, as others do near a stop.
 */
#include "cpu/x86/trace.h"

bool trace_in_ranges(const struct core *d, u64 rip)
{
    u32 lo = 0, hi = d->trace.n;
    while (lo < hi) {
        u32 mid = (lo + hi) / 2;
        if (d->trace.only[mid].last < rip)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < d->trace.n && d->trace.only[lo].first <= rip;
}

void trace_access(struct core *d, u64 va, u64 len, const u8 *value, bool write)
{
    const struct engine_access one = {.address = va, .size = len, .write = write};
    if (!d->executing)
        return; /* an exception's frame */
    engine_add_access(&d->accesses, &one, value);
}
