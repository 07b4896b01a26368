/* What one position is. A recording names it; both ends must count the same. */
#ifndef REPRISE_CPU_UNIT_H
#define REPRISE_CPU_UNIT_H

enum position_unit {
    UNIT_INSN = 1, /* instructions retired, REP iterations, deliveries: docs/determinism.md */
    UNIT_BRANCH,   /* conditional branches retired */
};

#endif
