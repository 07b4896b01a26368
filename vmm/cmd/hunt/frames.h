/* Where in a recording a run failed, in words that another run that fails alike would have, too:
 * the signature by which a hunt tells kinds of failures apart. */
#ifndef REPRISE_CMD_HUNT_FRAMES_H
#define REPRISE_CMD_HUNT_FRAMES_H

#include "cmd/hunt/look.h"
#include "cmd/travel.h"

/* As hunt_look_where(); `tr` is a recording that was just opened. Not found: 0. */
int frames_find(struct travel *tr, enum hunt_wanted wanted, const struct instant *begin,
                const char *program, struct hunt_where *out, struct err *err);

#endif
