/*
 * What happens to the process that gdb is shown, seen by the functions of its kernel: it ends, runs
 * another program, makes processes, calls the system, gets signals.
 */
#ifndef REPRISE_CMD_DEBUG_EVENTS_H
#define REPRISE_CMD_DEBUG_EVENTS_H

#include "cmd/debug_process.h"

/* Answers of one to the server. */
void debug_events_serve(struct gdb_target *t);
/* Nothing is caught any more: gdb has left. */
void debug_events_reset(struct debug_session *s);
/* A run begins: what happens to the process is met too. */
int debug_events_arm(struct debug_session *s, const struct gdb_resume *r, bool back,
                     struct err *err);
/* The hit of one of those. */
bool debug_events_hold(struct debug_session *s, unsigned point);
/* Has the stop here been one of them? A run on passes it. */
bool debug_events_here(const struct debug_session *s);
/* The run ended at one of those: goes to where gdb can look, and says what it is. True in *told:
 * stop->reason says it, else *what with a text. */
int debug_events_met(struct debug_session *s, bool back, enum timeline_stop *what,
                     struct gdb_stop *stop, bool *told, struct err *err);
/* Where the machine stands a signal ends the process: what gdb is told first. */
bool debug_events_signal(struct debug_session *s, struct gdb_stop *stop);
/* gdb runs the process of that number: of the two that it knows after a fork. */
void debug_events_follow(struct debug_session *s, i32 process);

#endif
