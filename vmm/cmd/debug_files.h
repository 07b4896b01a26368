/*
 * The files that gdb reads of the guest (vFile packets) while it is shown a process: /proc/PID of
 * it, and what it has mapped, by its names. They are made of the guest's memory; no name of gdb's
 * is ever opened on this host.
 */
#ifndef REPRISE_CMD_DEBUG_FILES_H
#define REPRISE_CMD_DEBUG_FILES_H

#include "cmd/debug_process.h"

/* Answers of one to the server. */
void debug_files_serve(struct gdb_target *t);

#endif
