/* See digests.h. */
#include "replay/digests.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"

void digests_outputs(struct machine *m, struct digests *d)
{
    d->console = machine_output_digest(m, OUT_CONSOLE, &d->console_bytes);
    d->debug = machine_output_digest(m, OUT_DEBUG, &d->debug_bytes);
}

void digests_take(struct machine *m, bool by_branch, struct digests *d)
{
    digests_outputs(m, d);
    d->count = machine_components(m);
    CHECK(d->count <= COMPONENTS_MAX, "%u components", d->count);
    for (u32 i = 0; i < d->count; i++)
        d->components[i] = by_branch ? machine_branch_digest(m, i) : machine_component_digest(m, i);
}

char *component_names(struct machine *m)
{
    struct machine_component c;
    size_t len = 1;
    unsigned n = machine_components(m);
    for (unsigned i = 0; i < n; i++) {
        machine_component(m, i, &c);
        len += strlen(c.name) + 1;
    }
    char *names = malloc(len), *at = names;
    for (unsigned i = 0; names && i < n; i++) {
        machine_component(m, i, &c);
        if (i)
            *at++ = ',';
        at = stpcpy(at, c.name);
    }
    if (names)
        *at = 0;
    return names;
}

u64 ram_digest(const u64 *regions, size_t count)
{
    return XXH3_64bits(regions, count * sizeof(*regions));
}

u64 *ram_regions(struct machine *m, unsigned *count)
{
    *count = machine_ram_regions(m);
    u64 *regions = calloc(*count ? *count : 1, sizeof(*regions));
    for (unsigned i = 0; regions && i < *count; i++) {
        gpa_t gpa;
        regions[i] = machine_ram_region_digest(m, i, &gpa);
    }
    return regions;
}
