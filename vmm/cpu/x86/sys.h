/* sys.c: system instructions. */
#ifndef REPRISE_X86_SYS_H
#define REPRISE_X86_SYS_H

#include "cpu/x86/core.h"

void load_cr8(struct core *d, u64 v);                  /* MOV to CR8, with what it counts */
int check_io(struct core *d, u16 port, unsigned size); /* IOPL and the TSS bitmap */

#endif
