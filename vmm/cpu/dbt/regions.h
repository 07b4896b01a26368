/* regions.c: room in the code cache. */
#ifndef REPRISE_DBT_REGIONS_H
#define REPRISE_DBT_REGIONS_H

#include "dbt.h"

/* `bytes` of code at most, as engine_config has them; 0: default. -EINVAL with a text. */
int regions_init(struct dbt *d, u64 bytes, struct err *err);
/* All are empty; region 0 is next. */
void regions_reset(struct dbt *d);
/* Makes sure that a block of so many instructions, or a snippet (1), has room where `used`,
 * `nblocks`, `ninsn_off` and `nlinks` point. What was in another region than `now` may be gone
 * then, which its `gen` says. */
void regions_reserve(struct dbt *d, unsigned insns);
/* The block whose code an offset in the cache is in. */
struct block *regions_block_at(struct code *k, u32 offset);

#endif
