/* A run that gdb asks for, on a recording. */
#ifndef REPRISE_CMD_DEBUG_RUN_H
#define REPRISE_CMD_DEBUG_RUN_H

#include "cmd/debug_step.h"

/* `r` is an action that runs. Goes there; *stop says why it ended. <0: the host failed. */
int debug_run(struct debug_session *s, const struct gdb_resume *r, struct gdb_stop *stop,
              struct err *err);

#endif
