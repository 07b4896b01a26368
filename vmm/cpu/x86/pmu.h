/*
 * pmu.c: the guest's performance counters (SDM vol. 3, chapter 20; APM vol. 2, 13.2). What they
 * count is a function of the instruction stream, so they need no log, and they are exact.
 *
 * A cycle is a position: an instruction, an iteration of REP, or a delivery. It counts for the ring
 * in which it began. A trap's delivery shares its instruction's position: it is counted where
 * deliveries are, but is no cycle, and thresholds do not see it.
 */
#ifndef REPRISE_X86_PMU_H
#define REPRISE_X86_PMU_H

#include "cpu/x86/core.h"
#include "cpu/x86/insn.h"

/* What an instruction counts wherever it goes: bits of enum signal. Its own kind: */
u32 pmu_signals(const struct insn *in);
/* ... and for a conditional branch also what it counts if it jumps, or does not. `backward`: its
 * target is not after it. */
u32 pmu_way_signals(bool taken, bool backward);
#define PMU_WAY_SIGNALS (1u << SIG_COND_TAKEN | 1u << SIG_COND_MISS | 1u << SIG_NEAR_TAKEN)

/* The instruction at `from` retired and d->next follows it. */
void pmu_retired(struct core *d, const struct insn *in, u64 from);
/* An exception or interrupt was delivered, at a position of its own or not. */
static inline void pmu_delivered(struct core *d, bool position, bool interrupt)
{
    d->pmu.not_insns += position;
    d->pmu.counted[SIG_DELIVERY]++;
    d->pmu.counted[SIG_INTERRUPT] += interrupt;
}

/* Brings the registers up to date, as of the present position. True: a counter overflowed that
 * interrupts, and the machine was told. */
bool pmu_sync(struct core *d);
/* After an instruction or a delivery, if the ring may have changed. */
void pmu_ring(struct core *d);
/* So many positions at least until a counter overflows that interrupts. */
u64 pmu_distance(const struct core *d);

/* The vCPU is another one: at power-on; by a checkpoint or a debugger. */
void pmu_reset(struct core *d);
void pmu_changed(struct core *d);

/* Is it one of the counters' MSRs? Then *ok says whether the access is allowed. */
bool pmu_rdmsr(struct core *d, u32 msr, u64 *value, bool *ok);
bool pmu_wrmsr(struct core *d, u32 msr, u64 value, bool *ok);
/* RDPMC of ECX. false: #GP. */
bool pmu_rdpmc(struct core *d, u32 index, u64 *value);

/* Did the instruction that has just retired go elsewhere, as a branch does? */
bool pmu_branched(const struct core *d, const struct insn *in);
/* DEBUGCTL.BTF: single-step traps come after branches only. */
bool pmu_steps_branches(const struct core *d);
/* A #DB was delivered: BTF and LBR are cleared (SDM vol. 3, 18.4.2 and 18.4.4). */
void pmu_debug_exception(struct core *d);

#endif
