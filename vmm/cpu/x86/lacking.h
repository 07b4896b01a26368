/* lacking.c: tells the machine of an instruction that another model has. Parked. */
#ifndef REPRISE_X86_LACKING_H
#define REPRISE_X86_LACKING_H

#include "cpu/x86/core.h"

void note_lacking(struct core *d, const struct insn *in);

#endif
