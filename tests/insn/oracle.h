/* oracle.c: what the guest's counters should say. Used by counters.c. */
#ifndef REPRISE_TESTS_INSN_ORACLE_H
#define REPRISE_TESTS_INSN_ORACLE_H

#include "tests/insn/insn.h"

struct oracle {
    enum cpu_model model;
    unsigned ring;                     /* in which the next position begins */
    u64 count[8], select[8], fixed[3]; /* PERF_CTRn and PERF_CTLn on AMD's */
    u64 fixed_how, global, status, debugctl;
    bool was[8]; /* of counters of edges: at the last position */
    /* The last branches: registers, and the position after the last one. */
    u64 from[32], to[32], info[32], tos, leave_out, last;
    u64 branches;  /* that were recorded */
    u64 overflows; /* of all counters, whether they interrupt or not */
};

/* What one position was: of a trap's delivery, which has none of its own, `cycle` is false. */
struct facts {
    bool cycle, insn;
    bool jump, cond, call, ret, far; /* a branch, near but for the last; jump: without condition */
    bool indirect, taken, backward;
    bool delivery, interrupt;
    bool empty_call; /* to the instruction that follows */
};

struct oracle_event {
    u32 models;
    u16 select;
    u8 umask;
    enum pmu_counts counts;
};
extern const struct oracle_event oracle_event[];
extern const unsigned oracle_events;

enum oracle_says { ORACLE_OK, ORACLE_GP, ORACLE_UNKNOWN };

void oracle_start(struct oracle *o, enum cpu_model model, unsigned ring);
/* True: an overflow interrupts. */
bool oracle_count(struct oracle *o, const struct facts *f);
/* A branch that was taken or a delivery, which ended in `ring`, at the position before `after`:
 * before it is counted. */
void oracle_branch(struct oracle *o, const struct facts *f, u64 from, u64 to, unsigned ring,
                   u64 after);
/* How many branches there are records of. */
unsigned oracle_records(const struct oracle *o);
/* The next position begins in that ring (0, or any other). */
void oracle_ring(struct oracle *o, unsigned ring);
/* WRMSR comes before its own position is counted, RDMSR and RDPMC too. */
enum oracle_says oracle_write(struct oracle *o, u32 msr, u64 v);
enum oracle_says oracle_read(struct oracle *o, u32 msr, u64 *v);
enum oracle_says oracle_rdpmc(struct oracle *o, u32 index, u64 *v);

#endif
