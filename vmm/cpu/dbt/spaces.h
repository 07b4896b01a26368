/* spaces.c: address spaces that the guest has left, and will come back to. */
#ifndef REPRISE_DBT_SPACES_H
#define REPRISE_DBT_SPACES_H

#include "dbt.h"

/* translator.leave() and translator.forget_left() (cpu/x86/core.h). */
void spaces_leave(struct core *c, bool below);
void spaces_forget(struct core *c, u32 root, u64 lin, u64 len);
/* The block at a user address of CPL 3 in the address space that the guest is in, which the jump
 * cache has now; 0: it is not known. */
u32 spaces_find(struct dbt *d, u64 lin);
/* That block is at its address there. */
void spaces_note(struct dbt *d, u32 number);

#endif
