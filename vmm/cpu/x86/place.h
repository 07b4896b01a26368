/* place.c: instants between two positions (cpu/engine.h). */
#ifndef REPRISE_X86_PLACE_H
#define REPRISE_X86_PLACE_H

#include "cpu/x86/core.h"

void core_place(struct engine *e, struct engine_place *out);
int core_settle(struct engine *e, const struct engine_place *to, struct err *err);

#endif
