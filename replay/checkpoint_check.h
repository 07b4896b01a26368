/*
 * Compares a recording's checkpoint files with a replay of it from power-on: an input source
 * between the player and the machine, which stops at their instants. Compared is all that somebody
 * who goes on from there would have: the machine's state, what it had printed, the pages that a
 * file has, and that it has all that changed. What was right is noted (checkpoint_notes.h).
 *
 * Called by `reprise verify`.
 */
#ifndef REPRISE_CHECKPOINT_CHECK_H
#define REPRISE_CHECKPOINT_CHECK_H

#include "replay/checkpoint.h"
#include "replay/opened.h"

struct checkpoint_check;

/* The machine, of `o`, is at power-on. `notes`, open to be added to, or NULL, outlive it. A
 * recording without checkpoints has nothing wrong with them. */
int checkpoint_check_create(struct checkpoint_check **out, const struct opened *o,
                            struct player *player, struct checkpoint_notes *notes,
                            struct machine *m, struct err *err);
/* For machine_run(), in the place of the player's. */
struct input_source *checkpoint_check_source(struct checkpoint_check *c);
/* What the machine prints, all of it. */
void checkpoint_check_output(struct checkpoint_check *c, enum dev_output channel, const void *data,
                             size_t len);

struct checkpoint_verdict {
    u32 files;        /* that were to be compared */
    u32 same;         /* from the first on */
    bool differs;     /* the next one is not what the replay came to; else it could not be read */
    struct err wrong; /* why the rest was not compared; code 0: there is none */
    struct err not_noted; /* code 0: what was right is noted */
};
/* After the run. `whole`: it came to the end of the recording. */
void checkpoint_check_finish(struct checkpoint_check *c, bool whole,
                             struct checkpoint_verdict *out);
void checkpoint_check_destroy(struct checkpoint_check *c); /* NULL is safe */

#endif
