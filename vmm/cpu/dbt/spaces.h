/* spaces.c: address spaces that the guest has left, and will come back to. */
#ifndef REPRISE_DBT_SPACES_H
#define REPRISE_DBT_SPACES_H

#include "dbt.h"

/* translator.leave() and translator.forget_left() (cpu/x86/core.h). */
void spaces_leave(struct core *c, u32 root, u32 mode, bool below);
void spaces_forget(struct core *c, u32 root, u64 lin, u64 len);
/* Code of CPL 3 was not found for the first time since a space was left: what was kept of the one
 * that the guest is in now is back in the jump cache. */
void spaces_come_back(struct dbt *d);

#endif
