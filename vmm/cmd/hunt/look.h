/*
 * What a run's recording says of how it went: read, and where that is asked for replayed, by
 * processes of their own that lock themselves in, as what a guest made of its recorder is not to be
 * read here.
 */
#ifndef REPRISE_CMD_HUNT_LOOK_H
#define REPRISE_CMD_HUNT_LOOK_H

#include "base/err.h"
#include "replay/checkpoint.h"

#define HUNT_TURNS 16u
#define HUNT_TEXT  400u /* bytes of a line that is quoted, with the NUL */

struct hunt_end {
    bool known;            /* else the log has no end */
    u32 reason, arg;       /* of struct run_end */
    char panic[HUNT_TEXT]; /* the line by which its kernel panicked; "": it did not */
    bool begun;            /* in another recording, */
    struct instant begin;  /* ... at that instant */
    u64 chaos;             /* the seed of its last chaos of turns; 0: none */
    u64 chaos_event;       /* its number in the log */
    u64 nturns;            /* vCPUs that got their turn otherwise, of which these are the first */
    pos_t turn[HUNT_TURNS];
    pos_t last_turn; /* and the last */
};

enum hunt_wanted {
    HUNT_PROCESS, /* the first process that dies of a signal that dumps core, or an oops */
    HUNT_PANIC,   /* the first oops or panic */
    HUNT_STANDS,  /* where the program's threads are at the recording's end */
};

struct hunt_where {
    bool found;
    char text[HUNT_TEXT]; /* "signal 11 at 0x8 in add+0x12 (app) < main+0x8 (app)"; no addresses
                             that another run would have otherwise */
};

/* apart_ask() (cmd/apart.h) about that recording. */
int hunt_ask(const char *dir, void (*find)(const void *question, void *answer),
             const void *question, void *answer, size_t size, struct err *err);

int hunt_look_end(const char *dir, struct hunt_end *out, struct err *err);
/* `begin`: what was before is not looked at; NULL: from power-on, which takes as long as the
 * recording. `program`: the file that was run, for HUNT_STANDS. */
int hunt_look_where(const char *dir, enum hunt_wanted wanted, const struct instant *begin,
                    const char *program, struct hunt_where *out, struct err *err);

#endif
