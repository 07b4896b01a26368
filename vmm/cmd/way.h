/* How far a replay is on its way to a point: a line on stderr, when that is a terminal and it takes
 * more than a moment. */
#ifndef REPRISE_CMD_WAY_H
#define REPRISE_CMD_WAY_H

#include "machine/machine.h"

struct way {
    bool shown; /* there is a terminal */
    bool drawn;
    u64 next; /* host time */
};

void way_begin(struct way *w);
/* It sets out for another point. */
void way_again(struct way *w);
/* Every few ms. */
void way_look(struct way *w, const struct machine *m, pos_t position, pos_t end);
/* Removes the line before something else is printed. */
void way_quiet(struct way *w);

#endif
