/* host.c: signals, the GS base. */
#ifndef REPRISE_DBT_HOST_H
#define REPRISE_DBT_HOST_H

#include "dbt.h"

int host_init(struct dbt *d, struct err *err);
void host_fini(struct dbt *d);
void host_enter(struct dbt *d);

#endif
