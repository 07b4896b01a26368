/* One run of a hunt, in a process of its own: recorded, looked at, its result written. */
#ifndef REPRISE_CMD_HUNT_ONE_H
#define REPRISE_CMD_HUNT_ONE_H

#include "cmd/hunt/options.h"
#include "cmd/hunt/place.h"

/* Starts it; its end is the process' end, and then place.h says whether it is done. -1 with *err.
 */
pid_t hunt_one_start(const struct hunt_args *a, const struct hunt_place *p, u64 run,
                     struct err *err);

#endif
