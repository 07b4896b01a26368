/*
 * Signals that commands notice instead of dying of them: Ctrl-C while a recording is replayed, and
 * what ends a session of gdb. A process has one of each.
 */
#ifndef REPRISE_CMD_INTERRUPT_H
#define REPRISE_CMD_INTERRUPT_H

#include <signal.h>
#include <stdbool.h>

/* Ctrl-C is noted, and only that; a second one ends the process. */
void interrupt_catch(void);
/* Ctrl-C is not ours; one that was noted is forgotten. */
void interrupt_ignore(void);
/* Has one been noted? Never without interrupt_catch(). */
bool interrupted(void);

struct gdb_server;

/* Begins a session: no signal has ended it. One that does wakes `server`. `child`: the process of
 * the gdb that we started, 0: none. */
void session_begin(struct gdb_server *server, int child);
/* From here on the signal ends the session. SIGCHLD: only where it is `child` that has ended.
 * *before gets what it did, if not NULL. */
void session_ends_on(int sig, struct sigaction *before);
/* The signal that has ended it; 0: none. */
int session_ended_by(void);
/* The server is going: nobody is woken any more. */
void session_wakes_none(void);

#endif
