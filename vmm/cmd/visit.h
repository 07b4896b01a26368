/* `reprise replay` with a point: goes there, shows the state, or hands the machine to gdb. */
#ifndef REPRISE_CMD_VISIT_H
#define REPRISE_CMD_VISIT_H

#include "cmd/travel.h"

#define VISIT_MEMORIES 16

struct visit {
    const char *dir;
    struct point to;
    bool have_to;
    enum engine_kind engine;
    u64 budget; /* --checkpoint-memory; 0: default */
    bool registers, console, json;
    const char *memory[VISIT_MEMORIES];
    size_t nmemory;
    const char *gdb;        /* endpoint; NULL: no gdb */
    const char *screenshot; /* PNG file; NULL: none */
    bool force;             /* replace it */
};

/* Exit code. */
int visit(const struct visit *v);

/* Listens for gdb; `tr` stands where the session starts. <0 with a text. */
int debug_start(struct travel *tr, const char *endpoint, struct err *err);
/* Serves gdb until the user ends it. `child`: the process of gdb itself, whose end ends the
 * session; 0: none. Exit code. */
int debug_serve(struct travel *tr, int child, struct err *err);
void debug_end(struct travel *tr);

#endif
