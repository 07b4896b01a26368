/*
 * Conditions of watchpoints, for gdb, which sees only the hits for which they are true.
 *
 * gdb compares a watched value with the one that it saw last and takes a hit that leaves it equal
 * for none. So before a hit it is shown the one before that, whose condition is false: it reads
 * the value there, and goes on by itself. A run may end elsewhere between the two (inside of gdb's
 * `next`): then the next run begins with a stop at the watchpoint.
 */
#ifndef REPRISE_CMD_WATCH_H
#define REPRISE_CMD_WATCH_H

#include "replay/gdb/gdb.h"
#include "replay/timeline.h"

/* A watchpoint of which gdb does not know the last hit. */
struct watch_missed {
    struct gdb_point point; /* without conditions */
    u64 address;
};

struct watch {
    bool on; /* in this run */
    struct watch_missed *list;
    size_t n, room;
};

/* A run begins: are conditions looked at? Not in single steps, which stop anyway. */
void watch_begin(struct watch *w, bool on);
/* Is the i-th point's condition the server's to evaluate? Not where another point has a share in
 * what is watched: of one access only one hit is seen, and gdb then looks at both. */
bool watch_decides(const struct watch *w, const struct gdb_point *points, size_t n, size_t i);
/* gdb has to be shown the i-th point's: false where it misses nothing. */
bool watch_take(struct watch *w, const struct gdb_point *point, u64 *address);
/* It was not shown this hit. */
int watch_miss(struct watch *w, const struct gdb_point *point, u64 address, struct err *err);
void watch_seen(struct watch *w); /* all of them */
void watch_free(struct watch *w); /* safe on zeros */

#endif
