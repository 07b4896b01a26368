/*
 * Lists of what a traced instruction accesses. The core adds to one while the vector registers may
 * be the guest's: this file is compiled without them (x86/README.md).
 */
#include "cpu/engine.h"

/* Makes the access part of one that it lies beside, as the iterations of a REP do. */
static bool join(struct engine_access *a, const struct engine_access *one, const u8 *value)
{
    u64 va = one->address, len = one->size;
    bool after = va == a->address + a->size, before = va + len == a->address;
    u64 size = a->size + len;
    if (!after && !before)
        return false;
    if (size <= ENGINE_ACCESS_BYTES) {
        u64 at = after ? a->size : 0;
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

void engine_add_access(struct engine_accesses *all, const struct engine_access *one,
                       const u8 *value)
{
    /* Of several the latest: a REP MOVS has one read and one write that grow. */
    for (u32 i = all->n; i && i + 2 > all->n; i--)
        if (all->list[i - 1].write == one->write && join(&all->list[i - 1], one, value))
            return;
    if (all->n == ENGINE_ACCESSES) {
        all->lost++;
        return;
    }
    struct engine_access *a = &all->list[all->n++];
    a->address = one->address;
    a->size = one->size;
    a->write = one->write;
    for (u64 i = 0; i < a->size && i < ENGINE_ACCESS_BYTES; i++)
        a->value[i] = value[i];
}
