/* code_log.c: who is told of code that is made (struct engine_code_log). */
#ifndef REPRISE_DBT_CODE_LOG_H
#define REPRISE_DBT_CODE_LOG_H

#include "dbt.h"

void code_log_set(struct core *c, const struct engine_code_log *log);
void code_log_block(struct dbt *d, const struct block *b, u32 at, size_t bytes);
void code_log_single(struct dbt *d, const struct insn *in, size_t bytes);

#endif
