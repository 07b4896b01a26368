/* What `reprise debug` shows: found in what happened to the recording's processes. */
#ifndef REPRISE_CMD_DEBUG_TARGET_H
#define REPRISE_CMD_DEBUG_TARGET_H

#include "cmd/travel.h"

/* Of a recording with its history (travel_with): the process that crashed first, else the only one
 * that process 1 began, as that of `reprise run` does; *to: where it crashed or ended, or the
 * recording's end. Says on stderr which. -ESRCH with a text: there is none. */
int debug_target_find(struct travel *tr, struct point *to, i32 *pid, struct err *err);

#endif
