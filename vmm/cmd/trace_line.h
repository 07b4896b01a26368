/*
 * The lines of `reprise trace`: what an instruction was, what it changed, read and wrote, whose it
 * was. Made for millions of them: what is the same each time an instruction runs is kept.
 */
#ifndef REPRISE_CMD_TRACE_LINE_H
#define REPRISE_CMD_TRACE_LINE_H

#include <stdio.h>

#include "machine/machine.h"
#include "inspect/running.h"

struct tracer;

/* NULL: no memory. `symbols` may be NULL; both stay the caller's. */
struct tracer *tracer_create(FILE *out, bool json, const struct symbols *symbols,
                             struct running *running);
void tracer_free(struct tracer *t);

/* Calls of struct machine_trace, whose opaque is the tracer. */
void tracer_before(void *opaque, struct machine *m);
void tracer_after(void *opaque, struct machine *m);

/* Only instructions of tasks for which `wants` says so; `task` is NULL while none is known. */
void tracer_set_wants(struct tracer *t,
                      bool (*wants)(void *opaque, const struct running_task *task), void *opaque);
/* Lines so far. */
u64 tracer_lines(const struct tracer *t);

#endif
