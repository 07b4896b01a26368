/* points.c: debug points and traces, as engine.h has them. */
#ifndef REPRISE_X86_POINTS_H
#define REPRISE_X86_POINTS_H

#include "cpu/x86/core.h"

void core_debug_free(struct debug *g);

#endif
