/* A hunt that goes on: what its parts share. hunt.c begins and ends it, local.c has runs on this
 * host, slurm.c on a cluster, table.c shows it. */
#ifndef REPRISE_CMD_HUNT_HUNT_H
#define REPRISE_CMD_HUNT_HUNT_H

#include "cmd/hunt/options.h"
#include "cmd/hunt/place.h"

struct hunt {
    const struct hunt_args *a;
    struct hunt_place place;
    struct hunt_state state;
    int signals;      /* SIGCHLD and those that end it, as a signalfd */
    unsigned asked;   /* so often somebody wanted it to end */
    u64 began;        /* host time */
    u64 spent_before; /* ms, of the times before this one */
    u64 done_here;    /* runs since then */
    unsigned running;
    unsigned failed_in_a_row;
    char failure[1024]; /* what the last run that failed said */
    struct err err;     /* why it cannot go on; code 0: it can */
    unsigned drawn;     /* lines of the table on the terminal */
};

/* Is enough done, or can it not go on? Then no more runs are begun. */
bool hunt_over(const struct hunt *h);
/* Takes what is done into the state, with all that follows from it. */
void hunt_take(struct hunt *h, u64 run);
/* The first run from `from` on that is to be done; HUNT_RUNS_MAX: none. */
u64 hunt_next(const struct hunt *h, u64 from);
/* Reads signals that came, after at most `ms`. */
void hunt_wait(struct hunt *h, int ms);

/* Until it is over. */
void hunt_local(struct hunt *h);
void hunt_slurm(struct hunt *h);
/* --task: exit code. */
int hunt_task(const struct hunt_args *a, const struct hunt_place *p);

/* The table as it is now, on a terminal only. */
void hunt_draw(struct hunt *h);
void hunt_undraw(struct hunt *h);
/* ... and at the end, on standard output. */
void hunt_print(const struct hunt *h);
void hunt_print_json(const struct hunt *h);

#endif
