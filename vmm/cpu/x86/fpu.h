/* fpu.c: x87 and state instructions. */
#ifndef REPRISE_X86_FPU_H
#define REPRISE_X86_FPU_H

#include "cpu/x86/core.h"

bool fpu_pending(struct core *d);      /* an unmasked x87 exception waits: FSW.ES */
unsigned fpu_unmasked(struct core *d); /* which, as bits of FSW */

#endif
