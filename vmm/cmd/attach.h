/*
 * gdb attached to a machine while it is recorded (`record --gdb`). The machine stops between
 * instructions, which is nowhere in the log; host time passes meanwhile, as when a laptop sleeps.
 * Memory and registers are read only: what a debugger changed would not be in the recording.
 */
#ifndef REPRISE_CMD_ATTACH_H
#define REPRISE_CMD_ATTACH_H

#include "cmd/cmd.h"
#include "cpu/engine.h"
#include "replay/recorder.h"
#include "inspect/process.h"

struct attach;
struct gdb_point;
struct gdb_process;
struct gdb_stop;

void gdb_process_of(const struct process *r, struct gdb_process *out);

/* The stub's points and hits in the engine's terms (debug.c). */
struct debug_point debug_point_of(const struct gdb_point *p);
void gdb_stop_of(const struct gdb_point *p, u64 address, struct gdb_stop *stop);

/* Said where a server is open to whoever connects. */
#define GDB_OPEN_WARNING                                                                           \
    "reprise: warning: whoever can connect there can read and change the guest\n"

/* What gdb's server has to say to the user (struct gdb_target). */
void gdb_warn(void *opaque, const char *text);

/* Listens; `endpoint`: see gdb_server_create. */
int attach_create(struct attach **out, const char *endpoint, struct err *err);
/* The machine, before it runs; the recorder, for marks. */
void attach_begin(struct attach *a, struct machine *m, struct recorder *r);
const char *attach_address(const struct attach *a);
bool attach_open_to_all(const struct attach *a);
/* For the live input: gdb wants something. */
bool attach_wants(void *attach);
unsigned attach_fds(void *attach, int fds[2]);
/* The run ended with RUN_STOP or RUN_DEBUG: serves gdb until it lets the machine go on, with
 * *limits. <0 with a text when the host fails. */
int attach_stopped(struct attach *a, const struct run_end *end, struct run_limits *limits,
                   struct err *err);
/* The machine has ended: tells gdb. */
void attach_ended(struct attach *a, const struct run_end *end);
void attach_destroy(struct attach *a); /* NULL is safe */

#endif
