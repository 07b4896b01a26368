/*
 * A hunt's directory:
 *
 *     state            state.h
 *     lock             locked while a hunt goes on here
 *     seed-S           the recording of the run with seed S, the first of its kind
 *     base             with --from: what the runs begin in
 *     run-N-HOST-PID   run N, while it goes on: rec, its recording; out and err, what it printed
 *     tasks            what tasks of a cluster said
 *     done-N           the same once it has ended, with `result`, a state of that one run
 *
 * A run is done when its directory has got that name, whoever has run it; the hunt then takes it
 * into its state.
 */
#ifndef REPRISE_CMD_HUNT_PLACE_H
#define REPRISE_CMD_HUNT_PLACE_H

#include "cmd/hunt/state.h"

#define HUNT_STATE  "state"
#define HUNT_RESULT "result"
#define HUNT_RUN    "run-"
#define HUNT_DONE   "done-"
#define HUNT_TASKS  "tasks"

struct hunt_place {
    char *path; /* absolute */
    int dir, lock;
};
#define HUNT_PLACE_CLOSED                                                                          \
    (struct hunt_place)                                                                            \
    {                                                                                              \
        .dir = -1, .lock = -1                                                                      \
    }

/* Makes or opens it. `locks`: for the hunt itself; -EBUSY: another one goes on here. */
int hunt_place_open(struct hunt_place *p, const char *path, bool locks, struct err *err);
void hunt_place_close(struct hunt_place *p); /* safe on a closed one */

/* Removes what runs left that were not done. Recordings that are still being made stay. */
void hunt_place_clean(const struct hunt_place *p);
bool hunt_place_is_done(const struct hunt_place *p, u64 run);
/* Takes a run that is done into the state, keeps or removes its recording. Of a run that failed
 * `why` gets what it said last, else it is "". <0: nothing was taken, or the state is not
 * written. */
int hunt_place_take(const struct hunt_place *p, struct hunt_state *s, u64 run, char *why,
                    size_t size, struct err *err);
struct hunt;
/* Calls `take` for all that are done. */
void hunt_place_each_done(const struct hunt_place *p, void (*take)(struct hunt *h, u64 run),
                          struct hunt *h);
/* "DIR/seed-17", malloc'ed. NULL: no memory. */
char *hunt_place_kept(const struct hunt_place *p, const struct hunt_state *s,
                      const struct hunt_kind *k);

#endif
