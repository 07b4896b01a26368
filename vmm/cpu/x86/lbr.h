/*
 * lbr.c: last-branch records of Intel's models (SDM vol. 3, 18.4.8, 18.7 to 18.12): where the last
 * branches, interrupts and exceptions came from and went to. They are registers like others, so
 * they need no log. While DEBUGCTL.LBR is 1 the guest runs one instruction at a time in the rings
 * whose branches are recorded; branches that end in another ring are of that ring.
 */
#ifndef REPRISE_X86_LBR_H
#define REPRISE_X86_LBR_H

#include "cpu/x86/core.h"
#include "cpu/x86/insn.h"

/* Whether they are recorded (pmu.lbr) has changed, or perhaps LBR_SELECT. */
void lbr_settle(struct core *d);
/* The branch at `from` was taken to d->next; `signals`: what it counted (pmu.h). */
void lbr_branch(struct core *d, const struct insn *in, u32 signals, u64 from);
/* An exception or interrupt of the instruction at `from` was delivered. */
void lbr_delivery(struct core *d, u64 from);

/* Is it one of their MSRs? They may be read; *ok says whether the write is allowed. */
bool lbr_rdmsr(struct core *d, u32 msr, u64 *value);
bool lbr_wrmsr(struct core *d, u32 msr, u64 value, bool *ok);

#endif
