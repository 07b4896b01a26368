/* `reprise replay` with a point: goes there, shows the state, or hands the machine to gdb. */
#ifndef REPRISE_CMD_VISIT_H
#define REPRISE_CMD_VISIT_H

#include "cmd/travel.h"

#define VISIT_MEMORIES 16

struct visit {
    const char *dir;
    struct point to;
    bool have_to;
    struct travel_with with;
    bool registers, console, json;
    const char *memory[VISIT_MEMORIES];
    size_t nmemory;
    bool gdb;
    const char *endpoint;   /* of gdb's server; NULL: a socket of its own */
    const char *screenshot; /* PNG file; NULL: none */
    bool force;             /* replace it */
};

/* Exit code. */
int visit(const struct visit *v);

struct debug_session;

/* Listens for gdb, before the recording is opened. `endpoint`: see gdb_server_create. NULL with a
 * text. debug_drop: it came to nothing; NULL is safe. */
struct debug_session *debug_listen(const char *endpoint, struct err *err);
void debug_drop(struct debug_session *s);
/* What to give gdb's `target remote`. */
const char *debug_address(const struct debug_session *s);
/* `tr` stands where the session starts. `process`: the one that gdb is shown (debug_process.h);
 * NULL: the machine. <0 with a text. The session is its, to debug_end(). */
int debug_start(struct travel *tr, struct debug_session *s, const char *process, struct err *err);
/* Serves gdb until the user ends it. `child`: the process of gdb itself, whose end ends the
 * session; 0: none. Exit code. */
int debug_serve(struct travel *tr, int child, struct err *err);
void debug_end(struct travel *tr);

#endif
