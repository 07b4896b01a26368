/*
 * The input source: the one interface through which anything enters the machine. Live when
 * recording (terminal, signals), the log when replaying; no device and no part of the machine
 * knows which. The run loop asks at every stop; an input applies at exactly that position.
 */
#ifndef REPRISE_MACHINE_SOURCE_H
#define REPRISE_MACHINE_SOURCE_H

#include "base/err.h"
#include "base/types.h"
#include "dev/input.h"

struct machine;

struct input_source;

struct input_source_ops {
    /*
     * The next position at which the machine must stop and call take(), as far as known now:
     * replay gives the next record's; a live source gives NEVER and is asked at every slice end.
     */
    pos_t (*next_position)(struct input_source *src, struct machine *m);
    /*
     * Takes the next input that applies at this very instant (machine_position, machine_now).
     * 1: *in filled; 0: none now; <0: error or divergence, with text: the run ends.
     * Called until it returns 0. Also the place where progress is recorded and verified.
     */
    int (*take)(struct input_source *src, struct machine *m, struct input *in, struct err *err);
    /*
     * The machine is idle (halted) until virtual time `deadline` (NEVER: until an input). Live:
     * waits in host time when paced. Replay: never waits unless asked to pace. Sets *until, now <=
     * *until <= deadline: the virtual time to go on from. If something is to be taken before the
     * deadline then *until < deadline. 0, or 1: nothing will ever come (only when deadline is
     * NEVER), or <0 error.
     */
    int (*idle)(struct input_source *src, struct machine *m, vns_t deadline, vns_t *until,
                struct err *err);
    /*
     * The guest executes without end and nothing counts (ENGINE_BETWEEN): 1: *in is an INPUT_PLACE,
     * so that time passes and it can be interrupted; 0: it is to go on. NULL: it always is.
     */
    int (*between)(struct input_source *src, struct machine *m, struct input *in, struct err *err);
    /* Will idle() wait for the host now, up to `deadline`? NULL: it never does. */
    bool (*waits)(struct input_source *src, vns_t deadline);
};

struct input_source {
    const struct input_source_ops *ops;
};

static inline bool input_source_waits(struct input_source *src, vns_t deadline)
{
    return src->ops->waits && src->ops->waits(src, deadline);
}

#endif
