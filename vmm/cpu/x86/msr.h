/* msr.c: an MSR as RDMSR and WRMSR see it, counted if it is an event; false: #GP. */
#ifndef REPRISE_X86_MSR_H
#define REPRISE_X86_MSR_H

#include "cpu/x86/core.h"

bool msr_read(struct core *d, u32 msr, u64 *v);
bool msr_write(struct core *d, u32 msr, u64 v);

#endif
