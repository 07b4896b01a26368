/*
 * Debug points (cpu/engine.h). No block starts at an instruction that stops the run or runs across
 * one, so the run loop sees it come. A page with watched bytes has no fast path, so the slow paths
 * see every access to it; writes alone lose theirs if only writes are watched. Privilege levels
 * change in C alone, which says so.
 */
#include "cpu/x86/debug.h"

static u32 bloom_bit(u64 rip)
{
    return (u32)(rip * 0x9e3779b97f4a7c15ull >> 56);
}

void debug_bloom_add(struct debug *g, u64 rip)
{
    u32 b = bloom_bit(rip);
    g->bloom[b >> 6] |= 1ull << (b & 63);
}

bool debug_exec_at(const struct core *d, u64 rip, u32 *point)
{
    const struct debug *g = &d->debug;
    u32 b = bloom_bit(rip);
    if (!(g->bloom[b >> 6] >> (b & 63) & 1))
        return false;
    u32 lo = 0, hi = g->nexec;
    while (lo < hi) {
        u32 mid = (lo + hi) / 2;
        if (g->exec[mid] < rip)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == g->nexec || g->exec[lo] != rip)
        return false;
    if (point)
        *point = g->exec_point[lo];
    return true;
}

static bool wants(const struct watch *w, bool write)
{
    return w->kind == DEBUG_ACCESS || (w->kind == DEBUG_WRITE) == write;
}

static bool overlaps(const struct watch *w, u64 at, u64 len)
{
    return at <= w->last && at + (len - 1) >= w->first;
}

bool debug_watches_page(const struct core *d, u64 page, gpa_t gpa, bool write)
{
    for (u32 i = 0; i < d->debug.nwatch; i++) {
        const struct watch *w = &d->debug.watch[i];
        if (wants(w, write) && overlaps(w, w->physical ? gpa : page, PAGE_SIZE))
            return true;
    }
    return false;
}

static void hit(struct core *d, const struct watch *w, u64 address, bool write)
{
    d->debug.hit = true;
    d->debug.at = (struct debug_hit){w->point, write, address, unit_position(d), d->id};
}

void debug_access(struct core *d, u64 va, unsigned len, const gpa_t gpa[2], bool write)
{
    unsigned n = MIN(len, PAGE_SIZE - (unsigned)(va & (PAGE_SIZE - 1)));
    for (u32 i = 0; i < d->debug.nwatch && !d->debug.hit; i++) {
        const struct watch *w = &d->debug.watch[i];
        if (!wants(w, write))
            continue;
        if (!w->physical && overlaps(w, va, len))
            hit(d, w, va, write);
        else if (w->physical && overlaps(w, gpa[0], n))
            hit(d, w, gpa[0], write);
        else if (w->physical && n < len && overlaps(w, gpa[1], len - n))
            hit(d, w, gpa[1], write);
    }
}

void debug_dma(struct core *d, gpa_t gpa, u64 len)
{
    for (u32 i = 0; i < d->debug.nwatch && !d->debug.hit; i++) {
        const struct watch *w = &d->debug.watch[i];
        if (w->physical && wants(w, true) && overlaps(w, gpa, len))
            hit(d, w, gpa, true);
    }
}

void debug_ring(struct core *d, unsigned before, u64 rip)
{
    u32 point = d->cpl == before ? 0
                : d->cpl == 3    ? d->debug.to_user
                : before == 3    ? d->debug.from_user
                                 : 0;
    if (!point || d->debug.hit)
        return;
    d->debug.hit = true;
    d->debug.at = (struct debug_hit){point - 1, false, rip, unit_position(d), d->id};
}

void debug_mark(struct core *d)
{
    if (!d->debug.mark || d->debug.hit)
        return;
    d->debug.hit = true;
    d->debug.at = (struct debug_hit){d->debug.mark - 1, false, d->cpu.rip, unit_position(d), d->id};
}
