/*
 * What a hunt knows of its runs: which are done, and what kinds of outcomes there were. One line of
 * text a fact, and the XXH3-64 of all lines before in the last one:
 *
 *     reprise-hunt 1
 *     what TEXT               the hunt's command, without what may change when it goes on
 *     seed N                  that of run 0; each has the one of the run before it plus 1
 *     spent MS                host time of all that has gone on so far
 *     failed N                runs of which there is no recording
 *     done A B                runs A to B (B included) have ended; ascending, apart
 *     kind N FIRST FOUND KEPT TEXT
 *                             N runs ended so, of which FIRST is the lowest; 1 or 0: --stop-on
 *                             means it; that one's recording is kept
 *     sum HEX
 *
 * A run's own result is such a file, too, with one run: so results are put together in one way,
 * whoever has run it and wherever.
 */
#ifndef REPRISE_CMD_HUNT_STATE_H
#define REPRISE_CMD_HUNT_STATE_H

#include <stdio.h>

#include "base/err.h"

#define HUNT_KIND_MAX  400u          /* bytes of a kind's text, with the NUL */
#define HUNT_KINDS     1000u         /* all others are one */
#define HUNT_WHAT_MAX  (1u << 20)    /* bytes of `what` */
#define HUNT_STATE_MAX (64u << 20)   /* bytes of the file */
#define HUNT_RUNS_MAX  (1ull << 40)  /* numbers of runs are below */
#define HUNT_OTHERS    "other kinds" /* the kind of those beyond HUNT_KINDS */

struct hunt_range {
    u64 first, last;
};

struct hunt_kind {
    char text[HUNT_KIND_MAX];
    u64 count, first;
    bool found, kept;
};

struct hunt_state {
    char *what; /* NULL: "" */
    u64 seed, spent_ms, failed;
    struct hunt_range *done; /* ascending, with gaps between */
    size_t ndone, done_room;
    struct hunt_kind *kinds; /* in the order in which they came */
    size_t nkinds, kinds_room;
};

void hunt_state_free(struct hunt_state *s); /* safe on zeros */

/* Reads `size` bytes into *s, which is empty after an error: -EINVAL, or -ENOTSUP where a later
 * version wrote it. */
int hunt_state_parse(struct hunt_state *s, const char *data, size_t size, struct err *err);
/* malloc'ed, *size bytes; NULL: no memory. */
char *hunt_state_text(const struct hunt_state *s, size_t *size);

/* The file of that name in the directory `dir`; -ENOENT: there is none. */
int hunt_state_read(struct hunt_state *s, int dir, const char *name, struct err *err);
/* Replaces it, at once or not at all. */
int hunt_state_write(const struct hunt_state *s, int dir, const char *name, struct err *err);

bool hunt_state_has(const struct hunt_state *s, u64 run);
u64 hunt_state_runs(const struct hunt_state *s);
/* The first run from `from` on that is not done. */
u64 hunt_state_next(const struct hunt_state *s, u64 from);
/* -EINVAL: it is done already. */
int hunt_state_done(struct hunt_state *s, u64 run, struct err *err);
/* One run more of that kind, which is made if there is none; NULL: no memory. */
struct hunt_kind *hunt_state_count(struct hunt_state *s, const char *text, bool found, u64 run);
/* Kinds that --stop-on means, and runs that ended so. */
u64 hunt_state_found(const struct hunt_state *s, u64 *runs);

#endif
