/* msr.c: an MSR as RDMSR and WRMSR see it, counted if it is an event; false: #GP. */
#ifndef REPRISE_X86_MSR_H
#define REPRISE_X86_MSR_H

#include "cpu/x86/core.h"

bool msr_read(struct core *d, u32 msr, u64 *v);
bool msr_write(struct core *d, u32 msr, u64 v);

/* msr_named.c: is it one of Intel's that the model, AMD's, has not? One of a named model: false, if
 * it has no such, or (write) #GP for the value. */
bool msr_missing(const struct core *d, u32 msr);
bool msr_named_read(const struct core *d, u32 msr, u64 *v);
bool msr_named_write(struct core *d, u32 msr, u64 v);

#endif
