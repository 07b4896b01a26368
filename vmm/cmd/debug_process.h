/*
 * The process that gdb is shown instead of the machine (`reprise gdb --process`): what gdb's
 * server asks of it, by inspect/program.h. Points at user addresses and steps are this process's.
 */
#ifndef REPRISE_CMD_DEBUG_PROCESS_H
#define REPRISE_CMD_DEBUG_PROCESS_H

#include "cmd/debug_step.h"
#include "inspect/program_file.h"

/* Answers of one to the server. */
void debug_process_serve(struct gdb_target *t);
/* --process without --to, at the recording's end: where it does not live there, goes to where its
 * program begins (exec:NAME#K; of a number its last program) and puts its number to *now; else
 * *now is "". Says on stderr where that is. */
int debug_process_seek(struct travel *tr, const char *spec, char now[16], struct err *err);
/* --process NAME or NAME#K at --to exec:NAME#K: the one that begins there, whose number goes to
 * *now. Other words: *now is as it was. */
void debug_process_begun(struct travel *tr, const struct point *to, const char *spec, char now[16]);
/* "PID" or "NAME[#K]", where the machine stands. <0 with a text. */
int debug_process_open(struct debug_session *s, const char *spec, struct err *err);
/* `monitor process SPEC`, "" for `monitor kernel`: gdb has to come again for it. <0 with a text. */
int debug_process_next(struct debug_session *s, const char *spec, struct err *err);
/* gdb has left: what the next one is shown. */
void debug_process_switch(struct debug_session *s);
void debug_process_close(struct debug_session *s);

/* The file that it runs, as the guest says: its path ("": not known), and its build ID in the guest
 * (size 0: none, or not known), for which the machine may have to run on, and is put back. <0 with
 * a text. */
int debug_process_file(struct debug_session *s, char path[PROGRAM_PATH_MAX], struct elf_id *id,
                       struct err *err);

/* Is gdb shown one? */
static inline bool debug_process_on(const struct debug_session *s)
{
    return s->shown.program.pid != 0;
}
/* It, where the machine stands now. */
const struct program *debug_process_look(struct debug_session *s);
/* What tells the program that it runs from the one before: the address of its memory in the kernel;
 * 0: it has none, or no process is shown. */
u64 debug_process_space(struct debug_session *s);
/* Does it, one of its threads, run here? `now` says who does. */
bool debug_process_is(const struct debug_session *s, const struct process *now);
/* Its thread of that number, as whom steps know: false if there is none here. */
bool debug_process_thread(struct debug_session *s, i32 id, struct process *out);
/* Its registers in ring 3; false: not known. */
bool debug_process_registers(struct debug_session *s, i32 id, struct vcpu *out);
/* A stop is of that thread; 0: of the one that runs, else of the one before. */
void debug_process_stopped(struct debug_session *s, i32 id);

#endif
