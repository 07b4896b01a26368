/* except.c: delivery through the IDT. */
#ifndef REPRISE_X86_EXCEPT_H
#define REPRISE_X86_EXCEPT_H

#include "cpu/x86/core.h"

int deliver_fault(struct core *d); /* d->fault: double fault and shutdown logic */

/* An interrupt or NMI that is wanted (engine_want_window) can be taken now. */
bool core_takes_wanted(const struct core *d);

#endif
