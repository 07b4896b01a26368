/* points.c: debug points and traces, as engine.h has them. */
#ifndef REPRISE_X86_POINTS_H
#define REPRISE_X86_POINTS_H

#include "cpu/x86/core.h"

int core_debug_set(struct engine *e, const struct debug_point *points, unsigned n);
bool core_debug_hit(struct engine *e, struct debug_hit *out);
void core_debug_pass(struct engine *e, bool pass);
void core_debug_free(struct debug *g);
int core_set_trace(struct engine *e, const struct engine_trace *trace);
const struct engine_accesses *core_accesses(const struct engine *e);

#endif
