/* What recorder and player both ask of the machine: its digests in the form that records hold. */
#ifndef REPRISE_DIGESTS_H
#define REPRISE_DIGESTS_H

#include "replay/record.h"

#define COMPONENTS_MAX 256

struct digests {
    u32 count;
    u64 components[COMPONENTS_MAX];
    u64 console, console_bytes, debug, debug_bytes;
};

void digests_outputs(struct machine *m, struct digests *d);
/* Outputs and components; of a machine that counts both, with positions as branches if asked for.
 */
void digests_take(struct machine *m, bool by_branch, struct digests *d);

/* Names of the components joined by commas; malloc'ed, NULL without memory. */
char *component_names(struct machine *m);

/* Digest of all of RAM from the digests of its regions. */
u64 ram_digest(const u64 *regions, size_t count);
/* malloc'ed digests of all regions, NULL without memory. */
u64 *ram_regions(struct machine *m, unsigned *count);

#endif
