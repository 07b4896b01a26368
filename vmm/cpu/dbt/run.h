/* run.c: running a vCPU by translated code. */
#ifndef REPRISE_DBT_RUN_H
#define REPRISE_DBT_RUN_H

#include "dbt.h"

enum engine_exit dbt_run_insns(struct core *c, u64 n, struct err *err);
int dbt_native(struct core *c, struct insn *in);

#endif
