/* What a run has come to, as a line that runs which ended alike have the same of: the kind that a
 * hunt counts it as. */
#ifndef REPRISE_CMD_HUNT_OUTCOME_H
#define REPRISE_CMD_HUNT_OUTCOME_H

#include "cmd/hunt/look.h"
#include "cmd/hunt/options.h"
#include "cmd/hunt/state.h"
#include "cmd/run.h"

struct hunt_run {
    const char *recording;
    int dir; /* where its `out` and `err` are: what it printed */
    struct hunt_end end;
    struct run_outcome program; /* of `run` */
};

struct hunt_outcome {
    char kind[HUNT_KIND_MAX];
    bool found; /* --stop-on means it */
};

/* A look that fails is said in the kind. */
void hunt_outcome(const struct hunt_args *a, const struct hunt_run *r, struct hunt_outcome *out);

/* The first place of a file from `from` on where `text` (not empty) is, and the line around it. */
bool outcome_find_text(int fd, u64 from, const char *text, u64 *found_at, char out[HUNT_TEXT]);

#endif
