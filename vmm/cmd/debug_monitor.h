/* gdb's `monitor` commands on a recording: a function and a row of the table for each. */
#ifndef REPRISE_CMD_DEBUG_MONITOR_H
#define REPRISE_CMD_DEBUG_MONITOR_H

#include <stdio.h>

#include "cmd/debug_step.h"

/* Runs `command` (the name and perhaps an argument) and prints to `out` what it says. */
enum gdb_monitor debug_monitor(struct debug_session *s, const char *command, FILE *out);

#endif
