/*
 * `monitor scope`: whose gdb's points at user addresses are. A linear address means something in
 * one address space only, and gdb knows of none: it inserts all its points before each run and
 * takes them out after it. Here a point belongs to the address space that was current when it was
 * first inserted, if its address is mapped there; until it is left out of a run, or
 * the user says otherwise. Steps ask for the scope too (debug_step.h).
 */
#ifndef REPRISE_CMD_SCOPE_H
#define REPRISE_CMD_SCOPE_H

#include <stdio.h>

#include "base/err.h"
#include "replay/gdb/gdb.h"
#include "inspect/process.h"

struct scope_owner {
    enum gdb_point_kind kind;
    bool physical;
    u64 address, length;
    bool owned;        /* else every process's */
    struct process by; /* by an address space */
};

struct scope {
    bool machine;             /* points are every process's, and steps the processor's */
    struct scope_owner *list; /* the i-th point's is the i-th; then those a step left out */
    unsigned n;
};

/* A run begins with these points, and `now` runs. `step`: gdb leaves some out and has not forgotten
 * them. -ENOMEM with a text. */
int scope_run(struct scope *s, const struct gdb_point *points, size_t n, struct machine *m,
              const struct process *now, bool step, struct err *err);
/* Does the hit of the i-th point count while `now` runs? */
bool scope_holds(const struct scope *s, size_t i, const struct process *now);
bool scope_owns(const struct scope *s, size_t i); /* ... is it a question? */

/* `monitor scope [process|machine]`; false: another word. */
bool scope_command(struct scope *s, const char *arg, FILE *out);
/* Adds what a user should know when a run met nothing. */
void scope_note(const struct scope *s, char *text, size_t size);
void scope_free(struct scope *s); /* safe on zeros */

#endif
