/* insn --counters: what counters.c, counters_programs.c and counters_watch.c share. */
#ifndef REPRISE_TESTS_INSN_COUNTERS_H
#define REPRISE_TESTS_INSN_COUNTERS_H

#include "tests/insn/oracle.h"

#define PROGRAM_LENGTH 6000u /* positions */
#define PMI_MAX        (PROGRAM_LENGTH * 2)

enum { ENGINES = 4 };
enum { STRAIGHT, SLICED, SPARE, STEPPED }; /* SPARE: what the sliced one moves to */

struct pmis {
    unsigned n;
    pos_t at[PMI_MAX];
};

/* In front of the position that is looked at. */
struct moment {
    pos_t at;
    u64 exceptions;
    struct vcpu cpu;
    unsigned cpl;
    bool decoded;
    ZydisDecodedInstruction in;
    ZydisDecodedOperand op[ZYDIS_MAX_OPERAND_COUNT];
};

/* Where interrupts came from: of what they are made, and in which ring. */
struct tally {
    u64 rings[2], rep, fault, trap, interrupt, msr;
};

struct campaign {
    enum cpu_model model;
    const struct forms *forms;
    u64 seed, number;
    struct guest *guest[ENGINES];
    struct oracle oracle;
    struct moment before;
    bool left; /* the program does what the oracle cannot tell */
    bool failed;
    bool paranoid;                  /* the straight one */
    struct pmis pmis[ENGINES], due; /* of SLICED and SPARE together in the first; the oracle's */
    u64 overflows, interrupts, stops, moves, positions, leaves, branches;
    struct tally tally;
};

/* Says what is wrong and how to repeat it; of several things in a program, the first. */
void counters_fail(struct campaign *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* counters_programs.c: a register that may be written and a value; a counter's settings; a value
 * that soon overflows, of 64 bits. */
u32 counters_draw_write(const struct campaign *c, struct rng *r, u64 *v);
u64 counters_draw_select(const struct campaign *c, struct rng *r);
u64 counters_near_overflow(struct rng *r);
/* For struct program_kind. */
unsigned counters_extra(void *campaign, struct rng *r, u8 *out);
#define INTEL_MSRS 23u
extern const u32 counters_intel_msrs[INTEL_MSRS];

/* counters_watch.c: around each position of the stepped engine, for engine_set_trace(). */
void counters_before(void *campaign);
void counters_after(void *campaign);
/* One position, or a trap's delivery after it. */
void counters_count(struct campaign *c, const struct facts *f, pos_t after);
/* What the stepped one's registers say, and the oracle's: of the last branches those about the
 * last one, and all. */
void counters_compare_registers(struct campaign *c);
void counters_compare_records(struct campaign *c);
unsigned counters_cpl(const struct vcpu *v);

#endif
