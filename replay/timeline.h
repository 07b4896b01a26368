/*
 * A recording opened for going anywhere in it: a machine that is moved to any instant, forwards by
 * replaying and backwards by restoring a checkpoint and replaying from there. Checkpoints come from
 * the recording's files and are taken in memory on the way, thinned out within a budget.
 *
 * An instant is a position and a virtual time. Being at an instant means: everything due then has
 * been applied (deadlines, inputs), the next instruction, delivery or idle wait comes next.
 */
#ifndef REPRISE_TIMELINE_H
#define REPRISE_TIMELINE_H

#include "cpu/engine.h"
#include "replay/checkpoint.h"
#include "replay/kept.h"
#include "replay/opened.h"

struct timeline;

/* What the hit of a debug point is to who set it. */
enum timeline_verdict {
    TIMELINE_COUNTS,
    TIMELINE_IGNORED,
    TIMELINE_SKIPPED,  /* but for a condition it would count: timeline_skipped() has the last */
    TIMELINE_IN_FRONT, /* answer to AFTER: it is the state in front of the access that says */
};
/* Where the machine stands when that is asked. */
enum timeline_side {
    TIMELINE_FORWARDS, /* where it would stop */
    TIMELINE_AFTER,    /* in a search backwards: a point of data after the access */
    TIMELINE_THERE,    /* in a search backwards: in front of the access, asked again */
};

struct timeline_config {
    enum engine_kind engine;
    u64 code_cache;                 /* opened.h */
    const struct disk_named *named; /* opened.h */
    u64 memory; /* bytes that checkpoints may take; 0: a quarter of the free memory */
    bool ignore_files;
    bool trust;      /* checkpoint files of whoever made them are believed */
    bool told;       /* the user knows that some are not believed */
    bool once;       /* nobody goes back: no checkpoints are taken on the way */
    bool make_files; /* for timeline_write_checkpoints(): those that are there are not read */
    /* Something the user should know that does not stop the work (a damaged checkpoint). */
    void (*warn)(void *opaque, const char *text);
    /* Every few ms of a long run, with the position; true ends it: TIMELINE_INTERRUPTED. */
    bool (*poll)(void *opaque, pos_t position);
    /* A debug point was hit. NULL: all count. */
    enum timeline_verdict (*holds)(void *opaque, unsigned point, enum timeline_side side);
    void *opaque;
};

int timeline_open(struct timeline **out, const char *dir, const struct timeline_config *config,
                  struct err *err);
void timeline_close(struct timeline *t); /* NULL is safe */

struct machine *timeline_machine(struct timeline *t);
const struct opened *timeline_recording(const struct timeline *t);
/* Disk n of it, as the machine reads it. */
struct disk *timeline_disk(struct timeline *t, unsigned n);
struct instant timeline_now(const struct timeline *t);
/* The last instant that can be reached; ended: how the recording ends, NULL while unknown. */
struct instant timeline_end(const struct timeline *t);
/* The machine stands at the end of the recording; *end says how it ended. */
bool timeline_at_end(const struct timeline *t, struct run_end *end);
/* "" or why the recording ends (or cannot be replayed any further) there. */
const char *timeline_end_text(const struct timeline *t);
/* What the replay was found to be at its end; report: several lines about a divergence, or "". */
enum player_result timeline_result(const struct timeline *t);
const char *timeline_report(const struct timeline *t);
const struct log_summary *timeline_summary(const struct timeline *t);
/* Parts of the guest's files that the recording has. */
struct kept *timeline_kept(struct timeline *t);

enum timeline_stop {
    TIMELINE_REACHED,
    TIMELINE_HIT,         /* a debug point: timeline_hit() */
    TIMELINE_END,         /* the recording's end, or where it stops being replayable */
    TIMELINE_BEGIN,       /* backwards: power-on */
    TIMELINE_INTERRUPTED, /* forwards: stays where it is; seek: returned; backwards: where the
                             search had come to, that is, nothing was hit since then */
};

/* Moves to the first instant that is not before `to` in position, nor in time. */
int timeline_seek(struct timeline *t, struct instant to, enum timeline_stop *stop, struct err *err);

/* Debug points for the two below; copied. */
int timeline_set_points(struct timeline *t, const struct debug_point *points, unsigned n,
                        struct err *err);
/* Those that are set; valid until others are. */
const struct debug_point *timeline_points(const struct timeline *t, unsigned *n);
/* Runs until a debug point is hit or `to` is reached (position NEVER: the end). With `pass`, the
 * instruction at the present position is not stopped at. */
int timeline_forward(struct timeline *t, struct instant to, bool pass, enum timeline_stop *stop,
                     struct err *err);
/* To the last hit before now: in front of the instruction, for data in front of the one that
 * accessed it. */
int timeline_backward(struct timeline *t, enum timeline_stop *stop, struct err *err);
/* The same where the hit may be very near, and many lie before it. */
int timeline_backward_near(struct timeline *t, enum timeline_stop *stop, struct err *err);
/* While that runs: how many of the positions before `from` have been searched. False: it does not.
 */
bool timeline_searching(const struct timeline *t, pos_t *from, pos_t *searched);
/* To an instant that one of these has passed just now; not interrupted. */
int timeline_return(struct timeline *t, struct instant to, struct err *err);
/* One position back. */
int timeline_step_back(struct timeline *t, enum timeline_stop *stop, struct err *err);
const struct debug_hit *timeline_hit(const struct timeline *t);
/* The hit of that point that the last of these two moves skipped last: where it would have stopped
 * for it, and the byte. False: none. */
bool timeline_skipped(const struct timeline *t, unsigned point, struct instant *at, u64 *address);

/*
 * A branch: from here the machine may be changed; it runs on without the log, and goes forwards
 * only, until timeline_back() drops it and returns to where it began.
 */
int timeline_branch(struct timeline *t, struct err *err);
bool timeline_branched(const struct timeline *t);
int timeline_back(struct timeline *t, struct err *err);

/* All output of a channel known so far, from power-on, also of instants after the present one.
 * *now: how much had been printed at the present instant. */
const char *timeline_output(const struct timeline *t, enum dev_output channel, size_t *known,
                            size_t *now);
/* Moves to where the k-th (from 1) `text` had just been printed on the console. */
int timeline_seek_text(struct timeline *t, const char *text, size_t len, u64 k,
                       enum timeline_stop *stop, struct err *err);

/* Moves to where the n-th frame (from 1) had just been shown on the screen. */
int timeline_seek_frame(struct timeline *t, u64 n, enum timeline_stop *stop, struct err *err);

/* A checkpoint of the present instant, kept in memory. */
int timeline_checkpoint(struct timeline *t, struct err *err);

struct timeline_stats {
    unsigned checkpoints, files; /* in memory; on disk */
    u64 memory, budget, disk;    /* bytes */
};
void timeline_stats(const struct timeline *t, struct timeline_stats *out);
/* The i-th checkpoint in memory, in order of time. */
const struct checkpoint *timeline_checkpoint_at(const struct timeline *t, unsigned i);

/* Replays all of it and writes a checkpoint file each `every_ns` of host time, replacing those
 * that are there. *not_noted: why they will not be believed later; code 0: they will. */
int timeline_write_checkpoints(struct timeline *t, u64 every_ns, u32 *files, u64 *bytes,
                               struct err *not_noted, struct err *err);

#endif
