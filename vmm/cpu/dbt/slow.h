/* slow.c: what a TLB miss in translated code calls. */
#ifndef REPRISE_DBT_SLOW_H
#define REPRISE_DBT_SLOW_H

#include "dbt.h"

u64 slow_mem(struct dbt *d);

#endif
