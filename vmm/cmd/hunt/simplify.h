/*
 * What the parts of `reprise simplify` share: runs of a recording with turns by a file
 * (simplify.c), and the search for a few turns that do (simplify_search.c).
 */
#ifndef REPRISE_CMD_HUNT_SIMPLIFY_H
#define REPRISE_CMD_HUNT_SIMPLIFY_H

#include <stddef.h>

#include "cmd/hunt/look.h"

#define SIMPLIFY_SHARES 4u

struct simplify {
    const char *dir;
    const char *stop_on; /* what is printed where it fails; NULL: how it ends says it */
    const char *output, *share[SIMPLIFY_SHARES];
    unsigned nshares;
    u64 most, runs; /* runs, and how many there were */
    struct hunt_end end;
    char *work, *rec, *turns, *given; /* a directory of its own, and what is in it */
    char at[32], chaos[48];
    bool delays; /* are needed */
};

/* Turns, a line each, as in a file of them. */
struct turn_list {
    char **line;
    size_t n;
};

/* Runs it again, without chaos where `chaos` says so, with the turns of s->turns if `turns`: s->rec
 * is the recording. *same: it failed as the one that is made simpler did. */
int simplify_run(struct simplify *s, const char *chaos, bool turns, bool *same, struct err *err);
/* s->rec goes. */
int simplify_drop(struct simplify *s, struct err *err);

/*
 * Looks for a few turns that do, fewer than *l and three at most, in runs without chaos: at the
 * places where vCPUs had their turn taken away in `best`, whose turns *l are. *found: s->rec is the
 * recording of such a run.
 */
int simplify_search(struct simplify *s, const struct turn_list *l, const char *best, bool *found,
                    struct err *err);
/* How many there are, for who waits. */
void simplify_progress(const struct simplify *s, size_t turns);

#endif
