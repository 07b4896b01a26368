/* What one position is (docs/determinism.md). A recording names it; both ends must count the same.
 */
#ifndef REPRISE_CPU_UNIT_H
#define REPRISE_CPU_UNIT_H

enum position_unit {
    UNIT_INSN = 1, /* instructions retired, REP iterations, deliveries */
    UNIT_BRANCH,   /* conditional branches retired, and events: accesses to devices and MSRs, HLT,
                      deliveries of interrupts and NMIs */
    UNIT_BOTH,     /* UNIT_INSN, of a recording in UNIT_BRANCH: those are counted besides (dbt) */
};

#endif
