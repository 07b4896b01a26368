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

/* Makes the access part of one that it lies beside, as the iterations of a REP do. */
static bool join(struct engine_access *a, u64 va, u64 len, const u8 *value)
{
    bool behind = va == a->address + a->size, before = va + len == a->address;
    u64 size = a->size + len;
    if (!behind && !before)
        return false;
    if (size <= ENGINE_ACCESS_BYTES) {
        u64 at = behind ? a->size : 0;
        for (u64 i = a->size; before && i--;)
            a->value[i + len] = a->value[i];
        for (u64 i = 0; i < len; i++)
            a->value[at + i] = value[i];
    }
    if (before)
        a->address = va;
    a->size = size;
    return true;
}

void trace_access(struct core *d, u64 va, u64 len, const u8 *value, bool write)
{
    struct engine_accesses *all = &d->accesses;
    if (!d->executing)
        return; /* an exception's frame */
    /* Of several the latest: a REP MOVS has one read and one write that grow. */
    for (u32 i = all->n; i && i + 2 > all->n; i--)
        if (all->list[i - 1].write == write && join(&all->list[i - 1], va, len, value))
            return;
    if (all->n == ENGINE_ACCESSES) {
        all->lost++;
        return;
    }
    struct engine_access *a = &all->list[all->n++];
    a->address = va;
    a->size = len;
    a->write = write;
    for (u64 i = 0; i < len && i < ENGINE_ACCESS_BYTES; i++)
        a->value[i] = value[i];
}
