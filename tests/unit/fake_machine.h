/*
 * A toy with the interface of machine.h, for tests of the log, recorder and player: its "CPU" mixes
 * a number at each position, prints now and then, halts now and then, and folds every input into
 * the number, so that anything that differs shows in all digests after it.
 */
#ifndef REPRISE_FAKE_MACHINE_H
#define REPRISE_FAKE_MACHINE_H

#include "machine/machine.h"

struct fake_config {
    pos_t end_at;        /* ends there ... */
    enum run_reason end; /* ... for this reason (RUN_POWEROFF, RUN_HALTED, ...) */
    u32 arg;
    pos_t halt_every;    /* halts at multiples of this; 0: never */
    vns_t halt_for;      /* until a deadline that far ahead; 0: until an input */
    u64 salt;            /* mixed in: another machine */
    pos_t glitch_at;     /* a nondeterminism: the number is changed there; NEVER: not */
    pos_t ram_glitch_at; /* the same in RAM only */
    pos_t asleep_at;     /* halts there for good, with a deadline every `halt_for`; 0: nowhere */
    pos_t endless_at;    /* from there on nothing counts (ENGINE_BETWEEN); 0: nowhere */
    unsigned room;       /* of the console */
    unsigned devices;    /* components besides cpu0 */
    unsigned regions;
};

struct machine *fake_create(const struct fake_config *config);
void fake_destroy(struct machine *m);
u64 fake_number(const struct machine *m);
u64 fake_betweens(const struct machine *m);

#endif
