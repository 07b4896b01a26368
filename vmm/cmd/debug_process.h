/*
 * The process that gdb is shown instead of the machine (`reprise gdb --process`): what gdb's
 * server asks of it, by inspect/program.h. Points at user addresses and steps are this process's.
 */
#ifndef REPRISE_CMD_DEBUG_PROCESS_H
#define REPRISE_CMD_DEBUG_PROCESS_H

#include "cmd/debug_step.h"

/* Answers of one to the server. */
void debug_process_serve(struct gdb_target *t);
/* "PID" or "NAME[#K]", where the machine stands. <0 with a text. */
int debug_process_open(struct debug_session *s, const char *spec, struct err *err);
void debug_process_close(struct debug_session *s);

/* Is gdb shown one? */
static inline bool debug_process_on(const struct debug_session *s)
{
    return s->shown.program.pid != 0;
}
/* A run begins: where the process ends or executes another program is met too. */
int debug_process_arm(struct debug_session *s, struct err *err);
/* The hit of one of those. */
bool debug_process_holds(struct debug_session *s, unsigned point);
/* The run ended at one of those: goes to where gdb can look, and says what it is. */
int debug_process_event(struct debug_session *s, bool back, enum timeline_stop *what,
                        struct gdb_stop *stop, struct err *err);
/* Does it, one of its threads, run here? `now` says who does. */
bool debug_process_is(const struct debug_session *s, const struct process *now);
/* Its thread of that number, as whom steps know: false if there is none here. */
bool debug_process_thread(struct debug_session *s, i32 id, struct process *out);
/* Its registers in ring 3; false: not known. */
bool debug_process_registers(struct debug_session *s, i32 id, struct vcpu *out);
/* A stop is of that thread; 0: of the one that runs, else of the one before. */
void debug_process_stopped(struct debug_session *s, i32 id);

#endif
