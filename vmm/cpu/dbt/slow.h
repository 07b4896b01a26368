/* slow.c: what translated code calls, by stubs that keep all registers. 0: exec() must do it. */
#ifndef REPRISE_DBT_SLOW_H
#define REPRISE_DBT_SLOW_H

#include "dbt.h"

u64 slow_mem(struct dbt *d);
u64 slow_approx(struct dbt *d);

#endif
