/* Agent expressions: the bytecode gdb sends for conditions (gdb manual, appendix F). */
#ifndef REPRISE_GDB_AGENT_H
#define REPRISE_GDB_AGENT_H

#include "machine/machine.h"
#include "replay/gdb/gdb.h"

struct gdb_condition {
    struct gdb_condition *next;
    size_t len;
    u8 code[];
};

/* Runs the bytecode; any bytes are fine. False when it is wrong, reads what is not there, divides
 * by zero or takes too long. */
bool agent_evaluate(const u8 *code, size_t len, const struct gdb_target *target, u64 *value);

/* Frees the list. */
void gdb_conditions_free(struct gdb_condition *list);

#endif
