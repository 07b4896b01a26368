/* The parts of `reprise doctor`: facts of the host besides KVM, and what follows from all of them.
 */
#ifndef REPRISE_CMD_DOCTOR_H
#define REPRISE_CMD_DOCTOR_H

#include "cpu/kvm/probe.h"

/* dbt.engine, dbt.v2, dbt.v3: the portable engine runs a loop. For probe_isolated(). */
void doctor_dbt(struct facts *f);
/* gpu.*, display.*, disk.*, boot.*, debug.*, net.*: programs and devices that commands use. */
void doctor_programs(struct facts *f);

/* What this host allows an engine with its counter; whether the program has it is not asked. */
struct verdict {
    const char *engine, *counter; /* counter NULL: has none */
    bool stock, tiny;             /* to record a stock Linux; at least small guests */
    char text[400];               /* one sentence: what, or why not */
};

enum { DOCTOR_VERDICTS = 3 };
void doctor_verdicts(const struct facts *f, struct verdict out[DOCTOR_VERDICTS]);
/* The one thing to change to get more. */
void doctor_advice(const struct facts *f, char *out, size_t size);

/* What no imitation shows: was it seen on this host? `make check-hardware` proves it on one that
 * has what it takes. */
struct proof {
    const char *what, *text;
    enum fact_state state; /* FACT_UNTESTED: this host cannot show it */
};

enum { DOCTOR_PROOFS = 5 };
void doctor_proofs(const struct facts *f, struct proof out[DOCTOR_PROOFS]);

#endif
