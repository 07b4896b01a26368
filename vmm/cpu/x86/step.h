/* step.c: fetching and executing at RIP, and what follows each instruction. */
#ifndef REPRISE_X86_STEP_H
#define REPRISE_X86_STEP_H

#include "cpu/x86/core.h"
#include "cpu/x86/debug.h"
#include "cpu/x86/insn.h"
#include "cpu/x86/trace.h"

/* The page bytes at linear address lin, fetched with the rights of the current mode; ones where
 * there is no RAM (ram_ptr). */
int fetch_page(struct core *d, u64 lin, gpa_t *gpa, const u8 **page);
/* What follows every instruction that exec() ran, and every fault: `r` is its result. */
int step_finish(struct core *d, int r, bool tf);
/* One instruction at RIP; `in` if it is known already. */
int core_step(struct core *d, struct insn *in);
/* In front of an instruction that a debugger stops at? Notes the hit. */
bool step_debug_stop(struct core *d);

/* Must no block start at or run across the instruction at rip? */
static inline bool runs_alone(const struct core *d, u64 rip)
{
    return (UNLIKELY(d->debug.nexec) && debug_exec_at(d, rip, NULL)) || trace_at(d, rip);
}

#endif
