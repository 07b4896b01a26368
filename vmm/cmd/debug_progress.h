/* What takes long in gdb's session says how far it is, which also keeps a connection alive. */
#ifndef REPRISE_CMD_DEBUG_PROGRESS_H
#define REPRISE_CMD_DEBUG_PROGRESS_H

#include "cmd/debug_step.h"

/* What gdb waits for begins: a monitor command, which prints on `out`, or a run (NULL). */
void progress_begin(struct debug_session *s, FILE *out);
void progress_end(struct debug_session *s);
/* Of a struct debug_session: shows how far it is; true: it is to end. The second while gdb waits
 * for the answer to a command and sends nothing. */
bool progress_poll(void *opaque);
bool progress_poll_signals(void *opaque);

#endif
