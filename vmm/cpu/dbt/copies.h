/* copies.c: code of ring 3 that is at several addresses, translated once. */
#ifndef REPRISE_DBT_COPIES_H
#define REPRISE_DBT_COPIES_H

#include "dbt.h"

/* May the block there be a copy? */
bool copies_want(const struct dbt *d, const struct code_at *at);
/* A copy of the block of the same code at another address, or NULL: it is to be translated, and if
 * `noted` is set then, so that it can be copied. */
struct block *copies_make(struct dbt *d, const struct code_at *at, bool *noted);
/* It is what the next one will be a copy of. */
void copies_keep(struct dbt *d, const struct block *b);
/* Where a block is translated with notes: before, and after it (sizes in bytes). */
struct notes *copies_begin(const struct dbt *d, struct notes *notes);
void copies_note(struct dbt *d, struct block *b, const struct notes *notes, size_t hot,
                 size_t cold);

#endif
