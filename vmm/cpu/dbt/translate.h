/* translate.c, stubs.c: code of a block, of a single instruction, and what stays. */
#ifndef REPRISE_DBT_TRANSLATE_H
#define REPRISE_DBT_TRANSLATE_H

#include "dbt.h"

struct block *translate(struct dbt *d, const struct code_at *at);
void translate_snippet(struct dbt *d, struct insn *in);
void translate_common(struct dbt *d);

#endif
